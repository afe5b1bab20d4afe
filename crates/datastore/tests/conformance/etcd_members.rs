//! Several members of which one is silent: its machine is off, it hangs, or it falls silent while in use. And
//! certificates that are renewed while a program runs.

use anyhow::{Context as _, Result, ensure};
use datastore::etcd::{EtcdBackend, EtcdConfig, TlsFiles};
use datastore::{Backend, WatchEvent, WatchOptions};
use futures::StreamExt as _;
use model::Key;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use testkit::{Authority, Etcd, EtcdOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::harness::{network_set, network_sets};

/// The limit for what must be quick: less than the 10 s that a silent member used to cost.
const SOON: Duration = Duration::from_secs(8);
/// More than it takes to notice that a member in use has fallen silent.
const EVENTUALLY: Duration = Duration::from_secs(120);

async fn start(options: EtcdOptions) -> Result<Etcd> {
    tokio::task::spawn_blocking(move || Etcd::start_with(options)).await?
}

/// A port at which packets get no answer: connections are not accepted, and the backlog is full.
struct SilentPort {
    address: SocketAddr,
    _listener: rustix::fd::OwnedFd,
    _queue: Vec<TcpStream>,
}

impl SilentPort {
    async fn open() -> Result<Self> {
        use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
        let listener = socket(AddressFamily::INET, SocketType::STREAM, None)?;
        bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
        listen(&listener, 0)?;
        let address = SocketAddr::try_from(getsockname(&listener)?)?;
        let mut queue = Vec::new();
        while let Ok(connected) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
            queue.push(connected?);
            ensure!(queue.len() < 100, "the queue of connections has no end");
        }
        Ok(Self { address, _listener: listener, _queue: queue })
    }
}

/// A path to a server that can be frozen: connections stay open, but carry no data.
struct Detour {
    address: SocketAddr,
    is_frozen: watch::Sender<bool>,
    _task: JoinSet<()>,
}

impl Detour {
    async fn to(server: &Etcd, is_frozen: bool) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let target = server.endpoint().replace("http://", "");
        let (is_frozen, state) = watch::channel(is_frozen);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut from, _)) = listener.accept().await {
                let (target, mut state) = (target.clone(), state.clone());
                connections.spawn(async move {
                    let _ = state.wait_for(|frozen| !frozen).await;
                    let Ok(mut to) = TcpStream::connect(target).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = async { state.wait_for(|frozen| *frozen).await.map(drop) } => {
                            std::future::pending::<()>().await;
                        }
                    }
                });
            }
        });
        Ok(Self { address, is_frozen, _task: task })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_is_off_or_hangs_delays_no_request() -> Result<()> {
    let etcd = start(EtcdOptions::default()).await?;
    let off = SilentPort::open().await?;
    let hangs = Detour::to(&etcd, true).await?;
    let good = etcd.endpoint();
    // Often enough that each member is tried first once.
    for round in 0..8 {
        for silent in [off.address, hangs.address] {
            for endpoints in [format!("http://{silent},{good}"), format!("{good},http://{silent}")] {
                let attempt = async {
                    let backend = EtcdBackend::connect(&EtcdConfig::for_endpoints(&endpoints)).await?;
                    backend.list(&network_sets("default"), None).await?;
                    let mut events = backend.watch(&network_sets("default"), WatchOptions::default()).await?;
                    let name = format!("set-{round}");
                    let created = backend.create(&network_set("default", &name, "10.0.0.0/8")?).await?;
                    let event = events.next().await.context("the watch has ended")??;
                    ensure!(matches!(event, WatchEvent::Added(_)), "{event:?}");
                    backend.delete(&created.key, None).await?;
                    Ok(())
                };
                timeout(SOON, attempt).await.with_context(|| endpoints.clone())??;
            }
        }
    }
    // With no other member to try, the error is returned before callers time out, and names the silent member.
    let backend =
        EtcdBackend::connect(&EtcdConfig::for_endpoints(&format!("http://{}", off.address))).await?;
    let outcome = timeout(SOON, backend.list(&network_sets("default"), None)).await?;
    let text = outcome.err().context("it answered")?.to_string();
    ensure!(text.contains(&off.address.to_string()) && text.contains("no answer"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_falls_silent_during_a_watch_is_replaced() -> Result<()> {
    let etcd = start(EtcdOptions::default()).await?;
    let (used, other) = (Detour::to(&etcd, false).await?, Detour::to(&etcd, true).await?);
    let config = EtcdConfig::for_endpoints(&format!("http://{},http://{}", used.address, other.address));
    let backend = EtcdBackend::connect(&config).await?;
    let one = timeout(SOON, backend.create(&network_set("default", "one", "10.0.0.0/8")?)).await??;
    let from =
        |revision: &str| WatchOptions { revision: Some(revision.to_owned()), ..WatchOptions::default() };
    let mut events = timeout(SOON, backend.watch(&network_sets("default"), from(&one.revision))).await??;

    other.is_frozen.send_replace(false);
    used.is_frozen.send_replace(true);
    let end = timeout(EVENTUALLY, events.next()).await.context("the watch waits for ever")?;
    ensure!(matches!(&end, Some(Err(error)) if error.is_transient()), "{end:?}");
    let mut events = timeout(SOON, backend.watch(&network_sets("default"), from(&one.revision))).await??;
    timeout(SOON, backend.create(&network_set("default", "two", "10.0.0.0/8")?)).await??;
    let event = timeout(SOON, events.next()).await?.context("the watch has ended")??;
    let WatchEvent::Added(two) = &event else { anyhow::bail!("{event:?}") };
    ensure!(two.key == Key::resource(api::Kind::NetworkSet, "default", "two"), "{event:?}");
    Ok(())
}

/// The authority, the server's pair and the client's pair are all replaced on disk, and etcd is restarted: what this
/// process read at its start is no longer valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_certificates_are_used_without_a_restart() -> Result<()> {
    let mut etcd = start(EtcdOptions { tls: true, ..EtcdOptions::default() }).await?;
    let client = etcd.client_certificate().context("no client certificate")?.clone();
    let ca_cert = etcd.ca_certificate().context("no authority")?;
    let folder = ca_cert.parent().context("no folder")?.to_owned();
    let files = TlsFiles { ca_cert, cert: client.certificate.clone(), key: client.key.clone() };
    let config = EtcdConfig { files, ..EtcdConfig::for_endpoints(&etcd.endpoint()) };
    let backend = Arc::new(EtcdBackend::connect(&config).await?);
    let one = backend.create(&network_set("default", "one", "10.0.0.0/8")?).await?;

    let renewed = Authority::new(&folder)?;
    renewed.sign("server", "localhost", &[])?;
    renewed.sign("client", "root", &[])?;
    let _etcd = tokio::task::spawn_blocking(move || etcd.restart().map(|()| etcd)).await??;

    // The first request may still use the old connection; later ones must not.
    let _ = timeout(SOON, backend.get(&one.key, None)).await;
    timeout(SOON, backend.get(&one.key, None)).await?.context("a read with renewed certificates")?;
    timeout(SOON, backend.update(&one)).await?.context("a write with renewed certificates")?;

    // While a pair is being replaced, requests fail with an error that names the file.
    std::fs::remove_file(&client.key)?;
    let fresh = EtcdBackend::connect(&config).await.err().context("accepted without a key")?;
    ensure!(fresh.to_string().contains(&client.key.display().to_string()), "{fresh}");
    Ok(())
}
