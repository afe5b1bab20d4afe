//! A small world for packets of either IP version: addresses, services, and frames between any two with correct
//! checksums.

use crate::bench::{ALLOWS, Bench, DEVICE, Side};
use anyhow::{Context as _, Result};
use bpf::Table;
use bpf::interface::{Interface, Options, Version};
use bpf::layout::conntrack::{Entry, Key, Tracking, Value};
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::network::{Route, RouteKey, flags};
use bpf::layout::{Family, V4, V6};

/// A party with an address: its last byte, and the number of its network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Who(pub(crate) u8, pub(crate) u8);

/// Two workloads of this node, one of another node; this node and the other one; a remote client; a service.
pub(crate) const POD: Who = Who(65, 2);
pub(crate) const BACKEND: Who = Who(65, 3);
pub(crate) const ELSEWHERE: Who = Who(66, 9);
pub(crate) const NODE: Who = Who(10, 1);
pub(crate) const OTHER_NODE: Who = Who(10, 2);
pub(crate) const CLIENT: Who = Who(200, 7);
pub(crate) const SERVICE: Who = Who(96, 1);

/// An IP version, with the addresses of this world.
pub(crate) trait World: Family {
    const VERSION: Version;
    const ICMP: u8;
    fn address(who: Who) -> Self::Address;
    /// An IP packet with correct checksums of IP and of TCP, UDP and ICMP.
    fn packet(source: Who, destination: Who, protocol: u8, payload: &[u8]) -> Vec<u8>;

    fn map(name: &str) -> String {
        format!("cali_v{}_{name}", Self::NUMBER)
    }

    fn frame(source: Who, destination: Who, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let kind: [u8; 2] = if Self::NUMBER == 4 { [8, 0] } else { [0x86, 0xdd] };
        let ethernet = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind].concat();
        [ethernet, Self::packet(source, destination, protocol, payload)].concat()
    }

    fn bench() -> Result<Bench> {
        let bench = Bench::new(Self::VERSION, true)?;
        let every: Vec<_> = (0..7).map(|place| (place, ALLOWS)).collect();
        bench.lists(&every)?;
        let routes = Table::<RouteKey<Self>, Route<Self>>::new(bench.map(&Self::map("routes"))?)?;
        let pod = flags::WORKLOAD | flags::LOCAL | flags::IN_POOL | flags::NAT_OUTGOING;
        let pool = flags::WORKLOAD | flags::IN_POOL | flags::NAT_OUTGOING;
        let mut device = Self::Address::default();
        device.as_mut()[..4].copy_from_slice(&DEVICE.to_ne_bytes());
        for (who, flags, next_hop) in [
            (POD, pod, device),
            (BACKEND, pod, device),
            (ELSEWHERE, pool, Self::address(OTHER_NODE)),
            (NODE, flags::HOST | flags::LOCAL, Self::Address::default()),
            (OTHER_NODE, flags::HOST, Self::Address::default()),
        ] {
            #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
            let bits = Self::WIDTH as u32 * 8;
            routes.set(&RouteKey { bits, address: Self::address(who) }, &Route { flags, next_hop })?;
        }
        Ok(bench)
    }

    /// Loads the programs of a workload, whose source is checked.
    fn workload(bench: &Bench, options: &Options) -> Result<Side> {
        bench.beside(&interface(true), options)
    }

    /// Loads the programs of an interface of the host.
    fn host(bench: &Bench, options: &Options) -> Result<Side> {
        bench.beside(&interface(false), options)
    }

    /// Adds a service's address; backends are numbered from 0 within the service's id.
    fn frontend(bench: &Bench, at: (Who, u16, u8), from: Option<Who>, value: Frontend) -> Result<()> {
        let table = Table::<FrontendKey<Self>, Frontend>::new(bench.map(&Self::map("nat_fe3"))?)?;
        let address = if at.0 == ANY { all_ones::<Self>() } else { Self::address(at.0) };
        let mut key = FrontendKey { address, port: at.1, protocol: at.2, ..FrontendKey::default() };
        if let Some(from) = from {
            #[expect(clippy::cast_possible_truncation, reason = "4 or 16")]
            let bits = Self::WIDTH as u32 * 8;
            (key.source, key.source_bits) = (Self::address(from), bits);
        }
        Ok(table.set(&key, &value)?)
    }

    fn backend(bench: &Bench, id: u32, ordinal: u32, who: Who, port: u16) -> Result<()> {
        let table = Table::<BackendKey, Backend<Self>>::new(bench.map(&Self::map("nat_be"))?)?;
        Ok(table.set(&BackendKey { id, ordinal }, &Backend { address: Self::address(who), port })?)
    }

    /// Builds the entry of a flow.
    fn entry(
        bench: &Bench,
        protocol: u8,
        source: (Who, u16),
        destination: (Who, u16),
    ) -> Result<Value<Self>> {
        let table = Table::<Key<Self>, Value<Self>>::new(bench.map(&Self::map("ct4"))?)?;
        let (key, _) = Key::new(
            protocol,
            (Self::address(source.0), source.1),
            (Self::address(destination.0), destination.1),
        );
        table.get(&key)?.context("no entry")
    }

    /// Builds the state of a flow with NAT, by its ends after NAT.
    fn tracking(
        bench: &Bench,
        protocol: u8,
        source: (Who, u16),
        destination: (Who, u16),
    ) -> Result<Tracking<Self>> {
        match Self::entry(bench, protocol, source, destination)?.entry {
            Entry::Reverse(tracking) | Entry::Normal(tracking) => Ok(tracking),
            other => anyhow::bail!("{other:?}"),
        }
    }
}

/// The wildcard address of a node port on every node.
pub(crate) const ANY: Who = Who(255, 255);

fn all_ones<F: Family>() -> F::Address {
    let mut address = F::Address::default();
    address.as_mut().fill(255);
    address
}

fn interface(is_workload: bool) -> Interface {
    Interface {
        is_workload,
        is_leaving: false,
        is_layer_3: false,
        has_both: false,
        checks_source: is_workload,
    }
}

fn sum(parts: &[&[u8]]) -> u16 {
    let mut total = 0_u64;
    for part in parts {
        for pair in part.chunks(2) {
            total += u64::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u64::from(*low));
        }
    }
    while total >> 16 != 0 {
        total = (total & 0xffff) + (total >> 16);
    }
    !u16::try_from(total).unwrap()
}

/// The payload with its protocol's checksum. A UDP checksum that is meant to be zero remains zero.
fn sealed(protocol: u8, payload: &[u8], imagined: &[u8], icmp: u8) -> Vec<u8> {
    let mut payload = payload.to_vec();
    let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
    let place = match protocol {
        6 => 16,
        17 => 6,
        other if other == icmp => 2,
        _ => return payload,
    };
    // ICMP over IPv4 has no pseudo-header.
    let imagined = if protocol == 1 { Vec::new() } else { [imagined, &[0, protocol], &length].concat() };
    payload[place..place + 2].fill(0);
    let checksum = sum(&[&imagined, &payload]);
    payload[place..place + 2].copy_from_slice(&checksum.to_be_bytes());
    payload
}

/// Writes the checksum of an IPv4 header without options.
pub(crate) fn with_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let checksum = sum(&[&packet[..20]]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
}

impl World for V4 {
    const VERSION: Version = Version::V4;
    const ICMP: u8 = 1;

    fn address(who: Who) -> [u8; 4] {
        [10, who.0, 0, who.1]
    }

    fn packet(source: Who, destination: Who, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = (Self::address(source), Self::address(destination));
        let payload = sealed(protocol, payload, &[source, destination].concat(), 1);
        let mut packet = crate::packets::V4 {
            source,
            destination,
            protocol,
            id: 0,
            fragment: 0,
            options: &[],
            payload: &payload,
        }
        .packet();
        with_checksum(&mut packet);
        packet
    }
}

impl World for V6 {
    const VERSION: Version = Version::V6;
    const ICMP: u8 = 58;

    fn address(who: Who) -> [u8; 16] {
        let mut address = [0; 16];
        (address[0], address[7], address[15]) = (0xfd, who.0, who.1);
        address
    }

    fn packet(source: Who, destination: Who, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let (source, destination) = (Self::address(source), Self::address(destination));
        let payload = sealed(protocol, payload, &[source, destination].concat(), 58);
        crate::packets::V6 { source, destination, next: protocol, payload: &payload }.packet()
    }
}
