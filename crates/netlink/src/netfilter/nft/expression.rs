//! The expressions that rules are made of; their bytes are in [`encode`].
//!
//! Registers, operators and orders are chosen as the `nft` program chooses them, so that it prints our rules in the same
//! words as its own.

mod encode;

use super::set::{Key, KeyType};
use crate::wire::Writer;
use std::sync::Arc;

/// The attribute of a list's element.
pub(super) const LIST_ELEMENT: u16 = 1;

/// Up to sixteen bytes that are compared, masked or loaded.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Data {
    length: u8,
    bytes: [u8; 16],
}

impl Data {
    /// These bytes; what is beyond sixteen is cut off, and no register holds more.
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

/// A register of the rule machine.
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

/// What is known about a packet beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaKey {
    /// Its mark.
    Mark,
    /// The name of the interface it came in by.
    InterfaceInName,
    /// The name of the interface it leaves by.
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

/// What connection tracking knows about a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConntrackKey {
    /// One bit per state.
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

/// Where offsets into a packet count from.
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

/// What happens to a packet next.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// It may pass.
    Accept,
    /// It is gone.
    Drop,
    /// The next rule.
    Continue,
    /// Back to the chain that jumped here.
    Return,
    /// That chain, then back.
    Jump(Arc<str>),
    /// That chain, and not back.
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

    /// Writes it as an attribute that holds data.
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

/// Which end of a packet is translated.
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
    /// An ICMP or ICMPv6 "unreachable" of this code.
    Unreachable(u8),
    /// A TCP reset.
    TcpReset,
}

/// What a look into the routing tables answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FibResult {
    /// The number of the interface.
    Interface,
    /// The type of the address.
    AddressType,
}

/// What a look into the routing tables considers.
pub mod fib_flags {
    /// The source address.
    pub const SOURCE: u32 = 1;
    /// The destination address.
    pub const DESTINATION: u32 = 2;
    /// The packet's mark.
    pub const MARK: u32 = 4;
    /// The interface that it came in by.
    pub const INTERFACE_IN: u32 = 8;
    /// The interface that it leaves by.
    pub const INTERFACE_OUT: u32 = 16;
}

/// How addresses and ports are chosen.
pub mod nat_flags {
    /// Ports are given.
    pub const PORTS: u32 = 2;
    /// Ports are chosen fully at random.
    pub const RANDOM_FULLY: u32 = 16;
}

/// A set that belongs to one rule and goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnonymousSet {
    /// What its members are.
    pub key: KeyType,
    /// Its members: each from the first to the last, disjoint, in ascending order.
    pub ranges: Vec<(Key, Key)>,
}

/// One step of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// Loads what is known about the packet.
    Meta {
        /// The property of the packet that is loaded.
        key: MetaKey,
        /// The register that takes the value.
        register: Register,
    },
    /// Sets the packet's mark from a register.
    SetMark(Register),
    /// Loads what connection tracking knows.
    Conntrack {
        /// The property of the connection that is loaded.
        key: ConntrackKey,
        /// The register that takes the value.
        register: Register,
    },
    /// Sets the connection's mark from a register.
    SetConnectionMark(Register),
    /// Goes on only when the comparison holds.
    Compare {
        /// The register.
        register: Register,
        /// The comparison that lets the packet go on.
        operator: CompareOperator,
        /// With what.
        data: Data,
    },
    /// Goes on only when the register is within the bounds, or outside when negated.
    Range {
        /// The register.
        register: Register,
        /// Outside.
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
        /// The mask; its length is the operation's.
        mask: Data,
        /// What is flipped.
        xor: Data,
    },
    /// Loads bytes of the packet.
    Payload {
        /// Where offsets count from.
        base: PayloadBase,
        /// The first byte.
        offset: u32,
        /// How many.
        length: u32,
        /// The register that takes the value.
        register: Register,
    },
    /// Writes bytes of the network header.
    WriteNetwork {
        /// The first byte.
        offset: u32,
        /// How many.
        length: u32,
        /// From where.
        register: Register,
        /// Where the header's checksum is; `None` when it has none.
        checksum: Option<u32>,
    },
    /// Goes on only when the register is in the set, or not in it when negated.
    Lookup {
        /// The set.
        set: Arc<str>,
        /// The register.
        register: Register,
        /// Not in it.
        negated: bool,
    },
    /// The same with a set that belongs to this rule.
    LookupAnonymous {
        /// The set.
        set: AnonymousSet,
        /// The register.
        register: Register,
        /// Not in it.
        negated: bool,
    },
    /// Looks up the verdict; goes on when there is none.
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
    /// Decides.
    Verdict(Verdict),
    /// Counts packets and bytes.
    Counter,
    /// A line in the kernel's log.
    Log {
        /// Its beginning.
        prefix: Arc<str>,
        /// The syslog level.
        level: u32,
    },
    /// A copy to a listener.
    NfLog {
        /// The listener's group.
        group: u16,
        /// The text that goes with it.
        prefix: Arc<str>,
        /// How much of the packet; 0 for all of it.
        length: u32,
    },
    /// The packet is dropped, and its sender gets an answer.
    Reject(RejectKind),
    /// Translates an address and, if given, a port.
    Nat {
        /// Which end.
        kind: NatKind,
        /// The family's number.
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
    /// The connection is not tracked.
    NoTrack,
    /// Goes on within the rate, or over it.
    Limit {
        /// How many.
        rate: u64,
        /// In so many seconds.
        seconds: u64,
        /// How many at once.
        burst: u32,
        /// Over it.
        over: bool,
    },
    /// Goes on when more connections than this are there.
    ConnectionsOver(u32),
    /// Asks the routing tables.
    Fib {
        /// [`fib_flags`].
        flags: u32,
        /// What is asked.
        result: FibResult,
        /// The register that takes the value.
        register: Register,
    },
    /// The connection's packets take the flow table from now on.
    FlowOffload(Arc<str>),
}

/// The bits of a connection's state.
impl ConntrackKey {
    /// The packet fits no connection.
    pub const STATE_INVALID: u32 = 1;
    /// The packet belongs to a connection.
    pub const STATE_ESTABLISHED: u32 = 2;
    /// The packet is about a connection.
    pub const STATE_RELATED: u32 = 4;
    /// The packet begins a connection.
    pub const STATE_NEW: u32 = 8;
    /// The status bit of a translated destination.
    pub const STATUS_DNAT: u32 = 0x20;
}
