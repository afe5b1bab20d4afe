//! The expressions that rules consist of; their encoding is in [`encode`].
//!
//! Registers, operators and byte orders are chosen as in the `nft` program, so that it prints our rules in the same
//! words as its own.

mod encode;

use super::set::{Key, KeyType};
use crate::wire::Writer;
use std::sync::Arc;

/// The attribute of a list's element.
pub(super) const LIST_ELEMENT: u16 = 1;

/// Up to sixteen bytes to compare, mask or load.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Data {
    length: u8,
    bytes: [u8; 16],
}

impl Data {
    /// Data of these bytes; anything beyond sixteen is cut off, since no register holds more.
    #[must_use]
    pub fn new(value: &[u8]) -> Self {
        let mut bytes = [0; 16];
        let length = value.len().min(16);
        bytes[..length].copy_from_slice(&value[..length]);
        Self { length: u8::try_from(length).unwrap_or(16), bytes }
    }

    /// A number in the host's byte order, as marks and interface numbers are.
    #[must_use]
    pub fn host_u32(value: u32) -> Self {
        Self::new(&value.to_ne_bytes())
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl std::fmt::Debug for Data {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("0x")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// A register of nftables' virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(pub u32);

impl Register {
    /// The first register of sixteen bytes.
    pub const FIRST: Self = Self(1);
    /// The second register of sixteen bytes.
    pub const SECOND: Self = Self(2);
    /// The register that holds the verdict.
    pub const VERDICT: Self = Self(0);
}

/// The properties of a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaKey {
    /// Its mark.
    Mark,
    /// The name of the input interface.
    InterfaceInName,
    /// The name of the output interface.
    InterfaceOutName,
    /// Its transport protocol.
    TransportProtocol,
}

impl MetaKey {
    const fn number(self) -> u32 {
        match self {
            Self::Mark => 3,
            Self::InterfaceInName => 6,
            Self::InterfaceOutName => 7,
            Self::TransportProtocol => 16,
        }
    }
}

/// The properties of a packet's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConntrackKey {
    /// The state, one bit each.
    State,
    /// Bits such as "destination translated".
    Status,
    /// The connection's mark.
    Mark,
}

impl ConntrackKey {
    const fn number(self) -> u32 {
        match self {
            Self::State => 0,
            Self::Status => 2,
            Self::Mark => 3,
        }
    }
}

/// The header that offsets into a packet are relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PayloadBase {
    /// The network header.
    Network,
    /// The transport header.
    Transport,
}

impl PayloadBase {
    const fn number(self) -> u32 {
        match self {
            Self::Network => 1,
            Self::Transport => 2,
        }
    }
}

/// How a register is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompareOperator {
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
}

impl CompareOperator {
    const fn number(self) -> u32 {
        match self {
            Self::Equal => 0,
            Self::NotEqual => 1,
            Self::AtMost => 3,
            Self::AtLeast => 5,
        }
    }
}

/// What to do with a packet next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// Accepts the packet.
    Accept,
    /// Drops the packet.
    Drop,
    /// Continues with the next rule.
    Continue,
    /// Returns to the calling chain.
    Return,
    /// Calls a chain, and returns afterwards.
    Jump(Arc<str>),
    /// Continues in a chain, and does not return.
    Goto(Arc<str>),
}

impl Verdict {
    const fn number(&self) -> i32 {
        match self {
            Self::Drop => 0,
            Self::Accept => 1,
            Self::Continue => -1,
            Self::Jump(_) => -3,
            Self::Goto(_) => -4,
            Self::Return => -5,
        }
    }

    /// The verdict of this number; `None` for one that we never write.
    pub(super) fn from_parts(number: i32, chain: Option<&str>) -> Option<Self> {
        Some(match (number, chain) {
            (0, None) => Self::Drop,
            (1, None) => Self::Accept,
            (-1, None) => Self::Continue,
            (-5, None) => Self::Return,
            (-3, Some(chain)) => Self::Jump(chain.into()),
            (-4, Some(chain)) => Self::Goto(chain.into()),
            _ => return None,
        })
    }

    /// Writes the verdict as a data attribute.
    pub(super) fn write(&self, writer: &mut Writer, number: u16) {
        writer.nested(number, |data| {
            data.nested(2, |verdict| {
                verdict.bytes(1, &self.number().to_be_bytes());
                if let Self::Jump(chain) | Self::Goto(chain) = self {
                    verdict.text(2, chain);
                }
            });
        });
    }
}

/// Which address of a packet is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NatKind {
    /// The source.
    Source,
    /// The destination.
    Destination,
}

/// How a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectKind {
    /// An ICMP or ICMPv6 "destination unreachable" message with this code.
    Unreachable(u8),
    /// A TCP reset.
    TcpReset,
}

/// The result of a lookup in the routing tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FibResult {
    /// The number of the interface.
    Interface,
    /// The type of the address.
    AddressType,
}

/// The inputs of a lookup in the routing tables.
pub mod fib_flags {
    /// The source address.
    pub const SOURCE: u32 = 1;
    /// The destination address.
    pub const DESTINATION: u32 = 2;
    /// The packet's mark.
    pub const MARK: u32 = 4;
    /// The input interface.
    pub const INTERFACE_IN: u32 = 8;
    /// The output interface.
    pub const INTERFACE_OUT: u32 = 16;
}

/// How addresses and ports are chosen.
pub mod nat_flags {
    /// Ports are specified.
    pub const PORTS: u32 = 2;
    /// Ports are chosen fully at random.
    pub const RANDOM_FULLY: u32 = 16;
}

/// A set that belongs to one rule and is deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousSet {
    /// The type of its members.
    pub key: KeyType,
    /// Its members: each from the first to the last, disjoint, in ascending order.
    pub ranges: Vec<(Key, Key)>,
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads a property of the packet.
    Meta {
        /// The property of the packet that is loaded.
        key: MetaKey,
        /// The register that takes the value.
        register: Register,
    },
    /// Sets the packet's mark from a register.
    SetMark(Register),
    /// Loads a property of the connection.
    Conntrack {
        /// The property of the connection that is loaded.
        key: ConntrackKey,
        /// The register that takes the value.
        register: Register,
    },
    /// Sets the connection's mark from a register.
    SetConnectionMark(Register),
    /// Continues only when the comparison holds.
    Compare {
        /// The register.
        register: Register,
        /// The comparison that lets the packet go on.
        operator: CompareOperator,
        /// The value to compare with.
        data: Data,
    },
    /// Continues only when the register is within the bounds, or outside when negated.
    Range {
        /// The register.
        register: Register,
        /// Whether the register must be outside the bounds.
        negated: bool,
        /// The lower bound, included.
        from: Data,
        /// The upper bound, included.
        to: Data,
    },
    /// `register = (register & mask) ^ xor`
    Bitwise {
        /// The register.
        register: Register,
        /// The mask; its length is that of the operation.
        mask: Data,
        /// The bits to flip.
        xor: Data,
    },
    /// Loads bytes of the packet.
    Payload {
        /// The header that the offset is relative to.
        base: PayloadBase,
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        length: u32,
        /// The register that takes the value.
        register: Register,
    },
    /// Writes bytes of the network header.
    WriteNetwork {
        /// The offset of the first byte.
        offset: u32,
        /// The number of bytes.
        length: u32,
        /// The register with the bytes.
        register: Register,
        /// The offset of the header's checksum; `None` when it has none.
        checksum: Option<u32>,
    },
    /// Continues only when the register is in the set, or not in it when negated.
    Lookup {
        /// The set.
        set: Arc<str>,
        /// The register.
        register: Register,
        /// Whether the register must not be in the set.
        negated: bool,
    },
    /// Like `Lookup`, with a set that belongs to this rule.
    LookupAnonymous {
        /// The set.
        set: AnonymousSet,
        /// The register.
        register: Register,
        /// Whether the register must not be in the set.
        negated: bool,
    },
    /// Looks up and applies a verdict; continues when there is none.
    LookupVerdict {
        /// The map.
        map: Arc<str>,
        /// The register.
        register: Register,
    },
    /// Loads these bytes.
    Load {
        /// The bytes.
        data: Data,
        /// The register that takes the value.
        register: Register,
    },
    /// Applies a verdict.
    Verdict(Verdict),
    /// Counts packets and bytes.
    Counter,
    /// Writes a line to the kernel's log.
    Log {
        /// The start of the line.
        prefix: Arc<str>,
        /// The syslog level.
        level: u32,
    },
    /// Sends a copy of the packet to a listener.
    NfLog {
        /// The listener's group.
        group: u16,
        /// The text sent with the packet.
        prefix: Arc<str>,
        /// How much of the packet is sent; 0 for all of it.
        length: u32,
    },
    /// Drops the packet, and answers its sender.
    Reject(RejectKind),
    /// Translates an address and, if given, a port.
    Nat {
        /// The address to translate.
        kind: NatKind,
        /// The number of the address family.
        family: u8,
        /// The register with the address.
        address: Register,
        /// The register with the port.
        port: Option<Register>,
        /// The register with the last port of a range.
        port_last: Option<Register>,
        /// [`nat_flags`].
        flags: u32,
    },
    /// Translates the source to the address of the interface.
    Masquerade {
        /// The registers with the first and the last port.
        ports: Option<(Register, Register)>,
        /// [`nat_flags`].
        flags: u32,
    },
    /// Exempts the connection from tracking.
    NoTrack,
    /// Continues only while the rate is not exceeded, or only when it is.
    Limit {
        /// The permitted number of packets.
        rate: u64,
        /// The period for that number, in seconds.
        seconds: u64,
        /// How many packets may pass at once.
        burst: u32,
        /// Whether to continue only above the rate.
        over: bool,
    },
    /// Continues when there are more connections than this.
    ConnectionsOver(u32),
    /// Looks up the routing tables.
    Fib {
        /// [`fib_flags`].
        flags: u32,
        /// The requested result.
        result: FibResult,
        /// The register that takes the value.
        register: Register,
    },
    /// Lets the flow table handle the connection's further packets.
    FlowOffload(Arc<str>),
}

/// The bits of a connection's state.
impl ConntrackKey {
    /// The packet belongs to no valid connection.
    pub const STATE_INVALID: u32 = 1;
    /// The packet belongs to an established connection.
    pub const STATE_ESTABLISHED: u32 = 2;
    /// The packet is related to a connection.
    pub const STATE_RELATED: u32 = 4;
    /// The packet begins a connection.
    pub const STATE_NEW: u32 = 8;
    /// The status bit of a translated destination.
    pub const STATUS_DNAT: u32 = 0x20;
}
