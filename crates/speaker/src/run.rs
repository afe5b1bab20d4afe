//! The component: follows the intent, applies it to the speaker, and answers at BIRD's sockets.
//!
//! The speaker has its own thread; following the store and answering clients is asynchronous and small. Does not start
//! sessions before there is an intent: a node that cannot read its datastore announces nothing.

use crate::control::{self, Surroundings};
use crate::shell::{Handle, Speaker, StartError};
use bgp_source::{Latest, Options, OptionsError, SourceError};
use bgp_wire::Family;
use bird_control::server::{Facts, InterfaceAddress, InterfaceFacts, ListenError, Question};
use daemon::{Environment, Shutdown};
use jiff::Timestamp;
use netlink::Kernel as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// How long changes are gathered before they are applied: a new node causes changes of several objects.
const GATHER: Duration = Duration::from_millis(100);

/// Why the component cannot continue.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The environment cannot be used.
    #[error(transparent)]
    Options(#[from] OptionsError),
    /// The sources cannot be opened.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The speaker cannot start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// BIRD's sockets cannot be opened.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The speaker has ended unexpectedly.
    #[error("the speaker ended")]
    Speaker,
    /// The sources ended.
    #[error("the datastore is no longer followed")]
    Ended,
}

/// Runs until shutdown is requested. `folder` is the folder of BIRD's sockets.
///
/// # Errors
/// When it cannot continue.
pub async fn run(
    folder: &Path,
    environment: &(dyn Environment + Send + Sync),
    shutdown: Shutdown,
) -> Result<(), RunError> {
    let options = Options::read(environment, None)?;
    let log = options.start_log();
    let (speaker, handle) = Speaker::open()?;
    let began = Timestamp::now();
    let thread = std::thread::Builder::new().name("speaker".to_owned()).spawn(move || speaker.run());
    let thread = thread.map_err(|_| RunError::Speaker)?;
    let reconfigured = Arc::new(AtomicU64::new(0));
    let mut doors = JoinSet::new();
    for (family, name) in [(Family::Ipv4, "bird.ctl"), (Family::Ipv6, "bird6.ctl")] {
        let door = Door { family, handle: handle.clone(), began, reconfigured: reconfigured.clone() };
        let path: PathBuf = folder.join(name);
        doors.spawn(async move { bird_control::server::listen(&path, door).await });
    }
    let _figures = options.metrics_port.map(|port| Serving::start(&handle, port));
    let source = bgp_source::start(options, environment).await?;
    let mut latest = source.latest();
    let outcome = loop {
        match latest.borrow_and_update().clone() {
            Latest::Waiting => {}
            Latest::NodeMissing(missing) => tracing::warn!("{missing}: sessions remain unchanged"),
            Latest::Intent(intent) => {
                log.follow(intent.log_level);
                let since = Timestamp::now().duration_since(began);
                reconfigured.store(u64::try_from(since.as_secs()).unwrap_or_default(), Ordering::Relaxed);
                handle.apply((*intent).clone());
            }
        }
        tokio::select! {
            changed = latest.changed() => {
                if changed.is_err() {
                    break Err(RunError::Ended);
                }
                if !shutdown.sleep(GATHER).await {
                    break Ok(());
                }
            }
            Some(ended) = doors.join_next() => {
                if let Ok(Err(error)) = ended {
                    break Err(error.into());
                }
            }
            () = shutdown.requested() => break Ok(()),
        }
        if thread.is_finished() {
            break Err(RunError::Speaker);
        }
    };
    // The next speaker, this program again or BIRD, finds the routes in place, and peers keep theirs.
    handle.end(true, "restarting");
    let _ = tokio::task::spawn_blocking(move || thread.join()).await;
    outcome
}

/// Figures that are served as long as this lives.
struct Serving(tokio::task::JoinHandle<()>);

impl Serving {
    fn start(handle: &Handle, port: u16) -> Self {
        let metrics = telemetry::Metrics::default();
        crate::figures::offer(handle, &metrics);
        let pages = telemetry_server::Pages { metrics: Some(metrics), ..Default::default() };
        let address = telemetry_server::Address { what: "BGP metrics", host: String::new(), port };
        Self(tokio::spawn(telemetry_server::serve_at(address, pages, None)))
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The answers at the socket of one family.
struct Door {
    family: Family,
    handle: Handle,
    began: Timestamp,
    /// When the intent last changed, in seconds since the start.
    reconfigured: Arc<AtomicU64>,
}

impl bird_control::server::Speaker for Door {
    fn version(&self) -> String {
        control::version()
    }

    async fn facts(&self, question: &Question) -> Facts {
        let (handle, question, family, began) =
            (self.handle.clone(), question.clone(), self.family, self.began);
        let reconfigured = Duration::from_secs(self.reconfigured.load(Ordering::Relaxed));
        // Blocks until the speaker's thread answers.
        let asked = tokio::task::spawn_blocking(move || {
            handle.ask(move |engine, now| {
                let interfaces = match question {
                    Question::Interfaces { .. } => interfaces(),
                    _ => Vec::new(),
                };
                let around = Surroundings { began, now, reconfigured, memory: memory(), interfaces };
                control::facts(engine, family, &question, &around)
            })
        });
        asked.await.ok().flatten().unwrap_or(Facts::Ending)
    }
}

/// The resident memory of this process in bytes.
fn memory() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    pages.saturating_mul(4096)
}

/// The host's links and their addresses; empty if the kernel does not report them.
fn interfaces() -> Vec<InterfaceFacts> {
    let Ok(mut kernel) = netlink::Handle::open() else { return Vec::new() };
    let (Ok(links), Ok(addresses)) = (kernel.links(), kernel.addresses(None, None)) else {
        return Vec::new();
    };
    links
        .into_iter()
        .map(|link| {
            let words = [
                ("MultiAccess", true),
                ("Broadcast", !link.loopback),
                ("Multicast", !link.loopback),
                ("AdminUp", link.up),
                ("LinkUp", link.lower_up),
                ("Loopback", link.loopback),
                ("Ignored", link.loopback),
            ];
            let own = addresses.iter().filter(|address| address.index == link.index);
            InterfaceFacts {
                index: link.index,
                up: link.up && link.lower_up,
                flags: words.into_iter().filter_map(|(word, holds)| holds.then_some(word)).collect(),
                mtu: link.mtu,
                addresses: own.map(|address| InterfaceAddress { address: address.address }).collect(),
                name: link.name,
            }
        })
        .collect()
}
