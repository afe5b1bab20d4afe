//! The speaker, from other threads: commands over a channel, and a counter that wakes the thread that owns everything.

use crate::engine::Engine;
use crate::session::Moment;
use bgp::Intent;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

/// A look at the engine, carried out by the thread that owns it.
pub(super) type Question = Box<dyn FnOnce(&Engine, Moment) + Send>;

/// What the thread is asked from outside.
pub(super) enum Command {
    Apply(Box<Intent>),
    Ask(Question),
    End { keep: bool, text: String },
}

/// The speaker, from other threads. Cheap to clone.
#[derive(Clone)]
pub struct Handle {
    pub(super) sender: Sender<Command>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Handle {
    fn send(&self, command: Command) {
        // A speaker that has ended needs no more commands.
        if self.sender.send(command).is_ok() {
            // A full counter wakes as well.
            let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
        }
    }

    /// Carries out an intent from now on.
    pub fn apply(&self, intent: Intent) {
        self.send(Command::Apply(Box::new(intent)));
    }

    /// Looks at the speaker; `None` when it has ended.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Engine, Moment) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, receiver) = channel();
        self.send(Command::Ask(Box::new(move |engine, now| {
            // Who asked may not wait any more.
            let _ = answer.send(question(engine, now));
        })));
        receiver.recv().ok()
    }

    /// Ends the speaker. `keep`: for a restart: peers and the kernel keep our routes. Otherwise peers learn why.
    pub fn end(&self, keep: bool, text: &str) {
        self.send(Command::End { keep, text: text.to_owned() });
    }
}
