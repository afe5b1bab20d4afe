//! Sets of addresses, networks, and addresses with ports.

use ipnet::IpNet;
use std::fmt;
use std::net::IpAddr;

/// The kind of members that a set has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpSetType {
    /// Addresses.
    Ip,
    /// Addresses with protocol and port.
    IpAndPort,
    /// Networks.
    Net,
}

/// A member of a set. `Display` writes it as Felix's messages do: `10.0.0.1`, `10.0.0.0/8`, `10.0.0.1,tcp:80`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IpSetMember {
    /// An address.
    Ip(IpAddr),
    /// A network; its host bits are zero.
    Net(IpNet),
    /// An address with a port.
    IpAndPort {
        /// The address.
        address: IpAddr,
        /// The protocol's number: 6, 17 or 132.
        protocol: u8,
        /// The port.
        port: u16,
    },
}

impl IpSetMember {
    /// Whether this is a member for an IPv6 set.
    #[must_use]
    pub fn is_ipv6(&self) -> bool {
        match self {
            Self::Ip(address) | Self::IpAndPort { address, .. } => address.is_ipv6(),
            Self::Net(net) => matches!(net, IpNet::V6(_)),
        }
    }
}

impl fmt::Display for IpSetMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => address.fmt(f),
            Self::Net(net) => net.fmt(f),
            Self::IpAndPort { address, protocol, port } => {
                let protocol = match protocol {
                    6 => "tcp",
                    17 => "udp",
                    132 => "sctp",
                    other => return write!(f, "{address},{other}:{port}"),
                };
                write!(f, "{address},{protocol}:{port}")
            }
        }
    }
}
