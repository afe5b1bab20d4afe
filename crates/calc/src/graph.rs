//! The graph itself: which part hears of what, and in which order they are asked at a flush.

use crate::sequencer::{MemberSource, Sequencer, SetIndex};
use messages::{IpSetMember, ToDataplane};
use model::feed::{Status, Update};

/// What the graph must know about its host.
#[derive(Clone, Debug, Default)]
pub struct GraphConfig {
    /// The name of this host, as endpoints and nodes carry it.
    pub host: String,
    /// Whether a member of a set that lies within another member is left out: nftables cannot hold both.
    pub suppress_overlaps: bool,
    /// Whether workloads of Istio's ambient mesh are marked.
    pub istio_ambient: bool,
}

/// The calculation graph of one host.
#[derive(Debug)]
pub struct CalcGraph {
    sequencer: Sequencer,
    in_sync: InSync,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InSync {
    NotYet,
    ToBeSent,
    Sent,
}

impl CalcGraph {
    /// A graph that knows nothing yet.
    #[must_use]
    pub fn new(_config: GraphConfig) -> Self {
        Self { sequencer: Sequencer::default(), in_sync: InSync::NotYet }
    }

    /// Takes in one entry of the feed. Nothing is sent before the next flush.
    pub fn on_update(&mut self, _update: Update) {}

    /// Takes in how far the feed has come.
    pub fn on_status(&mut self, status: Status) {
        if status == Status::InSync && self.in_sync == InSync::NotYet {
            self.in_sync = InSync::ToBeSent;
        }
    }

    /// Sends what changed since the last flush, in an order that is safe to apply.
    pub fn flush(&mut self, out: &mut Vec<ToDataplane>) {
        self.sequencer.flush(&Members, out);
        if self.in_sync == InSync::ToBeSent {
            self.in_sync = InSync::Sent;
            out.push(ToDataplane::InSync);
        }
    }
}

struct Members;

impl MemberSource for Members {
    fn members(&self, _set: SetIndex) -> Vec<IpSetMember> {
        Vec::new()
    }
}
