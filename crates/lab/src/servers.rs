//! The lab's datastore: this program's own store, an etcd, or a kube-apiserver, as programs of the keeper.
//!
//! TCP servers run at the router, so that nodes reach them as on a real network. A missing program is reported with
//! instructions to install it.

use crate::accounts;
use crate::authority::Authority;
use crate::inside::{Place, base_environment, node_program};
use crate::interrupt;
use crate::keeper::{Keeper, Request};
use crate::settings::{API_PORT, ETCD_PORT, host_and_port};
use crate::state::Folder;
use crate::topology::{Datastore, Topology};
use anyhow::{Context as _, Result, anyhow, bail};
use daemon::{Environment as _, SystemEnvironment};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// How long a server may take to answer. A server that ends is reported at once; one on an emulated processor takes
/// minutes.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often a kube-apiserver that ends before it answers is started.
const API_SERVER_STARTS: u32 = 3;
/// The version of the programs that the project's `make setup` downloads.
const KUBERNETES: &str = "v1.36.3";

/// Starts the datastore and waits until it answers.
///
/// # Errors
/// When a program is missing or does not start.
pub(crate) fn start(
    folder: &Folder,
    topology: &Topology,
    keeper: &Keeper,
    keeper_pid: u32,
    router: &Place,
) -> Result<()> {
    let start = |name: &str, words: &[&str]| {
        keeper.ask(&Request::Start {
            name: name.to_owned(),
            words: router.words(keeper_pid, words),
            environment: base_environment(folder),
        })
    };
    let text = |path: PathBuf| path.display().to_string();
    match topology.datastore {
        Datastore::Embedded => {
            let data = text(folder.file("store"));
            start("store", &[&node_program(), "datastore", "--listen-client-urls=", "--data-dir", &data])?;
            wait(folder, keeper, "store", || Ok(folder.file("store/tortie.sock").exists()))
        }
        Datastore::Etcd => {
            let program =
                find_program("etcd", "install it (Debian: etcd-server), or choose --datastore embedded")?;
            let data = text(folder.file("etcd"));
            let address = topology.server_address();
            let (client, peer) = (host_and_port(address, ETCD_PORT), host_and_port(address, ETCD_PORT + 1));
            let words = [
                program.display().to_string(),
                "--name=lab".to_owned(),
                format!("--data-dir={data}"),
                format!("--listen-client-urls=http://{client}"),
                format!("--advertise-client-urls=http://{client}"),
                format!("--listen-peer-urls=http://{peer}"),
                format!("--initial-advertise-peer-urls=http://{peer}"),
                format!("--initial-cluster=lab=http://{peer}"),
                "--unsafe-no-fsync".to_owned(),
                "--logger=zap".to_owned(),
            ];
            start("etcd", &words.iter().map(String::as_str).collect::<Vec<_>>())?;
            wait(folder, keeper, "etcd", || answers(router, address, ETCD_PORT))
        }
        Datastore::Kubernetes => {
            let program = kubernetes_program("kube-apiserver")?;
            kubernetes_program("kubectl")?;
            let data = text(folder.file("store"));
            start("store", &[&node_program(), "datastore", "--listen-client-urls=", "--data-dir", &data])?;
            wait(folder, keeper, "store", || Ok(folder.file("store/tortie.sock").exists()))?;
            let words = api_server(folder, topology, &program)?;
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let serve = || {
                start("kube-apiserver", &words)?;
                wait(folder, keeper, "kube-apiserver", || {
                    Ok(kubectl(folder, router, &["get", "--raw", "/readyz"], None).is_ok())
                })
            };
            // On a slow machine it may exit because a start-up check took too long; a kubelet restarts it, too.
            for _ in 1..API_SERVER_STARTS {
                let outcome = serve();
                if outcome.is_ok() || ended(keeper, "kube-apiserver")?.is_none() {
                    return outcome;
                }
            }
            serve()
        }
    }
}

/// Runs `kubectl` as administrator of the lab's cluster.
///
/// # Errors
/// The error message of `kubectl`.
pub(crate) fn kubectl(
    folder: &Folder,
    router: &Place,
    arguments: &[&str],
    input: Option<&str>,
) -> Result<String> {
    use std::io::Write as _;
    let program = kubernetes_program("kubectl")?.display().to_string();
    let (kubeconfig, cache) = (folder.file("kubeconfig"), folder.file("kubectl-cache"));
    let (kubeconfig, cache) = (kubeconfig.display().to_string(), cache.display().to_string());
    let mut words = vec![program.as_str(), "--kubeconfig", &kubeconfig, "--cache-dir", &cache];
    words.extend(arguments);
    let mut child = router
        .command(&base_environment(folder), &words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting kubectl")?;
    child.stdin.take().context("no standard input")?.write_all(input.unwrap_or_default().as_bytes())?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!("kubectl {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until a server answers, and reports the end of its log if it ended instead.
pub(crate) fn wait(
    folder: &Folder,
    keeper: &Keeper,
    name: &str,
    ready: impl Fn() -> Result<bool>,
) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !ready()? {
        interrupt::check()?;
        if let Some(how) = ended(keeper, name)? {
            bail!("{name} ended ({how}); its log ends with:\n{}", folder.log_tail(name, 8));
        }
        if Instant::now() > deadline {
            bail!("{name} does not answer; its log is {}", folder.log(name).display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// How a program ended, or `None` if it is running.
fn ended(keeper: &Keeper, name: &str) -> Result<Option<String>> {
    Ok(keeper.ask(&Request::List)?.programs.get(name).and_then(|program| program.ended.clone()))
}

/// Whether a server is listening at the router.
pub(crate) fn answers(router: &Place, address: std::net::IpAddr, port: u16) -> Result<bool> {
    let namespace = netlink::namespace::Namespace::open(&router.netns)?;
    let address = std::net::SocketAddr::new(address, port);
    Ok(namespace
        .run(|| std::net::TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok())?)
}

/// Finds a program on `PATH`, or where Debian installs programs for root.
///
/// # Errors
/// When it is not found; the message contains instructions.
pub(crate) fn find_program(name: &str, remedy: &str) -> Result<PathBuf> {
    let beside = || ["/usr/sbin", "/sbin"].iter().map(|folder| Path::new(folder).join(name));
    SystemEnvironment
        .find_program(name)
        .or_else(|| beside().find(|candidate| candidate.is_file()))
        .ok_or_else(|| anyhow!("this lab needs the program '{name}', which is not on PATH: {remedy}"))
}

/// Finds a program of Kubernetes: on `PATH`, or in the cache that `make setup` fills.
///
/// # Errors
/// When it is not found; the message contains instructions.
pub(crate) fn kubernetes_program(name: &str) -> Result<PathBuf> {
    let variable = |name: &str| SystemEnvironment.filled(name).map(PathBuf::from);
    let version = SystemEnvironment.text("KUBERNETES_VERSION").unwrap_or_else(|| KUBERNETES.to_owned());
    let cache = variable("TORTIE_CACHE")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("tortie")))
        .or_else(|| variable("HOME").map(|folder| folder.join(".cache/tortie")));
    let folder = variable("TORTIE_KUBERNETES_BIN")
        .or_else(|| cache.map(|cache| cache.join(format!("kubernetes-{version}"))));
    match folder.map(|folder| folder.join(name)).filter(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => find_program(
            name,
            &format!(
                "download it (Kubernetes {KUBERNETES}, server binaries) and put it on PATH, or name its folder in \
                 TORTIE_KUBERNETES_BIN"
            ),
        ),
    }
}

/// Writes certificates, tokens and a kubeconfig; returns the command line of kube-apiserver.
fn api_server(folder: &Folder, topology: &Topology, program: &Path) -> Result<Vec<String>> {
    let address = topology.server_address();
    let authority = Authority::new(folder, "ca")?;
    let server = authority.sign(folder, "apiserver", &[address.to_string(), "127.0.0.1".to_owned()])?;
    let account = authority.sign(folder, "service-account", &[])?;
    let tokens = folder.file("tokens.csv");
    let mut lines = String::new();
    for (file, user, groups) in [
        (KUBECONFIG.to_owned(), "admin".to_owned(), "system:masters".to_owned()),
        accounts::login(accounts::NODE),
        accounts::login(accounts::PLUGIN),
    ] {
        let token = random_token()?;
        lines.push_str(&format!("{token},{user},{user},\"{groups}\"\n"));
        let server = host_and_port(address, API_PORT);
        folder.write_secret(&file, &kubeconfig(folder, &server, &token))?;
    }
    folder.write_secret("tokens.csv", &lines)?;
    let usual = if address.is_ipv4() { "10.96.0.0/16" } else { "fd65:96::/112" };
    let services = topology.service_cidr.map_or(usual.to_owned(), |range| range.to_string());
    Ok(vec![
        program.display().to_string(),
        format!("--etcd-servers=unix://{}", folder.file("store/tortie.sock").display()),
        "--etcd-compaction-interval=0".to_owned(),
        format!("--bind-address={address}"),
        format!("--advertise-address={address}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", server.certificate.display()),
        format!("--tls-private-key-file={}", server.key.display()),
        format!("--client-ca-file={}", folder.file("ca.pem").display()),
        format!("--token-auth-file={}", tokens.display()),
        "--authorization-mode=RBAC".to_owned(),
        // Without a controller-manager nothing creates the default service accounts that this plugin waits for.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", account.certificate.display()),
        format!("--service-account-signing-key-file={}", account.key.display()),
        format!("--service-cluster-ip-range={services}"),
        "--endpoint-reconciler-type=none".to_owned(),
        "--enable-priority-and-fairness=false".to_owned(),
        "--shutdown-delay-duration=0s".to_owned(),
    ])
}

/// The administrator's kubeconfig.
pub(crate) const KUBECONFIG: &str = "kubeconfig";

fn kubeconfig(folder: &Folder, server: &str, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: lab\nclusters:\n- name: lab\n  cluster:\n    \
         server: https://{server}\n    certificate-authority: {}\nusers:\n- name: lab\n  user:\n    token: {token}\n\
         contexts:\n- name: lab\n  context:\n    cluster: lab\n    user: lab\n",
        folder.file("ca.pem").display()
    )
}

fn random_token() -> Result<String> {
    use std::io::Read as _;
    let mut bytes = [0_u8; 16];
    std::fs::File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("random bytes")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
