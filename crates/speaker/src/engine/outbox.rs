//! What is still to be sent to a peer: routes, and the marks behind them.

use super::pending::{Pending, Run};
use bgp_wire::{
    Family, Message, Nlri, RefreshPhase, RouteRefresh, SessionOptions, UpdateWriter, encode, end_of_rib,
};
use ipnet::IpNet;
use rib::Announcement;
use std::sync::Arc;

/// As many prefixes are written at a time: enough for full messages, few enough for other peers to have their turn.
const CHUNK: usize = 16 * 1024;

/// What follows when a family's routes have all been sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Marks {
    end_of_rib: bool,
    end_of_refresh: bool,
}

/// What is still to be sent to a peer.
#[derive(Debug)]
pub(super) struct Outbox {
    options: SessionOptions,
    writer: UpdateWriter,
    pending: Pending,
    marks: [Marks; 2],
    /// Prefixes whose attributes fit no message, by now.
    pub(super) unsendable: u64,
}

impl Outbox {
    pub(super) fn new(options: SessionOptions) -> Self {
        let writer = UpdateWriter::new(options);
        Self { options, writer, pending: Pending::default(), marks: [Marks::default(); 2], unsendable: 0 }
    }

    /// A prefix is announced, or withdrawn.
    pub(super) fn put(&mut self, prefix: IpNet, announcement: Option<&Arc<Announcement>>) {
        if self.options.exchanges(Family::of_prefix(&prefix)) {
            self.pending.put(prefix, announcement);
        }
    }

    /// All routes of a family have been put in.
    pub(super) fn complete(&mut self, family: Family) {
        self.marks[family.index()].end_of_rib |= self.options.exchanges(family);
    }

    /// All routes of a family are put in again. A peer that asks while they still go out gets one end for all its requests:
    /// marks that it does not read would pile up without one.
    pub(super) fn begin_refresh(&mut self, out: &mut Vec<u8>, family: Family) {
        let marks = &mut self.marks[family.index()];
        if !std::mem::replace(&mut marks.end_of_refresh, true) {
            refresh(out, family, RefreshPhase::Begin, &self.options);
        }
    }

    /// How many prefixes wait.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Whether there is something to write.
    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.marks == [Marks::default(); 2]
    }

    /// Writes some of it.
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
