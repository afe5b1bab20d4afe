//! Listeners for machines that move to this host, one for each that has not come yet, and none otherwise.
//!
//! Nothing is decided here: who is awaited comes from the managers, and who was heard goes back to them.

use messages::WorkloadEndpointId;
use netlink::announcements::Listener;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

/// What is listened to, by endpoint: the device's number and, unless it failed, the listener.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    listeners: BTreeMap<WorkloadEndpointId, (u32, Option<Listener>)>,
}

impl Arrivals {
    /// Listens for these endpoints on these devices, and for no others.
    pub(super) fn follow<'a>(&mut self, awaited: impl Iterator<Item = (&'a WorkloadEndpointId, u32)>) {
        let mut before = std::mem::take(&mut self.listeners);
        for (id, device) in awaited {
            let kept = before.remove(id).filter(|(known, _)| *known == device);
            let listener = kept.unwrap_or_else(|| {
                let opened = Listener::open(device).inspect_err(|error| {
                    // Its routes then come when the migration is over.
                    tracing::warn!(?id, %error, "cannot listen for a machine that moves here");
                });
                (device, opened.ok())
            });
            self.listeners.insert(id.clone(), listener);
        }
    }

    /// What to wait on.
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
        // They have come; nobody listens for them any more.
        for id in &heard {
            self.listeners.remove(id);
        }
        heard
    }
}
