//! Network devices: existing ones, new ones, changes.

use super::{CREATE, DEL_LINK, EXCLUSIVE, GET_LINK, NEW_LINK};
use crate::datagram::Request;
use crate::mac::MacAddress;
use crate::wire::{Attribute, Writer, attributes, header_u32, split_header};
use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LINK: u16 = 5;
const MASTER: u16 = 10;
const TX_QUEUE_LENGTH: u16 = 13;
const OPERATIONAL_STATE: u16 = 16;
const LINK_INFO: u16 = 18;
const NAMESPACE_FD: u16 = 28;
const EXTENDED_MASK: u16 = 29;
const PROMISCUITY: u16 = 30;
const TX_QUEUES: u16 = 31;
const RX_QUEUES: u16 = 32;
const LINK_NAMESPACE_ID: u16 = 37;
const XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VETH_PEER: u16 = 1;
const NETKIT_PEER: u16 = 1;
const NETKIT_POLICY: u16 = 3;
const NETKIT_PEER_POLICY: u16 = 4;
const NETKIT_MODE: u16 = 5;
const NETKIT_L2: u32 = 0;
const NETKIT_FORWARD: u32 = 0;
const FLAG_UP: u32 = 1;
const FLAG_LOOPBACK: u32 = 8;
const FLAG_RUNNING: u32 = 0x40;
const FLAG_PROMISCUOUS: u32 = 0x100;
const FLAG_ALL_MULTICAST: u32 = 0x200;
const FLAG_LOWER_UP: u32 = 0x1_0000;
/// Leaves statistics out of answers.
const SKIP_STATISTICS: u32 = 8;

/// A network device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Its number in its namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Whether it is administratively up.
    pub up: bool,
    /// Whether it is up and can carry packets.
    pub running: bool,
    /// Whether the layer below has a carrier.
    pub lower_up: bool,
    /// Whether it is the loopback device.
    pub loopback: bool,
    /// The largest packet, in bytes.
    pub mtu: u32,
    /// Its hardware address, where it has one of six bytes.
    pub mac: Option<MacAddress>,
    /// Its kind (`veth`, `vxlan`, `bridge`, ...); empty for hardware and loopback.
    pub kind: String,
    /// The bridge or bond it belongs to.
    pub master: Option<u32>,
    /// The number of its peer or of the underlying device.
    pub peer_index: Option<u32>,
    /// The namespace of its peer, as this namespace numbers it.
    pub peer_namespace: Option<i32>,
    /// The number of transmit queues.
    pub tx_queues: u32,
    /// The number of receive queues.
    pub rx_queues: u32,
    /// The kernel's operational state (`IF_OPER_*`); 6 is up.
    pub operational_state: u8,
    /// The settings of a VXLAN device.
    pub vxlan: Option<Vxlan>,
    /// Whether an XDP program is attached.
    pub xdp: bool,
    /// Whether it takes packets for other stations, for whatever reason.
    pub promiscuous: bool,
    /// Whether it was set to take all multicast packets.
    pub all_multicast: bool,
    /// How many packets may wait to be sent.
    pub tx_queue_length: u32,
}

/// The settings of a VXLAN device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vxlan {
    /// The network identifier.
    pub vni: u32,
    /// The number of the underlying device.
    pub parent: Option<u32>,
    /// The local address of the tunnel.
    pub local: Option<IpAddr>,
    /// The UDP port.
    pub port: u16,
    /// Whether it learns addresses from packets.
    pub learning: bool,
    /// Whether UDP checksums are computed (IPv4) or may be left out (IPv6).
    pub checksum: Option<bool>,
    /// Whether the group based policy extension is on.
    pub group_policy: bool,
}

/// Names a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkRef {
    /// By number.
    Index(u32),
    /// By name.
    Name(String),
}

/// A device to create.
#[derive(Clone, Debug)]
pub struct NewLink {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: DeviceKind,
    /// The largest packet; the kernel's choice if `None`.
    pub mtu: Option<u32>,
    /// Its hardware address; the kernel's choice if `None`.
    pub mac: Option<MacAddress>,
    /// The number of transmit and of receive queues; the kernel's choice if `None`.
    pub queues: Option<u32>,
    /// Whether it is up from the start.
    pub up: bool,
}

/// The other end of a pair to create.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// The namespace it is created in; that of the first end if `None`.
    pub namespace: Option<Arc<OwnedFd>>,
    /// Its hardware address; the kernel's choice if `None`.
    pub mac: Option<MacAddress>,
}

/// The kinds of devices that we create.
#[derive(Clone, Debug)]
pub enum DeviceKind {
    /// A pair of Ethernet devices.
    Veth(Peer),
    /// A pair of netkit devices on layer 2; the first end is the primary one.
    Netkit(Peer),
    /// A VXLAN tunnel.
    Vxlan(Vxlan),
    /// A bridge.
    Bridge,
    /// A device that drops everything.
    Dummy,
    /// A kind that needs no settings, by its name (`wireguard`, `ipip`).
    Plain(String),
}

/// A change to a device; fields that are `None` stay as they are.
#[derive(Clone, Debug, Default)]
pub struct LinkChange {
    /// Up or down.
    pub up: Option<bool>,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// The hardware address.
    pub mac: Option<MacAddress>,
    /// The bridge to join, or 0 to leave one.
    pub master: Option<u32>,
    /// A new name.
    pub name: Option<String>,
    /// The namespace to move to.
    pub namespace: Option<Arc<OwnedFd>>,
    /// Whether it takes packets for other stations.
    pub promiscuous: Option<bool>,
    /// Whether it takes all multicast packets.
    pub all_multicast: Option<bool>,
    /// How many packets may wait to be sent.
    pub tx_queue_length: Option<u32>,
}

impl fmt::Display for LinkRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "device {index}"),
            Self::Name(name) => write!(f, "device {name}"),
        }
    }
}

impl From<u32> for LinkRef {
    fn from(index: u32) -> Self {
        Self::Index(index)
    }
}

impl From<&str> for LinkRef {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl DeviceKind {
    /// The kernel's name of the kind.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Veth(_) => "veth",
            Self::Netkit(_) => "netkit",
            Self::Vxlan(_) => "vxlan",
            Self::Bridge => "bridge",
            Self::Dummy => "dummy",
            Self::Plain(kind) => kind,
        }
    }
}

/// `struct ifinfomsg`.
fn header(index: u32, flags: u32, mask: u32) -> [u8; 16] {
    let mut header = [0; 16];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&mask.to_ne_bytes());
    header
}

fn write_ref(link: &LinkRef, flags: u32, mask: u32) -> Writer {
    match link {
        LinkRef::Index(index) => Writer::new(&header(*index, flags, mask)),
        LinkRef::Name(name) => {
            let mut writer = Writer::new(&header(0, flags, mask));
            writer.text(NAME, name);
            writer
        }
    }
}

impl NewLink {
    /// A device of this kind and name; the kernel chooses everything else.
    #[must_use]
    pub fn new(name: &str, kind: DeviceKind) -> Self {
        Self { name: name.to_owned(), kind, mtu: None, mac: None, queues: None, up: false }
    }

    pub(crate) fn request(&self) -> Request {
        let flags = if self.up { FLAG_UP } else { 0 };
        let mut writer = Writer::new(&header(0, flags, flags));
        self.write_common(&mut writer, &self.name, self.mac);
        writer.nested_plain(LINK_INFO, |info| {
            info.text(INFO_KIND, self.kind.name());
            match &self.kind {
                DeviceKind::Veth(peer) => {
                    info.nested_plain(INFO_DATA, |data| {
                        data.nested_plain(VETH_PEER, |inner| self.write_peer(inner, peer));
                    });
                }
                DeviceKind::Netkit(peer) => {
                    info.nested_plain(INFO_DATA, |data| {
                        data.u32(NETKIT_MODE, NETKIT_L2)
                            .u32(NETKIT_POLICY, NETKIT_FORWARD)
                            .u32(NETKIT_PEER_POLICY, NETKIT_FORWARD)
                            .nested_plain(NETKIT_PEER, |inner| self.write_peer(inner, peer));
                    });
                }
                DeviceKind::Vxlan(vxlan) => {
                    info.nested_plain(INFO_DATA, |data| vxlan.write(data));
                }
                DeviceKind::Bridge | DeviceKind::Dummy | DeviceKind::Plain(_) => {}
            }
        });
        Request { message_type: NEW_LINK, flags: CREATE | EXCLUSIVE, payload: writer.finish() }
    }

    fn write_common(&self, writer: &mut Writer, name: &str, mac: Option<MacAddress>) {
        writer.text(NAME, name);
        if let Some(mtu) = self.mtu {
            writer.u32(MTU, mtu);
        }
        if let Some(queues) = self.queues {
            writer.u32(TX_QUEUES, queues).u32(RX_QUEUES, queues);
        }
        if let Some(mac) = mac {
            writer.bytes(ADDRESS, &mac.0);
        }
    }

    fn write_peer(&self, writer: &mut Writer, peer: &Peer) {
        writer.raw(&header(0, 0, 0));
        self.write_common(writer, &peer.name, peer.mac);
        if let Some(namespace) = &peer.namespace {
            writer.bytes(NAMESPACE_FD, &namespace.as_raw_fd().to_ne_bytes());
        }
    }
}

impl LinkChange {
    pub(crate) fn request(&self, link: &LinkRef) -> Request {
        let (mut flags, mut mask) = (0, 0);
        for (wanted, flag) in [
            (self.up, FLAG_UP),
            (self.promiscuous, FLAG_PROMISCUOUS),
            (self.all_multicast, FLAG_ALL_MULTICAST),
        ] {
            flags |= if wanted == Some(true) { flag } else { 0 };
            mask |= if wanted.is_some() { flag } else { 0 };
        }
        let mut writer = write_ref(link, flags, mask);
        if let (Some(name), LinkRef::Index(_)) = (&self.name, link) {
            writer.text(NAME, name);
        }
        if let Some(mtu) = self.mtu {
            writer.u32(MTU, mtu);
        }
        if let Some(mac) = self.mac {
            writer.bytes(ADDRESS, &mac.0);
        }
        if let Some(master) = self.master {
            writer.u32(MASTER, master);
        }
        if let Some(length) = self.tx_queue_length {
            writer.u32(TX_QUEUE_LENGTH, length);
        }
        if let Some(namespace) = &self.namespace {
            writer.bytes(NAMESPACE_FD, &namespace.as_raw_fd().to_ne_bytes());
        }
        Request { message_type: NEW_LINK, flags: 0, payload: writer.finish() }
    }
}

/// The request to delete a device.
pub(crate) fn delete_request(link: &LinkRef) -> Request {
    Request { message_type: DEL_LINK, flags: 0, payload: write_ref(link, 0, 0).finish() }
}

/// The request for one device.
pub(crate) fn get_request(link: &LinkRef) -> Request {
    let mut writer = write_ref(link, 0, 0);
    writer.u32(EXTENDED_MASK, SKIP_STATISTICS);
    Request { message_type: GET_LINK, flags: 0, payload: writer.finish() }
}

/// The request for all devices.
pub(crate) fn dump_request() -> Request {
    let mut writer = Writer::new(&header(0, 0, 0));
    writer.u32(EXTENDED_MASK, SKIP_STATISTICS);
    Request { message_type: GET_LINK, flags: 0, payload: writer.finish() }
}

/// Reads a device; `None` for any other message.
#[must_use]
pub fn read(payload: &[u8]) -> Option<Link> {
    let (header, rest) = split_header::<16>(payload)?;
    let flags = header_u32(header, 8);
    let mut link = Link {
        index: header_u32(header, 4),
        up: flags & FLAG_UP != 0,
        running: flags & FLAG_RUNNING != 0,
        lower_up: flags & FLAG_LOWER_UP != 0,
        loopback: flags & FLAG_LOOPBACK != 0,
        all_multicast: flags & FLAG_ALL_MULTICAST != 0,
        ..Link::default()
    };
    for attribute in attributes(rest) {
        match attribute.number {
            NAME => link.name = attribute.text().unwrap_or_default(),
            MTU => link.mtu = attribute.u32().unwrap_or_default(),
            ADDRESS => link.mac = MacAddress::from_bytes(attribute.value),
            MASTER => link.master = attribute.u32(),
            LINK => link.peer_index = attribute.u32(),
            LINK_NAMESPACE_ID => link.peer_namespace = attribute.i32(),
            PROMISCUITY => link.promiscuous = attribute.u32().is_some_and(|reasons| reasons > 0),
            TX_QUEUE_LENGTH => link.tx_queue_length = attribute.u32().unwrap_or_default(),
            TX_QUEUES => link.tx_queues = attribute.u32().unwrap_or_default(),
            RX_QUEUES => link.rx_queues = attribute.u32().unwrap_or_default(),
            XDP => {
                let attached = attribute.attributes().find(|inner| inner.number == XDP_ATTACHED);
                link.xdp =
                    attached.is_some_and(|attached| attached.value.first().is_some_and(|how| *how != 0));
            }
            OPERATIONAL_STATE => link.operational_state = attribute.u8().unwrap_or_default(),
            LINK_INFO => read_info(&attribute, &mut link),
            _ => {}
        }
    }
    (link.index != 0 && !link.name.is_empty()).then_some(link)
}

fn read_info(info: &Attribute<'_>, link: &mut Link) {
    let mut data = None;
    for attribute in info.attributes() {
        match attribute.number {
            INFO_KIND => link.kind = attribute.text().unwrap_or_default(),
            INFO_DATA => data = Some(attribute),
            _ => {}
        }
    }
    if link.kind == "vxlan" {
        link.vxlan = data.map(|data| Vxlan::read(&data));
    }
}

impl Vxlan {
    const ID: u16 = 1;
    const PARENT: u16 = 3;
    const LOCAL: u16 = 4;
    const LEARNING: u16 = 7;
    const PORT: u16 = 15;
    const LOCAL6: u16 = 17;
    const CHECKSUM: u16 = 18;
    const NO_CHECKSUM_SENT6: u16 = 19;
    const NO_CHECKSUM_RECEIVED6: u16 = 20;
    const GROUP_POLICY: u16 = 23;

    fn write(&self, writer: &mut Writer) {
        writer.u32(Self::ID, self.vni);
        if let Some(parent) = self.parent {
            writer.u32(Self::PARENT, parent);
        }
        match self.local {
            Some(address @ IpAddr::V4(_)) => {
                writer.address(Self::LOCAL, address);
            }
            Some(address @ IpAddr::V6(_)) => {
                writer.address(Self::LOCAL6, address);
            }
            None => {}
        }
        writer.u8(Self::LEARNING, self.learning.into()).u16_be(Self::PORT, self.port);
        if let Some(checksum) = self.checksum {
            if self.local.is_some_and(|address| address.is_ipv6()) {
                writer
                    .u8(Self::NO_CHECKSUM_SENT6, (!checksum).into())
                    .u8(Self::NO_CHECKSUM_RECEIVED6, (!checksum).into());
            } else {
                writer.u8(Self::CHECKSUM, checksum.into());
            }
        }
        if self.group_policy {
            writer.bytes(Self::GROUP_POLICY, &[]);
        }
    }

    fn read(data: &Attribute<'_>) -> Self {
        let mut vxlan = Self::default();
        let (mut sums4, mut zero6) = (None, None);
        for attribute in data.attributes() {
            match attribute.number {
                Self::ID => vxlan.vni = attribute.u32().unwrap_or_default(),
                Self::PARENT => vxlan.parent = attribute.u32().filter(|index| *index != 0),
                Self::LOCAL | Self::LOCAL6 => vxlan.local = attribute.address().or(vxlan.local),
                Self::LEARNING => vxlan.learning = attribute.u8() == Some(1),
                Self::PORT => vxlan.port = attribute.u16_be().unwrap_or_default(),
                Self::CHECKSUM => sums4 = attribute.u8().map(|value| value != 0),
                Self::NO_CHECKSUM_SENT6 => zero6 = attribute.u8().map(|value| value != 0),
                Self::GROUP_POLICY => vxlan.group_policy = true,
                _ => {}
            }
        }
        vxlan.checksum = if vxlan.local.is_some_and(|address| address.is_ipv6()) {
            zero6.map(|zero| !zero)
        } else {
            sums4
        };
        vxlan
    }
}
