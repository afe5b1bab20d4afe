//! Access to the speaker from other threads: commands over a channel, and a counter that wakes its thread.

use crate::engine::Engine;
use crate::session::Moment;
use bgp::Intent;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// A query of the engine, executed by the thread that owns it.
pub(super) type Question = Box<dyn FnOnce(&Engine, Moment) + Send>;

/// A command from another thread.
pub(super) enum Command {
    Apply(Box<Intent>),
    Ask(Question),
    End { keep: bool, text: String },
}

/// Access to the speaker from other threads. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) sender: Sender<Command>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Handle {
    fn send(&self, command: Command) {
        // A speaker that has ended ignores commands.
        if self.sender.send(command).is_ok() {
            // A full counter also wakes the thread.
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Applies an intent.
    pub fn apply(&self, intent: Intent) {
        self.send(Command::Apply(Box::new(intent)));
    }

    /// Queries the speaker; `None` if it has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine, Moment) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, receiver) = channel();
        self.send(Command::Ask(Box::new(move |engine, now| {
            // The caller may have stopped waiting.
            let _ = answer.send(question(engine, now));
        })));
        receiver.recv().ok()
    }

    /// Ends the speaker. `keep`: for a restart, peers and the kernel keep our routes; otherwise peers are notified of
    /// the reason.
    pub fn end(&self, keep: bool, text: &str) {
        self.send(Command::End { keep, text: text.to_owned() });
    }
}
