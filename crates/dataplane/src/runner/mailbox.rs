//! Messages for the loop, with a descriptor that is readable when there are any: the loop waits for messages and for
//! the kernel's events in one place.

use super::Event;
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

/// How many batches of messages may wait before the sender blocks.
const WAITING: usize = 16;

/// The sending side for messages to the loop. It rings by itself, also when the last sender is dropped.
#[derive(Debug)]
pub struct Sender {
    /// `None` only while it is being dropped.
    channel: Option<SyncSender<Event>>,
    bell: Arc<OwnedFd>,
}

/// The message was not taken: the loop has ended, or, for a sender that does not wait, is too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the dataplane does not take messages")]
pub struct NotTaken;

impl Sender {
    /// Sends messages; blocks while the loop is far behind.
    ///
    /// # Errors
    /// When the loop has ended.
    pub fn send(&self, event: Event) -> Result<(), NotTaken> {
        let sent = self.channel.as_ref().map(|channel| channel.send(event));
        ring(&self.bell);
        sent.ok_or(NotTaken)?.map_err(|_| NotTaken)
    }

    /// Sends messages if there is room for them.
    ///
    /// # Errors
    /// When there is no room, or the loop has ended.
    pub fn try_send(&self, event: Event) -> Result<(), NotTaken> {
        let sent = self.channel.as_ref().map(|channel| channel.try_send(event));
        ring(&self.bell);
        sent.ok_or(NotTaken)?.map_err(|_| NotTaken)
    }
}

impl Clone for Sender {
    fn clone(&self) -> Self {
        Self { channel: self.channel.clone(), bell: Arc::clone(&self.bell) }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        // In this order: the receiver wakes up to find that no sender is left.
        self.channel = None;
        ring(&self.bell);
    }
}

/// The receiving side.
#[derive(Debug)]
pub(super) struct Mailbox {
    receiver: Receiver<Event>,
    bell: Arc<OwnedFd>,
}

impl Mailbox {
    /// Opens a mailbox; returns its two sides.
    pub(super) fn open() -> std::io::Result<(Sender, Self)> {
        let (channel, receiver) = sync_channel(WAITING);
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok((Sender { channel: Some(channel), bell: Arc::clone(&bell) }, Self { receiver, bell }))
    }

    /// Resets the descriptor; what arrived is then taken with [`Mailbox::take`].
    pub(super) fn silence(&self) {
        // Fails only when the counter is zero.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
    }

    /// The next message, if there is one; [`Event::Stop`] when no sender is left.
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
        self.bell.as_fd()
    }
}

fn ring(bell: &OwnedFd) {
    // Fails only when the counter overflows.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::{Mailbox, NotTaken};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    /// Whether the bell rings, now or, with `wait`, within some time.
    fn rings(mailbox: &Mailbox, wait: bool) -> bool {
        let mut descriptors = [PollFd::new(mailbox, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut descriptors, (!wait).then_some(&now)).expect("poll") > 0
    }

    #[test]
    fn it_rings_for_messages_and_for_the_end() {
        let (sender, mailbox) = Mailbox::open().expect("open");
        assert!(!rings(&mailbox, false) && mailbox.take().is_none());
        let other = sender.clone();
        let thread = std::thread::spawn(move || {
            // More than fit: the sender waits for the receiver.
            for _ in 0..100 {
                other.send(Event::Messages(Vec::new())).expect("the other side is there");
            }
        });
        let mut taken = 0;
        while taken < 100 {
            assert!(rings(&mailbox, true));
            mailbox.silence();
            while mailbox.take().is_some() {
                taken += 1;
            }
        }
        thread.join().expect("no panic");
        mailbox.silence();
        assert!(!rings(&mailbox, false) && mailbox.take().is_none());
        drop(sender);
        assert!(rings(&mailbox, false) && matches!(mailbox.take(), Some(Event::Stop)));
        let (sender, mailbox) = Mailbox::open().expect("open");
        drop(mailbox);
        assert_eq!(sender.send(Event::Stop), Err(NotTaken));
    }
}
