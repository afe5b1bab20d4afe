//! Routes, as far as an agent creates them, and enough of foreign ones to recognise them.

use super::{APPEND, CREATE, DEL_ROUTE, EXCLUSIVE, GET_ROUTE, NEW_ROUTE, REPLACE};
use crate::Family;
use crate::datagram::Request;
use crate::kernel::RouteFilter;
use crate::wire::{Attribute, Writer, attributes, header_u32, split_header};
use ipnet::IpNet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const DESTINATION: u16 = 1;
const OUT: u16 = 4;
const GATEWAY: u16 = 5;
const PRIORITY: u16 = 6;
const PREFERRED_SOURCE: u16 = 7;
const METRICS: u16 = 8;
const MULTIPATH: u16 = 9;
const TABLE: u16 = 15;
const VIA: u16 = 18;
const METRIC_MTU: u16 = 2;
const ONLINK: u32 = 4;
const CLONED: u32 = 0x200;
/// The table that is consulted unless a rule says otherwise.
pub const TABLE_MAIN: u32 = 254;
/// The table of the host's own addresses.
pub const TABLE_LOCAL: u32 = 255;
/// The protocol number of routes that an administrator added (`ip route add` without a protocol).
pub(crate) const PROTOCOL_BOOT: u8 = 3;

/// How far away a destination is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Anywhere.
    #[default]
    Universe,
    /// Directly on the device.
    Link,
    /// This host.
    Host,
    /// Another of the kernel's numbers.
    Other(u8),
}

/// What happens to packets for the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouteKind {
    /// They are forwarded.
    #[default]
    Unicast,
    /// They are delivered here.
    Local,
    /// They are dropped silently.
    Blackhole,
    /// They are refused as unreachable.
    Unreachable,
    /// They are refused as prohibited.
    Prohibit,
    /// The lookup continues in the next table.
    Throw,
    /// Another of the kernel's numbers.
    Other(u8),
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The network whose packets take it.
    pub destination: IpNet,
    /// What happens to its packets.
    pub kind: RouteKind,
    /// The output device.
    pub device: Option<u32>,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// How far away the destination is.
    pub scope: Scope,
    /// The routing table.
    pub table: u32,
    /// The protocol number, which identifies who created it.
    pub protocol: u8,
    /// The preference: lower wins. If `None`, the kernel uses 0 (IPv4) or 1024 (IPv6).
    pub metric: Option<u32>,
    /// The source address for packets from this host.
    pub source: Option<IpAddr>,
    /// Whether the gateway counts as reachable on the device whatever its address.
    pub onlink: bool,
    /// The largest packet on this route, in bytes.
    pub mtu: Option<u32>,
    /// Several next hops that share the packets, in place of device and gateway.
    pub hops: Vec<Hop>,
}

/// One of several next hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Hop {
    /// The output device.
    pub device: u32,
    /// The next hop's address.
    pub gateway: Option<IpAddr>,
    /// Whether the gateway counts as reachable on the device whatever its address.
    pub onlink: bool,
}

impl Route {
    /// A route to a destination in the main table, with the protocol "boot" as `ip route add` sets it.
    #[must_use]
    pub fn new(destination: IpNet) -> Self {
        Self {
            destination: destination.trunc(),
            kind: RouteKind::Unicast,
            device: None,
            gateway: None,
            scope: Scope::Universe,
            table: TABLE_MAIN,
            protocol: PROTOCOL_BOOT,
            metric: None,
            source: None,
            onlink: false,
            mtu: None,
            hops: Vec::new(),
        }
    }

    /// A route to a destination that is directly on a device.
    #[must_use]
    pub fn on_link(destination: IpNet, device: u32) -> Self {
        Self { device: Some(device), scope: Scope::Link, ..Self::new(destination) }
    }

    /// A route by a gateway on a device.
    #[must_use]
    pub fn via(destination: IpNet, gateway: IpAddr, device: u32) -> Self {
        Self { device: Some(device), gateway: Some(gateway), ..Self::new(destination) }
    }

    /// The family of the destination.
    #[must_use]
    pub fn family(&self) -> Family {
        Family::of(&self.destination.addr())
    }

    fn payload(&self) -> Vec<u8> {
        let table = u8::try_from(self.table).unwrap_or(0);
        let flags = if self.onlink { ONLINK } else { 0 };
        let mut header = [0; 12];
        header[0] = self.family().number();
        header[1] = self.destination.prefix_len();
        header[4] = table;
        header[5] = self.protocol;
        header[6] = self.scope.number();
        header[7] = self.kind.number();
        header[8..12].copy_from_slice(&u32::to_ne_bytes(flags));
        let mut writer = Writer::new(&header);
        if self.destination.prefix_len() > 0 {
            writer.address(DESTINATION, self.destination.network());
        }
        if let Some(gateway) = self.gateway {
            write_gateway(&mut writer, self.family(), gateway);
        }
        if !self.hops.is_empty() {
            writer.nested_plain(MULTIPATH, |list| {
                for hop in &self.hops {
                    hop.write(list, self.family());
                }
            });
        }
        if let Some(device) = self.device {
            writer.u32(OUT, device);
        }
        if let Some(source) = self.source {
            writer.address(PREFERRED_SOURCE, source);
        }
        if let Some(metric) = self.metric {
            writer.u32(PRIORITY, metric);
        }
        if self.table > u32::from(u8::MAX) {
            writer.u32(TABLE, self.table);
        }
        if let Some(mtu) = self.mtu {
            writer.nested_plain(METRICS, |metrics| {
                metrics.u32(METRIC_MTU, mtu);
            });
        }
        writer.finish()
    }

    pub(crate) fn add_request(&self) -> Request {
        Request { message_type: NEW_ROUTE, flags: CREATE | EXCLUSIVE, payload: self.payload() }
    }

    pub(crate) fn replace_request(&self) -> Request {
        Request { message_type: NEW_ROUTE, flags: CREATE | REPLACE, payload: self.payload() }
    }

    pub(crate) fn append_request(&self) -> Request {
        Request { message_type: NEW_ROUTE, flags: CREATE | APPEND, payload: self.payload() }
    }

    pub(crate) fn delete_request(&self) -> Request {
        Request { message_type: DEL_ROUTE, flags: 0, payload: self.payload() }
    }
}

/// A gateway of the other family needs an attribute that includes its family.
fn write_gateway(writer: &mut Writer, family: Family, gateway: IpAddr) {
    if Family::of(&gateway) == family {
        writer.address(GATEWAY, gateway);
        return;
    }
    let mut value = u16::from(Family::of(&gateway).number()).to_ne_bytes().to_vec();
    match gateway {
        IpAddr::V4(address) => value.extend(address.octets()),
        IpAddr::V6(address) => value.extend(address.octets()),
    }
    writer.bytes(VIA, &value);
}

/// Reads a gateway of the other family.
fn read_via(attribute: &Attribute<'_>) -> Option<IpAddr> {
    let address = attribute.value.get(2..)?;
    if let Ok(octets) = <[u8; 4]>::try_from(address) {
        return Some(Ipv4Addr::from(octets).into());
    }
    <[u8; 16]>::try_from(address).ok().map(|octets| Ipv6Addr::from(octets).into())
}

impl Hop {
    /// The length of a next hop's own header: length, flags, weight, device.
    const HEADER: usize = 8;

    fn write(&self, list: &mut Writer, family: Family) {
        let mut attributes = Writer::new(&[]);
        if let Some(gateway) = self.gateway {
            write_gateway(&mut attributes, family, gateway);
        }
        let attributes = attributes.finish();
        let length = u16::try_from(Self::HEADER + attributes.len()).unwrap_or(u16::MAX);
        let flags = if self.onlink { 4 } else { 0 };
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend([flags, 0]);
        bytes.extend(self.device.to_ne_bytes());
        bytes.extend(attributes);
        list.raw(&bytes);
    }

    fn read_all(mut bytes: &[u8]) -> Vec<Self> {
        let mut hops = Vec::new();
        while let Some(&[low, high, flags, _, a, b, c, d]) = bytes.first_chunk::<8>() {
            let length = usize::from(u16::from_ne_bytes([low, high]));
            let Some(inside) = bytes.get(Self::HEADER..length) else { break };
            let gateway = attributes(inside).find_map(|attribute| match attribute.number {
                GATEWAY => attribute.address(),
                VIA => read_via(&attribute),
                _ => None,
            });
            let device = u32::from_ne_bytes([a, b, c, d]);
            hops.push(Self { device, gateway, onlink: u32::from(flags) & ONLINK != 0 });
            bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        hops
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}", self.destination)?;
        match self.kind {
            RouteKind::Unicast => {}
            kind => write!(f, " {kind:?}")?,
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(device) = self.device {
            write!(f, " by device {device}")?;
        }
        if self.table != TABLE_MAIN {
            write!(f, " in table {}", self.table)?;
        }
        Ok(())
    }
}

impl Scope {
    const fn number(self) -> u8 {
        match self {
            Self::Universe => 0,
            Self::Link => 253,
            Self::Host => 254,
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Universe,
            253 => Self::Link,
            254 => Self::Host,
            number => Self::Other(number),
        }
    }
}

impl RouteKind {
    const fn number(self) -> u8 {
        match self {
            Self::Unicast => 1,
            Self::Local => 2,
            Self::Blackhole => 6,
            Self::Unreachable => 7,
            Self::Prohibit => 8,
            Self::Throw => 9,
            Self::Other(number) => number,
        }
    }

    const fn from_number(number: u8) -> Self {
        match number {
            1 => Self::Unicast,
            2 => Self::Local,
            6 => Self::Blackhole,
            7 => Self::Unreachable,
            8 => Self::Prohibit,
            9 => Self::Throw,
            number => Self::Other(number),
        }
    }
}

/// The request for the routes of a filter; the kernel filters what it can.
pub(crate) fn dump_request(filter: &RouteFilter) -> Request {
    let mut header = [0; 12];
    header[0] = filter.family.number();
    header[4] = filter.table.and_then(|table| u8::try_from(table).ok()).unwrap_or_default();
    header[5] = filter.protocol.unwrap_or_default();
    header[7] = filter.kind.map_or(0, RouteKind::number);
    let mut writer = Writer::new(&header);
    if let Some(table) = filter.table.filter(|table| *table > u32::from(u8::MAX)) {
        writer.u32(TABLE, table);
    }
    if let Some(device) = filter.device {
        writer.u32(OUT, device);
    }
    Request { message_type: GET_ROUTE, flags: 0, payload: writer.finish() }
}

/// The request for the route that packets to this address take.
pub(crate) fn lookup_request(address: IpAddr) -> Request {
    let family = Family::of(&address);
    let mut header = [0; 12];
    (header[0], header[1]) = (family.number(), family.host_prefix());
    let mut writer = Writer::new(&header);
    writer.address(DESTINATION, address);
    Request { message_type: GET_ROUTE, flags: 0, payload: writer.finish() }
}

/// The device in the answer to a [`lookup_request`]; [`read`] would skip it as an entry of the route cache.
pub(crate) fn read_device(payload: &[u8]) -> Option<u32> {
    let (_, rest) = split_header::<12>(payload)?;
    attributes(rest).find(|attribute| attribute.number == OUT)?.u32()
}

/// Reads a route; `None` for any other message, and for entries of the route cache.
#[must_use]
pub fn read(payload: &[u8]) -> Option<Route> {
    let (header, rest) = split_header::<12>(payload)?;
    let [family, prefix, _, _, table, protocol, scope, kind, ..] = *header;
    let family = Family::from_number(family)?;
    let flags = header_u32(header, 8);
    if flags & CLONED != 0 {
        return None;
    }
    let everywhere: IpAddr = match family {
        Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
    };
    let mut route = Route {
        kind: RouteKind::from_number(kind),
        scope: Scope::from_number(scope),
        table: u32::from(table),
        protocol,
        onlink: flags & ONLINK != 0,
        ..Route::new(IpNet::new(everywhere, prefix).ok()?)
    };
    for attribute in attributes(rest) {
        match attribute.number {
            DESTINATION => route.destination = IpNet::new(attribute.address()?, prefix).ok()?,
            OUT => route.device = attribute.u32(),
            GATEWAY => route.gateway = attribute.address(),
            PRIORITY => route.metric = attribute.u32(),
            PREFERRED_SOURCE => route.source = attribute.address(),
            TABLE => route.table = attribute.u32().unwrap_or(route.table),
            METRICS => route.mtu = read_mtu(&attribute),
            MULTIPATH => route.hops = Hop::read_all(attribute.value),
            VIA => route.gateway = read_via(&attribute),
            _ => {}
        }
    }
    Some(route)
}

fn read_mtu(metrics: &Attribute<'_>) -> Option<u32> {
    metrics.attributes().find(|metric| metric.number == METRIC_MTU)?.u32()
}
