//! Bytes in and out of connections.

use super::peer::{Link, Peer};
use super::{Ends, Engine};
use crate::session::{Admission, Direction, Event, Moment};
use bgp_wire::{Message, MessageKind, decode, encode, frame};
use rib::PeerId;

/// A peer that has not taken so many bytes gets no more routes until it has.
const FULL: usize = 256 * 1024;

impl Engine {
    /// Our connection to a peer stands.
    pub fn connected(&mut self, id: PeerId, ends: Ends, now: Moment) {
        if let Some(peer) = self.peers.get_mut(id) {
            *peer.link(Direction::Outgoing) = Some(Link::new(ends));
            self.tell(id, Event::Connected, now);
        }
    }

    /// Our connection to a peer could not be made.
    pub fn connect_failed(&mut self, id: PeerId, error: String, now: Moment) {
        self.tell(id, Event::ConnectFailed(error), now);
    }

    /// A connection has come. Answers whose it is, or with what it is to be closed.
    ///
    /// # Errors
    /// The bytes to send before it is closed; none for a stranger.
    pub fn accept(&mut self, ends: Ends, now: Moment) -> Result<PeerId, Vec<u8>> {
        let id = self.find(&ends, now).ok_or_else(Vec::new)?;
        let Some(peer) = self.peers.get_mut(id) else { return Err(Vec::new()) };
        let mut actions = Vec::new();
        let admission = peer.session.admit(now, &mut self.random, &mut actions);
        self.act(id, actions, now);
        match admission {
            Admission::Take => {
                if let Some(peer) = self.peers.get_mut(id) {
                    *peer.link(Direction::Incoming) = Some(Link::new(ends));
                }
                self.tell(id, Event::Accepted, now);
                Ok(id)
            }
            Admission::Drop => Err(Vec::new()),
            Admission::Refuse(notification) => {
                let mut bytes = Vec::new();
                encode(
                    &mut bytes,
                    &Message::Notification(notification),
                    &bgp_wire::SessionOptions::default(),
                );
                Err(bytes)
            }
        }
    }

    /// Bytes have come over a connection.
    pub fn received(&mut self, id: PeerId, direction: Direction, bytes: &[u8], now: Moment) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.tally.bytes_received += bytes.len() as u64;
        let Some(link) = peer.link(direction) else { return };
        // What came before and was not whole goes in front.
        let mut buffer = std::mem::take(&mut link.input);
        let mut rest = if buffer.is_empty() {
            bytes
        } else {
            buffer.extend_from_slice(bytes);
            buffer.as_slice()
        };
        loop {
            let Some(peer) = self.peers.get_mut(id) else { return };
            let options = peer.session.options(direction);
            let message = match frame(rest, &options) {
                Ok(None) => break,
                Ok(Some(found)) => {
                    rest = &rest[found.length..];
                    peer.tally.received += 1;
                    peer.tally.updates += u64::from(found.kind == MessageKind::Update);
                    decode(&found, &options)
                }
                Err(answer) => Err(answer),
            };
            let failed = message.is_err();
            self.tell(id, Event::Received(direction, message), now);
            let open = self.peers.get(id).is_some_and(|peer| peer.linked(direction).is_some());
            if failed || !open {
                return;
            }
        }
        let rest = rest.to_vec();
        if let Some(link) = self.peers.get_mut(id).and_then(|peer| peer.link(direction).as_mut()) {
            link.input = rest;
        }
    }

    /// A connection has ended; why, if the peer did not close it.
    pub fn closed(&mut self, id: PeerId, direction: Direction, error: Option<String>, now: Moment) {
        if let Some(peer) = self.peers.get_mut(id) {
            *peer.link(direction) = None;
            self.tell(id, Event::Closed(direction, error), now);
        }
    }

    /// Peers that have something to send, once.
    pub fn take_ready(&mut self) -> Vec<PeerId> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    /// The bytes that a connection is to send next; empty for none.
    pub fn output(&mut self, id: PeerId, direction: Direction) -> &[u8] {
        let Some(peer) = self.peers.get_mut(id) else { return &[] };
        let Peer { outbox, .. } = &mut *peer;
        let mut outbox = outbox.take();
        let Some(link) = peer.link(direction) else {
            peer.outbox = outbox;
            return &[];
        };
        if let Some((of, outbox)) = &mut outbox
            && *of == direction
        {
            while link.unsent().len() < FULL && !outbox.is_empty() {
                if link.sent > 0 {
                    link.output.drain(..link.sent);
                    link.sent = 0;
                }
                outbox.write(&mut link.output);
            }
        }
        peer.outbox = outbox;
        peer.linked(direction).map_or(&[], Link::unsent)
    }

    /// So many bytes of [`Engine::output`] have been sent.
    pub fn sent(&mut self, id: PeerId, direction: Direction, count: usize) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.tally.bytes_sent += count as u64;
        peer.session.progressed();
        if let Some(link) = peer.link(direction) {
            link.sent += count;
            if link.sent >= link.output.len() {
                link.output.clear();
                link.sent = 0;
                // One large table should not cost its memory for ever.
                link.output.shrink_to(4 * FULL);
            }
        }
    }

    /// Bytes of [`Engine::output`] wait, because the peer takes no more just now.
    pub fn blocked(&mut self, id: PeerId, now: Moment) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.session.blocked(now);
        }
    }

    /// How many bytes of messages are kept for connections: parts of what came, and what is not sent yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let links = self.peers.iter().flat_map(|peer| peer.links.iter().flatten());
        links.map(|link| link.input.len() + link.unsent().len()).sum()
    }
}
