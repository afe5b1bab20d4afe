//! Routes, as far as an agent makes them, and enough of foreign ones to tell that they are there.

use super::{APPEND, CREATE, DEL_ROUTE, EXCLUSIVE, GET_ROUTE, NEW_ROUTE, REPLACE};
use crate::Family;
use crate::connection::Request;
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
const METRIC_MTU: u16 = 2;
const ONLINK: u32 = 4;
const CLONED: u32 = 0x200;
/// The table that is looked at unless a rule says otherwise.
pub const TABLE_MAIN: u32 = 254;
/// The table of the host's own addresses.
pub const TABLE_LOCAL: u32 = 255;
/// The protocol number of routes that somebody made by hand at boot (`ip route add` without one).
pub(crate) const PROTOCOL_BOOT: u8 = 3;

/// How far away the destination is.
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
    /// They are sent on.
    #[default]
    Unicast,
    /// They are delivered here.
    Local,
    /// They are dropped in silence.
    Blackhole,
    /// They are refused as unreachable.
    Unreachable,
    /// They are refused as prohibited.
    Prohibit,
    /// The search goes on in the next table.
    Throw,
    /// Another of the kernel's numbers.
    Other(u8),
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// Where to.
    pub destination: IpNet,
    /// What happens.
    pub kind: RouteKind,
    /// By which device.
    pub device: Option<u32>,
    /// By which neighbour.
    pub gateway: Option<IpAddr>,
    /// How far away.
    pub scope: Scope,
    /// In which table.
    pub table: u32,
    /// Who made it.
    pub protocol: u8,
    /// The preference: lower wins. The kernel gives 0 (IPv4) or 1024 (IPv6) when not given.
    pub metric: Option<u32>,
    /// The address that packets from this host carry.
    pub source: Option<IpAddr>,
    /// Whether the gateway counts as reachable on the device whatever its address.
    pub onlink: bool,
    /// The largest packet on this route.
    pub mtu: Option<u32>,
    /// Whether it has several next hops, which are not read. Only found.
    pub multipath: bool,
}

impl Route {
    /// A route to a destination in the main table, made "at boot" as `ip route add` does.
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
            multipath: false,
        }
    }

    /// A route to what is directly on a device.
    #[must_use]
    pub fn on_link(destination: IpNet, device: u32) -> Self {
        Self { device: Some(device), scope: Scope::Link, ..Self::new(destination) }
    }

    /// A route by a neighbour on a device.
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
            writer.address(GATEWAY, gateway);
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

/// The request for the routes of a filter; what the kernel can select, it selects.
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

/// Reads a route; `None` for a message that is none, and for entries of the route cache.
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
            MULTIPATH => route.multipath = true,
            _ => {}
        }
    }
    Some(route)
}

fn read_mtu(metrics: &Attribute<'_>) -> Option<u32> {
    metrics.attributes().find(|metric| metric.number == METRIC_MTU)?.u32()
}
