//! The component on a real store, with a BIRD that only checks files, and with a scripted one.

use anyhow::{Context as _, Result, bail};
use confd::cli::Arguments;
use daemon::{ShutdownHandle, Variables};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::{Bird, Etcd, Folder};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;

use crate::capture::{Capture, Fact};

const PATIENCE: Duration = Duration::from_secs(60);

struct Site {
    etcd: Etcd,
    folder: Folder,
}

impl Site {
    fn new() -> Result<Self> {
        Ok(Self { etcd: Etcd::start()?, folder: Folder::new("component")? })
    }

    fn environment(&self, path: &Path) -> Variables {
        Variables::new([
            ("NODENAME", "n1".to_owned()),
            ("DATASTORE_TYPE", "etcdv3".to_owned()),
            ("ETCD_ENDPOINTS", self.etcd.endpoint()),
            ("PATH", path.display().to_string()),
            ("CALICO_ENDPOINT_STATUS_PATH_PREFIX", self.folder.path().display().to_string()),
        ])
    }

    fn arguments(&self, run_once: bool) -> Arguments {
        Arguments {
            run_once,
            keep_stage_file: false,
            confdir: self.folder.path().join("confd"),
            run_dir: self.folder.path().join("run"),
            calicoconfig: None,
        }
    }

    async fn client(&self) -> Result<client::Client> {
        let variables = self.environment(Path::new("/"));
        let config = client::config::ClientConfig::load(None, &variables)?;
        Ok(client::Client::new(client::open_backend(&config).await?))
    }

    /// Writes the objects of a capture.
    async fn fill(&self, capture: &Capture) -> Result<()> {
        let variables = self.environment(Path::new("/"));
        let config = client::config::ClientConfig::load(None, &variables)?;
        let backend = client::open_backend(&config).await?;
        for fact in capture.facts()? {
            let (key, value) = match fact {
                Fact::Resource(key, resource) => {
                    (model::Key::Resource(key), model::Value::Resource(*resource))
                }
                Fact::Affinity(key, affinity) => {
                    (model::Key::BlockAffinity(key), model::Value::BlockAffinity(affinity))
                }
                _ => continue,
            };
            backend.apply(&model::KvPair::new(key, value)).await?;
        }
        Ok(())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("confd/config").join(name)
    }
}

#[tokio::test]
async fn run_once_writes_what_calico_writes() -> Result<()> {
    let site = Site::new()?;
    let capture = Capture::numbered("03")?;
    site.fill(&capture).await?;
    let bird = Bird::one()?;
    let environment = site.environment(bird.v4.parent().context("a folder")?);
    let (_handle, shutdown) = ShutdownHandle::new();
    confd::run(&site.arguments(true), &environment, shutdown).await?;
    for name in confd::for_tests::FileName::ALL {
        let written = std::fs::read_to_string(site.file(name.as_str()))?;
        assert_eq!(Some(written.as_str()), capture.written(name.as_str()), "{name}");
        let mode = std::fs::metadata(site.file(name.as_str()))?.permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{name} may hold passwords");
    }
    let left: Vec<_> = std::fs::read_dir(site.file(""))?.collect::<Result<_, _>>()?;
    assert_eq!(left.len(), 6, "{left:?}");
    Ok(())
}

#[tokio::test]
async fn run_once_without_node_fails_and_writes_nothing() -> Result<()> {
    let site = Site::new()?;
    site.fill(&Capture::numbered("24")?).await?;
    let bird = Bird::two()?;
    let environment = site.environment(bird.v4.parent().context("a folder")?);
    let (_handle, shutdown) = ShutdownHandle::new();
    let error = confd::run(&site.arguments(true), &environment, shutdown).await.expect_err("no node");
    assert_eq!(error.to_string(), "node n1 was not found in the datastore");
    assert!(!site.file("bird.cfg").exists());
    Ok(())
}

/// A program that records how it is called: it accepts every file without the word `refused`, and runs until it is
/// ended.
fn scripted_bird(folder: &Path) -> Result<PathBuf> {
    let programs = folder.join("programs");
    std::fs::create_dir_all(&programs)?;
    let notes = folder.join("notes");
    let script = format!(
        "#!/bin/sh\n\
         case \"$1\" in\n\
         --version) echo 'BIRD version 1.6.8' >&2; exit 0;;\n\
         -p) if grep -q refused \"$3\"; then echo 'bird.cfg:1:1 syntax error' >&2; exit 1; fi; exit 0;;\n\
         esac\n\
         name=$(basename \"$0\")\n\
         echo \"$name started $*\" >> {notes}\n\
         while :; do sleep 0.05; done\n",
        notes = notes.display()
    );
    for name in ["bird", "bird6"] {
        let path = programs.join(name);
        std::fs::write(&path, &script)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(programs)
}

/// Answers at a BIRD's socket, and records requests to read its files again.
fn answer(folder: &Path, name: &'static str) -> Result<tokio::task::JoinHandle<()>> {
    let run = folder.join("run");
    std::fs::create_dir_all(&run)?;
    let (listener, notes) = (UnixListener::bind(run.join(format!("{name}.ctl")))?, folder.join("notes"));
    Ok(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            let _ = stream.write_all(b"0001 BIRD 1.6.8 ready.\n").await;
            let _ = stream.read_line(&mut line).await;
            if line == "configure\n" {
                let mut file = std::fs::File::options().append(true).open(&notes).expect("notes");
                std::io::Write::write_all(&mut file, format!("{name} told\n").as_bytes()).expect("a note");
                let _ = stream.write_all(b"0002-Reading configuration\n0003 Reconfigured\n").await;
            } else {
                let _ = stream.write_all(b"9001 syntax error\n").await;
            }
        }
    }))
}

async fn eventually(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > PATIENCE {
            bail!("not within {PATIENCE:?}: {what}");
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bird_is_started_notified_of_changes_and_restarted() -> Result<()> {
    let site = Site::new()?;
    site.fill(&Capture::numbered("01")?).await?;
    let programs = scripted_bird(site.folder.path())?;
    // `sleep` and `grep` are the machine's own.
    let path = PathBuf::from(format!("{}:/usr/bin:/bin", programs.display()));
    let environment = site.environment(&path);
    let arguments = site.arguments(false);
    let (handle, shutdown) = ShutdownHandle::new();
    let running = tokio::spawn(async move { confd::run(&arguments, &environment, shutdown).await });

    let notes = site.folder.path().join("notes");
    let noted = |begin: &str| {
        let text = std::fs::read_to_string(&notes).unwrap_or_default();
        text.lines().filter(|noted| noted.starts_with(begin)).count()
    };
    eventually("both are started", || noted("bird started") == 1 && noted("bird6 started") == 1).await?;
    // A BIRD that has its socket, and one that is still starting.
    let six = answer(site.folder.path(), "bird6")?;

    let client = site.client().await?;
    let peer = serde_json::from_value(serde_json::json!({"peerIP": "192.0.2.1", "asNumber": 65000}))?;
    let peers = client.resource::<api::BGPPeerSpec>();
    peers.create(api::BGPPeer::new("", "tor", peer)).await?;
    let written = || std::fs::read_to_string(site.file("bird.cfg")).unwrap_or_default();
    eventually("the change is written", || written().contains("Global_192_0_2_1")).await?;
    assert_eq!(noted("bird started"), 1, "a change does not end a BIRD that does not answer yet");
    let four = answer(site.folder.path(), "bird")?;
    eventually("BIRD is notified", || noted("bird told") == 1).await?;
    assert_eq!(noted("bird6 told"), 0, "nothing changed for IPv6");

    let pid = std::fs::read_to_string(site.folder.path().join("run/services/bird"))?;
    testkit::signal(pid.trim().parse()?, testkit::Signal::KILL)?;
    eventually("it is started again", || noted("bird started") == 2).await?;

    for task in [four, six] {
        task.abort();
    }
    handle.request();
    running.await??;
    eventually("its process id is gone", || !site.folder.path().join("run/services/bird").exists()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_bird_refuses_change_nothing() -> Result<()> {
    let site = Site::new()?;
    site.fill(&Capture::numbered("01")?).await?;
    let programs = scripted_bird(site.folder.path())?;
    let environment = site.environment(&PathBuf::from(format!("{}:/usr/bin:/bin", programs.display())));
    let (_handle, shutdown) = ShutdownHandle::new();
    confd::run(&site.arguments(true), &environment, shutdown.clone()).await?;
    let before = std::fs::read_to_string(site.file("bird.cfg"))?;

    let client = site.client().await?;
    let filter = serde_json::from_value(serde_json::json!({"exportV4": [{"action": "Accept"}]}))?;
    client.resource::<api::BGPFilterSpec>().create(api::BGPFilter::new("", "refused", filter)).await?;
    let error = confd::run(&site.arguments(true), &environment, shutdown).await.expect_err("refused");
    assert_eq!(
        error.to_string(),
        "BIRD refuses bird.cfg; the previous one is kept: bird.cfg:1:1 syntax error"
    );
    assert_eq!(std::fs::read_to_string(site.file("bird.cfg"))?, before);
    Ok(())
}
