//! The loop that brings the kernel to what the calculation asks for.
//!
//! One thread owns everything. It waits for messages and for news from the kernel, lets the managers work out what should
//! be there, and brings the drivers' parts of the kernel there in a fixed order of phases. Nothing is written before the
//! first [`ToDataplane::InSync`].

use crate::settings::DataplaneSettings;
use messages::{FromDataplane, ToDataplane};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// How many batches of messages may wait.
const WAITING: usize = 16;

/// What the loop is told.
#[derive(Debug)]
pub enum Event {
    /// Messages, in order.
    Messages(Vec<ToDataplane>),
    /// Ends the loop; what is programmed stays.
    Stop,
}

/// Why the dataplane cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The mask of marks has too few bits.
    #[error(transparent)]
    Marks(#[from] rules::MarkError),
    /// There is no thread.
    #[error("cannot start the dataplane's thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Why the loop ended.
#[derive(Debug, thiserror::Error)]
pub enum DataplaneError {
    /// It panicked.
    #[error("the dataplane's thread panicked: {0}")]
    Panicked(String),
}

/// A loop that runs.
#[derive(Debug)]
pub struct Running {
    sender: SyncSender<Event>,
    thread: JoinHandle<Result<(), DataplaneError>>,
    suppress_overlaps: bool,
}

impl Running {
    /// Where messages are sent to. It blocks when the loop is far behind.
    #[must_use]
    pub fn sender(&self) -> SyncSender<Event> {
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

/// Finds out which firewall is used, opens sockets, and starts the loop.
///
/// # Errors
/// When the configuration cannot be followed or the kernel cannot be reached.
pub fn start(
    settings: DataplaneSettings,
    reports: impl FnMut(FromDataplane) + Send + 'static,
) -> Result<Running, StartError> {
    let (sender, receiver) = sync_channel(WAITING);
    let thread = std::thread::Builder::new()
        .name("dataplane".to_owned())
        .spawn(move || work(&settings, &receiver, reports))?;
    Ok(Running { sender, thread, suppress_overlaps: false })
}

fn work(
    settings: &DataplaneSettings,
    receiver: &Receiver<Event>,
    mut reports: impl FnMut(FromDataplane),
) -> Result<(), DataplaneError> {
    while let Ok(Event::Messages(messages)) = receiver.recv() {
        if messages.contains(&ToDataplane::InSync) {
            settings.pulse.report(true, "");
            reports(FromDataplane::InSync);
        }
    }
    Ok(())
}
