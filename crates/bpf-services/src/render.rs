//! Renders the frontends and backends of one port of one service.

use crate::address;
use crate::choice::{self, Candidate};
use crate::maglev;
use crate::read::{Port, Service};
use bpf::layout::Family;
use bpf::layout::nat::{Backend, Frontend, FrontendKey};
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};

/// Bits of [`Frontend::flags`].
pub(crate) mod flags {
    pub(crate) const EXTERNAL_LOCAL: u32 = 1;
    pub(crate) const INTERNAL_LOCAL: u32 = 2;
    pub(crate) const EXCLUDE: u32 = 4;
    pub(crate) const MAGLEV: u32 = 8;
}

/// The role of an address in its service; the lowest keeps an address that several services claim, so that none can
/// take over another service's cluster address by naming it as an external one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    Cluster,
    NodePort,
    Balancer,
    External,
}

/// Backends under one id, those of this node first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool<F: Family> {
    pub(crate) backends: Vec<Backend<F>>,
    /// The number of backends on this node.
    pub(crate) local: usize,
    /// The Maglev table, or empty.
    pub(crate) maglev: Vec<Backend<F>>,
}

/// A frontend whose id is not known yet.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted<F: Family> {
    pub(crate) key: FrontendKey<F>,
    pub(crate) rank: Rank,
    /// The node whose backends it has; `None` for the port's own.
    pub(crate) node: Option<F::Address>,
    pub(crate) value: Frontend,
}

/// All entries of one port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rendered<F: Family> {
    /// The port's own backends.
    pub(crate) main: Pool<F>,
    /// Backends of other nodes, for those nodes' node ports.
    pub(crate) nodes: BTreeMap<F::Address, Pool<F>>,
    pub(crate) frontends: Vec<Wanted<F>>,
    /// Flows to these backends are kept, even if they get no new ones.
    pub(crate) live: BTreeSet<(F::Address, u16)>,
    /// The seconds for which a client stays with its backend.
    pub(crate) affinity: u32,
}

/// The inputs common to all ports.
pub(crate) struct Around<'a, F: Family> {
    pub(crate) node: &'a str,
    pub(crate) zone: &'a str,
    /// This node's addresses, at which node ports are served.
    pub(crate) addresses: &'a [F::Address],
    /// The addresses of nodes.
    pub(crate) hosts: &'a BTreeMap<Box<str>, F::Address>,
    pub(crate) excluded: &'a [IpNet],
    /// The size of a Maglev table; `None` if this service gets no table.
    pub(crate) maglev: Option<u32>,
    /// Backends for a port that would otherwise have none.
    pub(crate) fallback: Option<&'a Pool<F>>,
}

impl<F: Family> Around<'_, F> {
    fn is_excluded(&self, address: &F::Address) -> bool {
        let address = address::ip::<F>(address);
        self.excluded.iter().any(|net| net.contains(&address))
    }
}

/// Renders a port of a service.
pub(crate) fn render<F: Family>(
    service: &Service<F>,
    port: &Port,
    candidates: &[Candidate<'_, F>],
    around: &Around<'_, F>,
) -> Rendered<F> {
    let near = choice::near(candidates, service.is_topology_aware, around.node, around.zone);
    let serving = choice::serving(&near);
    let ends_early = service.ends_udp_early && port.protocol == 17;
    let mut live: BTreeSet<(F::Address, u16)> = candidates
        .iter()
        .filter(|candidate| !(ends_early && candidate.endpoint.is_terminating))
        .map(|candidate| (candidate.backend.address, candidate.backend.port))
        .collect();
    let mut main = pool(&serving, around.maglev);
    if let Some(fallback) = around.fallback.filter(|_| main.backends.is_empty()) {
        main = fallback.clone();
        live.extend(main.backends.iter().map(|backend| (backend.address, backend.port)));
    }
    let mut nodes = BTreeMap::new();
    if port.node_port != 0 && service.is_internal_local {
        for (address, members) in by_node(&serving, around.hosts) {
            nodes.insert(address, pool(&members, None));
        }
    }
    let frontends = frontends(service, port, &main, &nodes, around);
    Rendered { main, nodes, frontends, live, affinity: service.affinity }
}

/// Local backends first, each part in order.
fn pool<F: Family>(serving: &[&Candidate<'_, F>], maglev: Option<u32>) -> Pool<F> {
    let part = |is_local| serving.iter().filter(move |candidate| candidate.is_local == is_local);
    let local = part(true).count();
    let table = maglev.map(|size| {
        let named: Vec<_> =
            serving.iter().map(|candidate| (candidate.name.clone(), candidate.backend)).collect();
        maglev::table(size, &named)
    });
    Pool {
        backends: part(true).chain(part(false)).map(|candidate| candidate.backend).collect(),
        local,
        maglev: table.unwrap_or_default(),
    }
}

/// Endpoints of other nodes by the address of their node.
fn by_node<'a, 'b, F: Family>(
    serving: &[&'b Candidate<'a, F>],
    hosts: &BTreeMap<Box<str>, F::Address>,
) -> BTreeMap<F::Address, Vec<&'b Candidate<'a, F>>> {
    let mut nodes: BTreeMap<F::Address, Vec<&Candidate<'a, F>>> = BTreeMap::new();
    for candidate in serving.iter().filter(|candidate| !candidate.is_local) {
        if let Some(address) = hosts.get(&candidate.endpoint.node) {
            nodes.entry(*address).or_default().push(candidate);
        }
    }
    nodes
}

fn frontends<F: Family>(
    service: &Service<F>,
    port: &Port,
    main: &Pool<F>,
    nodes: &BTreeMap<F::Address, Pool<F>>,
    around: &Around<'_, F>,
) -> Vec<Wanted<F>> {
    let flag = |is: bool, bit: u32| if is { bit } else { 0 };
    let external = flag(service.is_external_local, flags::EXTERNAL_LOCAL);
    let internal = flag(service.is_internal_local, flags::INTERNAL_LOCAL);
    let maglev = flag(!main.maglev.is_empty(), flags::MAGLEV);
    let exclude =
        |address: &F::Address| flag(service.is_excluded || around.is_excluded(address), flags::EXCLUDE);
    let value = |pool: &Pool<F>, address: &F::Address, flags: u32| Frontend {
        id: 0,
        count: count(pool.backends.len()),
        local: count(pool.local),
        affinity: service.affinity,
        flags: flags | exclude(address),
    };
    let key = |address: F::Address, port_number: u16| FrontendKey {
        source_bits: 0,
        address,
        port: port_number,
        protocol: port.protocol,
        source: F::Address::default(),
    };
    let mut all = Vec::new();
    all.push(Wanted {
        key: key(service.cluster, port.port),
        rank: Rank::Cluster,
        node: None,
        value: value(main, &service.cluster, internal | maglev),
    });
    let balancer =
        service.balancer.iter().map(|address| (Rank::Balancer, address, external | internal | maglev));
    let outside = service.external.iter().map(|address| (Rank::External, address, external | maglev));
    for (rank, address, flags) in balancer.chain(outside) {
        let (zero, value) = (key(*address, port.port), value(main, address, flags));
        let Some(ranges) = &service.ranges else {
            all.push(Wanted { key: zero, rank, node: None, value });
            continue;
        };
        for (bits, source) in ranges {
            let key = FrontendKey { source_bits: *bits, source: *source, ..zero };
            all.push(Wanted { key, rank, node: None, value });
        }
        if !ranges.iter().any(|(bits, _)| *bits == 0) {
            let value = Frontend { count: Frontend::DROP, ..Frontend::default() };
            all.push(Wanted { key: zero, rank, node: None, value });
        }
    }
    if port.node_port == 0 {
        return all;
    }
    let any = address::any_node::<F>();
    // With internal traffic policy Local, the wildcard would include backends on other nodes.
    let here = around.addresses.iter().chain((!service.is_internal_local).then_some(&any));
    for address in here {
        all.push(Wanted {
            key: key(*address, port.node_port),
            rank: Rank::NodePort,
            node: None,
            value: value(main, address, external | internal),
        });
    }
    for (address, pool) in nodes {
        // Not flagged as local: all of these are on that node, and none on this one.
        all.push(Wanted {
            key: key(*address, port.node_port),
            rank: Rank::NodePort,
            node: Some(*address),
            value: value(pool, address, 0),
        });
    }
    all
}

fn count(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX - 1)
}
