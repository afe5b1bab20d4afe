//! Input from and output to connections.

use super::peer::{Link, Peer};
use super::{Ends, Engine};
use crate::session::{Admission, Direction, Event, Moment};
use bgp_wire::{Message, MessageKind, decode, encode, frame};
use rib::PeerId;

/// A peer with this many unsent bytes gets no more routes until it has read some.
const FULL: usize = 256 * 1024;

impl Engine {
    /// Handles that our connection to a peer is established.
    pub fn connected(&mut self, id: PeerId, ends: Ends, now: Moment) {
        if let Some(peer) = self.peers.get_mut(id) {
            *peer.link(Direction::Outgoing) = Some(Link::new(ends));
            self.tell(id, Event::Connected, now);
        }
    }

    /// Handles that our connection to a peer failed.
    pub fn connect_failed(&mut self, id: PeerId, error: String, now: Moment) {
        self.tell(id, Event::ConnectFailed(error), now);
    }

    /// Handles an incoming connection. Returns the peer that it belongs to.
    ///
    /// # Errors
    /// When the connection is refused; the error is the bytes to send before closing it, empty for an unknown peer.
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

    /// Handles bytes received on a connection.
    pub fn received(&mut self, id: PeerId, direction: Direction, bytes: &[u8], now: Moment) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.tally.bytes_received += bytes.len() as u64;
        let Some(link) = peer.link(direction) else { return };
        // An incomplete message from earlier goes in front.
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

    /// Handles the end of a connection; `error` is set unless the peer closed it.
    pub fn closed(&mut self, id: PeerId, direction: Direction, error: Option<String>, now: Moment) {
        if let Some(peer) = self.peers.get_mut(id) {
            *peer.link(direction) = None;
            self.tell(id, Event::Closed(direction, error), now);
        }
    }

    /// Takes the list of peers with data to send.
    pub fn take_ready(&mut self) -> Vec<PeerId> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.sort_unstable();
        ready.dedup();
        ready
    }

    /// The next bytes to send on a connection; empty if there are none.
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

    /// Records that this many bytes of [`Engine::output`] have been sent.
    pub fn sent(&mut self, id: PeerId, direction: Direction, count: usize) {
        let Some(peer) = self.peers.get_mut(id) else { return };
        peer.tally.bytes_sent += count as u64;
        peer.session.progressed();
        if let Some(link) = peer.link(direction) {
            link.sent += count;
            if link.sent >= link.output.len() {
                link.output.clear();
                link.sent = 0;
                // A large table sent once must not keep its memory for ever.
                link.output.shrink_to(4 * FULL);
            }
        }
    }

    /// Records that the peer currently accepts no more bytes.
    pub fn blocked(&mut self, id: PeerId, now: Moment) {
        if let Some(peer) = self.peers.get_mut(id) {
            peer.session.blocked(now);
        }
    }

    /// The bytes buffered for connections: incomplete input, and unsent output.
    #[must_use]
    pub fn buffered(&self) -> usize {
        let links = self.peers.iter().flat_map(|peer| peer.links.iter().flatten());
        links.map(|link| link.input.len() + link.unsent().len()).sum()
    }
}
