//! The receiving end of a feed.
//!
//! Events are made by the task that follows, or only when they are taken. Entries are many small allocations: made by one
//! thread and freed by another, both wait for the allocator's lock most of the time, and each costs twice as much.

use crate::FeedEvent;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// What makes an event, in the thread that takes it.
pub type Make = Box<dyn FnOnce() -> FeedEvent + Send>;

/// The events of a feed, one after the other.
pub enum Events {
    /// Events that are there.
    Made(mpsc::Receiver<FeedEvent>),
    /// Events that are made when they are taken.
    ToMake(mpsc::Receiver<Make>),
}

impl From<mpsc::Receiver<FeedEvent>> for Events {
    fn from(events: mpsc::Receiver<FeedEvent>) -> Self {
        Self::Made(events)
    }
}

impl Events {
    /// The next event; none when the feed has ended.
    pub async fn recv(&mut self) -> Option<FeedEvent> {
        match self {
            Self::Made(events) => events.recv().await,
            Self::ToMake(events) => events.recv().await.map(|make| make()),
        }
    }

    /// The next event, for a thread that may wait.
    pub fn blocking_recv(&mut self) -> Option<FeedEvent> {
        match self {
            Self::Made(events) => events.blocking_recv(),
            Self::ToMake(events) => events.blocking_recv().map(|make| make()),
        }
    }

    /// An event that is there already.
    ///
    /// # Errors
    /// When there is none, now or ever again.
    pub fn try_recv(&mut self) -> Result<FeedEvent, TryRecvError> {
        match self {
            Self::Made(events) => events.try_recv(),
            Self::ToMake(events) => events.try_recv().map(|make| make()),
        }
    }
}
