//! The routes still to be sent to a peer, and the markers after them.

use super::pending::{Pending, Run};
use bgp_wire::{
    Family, Message, Nlri, RefreshPhase, RouteRefresh, SessionOptions, UpdateWriter, encode, end_of_rib,
};
use ipnet::IpNet;
use rib::Announcement;
use std::sync::Arc;

/// How many prefixes are encoded at a time: enough for full messages, few enough to let other peers proceed.
const CHUNK: usize = 16 * 1024;

/// The markers to send after all routes of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    end_of_rib: bool,
    end_of_refresh: bool,
}

/// The output queue of a peer.
#[derive(Debug)]
pub(super) struct Outbox {
    options: SessionOptions,
    writer: UpdateWriter,
    pending: Pending,
    marks: [Marks; 2],
    /// The number of prefixes so far whose attributes fit into no message.
    pub(super) unsendable: u64,
}

impl Outbox {
    pub(super) fn new(options: SessionOptions) -> Self {
        let writer = UpdateWriter::new(options);
        Self { options, writer, pending: Pending::default(), marks: [Marks::default(); 2], unsendable: 0 }
    }

    /// Queues the announcement or withdrawal of a prefix.
    pub(super) fn put(&mut self, prefix: IpNet, announcement: Option<&Arc<Announcement>>) {
        if self.options.exchanges(Family::of_prefix(&prefix)) {
            self.pending.put(prefix, announcement);
        }
    }

    /// Queues the end marker after all routes of a family.
    pub(super) fn complete(&mut self, family: Family) {
        self.marks[family.index()].end_of_rib |= self.options.exchanges(family);
    }

    /// Starts sending all routes of a family again. A peer that repeats its request in the meantime gets one end marker
    /// for all requests: otherwise markers would pile up for a peer that does not read.
    pub(super) fn begin_refresh(&mut self, out: &mut Vec<u8>, family: Family) {
        let marks = &mut self.marks[family.index()];
        if !std::mem::replace(&mut marks.end_of_refresh, true) {
            refresh(out, family, RefreshPhase::Begin, &self.options);
        }
    }

    /// The number of waiting prefixes.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.marks == [Marks::default(); 2]
    }

    /// Encodes a part of the queue.
    pub(super) fn write(&mut self, out: &mut Vec<u8>) {
        for Run { announcement, prefixes } in self.pending.take(CHUNK) {
            let nlri = || prefixes.iter().map(|prefix| Nlri::new(*prefix));
            let Some(announcement) = announcement else {
                self.writer.withdraw(out, nlri());
                continue;
            };
            let Announcement { attributes, next_hop } = &*announcement;
            if self.writer.announce(out, attributes, next_hop, nlri()).is_err() {
                self.unsendable += prefixes.len() as u64;
                self.writer.withdraw(out, nlri());
            }
        }
        if !self.pending.is_empty() {
            return;
        }
        for family in Family::ALL {
            let marks = std::mem::take(&mut self.marks[family.index()]);
            if marks.end_of_rib {
                end_of_rib(out, family);
            }
            if marks.end_of_refresh {
                refresh(out, family, RefreshPhase::End, &self.options);
            }
        }
    }
}

fn refresh(out: &mut Vec<u8>, family: Family, phase: RefreshPhase, options: &SessionOptions) {
    encode(out, &Message::RouteRefresh(RouteRefresh { family, phase }), options);
}
