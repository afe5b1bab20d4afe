//! Starts the loop; the handle to a running loop.

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
    /// The thread cannot be started.
    #[error("cannot start the dataplane's threads: {0}")]
    Thread(#[from] std::io::Error),
    /// The kernel's network objects cannot be reached.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// The kernel's packet filters cannot be reached.
    #[error(transparent)]
    Netfilter(#[from] netlink::netfilter::Error),
    /// A setting requires something that is not supported.
    #[error("{0}")]
    Unsupported(&'static str),
    /// The MTU of pods cannot be written, although it is required.
    #[error("cannot write the MTU of pods to {}: {reason}", path.display())]
    MtuFile {
        /// The path that was tried.
        path: PathBuf,
        /// The system's error.
        reason: std::io::Error,
    },
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// A change on the host requires a restart.
    #[error("Felix must restart: {0}")]
    Restart(String),
    /// The kernel's events can no longer be received.
    #[error("{0}")]
    Kernel(String),
    /// The loop panicked.
    #[error("the dataplane's thread panicked: {0}")]
    Panicked(String),
}

impl DataplaneError {
    /// Whether a restart is all that is needed.
    #[must_use]
    pub fn is_restart(&self) -> bool {
        matches!(self, Self::Restart(_))
    }
}

/// Paths on the machine that the loop uses.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The file for the MTU of pods, which the CNI plugin reads.
    pub mtu_file: PathBuf,
    /// Where BPF programs and maps are pinned; `None` for the usual place, which is used in the machine's own network
    /// only.
    pub bpf_pins: Option<PathBuf>,
}

impl Default for Machine {
    fn default() -> Self {
        Self { mtu_file: PathBuf::from("/var/lib/calico/mtu"), bpf_pins: None }
    }
}

/// A running loop.
#[derive(Debug)]
pub struct Running {
    sender: Sender,
    thread: JoinHandle<Result<(), DataplaneError>>,
    suppress_overlaps: bool,
}

impl Running {
    /// The sender for messages to the loop. It blocks when the loop is far behind.
    #[must_use]
    pub fn sender(&self) -> Sender {
        self.sender.clone()
    }

    /// Whether sets must not contain networks inside other networks.
    #[must_use]
    pub fn suppress_overlaps(&self) -> bool {
        self.suppress_overlaps
    }

    /// Waits for the end of the loop.
    ///
    /// # Errors
    /// The reason why it ended, unless it was requested.
    pub fn wait(self) -> Result<(), DataplaneError> {
        drop(self.sender);
        self.thread.join().unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            Err(DataplaneError::Panicked(text.unwrap_or_else(|| "no reason given".to_owned())))
        })
    }
}

/// For tests of programs that send messages.
#[cfg(any(test, feature = "testing"))]
pub mod testing {
    use super::super::mailbox::{Mailbox, Sender};

    /// A sender, and a value that keeps its messages waiting.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn mailbox() -> std::io::Result<(Sender, Box<dyn Send>)> {
        let (sender, mailbox) = Mailbox::open()?;
        Ok((sender, Box::new(mailbox)))
    }
}

/// Determines the packet filter, opens sockets, and starts the loop.
///
/// # Errors
/// When the configuration cannot be applied or the kernel cannot be reached.
pub fn start(
    settings: DataplaneSettings,
    reports: impl FnMut(FromDataplane) + Send + 'static,
) -> Result<Running, StartError> {
    start_on(settings, &Machine::default(), reports)
}

/// Starts the loop with other paths on the machine.
///
/// # Errors
/// When the configuration cannot be applied or the kernel cannot be reached.
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

/// Another Felix programs the kernel: messages are accepted and nothing is done.
fn stand_by(settings: &DataplaneSettings, sender: Sender, mailbox: Mailbox) -> Result<Running, StartError> {
    tracing::info!(variant = settings.config.variant, "another Felix programs this host; this one stands by");
    settings.pulse.report(true, "standing by");
    let thread = std::thread::Builder::new().name("dataplane".to_owned()).spawn(move || {
        loop {
            let mut descriptors = [PollFd::new(&mailbox, PollFlags::IN)];
            // An interrupted wait only leads to another look.
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
