//! Starting the loop, and what whoever started it holds.

use super::mailbox::{Mailbox, Sender};
use super::{Event, Loop};
use crate::settings::DataplaneSettings;
use messages::FromDataplane;
use rules::Backend;
use rustix::event::{PollFd, PollFlags, poll};
use std::path::PathBuf;
use std::thread::JoinHandle;

/// Why the dataplane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The mask of marks has too few bits.
    #[error(transparent)]
    Marks(#[from] rules::MarkError),
    /// There is no thread.
    #[error("cannot start the dataplane's threads: {0}")]
    Thread(#[from] std::io::Error),
    /// The kernel's network objects cannot be reached.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// The kernel's firewalls cannot be reached.
    #[error(transparent)]
    Netfilter(#[from] netlink::netfilter::Error),
    /// A setting asks for something that is not there.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The MTU of pods cannot be written, and it is required.
    #[error("cannot write the MTU of pods to {}: {reason}", path.display())]
    MtuFile {
        /// The path that was tried.
        path: PathBuf,
        /// What the system said.
        reason: std::io::Error,
    },
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// Only a new start can follow what changed on the host.
    #[error("Felix must restart: {0}")]
    Restart(String),
    /// The kernel cannot be listened to any more.
    #[error("{0}")]
    Kernel(String),
    /// It panicked.
    #[error("the dataplane's thread panicked: {0}")]
    Panicked(String),
}

impl DataplaneError {
    /// Whether a new start is all that is needed.
    #[must_use]
    pub fn is_restart(&self) -> bool {
        matches!(self, Self::Restart(_))
    }
}

/// What of the machine is not the kernel's.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Where the MTU of pods is written to, for the CNI plugin.
    pub mtu_file: PathBuf,
    /// Where BPF programs and maps are pinned; none for the usual place, which counts in the machine's own network only.
    pub bpf_pins: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { mtu_file: PathBuf::from("/var/lib/calico/mtu"), bpf_pins: None }
    }
}

/// A loop that runs.
#[derive(Debug)]
pub struct Running {
    sender: Sender,
    thread: JoinHandle<Result<(), DataplaneError>>,
    suppress_overlaps: bool,
}

impl Running {
    /// Where messages are sent to. It blocks when the loop is far behind.
    #[must_use]
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Whether sets must be free of networks that are inside others.
    #[must_use]
    pub fn suppress_overlaps(&self) -> bool {
        self.suppress_overlaps
    }

    /// Waits for the end of the loop.
    ///
    /// # Errors
    /// Why it ended, unless it was asked to.
    pub fn wait(self) -> Result<(), DataplaneError> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(DataplaneError::Panicked(text.unwrap_or_else(|| "no reason given".to_owned())))
        })
    }
}

/// For tests of those who send messages.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::super::mailbox::{Mailbox, Sender};

    /// A sender, and what keeps its messages waiting.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn mailbox() -> std::io::Result<(Sender, Box<dyn Send>)> {
        let (sender, mailbox) = Mailbox::open()?;
        Ok((sender, Box::new(mailbox)))
    }
}

/// Finds out which firewall is used, opens sockets, and starts the loop.
///
/// # Errors
/// When the configuration cannot be followed or the kernel cannot be reached.
pub fn start(
    settings: DataplaneSettings,
    reports: impl FnMut(FromDataplane) + Send + 'static,
) -> Result<Running, StartError> {
    start_on(settings, &Machine::default(), reports)
}

/// The same on a machine with other places.
///
/// # Errors
/// As above.
pub fn start_on(
    settings: DataplaneSettings,
    machine: &Machine,
    reports: impl FnMut(FromDataplane) + Send + 'static,
) -> Result<Running, StartError> {
    let (sender, mailbox) = Mailbox::open()?;
    let config = &settings.config;
    if !config.is_leader() {
        return stand_by(&settings, sender, mailbox);
    }
    if !config.use_internal_dataplane_driver {
        return Err(StartError::Unsupported(
            "UseInternalDataplaneDriver=false: external drivers are no longer supported",
        ));
    }
    let work = Loop::open(settings, machine, Box::new(reports))?;
    let suppress_overlaps = work.world.renderer.backend() == Backend::Nftables;
    let thread =
        std::thread::Builder::new().name("dataplane".to_owned()).spawn(move || work.run(&mailbox))?;
    Ok(Running { sender, thread, suppress_overlaps })
}

/// Another Felix is the one that programs the kernel: messages are taken and nothing is done.
fn stand_by(settings: &DataplaneSettings, sender: Sender, mailbox: Mailbox) -> Result<Running, StartError> {
    tracing::info!(
        variant = settings.config.variant,
        "another Felix programs this host, and this one stands by"
    );
    settings.pulse.report(true, "standing by");
    let thread = std::thread::Builder::new().name("dataplane".to_owned()).spawn(move || {
        loop {
            let mut descriptors = [PollFd::new(&mailbox, PollFlags::IN)];
            // An interrupted wait only means another look.
            let _ = poll(&mut descriptors, None);
            mailbox.silence();
            while let Some(event) = mailbox.take() {
                if matches!(event, Event::Stop) {
                    return Ok(());
                }
            }
        }
    })?;
    Ok(Running { sender, thread, suppress_overlaps: false })
}
