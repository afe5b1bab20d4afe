//! Messages for the loop, with a descriptor that becomes readable when there are some: the loop waits for messages and for
//! the kernel's news in one place.

use super::Event;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// How many batches of messages may wait for the one who sends them to be held up.
const WAITING: usize = 16;

/// The loop's side.
#[derive(Debug)]
pub(super) struct Mailbox {
    receiver: Receiver<Event>,
    wake: Arc<OwnedFd>,
}

impl Mailbox {
    /// A mailbox and where messages for it are sent to. The thread that carries them over ends with the last sender, with
    /// [`Event::Stop`], or with the mailbox.
    pub(super) fn open() -> std::io::Result<(SyncSender<Event>, Self)> {
        let (sender, outer) = sync_channel(WAITING);
        let (inner, receiver) = sync_channel(1);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let bell = Arc::clone(&wake);
        std::thread::Builder::new().name("messages".to_owned()).spawn(move || {
            while let Ok(event) = outer.recv() {
                let last = matches!(event, Event::Stop);
                let delivered = inner.send(event).is_ok();
                ring(&bell);
                if last || !delivered {
                    return;
                }
            }
            // Nobody is left to send anything.
            drop(inner);
            ring(&bell);
        })?;
        Ok((sender, Self { receiver, wake }))
    }

    /// Resets the descriptor; what arrived is then taken with [`Mailbox::take`].
    pub(super) fn silence(&self) {
        // Fails only when nothing rang.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
    }

    /// The next message, if there is one; [`Event::Stop`] when there will be none any more.
    pub(super) fn take(&self) -> Option<Event> {
        match self.receiver.try_recv() {
            Ok(event) => Some(event),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Event::Stop),
        }
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

fn ring(bell: &OwnedFd) {
    // Fails only when it has rung more often than a number can count.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}
