//! The receiving end of a feed.
//!
//! Events are created by the following task, or only when they are received. Entries consist of many small allocations:
//! when one thread creates and another frees them, both mostly wait for the allocator's lock, and each costs twice as
//! much.

use crate::FeedEvent;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TryRecvError;

/// Creates an event in the receiving thread.
pub type Make = Box<dyn FnOnce() -> FeedEvent + Send>;

/// The events of a feed, in order.
pub enum Events {
    /// Finished events.
    Made(mpsc::Receiver<FeedEvent>),
    /// Events that are created when they are received.
    ToMake(mpsc::Receiver<Make>),
}

impl From<mpsc::Receiver<FeedEvent>> for Events {
    fn from(events: mpsc::Receiver<FeedEvent>) -> Self {
        Self::Made(events)
    }
}

impl Events {
    /// The next event; `None` when the feed has ended.
    pub async fn recv(&mut self) -> Option<FeedEvent> {
        match self {
            Self::Made(events) => events.recv().await,
            Self::ToMake(events) => events.recv().await.map(|make| make()),
        }
    }

    /// The next event, for a thread that may block.
    pub fn blocking_recv(&mut self) -> Option<FeedEvent> {
        match self {
            Self::Made(events) => events.blocking_recv(),
            Self::ToMake(events) => events.blocking_recv().map(|make| make()),
        }
    }

    /// The next event, if one is available at once.
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
