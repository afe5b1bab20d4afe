//! Listeners for machines that move to this host, one for each that has not arrived yet.
//!
//! No decisions here: the managers provide the awaited endpoints, and are given the announced ones.

use messages::WorkloadEndpointId;
use netlink::announcements::Listener;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// The listeners by endpoint: the device's number and, unless opening failed, the listener.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    listeners: BTreeMap<WorkloadEndpointId, (u32, Option<Listener>)>,
}

impl Arrivals {
    /// Listens for exactly these endpoints on these devices.
    pub(super) fn follow<'a>(&mut self, awaited: impl Iterator<Item = (&'a WorkloadEndpointId, u32)>) {
        let mut before = std::mem::take(&mut self.listeners);
        for (id, device) in awaited {
            let kept = before.remove(id).filter(|(known, _)| *known == device);
            let listener = kept.unwrap_or_else(|| {
                let opened = Listener::open(device).inspect_err(|error| {
                    // The machine's routes are then programmed when the migration is over.
                    tracing::warn!(?id, %error, "cannot listen for a machine that moves here");
                });
                (device, opened.ok())
            });
            self.listeners.insert(id.clone(), listener);
        }
    }

    /// The descriptors to wait on.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.listeners.values().filter_map(|(_, listener)| listener.as_ref()).flat_map(Listener::descriptors)
    }

    /// The endpoints whose machines announced themselves since the last call.
    pub(super) fn take(&mut self) -> Vec<WorkloadEndpointId> {
        let mut heard = Vec::new();
        for (id, (_, listener)) in &mut self.listeners {
            match listener.as_ref().map(Listener::heard) {
                Some(Ok(true)) => heard.push(id.clone()),
                Some(Ok(false)) | None => {}
                Some(Err(error)) => {
                    tracing::warn!(?id, %error, "can no longer listen for the arrival of a migrating machine");
                    *listener = None;
                }
            }
        }
        // Their machines have arrived; listening ends.
        for id in &heard {
            self.listeners.remove(id);
        }
        heard
    }
}
