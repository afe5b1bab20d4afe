//! A datastore, a host, and Felix on it as a process.

use anyhow::{Context as _, Result, ensure};
use api::{ClusterInformationSpec, FelixConfiguration, FelixConfigurationSpec};
use client::Client;
use datastore::etcd::{EtcdBackend, EtcdConfig};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use testkit::network::Namespace;
use testkit::{Folder, Process, eventually_async, example, program};
use tokio::sync::{Mutex, oneshot};
use tokio::task::JoinHandle;

/// A datastore and a host.
pub(crate) struct Site {
    pub(crate) namespace: Namespace,
    pub(crate) client: Client,
    folder: Folder,
    server: Mutex<Option<Server>>,
}

impl Site {
    pub(crate) async fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let namespace = Namespace::new(&format!("felix-{}-{number}", std::process::id()))?;
        namespace.batch("link add eth0 type veth peer name wire0\nlink set wire0 up\nlink set eth0 up\naddr add 192.0.2.1/24 dev eth0")?;
        let folder = Folder::new("felix")?;
        let socket = kvstore_engine::socket_path(&folder.path().join("data"));
        let config = EtcdConfig::for_endpoints(&format!("unix://{}", socket.display()));
        let server = Mutex::new(Some(serve(&folder).await?));
        let client = Client::new(Arc::new(EtcdBackend::connect(&config).await?));
        Ok(Self { namespace, client, folder, server })
    }

    pub(crate) async fn start_store(&self) -> Result<()> {
        *self.server.lock().await = Some(serve(&self.folder).await?);
        Ok(())
    }

    pub(crate) async fn stop_store(&self) -> Result<()> {
        let (end, task) = self.server.lock().await.take().context("a store that runs")?;
        // It may have ended by itself; the task then returns the reason.
        let _ = end.send(());
        task.await?
    }

    pub(crate) async fn set_datastore_ready(&self, is_ready: bool) -> Result<()> {
        let resources = self.client.resource::<ClusterInformationSpec>();
        let mut information = resources.get("", "default").await?;
        information.spec.datastore_ready = Some(is_ready);
        resources.update(information).await?;
        Ok(())
    }

    /// Replaces the cluster-wide settings of Felix.
    pub(crate) async fn set_felix(&self, spec: Value) -> Result<()> {
        let resources = self.client.resource::<FelixConfigurationSpec>();
        let mut wanted: FelixConfiguration =
            serde_json::from_value(json!({"metadata": {"name": "default"}, "spec": spec}))?;
        match resources.get("", "default").await {
            Ok(found) => {
                wanted.metadata = found.metadata;
                resources.update(wanted).await?;
            }
            Err(error) if error.is_does_not_exist() => drop(resources.create(wanted).await?),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

type Server = (oneshot::Sender<()>, JoinHandle<Result<()>>);

async fn serve(folder: &Folder) -> Result<Server> {
    let data = folder.path().join("data");
    let (end, ended) = oneshot::channel::<()>();
    let config = kvstore::server::Config::new(&data);
    let task = tokio::spawn(async move {
        let ended = async {
            let _ = ended.await;
        };
        kvstore::server::run(config, ended).await.map_err(anyhow::Error::from)
    });
    let socket = kvstore_engine::socket_path(&data);
    eventually_async("the store answers", async || std::os::unix::net::UnixStream::connect(&socket).is_ok())
        .await?;
    Ok((end, task))
}

/// Felix on a site's host.
pub(crate) struct Felix<'a> {
    site: &'a Site,
    process: Process,
    log: PathBuf,
}

impl<'a> Felix<'a> {
    pub(crate) fn start(site: &'a Site) -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let folder = site.folder.path();
        let log = folder.join(format!("felix-{}.log", NUMBER.fetch_add(1, Ordering::Relaxed)));
        let mut arguments = ["netns", "exec", site.namespace.name(), "env"].map(str::to_owned).to_vec();
        arguments.extend([
            "DATASTORE_TYPE=embedded".to_owned(),
            format!("EMBEDDED_PATH={}", folder.join("data").display()),
            "FELIX_FELIXHOSTNAME=n1".to_owned(),
            format!("FELIX_ENDPOINTSTATUSPATHPREFIX={}", folder.join("status").display()),
            "FELIX_HEALTHENABLED=true".to_owned(),
            "FELIX_NFTABLESMODE=Enabled".to_owned(),
            "FELIX_USAGEREPORTINGENABLED=false".to_owned(),
        ]);
        // Nothing on the machine itself is changed.
        let script = "mount -t tmpfs tmpfs /var/lib && exec \"$@\"";
        arguments
            .extend(["sh", "-c", script, "sh", &example("felix")?.display().to_string()].map(str::to_owned));
        let ip = program("ip", "install Debian's iproute2")?;
        let process = Process::start(&ip, &arguments, &log)?;
        Ok(Self { site, process, log })
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The status code of a probe.
    pub(crate) fn answer(&self, path: &str) -> Result<u16> {
        self.site.namespace.run(|| {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", 9099))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
            let mut text = String::new();
            stream.read_to_string(&mut text)?;
            let code = text.split(' ').nth(1).with_context(|| format!("no status in {text:?}"))?;
            // An answer without content counts as success, too.
            Ok(if code == "204" { 200 } else { code.parse()? })
        })?
    }

    /// Waits until a condition holds; Felix must not end in the meantime.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut holds: impl AsyncFnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        let outcome = eventually_async(what, async || {
            ensure!(self.process.ended()?.is_none(), "it ended");
            holds(self).await
        })
        .await;
        outcome.with_context(|| self.log())
    }

    /// Waits for its end; returns its exit code.
    pub(crate) async fn end(&mut self) -> Result<Option<i32>> {
        let status = eventually_async("the end", async || self.process.ended()).await;
        Ok(status.with_context(|| self.log())?.code())
    }

    /// Asks it to end; returns its exit code.
    pub(crate) async fn terminate(&mut self) -> Result<Option<i32>> {
        testkit::signal(self.process.id(), testkit::Signal::TERM)?;
        self.end().await
    }
}
