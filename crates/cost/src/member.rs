//! A node's part of the work: reads Typha's bytes and computes what its dataplane must do.

use calc::{CalcGraph, GraphConfig};
use messages::ToDataplane;
use typha_client::Machine;
use typha_client::feed::Entries;
use typha_wire::outgoing::STREAM_HEAD;
use typha_wire::snappy::{IDENTIFIER, compressed};
use typha_wire::{Compression, Incoming, Message, WireError};

/// Equal to a client's own limit for one message.
const LONGEST_MESSAGE: usize = 64 << 20;

/// A node's reader and its graph.
pub struct Member {
    incoming: Incoming,
    machine: Machine<Entries>,
    graph: CalcGraph,
}

/// What to do with the stream after a message.
enum Next {
    Go,
    End,
}

impl Member {
    /// A node without any state.
    ///
    /// # Errors
    /// Never: a new stream has no leftover bytes.
    pub fn new(host: &str) -> Result<Self, WireError> {
        let mut incoming = Incoming::new(LONGEST_MESSAGE);
        incoming.restart(Compression::Snappy)?;
        let mut machine = Machine::new(Entries);
        machine.connected(false);
        let graph = CalcGraph::new(GraphConfig { host: host.into(), ..GraphConfig::default() });
        Ok(Self { incoming, machine, graph })
    }

    /// Reads a piece of the snapshot.
    ///
    /// # Errors
    /// When the bytes are not Typha's.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        self.incoming.push(bytes);
        let (machine, graph) = (&mut self.machine, &mut self.graph);
        loop {
            let next = self.incoming.next(|message| match message {
                Message::Kvs(updates) => {
                    machine.updates(&updates).items.into_iter().for_each(|entry| graph.on_entry(entry));
                    Next::Go
                }
                Message::DecoderRestart { .. } => Next::End,
                _ => Next::Go,
            })?;
            match next {
                Some(Next::Go) => {}
                Some(Next::End) => {
                    self.incoming.restart(Compression::Snappy)?;
                    self.incoming.push(IDENTIFIER);
                    self.incoming.push(&compressed(&STREAM_HEAD));
                }
                None => return Ok(()),
            }
        }
    }

    /// Called when the server has sent everything: computes what the dataplane receives first.
    pub fn in_sync(&mut self, told: impl FnMut(ToDataplane)) {
        let news = self.machine.status(Some(model::feed::Status::InSync));
        news.items.into_iter().for_each(|entry| self.graph.on_entry(entry));
        self.graph.on_status(model::feed::Status::InSync);
        self.graph.flush_each(told);
    }

    /// Passes on the changes since the last call.
    pub fn flush(&mut self, told: impl FnMut(ToDataplane)) {
        self.graph.flush_each(told);
    }

    /// The number of known entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.machine.len()
    }

    /// Whether it knows none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.machine.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cluster, Hub, Member};
    use std::time::Instant;

    #[test]
    fn a_member_ends_with_what_the_hub_holds() {
        let now = Instant::now();
        let cluster = Cluster { nodes: 4, pods_of_node: 30, pods_a_second: 10, edits_a_second: 3 };
        let mut hub = Hub::new(now);
        hub.publish(&cluster.start().collect::<Vec<_>>(), now);
        hub.in_sync(now);
        let mut member = Member::new(&Cluster::node_name(1)).unwrap();
        for piece in &hub.snapshot(now).pieces {
            member.read(piece).unwrap();
        }
        let mut endpoints = 0;
        member.in_sync(|message| {
            endpoints += usize::from(matches!(message, messages::ToDataplane::WorkloadEndpointUpdate(..)));
        });
        assert_eq!((member.len(), endpoints), (hub.len(), 30));
        let mut told = 0;
        for second in 0..20 {
            let entries: Vec<_> = cluster.second(second).collect();
            for message in hub.publish(&entries, now) {
                member.read(&message).unwrap();
            }
            member.flush(|_| told += 1);
        }
        assert_eq!(member.len(), hub.len());
        assert!(told > 0);
    }
}
