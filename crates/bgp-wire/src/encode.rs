//! Encodes messages. The output is always well-formed, whatever the values: lists that do not fit are split over
//! several messages.

mod attributes;

use crate::{
    AddPathMode, Attributes, Capability, Family, HEADER_LENGTH, Message, MessageKind, NextHop, Nlri, Open,
    RefreshPhase, RouteRefresh, SessionOptions,
};
use std::fmt;

/// Appends a message to a buffer. An UPDATE may become several messages.
pub fn encode(out: &mut Vec<u8>, message: &Message, options: &SessionOptions) {
    match message {
        Message::Open(message) => open(out, message),
        Message::Update(update) => {
            let mut writer = UpdateWriter::new(*options);
            writer.withdraw(out, update.withdrawn.iter().copied());
            for reach in &update.reach {
                // Attributes that do not fit into any message cannot be sent at all.
                let fits =
                    writer.announce(out, &update.attributes, &reach.next_hop, reach.nlri.iter().copied());
                if fits.is_err() {
                    writer.withdraw(out, reach.nlri.iter().copied());
                }
            }
            if let Some(family) = update.end_of_rib {
                end_of_rib(out, family);
            }
        }
        Message::Notification(notification) => {
            let (code, subcode) = notification.cause.numbers();
            let start = begin(out, MessageKind::Notification);
            out.extend([code, subcode]);
            let fitting = notification.data.len().min(crate::MAX_LENGTH - HEADER_LENGTH - 2);
            out.extend_from_slice(&notification.data[..fitting]);
            finish(out, start);
        }
        Message::Keepalive => {
            let start = begin(out, MessageKind::Keepalive);
            finish(out, start);
        }
        Message::RouteRefresh(refresh) => route_refresh(out, *refresh),
        Message::UnknownRefresh => {}
    }
}

/// Appends the marker that all routes of a family have been sent (RFC 4724).
pub fn end_of_rib(out: &mut Vec<u8>, family: Family) {
    let start = begin(out, MessageKind::Update);
    match family {
        Family::Ipv4 => out.extend([0; 4]),
        Family::Ipv6 => {
            let [high, low] = family.afi().to_be_bytes();
            out.extend([0, 0, 0, 6, 0x80, crate::attribute::MP_UNREACH, 3, high, low, family.safi()]);
        }
    }
    finish(out, start);
}

fn route_refresh(out: &mut Vec<u8>, refresh: RouteRefresh) {
    let start = begin(out, MessageKind::RouteRefresh);
    let phase = match refresh.phase {
        RefreshPhase::Request => 0,
        RefreshPhase::Begin => 1,
        RefreshPhase::End => 2,
    };
    out.extend_from_slice(&refresh.family.afi().to_be_bytes());
    out.extend([phase, refresh.family.safi()]);
    finish(out, start);
}

/// Writes a header with an unknown length; returns the start of the message.
fn begin(out: &mut Vec<u8>, kind: MessageKind) -> usize {
    let start = out.len();
    out.extend([0xff; 16]);
    out.extend([0, 0, kind.number()]);
    start
}

fn finish(out: &mut [u8], start: usize) {
    let length = out.len() - start;
    put_length(out, start + 16, length);
}

/// Writes a length into the two bytes reserved for it.
fn put_length(out: &mut [u8], at: usize, length: usize) {
    let [high, low] = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    if let Some(field) = out.get_mut(at..at + 2) {
        field.copy_from_slice(&[high, low]);
    }
}

fn open(out: &mut Vec<u8>, open: &Open) {
    let start = begin(out, MessageKind::Open);
    out.push(4);
    out.extend_from_slice(&open.my_as.to_be_bytes());
    out.extend_from_slice(&open.hold_time.to_be_bytes());
    out.extend_from_slice(&open.router_id.0.to_be_bytes());
    let mut parameters: Vec<(u8, Vec<u8>)> = Vec::new();
    let mut length = 0;
    for capability in &open.capabilities {
        let (code, value) = self::capability(capability);
        // One parameter per capability, which every speaker understands. What does not fit is not offered.
        if length + value.len() + 4 <= 253 {
            length += value.len() + 4;
            parameters.push((code, value));
        }
    }
    out.push(byte(length));
    for (code, value) in parameters {
        out.extend([2, byte(value.len() + 2), code, byte(value.len())]);
        out.extend_from_slice(&value);
    }
    finish(out, start);
}

fn byte(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

fn family(out: &mut Vec<u8>, family: Family) {
    out.extend_from_slice(&family.afi().to_be_bytes());
    out.push(family.safi());
}

fn capability(capability: &Capability) -> (u8, Vec<u8>) {
    let mut value = Vec::new();
    let code = match capability {
        Capability::Multiprotocol(of) => {
            value.extend_from_slice(&of.afi().to_be_bytes());
            value.extend([0, of.safi()]);
            1
        }
        Capability::OtherFamily(afi, safi) => {
            value.extend_from_slice(&afi.to_be_bytes());
            value.extend([0, *safi]);
            1
        }
        Capability::RouteRefresh => 2,
        Capability::ExtendedNextHop => {
            value.extend([0, 1, 0, 1, 0, 2]);
            5
        }
        Capability::ExtendedMessage => 6,
        Capability::GracefulRestart(restart) => {
            let flags = u16::from(restart.restarting) << 15 | u16::from(restart.notification) << 14;
            value.extend_from_slice(&(flags | restart.restart_time.min(0x0fff)).to_be_bytes());
            for entry in &restart.families {
                family(&mut value, entry.family);
                value.push(u8::from(entry.forwarding) << 7);
            }
            64
        }
        Capability::FourByteAs(system) => {
            value.extend_from_slice(&system.0.to_be_bytes());
            65
        }
        Capability::AddPath(modes) => {
            for (of, mode) in modes {
                family(&mut value, *of);
                value.push(match mode {
                    AddPathMode::Receive => 1,
                    AddPathMode::Send => 2,
                    AddPathMode::Both => 3,
                });
            }
            69
        }
        Capability::EnhancedRouteRefresh => 70,
        Capability::LongLivedGracefulRestart(families) => {
            for entry in families {
                family(&mut value, entry.family);
                value.push(u8::from(entry.forwarding) << 7);
                value.extend_from_slice(&entry.stale_time.min(0x00ff_ffff).to_be_bytes()[1..]);
            }
            71
        }
        Capability::Other { code, value: bytes } => {
            value.extend_from_slice(bytes);
            *code
        }
    };
    (code, value)
}

/// The attributes leave no room for a prefix in a message. The routes have to be withdrawn instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributesTooLong;

impl fmt::Display for AttributesTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the attributes of a route do not fit into a message")
    }
}

impl std::error::Error for AttributesTooLong {}

/// Packs prefixes with equal attributes into as few messages as possible.
#[derive(Clone, Debug)]
pub struct UpdateWriter {
    options: SessionOptions,
    block: Vec<u8>,
}

impl UpdateWriter {
    /// Creates a writer for a session.
    #[must_use]
    pub fn new(options: SessionOptions) -> Self {
        Self { options, block: Vec::new() }
    }

    /// Appends messages that withdraw prefixes. Both families are allowed; adjacent prefixes of one family share
    /// messages.
    pub fn withdraw(&mut self, out: &mut Vec<u8>, prefixes: impl IntoIterator<Item = Nlri>) {
        let mut prefixes = prefixes.into_iter().peekable();
        while let Some(family) = prefixes.peek().map(Nlri::family) {
            let start = begin(out, MessageKind::Update);
            let lengths = match family {
                Family::Ipv4 => {
                    out.extend([0, 0]);
                    (start + HEADER_LENGTH, None)
                }
                Family::Ipv6 => {
                    let [high, low] = family.afi().to_be_bytes();
                    out.extend([
                        0,
                        0,
                        0,
                        0,
                        0x90,
                        crate::attribute::MP_UNREACH,
                        0,
                        0,
                        high,
                        low,
                        family.safi(),
                    ]);
                    (start + HEADER_LENGTH + 2, Some(start + HEADER_LENGTH + 6))
                }
            };
            // Reserves two bytes for the length of the attributes after IPv4 prefixes.
            let limit = start + self.options.max_length() - 2;
            self.fill(out, family, limit, &mut prefixes);
            match lengths {
                (at, None) => {
                    let length = out.len() - at - 2;
                    put_length(out, at, length);
                    out.extend([0, 0]);
                }
                (at, Some(inner)) => {
                    let (length, inside) = (out.len() - at - 2, out.len() - inner - 2);
                    put_length(out, at, length);
                    put_length(out, inner, inside);
                }
            }
            finish(out, start);
        }
    }

    /// Appends messages that announce prefixes. Both families are allowed; adjacent prefixes of one family share
    /// messages.
    ///
    /// # Errors
    /// When the attributes leave no room for a prefix; nothing was written.
    pub fn announce(
        &mut self,
        out: &mut Vec<u8>,
        attributes: &Attributes,
        next_hop: &NextHop,
        prefixes: impl IntoIterator<Item = Nlri>,
    ) -> Result<(), AttributesTooLong> {
        let mut prefixes = prefixes.into_iter().peekable();
        let mut block = std::mem::take(&mut self.block);
        block.clear();
        attributes::write(&mut block, attributes, &self.options);
        // MP_REACH_NLRI before its prefixes, a prefix with its path id, and the two lengths of an UPDATE.
        if HEADER_LENGTH + block.len() + 41 + 21 + 4 > self.options.max_length() {
            self.block = block;
            return Err(AttributesTooLong);
        }
        while let Some(family) = prefixes.peek().map(Nlri::family) {
            let start = begin(out, MessageKind::Update);
            let limit = start + self.options.max_length();
            out.extend([0; 4]);
            let attributes_at = start + HEADER_LENGTH + 2;
            match (family, next_hop) {
                (Family::Ipv4, NextHop::Ipv4(address)) => {
                    attributes::write_with_next_hop(out, &block, *address);
                    let length = out.len() - attributes_at - 2;
                    put_length(out, attributes_at, length);
                    self.fill(out, family, limit, &mut prefixes);
                }
                _ => {
                    let inner = attributes::begin_reach(out, family, next_hop);
                    self.fill(out, family, limit - block.len(), &mut prefixes);
                    let inside = out.len() - inner - 2;
                    put_length(out, inner, inside);
                    out.extend_from_slice(&block);
                    let length = out.len() - attributes_at - 2;
                    put_length(out, attributes_at, length);
                }
            }
            finish(out, start);
        }
        self.block = block;
        Ok(())
    }

    /// Writes prefixes of a family until the buffer reaches its limit.
    fn fill(
        &self,
        out: &mut Vec<u8>,
        family: Family,
        limit: usize,
        prefixes: &mut std::iter::Peekable<impl Iterator<Item = Nlri>>,
    ) {
        let with_path = self.options.add_path_send[family.index()];
        while let Some(nlri) = prefixes.peek() {
            let bytes = usize::from(nlri.prefix.prefix_len()).div_ceil(8);
            if nlri.family() != family || out.len() + 1 + bytes + if with_path { 4 } else { 0 } > limit {
                return;
            }
            if with_path {
                out.extend_from_slice(&nlri.path.0.to_be_bytes());
            }
            out.push(nlri.prefix.prefix_len());
            match nlri.prefix {
                ipnet::IpNet::V4(prefix) => out.extend_from_slice(&prefix.network().octets()[..bytes]),
                ipnet::IpNet::V6(prefix) => out.extend_from_slice(&prefix.network().octets()[..bytes]),
            }
            prefixes.next();
        }
    }
}
