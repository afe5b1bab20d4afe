//! Imports flows from before there were programs. Linux still tracks TCP connections, and programs learn of them from
//! it; but any UDP packet could be the first of a flow, so the UDP flows that Linux knows are written into the maps of
//! connections before programs judge packets.
//!
//! Does not change existing entries, and fills at most half of a map.

use crate::error::Error;
use crate::maps::Maps;
use bpf::layout::network::{Route, RouteKey, flags};
use bpf::layout::{Family, V4, V6};
use bpf::{Layout as _, Map};
use bpf_conntrack::Flow;
use netlink::netfilter::conntrack::{Client, ConnectionTable, Entry, Tuple};
use std::collections::BTreeSet;
use std::net::IpAddr;

const UDP: u8 = 17;
/// Flags of routes to this host's own addresses.
const OWN: u32 = flags::LOCAL | flags::HOST;

/// The outcome of the import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Imported {
    flows: usize,
    /// Ports of services that flows use, and of their backends: IPv4, IPv6.
    ports: [BTreeSet<u16>; 2],
}

impl Imported {
    /// Writes the flows that Linux knows in this thread's network namespace.
    pub(crate) fn write(maps: &Maps, now: u64) -> Result<Self, Error> {
        let mut all = Self::default();
        let mut table = ConnectionTable::open().map_err(refused)?;
        if let Some(map) = maps.get("cali_v4_ct4") {
            let flows = read::<V4>(&mut table, netlink::Family::V4)?;
            all.put(0, (map, maps.get("cali_v4_routes")), &flows, now)?;
        }
        if let Some(map) = maps.get("cali_v6_ct4") {
            let flows = read::<V6>(&mut table, netlink::Family::V6)?;
            all.put(1, (map, maps.get("cali_v6_routes")), &flows, now)?;
        }
        if all.flows > 0 {
            tracing::info!(flows = all.flows, "imported UDP flows from Linux");
        }
        Ok(all)
    }

    fn put<F: Family>(
        &mut self,
        version: usize,
        (map, routes): (&Map, Option<&Map>),
        flows: &[Flow<F>],
        now: u64,
    ) -> Result<(), Error> {
        let mut room = map.definition().entries / 2;
        for flow in flows {
            if let Some(backend) = flow.backend {
                self.ports[version].extend([flow.destination.1, backend.1]);
                // The host's own packets to services take another path now.
                if routes.is_some_and(|routes| is_host::<F>(routes, flow.source.0)) {
                    continue;
                }
            }
            for (key, value) in flow.entries(now) {
                if room > 0 && map.get(&key.bytes())?.is_none() {
                    map.set(&key.bytes(), &value.bytes())?;
                    room -= 1;
                }
            }
            self.flows += 1;
        }
        Ok(())
    }

    /// Makes Linux forget flows to services, which programs now translate: its old entries would conflict with the
    /// packets that it sees from now on, and it would change the source's port.
    pub(crate) fn let_linux_forget(&self) -> Result<(), Error> {
        for (family, ports) in [netlink::Family::V4, netlink::Family::V6].into_iter().zip(&self.ports) {
            if !ports.is_empty() {
                let forgotten = Client::open().and_then(|mut client| client.forget_udp_ports(family, ports));
                tracing::debug!(
                    flows = forgotten.map_err(refused)?,
                    "removed flows to services from Linux's connection tracking"
                );
            }
        }
        Ok(())
    }
}

/// Whether an address is this host's own.
fn is_host<F: Family>(routes: &Map, address: F::Address) -> bool {
    let bits = if F::NUMBER == 4 { 32 } else { 128 };
    let key = RouteKey::<F> { bits, address };
    let route = routes.get(&key.bytes()).ok().flatten().map(|value| Route::<F>::read(&value));
    route.is_some_and(|route| route.flags & OWN == OWN)
}

fn refused(error: netlink::netfilter::Error) -> Error {
    Error::File { what: "Linux's table of connections".to_owned(), reason: std::io::Error::other(error) }
}

fn read<F: Family>(table: &mut ConnectionTable, family: netlink::Family) -> Result<Vec<Flow<F>>, Error> {
    let mut flows = Vec::new();
    table.read(family, |entry| flows.extend(flow(&entry))).map_err(refused)?;
    Ok(flows)
}

/// An importable flow; `None` for other protocols, and for flows without an answer.
fn flow<F: Family>(entry: &Entry) -> Option<Flow<F>> {
    let Tuple { source, dest, protocol, source_port, dest_port } = entry.original;
    if protocol != UDP || !entry.is_answered() {
        return None;
    }
    let end = |address: IpAddr, port: u16| -> Option<(F::Address, u16)> {
        let mut bytes = F::Address::default();
        match address {
            IpAddr::V4(four) if F::WIDTH == 4 => bytes.as_mut().copy_from_slice(&four.octets()),
            IpAddr::V6(six) if F::WIDTH == 16 => bytes.as_mut().copy_from_slice(&six.octets()),
            _ => return None,
        }
        Some((bytes, port))
    };
    let backend = end(entry.reply.source, entry.reply.source_port)?;
    let hidden = end(entry.reply.dest, entry.reply.dest_port)?;
    let (source, destination) = (end(source, source_port)?, end(dest, dest_port)?);
    Some(Flow {
        protocol,
        source,
        destination,
        backend: Some(backend).filter(|backend| *backend != destination),
        hidden: Some(hidden).filter(|hidden| *hidden != source),
    })
}

#[cfg(test)]
mod tests {
    use super::flow;
    use bpf::layout::{V4, V6};
    use netlink::netfilter::conntrack::{Entry, Tuple};

    fn tuple(source: (&str, u16), dest: (&str, u16), protocol: u8) -> Tuple {
        let (source, source_port, dest, dest_port) = (source.0.parse(), source.1, dest.0.parse(), dest.1);
        Tuple {
            source: source.expect("an address"),
            dest: dest.expect("an address"),
            protocol,
            source_port,
            dest_port,
        }
    }

    fn entry(original: Tuple, reply: Tuple) -> Entry {
        Entry { id: 1, original, reply, status: 2, tcp_state: None, counted: None }
    }

    #[test]
    fn flows_are_read_with_their_translation() {
        let (pod, service, backend) = (("10.0.0.1", 4000), ("10.96.0.1", 53), ("10.0.0.2", 5353));
        let plain = entry(tuple(pod, backend, 17), tuple(backend, pod, 17));
        let found = flow::<V4>(&plain).expect("a flow");
        assert_eq!((found.backend, found.hidden), (None, None));
        let served = entry(tuple(pod, service, 17), tuple(backend, pod, 17));
        assert_eq!(flow::<V4>(&served).and_then(|flow| flow.backend), Some(([10, 0, 0, 2], 5353)));
        let hidden = entry(tuple(pod, service, 17), tuple(service, ("192.0.2.1", 4001), 17));
        assert_eq!(flow::<V4>(&hidden).and_then(|flow| flow.hidden), Some(([192, 0, 2, 1], 4001)));
        assert_eq!(flow::<V6>(&plain), None);
        assert_eq!(flow::<V4>(&Entry { status: 0, ..plain }), None, "no answer yet");
        assert_eq!(flow::<V4>(&entry(tuple(pod, backend, 6), tuple(backend, pod, 6))), None);
    }
}
