//! Answers to BIRD's clients about this speaker. Pure: the engine and the time in, facts out.
//!
//! Names, kinds and words are those of Calico's BIRD, so that its tools recognise sessions and routes. Does not know
//! sockets: `bird-control` handles those.

use crate::engine::{Engine, PeerStatus};
use crate::session::{Moment, StateName};
use bgp::IpVersion;
use bgp_wire::{Attributes, Capability, Family, Origin};
use bird_control::server::{
    BgpFacts, DaemonFacts, Destination, Distance, Facts, InterfaceFacts, MemoryFacts, NextHop, PathFacts,
    ProtocolFacts, Question, Recovery, RouteCounts, RouteFacts, RouteQuestion, RouteTarget, SessionFacts,
    Timer,
};
use jiff::{SignedDuration, Timestamp};
use rib::{Counts, KernelTarget, PeerId, Query, Route, Shown, Source};
use std::net::{IpAddr, Ipv4Addr};

/// The version that is reported as BIRD's. Calico's tools expect the letter before the number.
#[must_use]
pub(crate) fn version() -> String {
    format!("v{}+tortie", env!("CARGO_PKG_VERSION"))
}

/// Facts that the engine does not know.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    /// The wall-clock time at which the speaker began.
    pub began: Timestamp,
    /// The time since then.
    pub now: Moment,
    /// When the intent last changed.
    pub reconfigured: Moment,
    /// The memory of this process in bytes.
    pub memory: u64,
    /// The host's links.
    pub interfaces: Vec<InterfaceFacts>,
}

/// How long peers may take to send all their routes after our restart, in BIRD's terms.
const RECOVERY: u64 = 240;

/// The names of BIRD's own sources of routes.
const STATIC: &str = "static1";
const KERNEL: &str = "kernel1";
const DEVICE: &str = "device1";
const DIRECT: &str = "direct1";

/// The facts that answer a question to the daemon of one family.
#[must_use]
pub(crate) fn facts(engine: &Engine, family: Family, question: &Question, around: &Surroundings) -> Facts {
    match question {
        Question::Nothing | Question::Restrict => Facts::None,
        Question::Status => Facts::Daemon(daemon(engine, family, around)),
        Question::Memory => {
            let memory = engine.rib().memory();
            let attributes = memory.routes.saturating_mul(size_of::<Attributes>());
            let bytes = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
            Facts::Memory(MemoryFacts {
                tables: bytes(memory.tables),
                attributes: bytes(attributes),
                protocols: bytes(engine.summary().peers.len().saturating_mul(size_of::<PeerStatus>())),
                total: around.memory,
            })
        }
        Question::Interfaces { .. } => Facts::Interfaces(around.interfaces.clone()),
        Question::Protocols { .. } => {
            Facts::Protocols { now: around.at(around.now), protocols: protocols(engine, family, around) }
        }
        Question::Routes(question) => routes(engine, family, question, around),
    }
}

impl Surroundings {
    fn at(&self, moment: Moment) -> Timestamp {
        let since = SignedDuration::try_from(moment).unwrap_or(SignedDuration::ZERO);
        self.began.checked_add(since).unwrap_or(self.began)
    }
}

fn daemon(engine: &Engine, family: Family, around: &Surroundings) -> DaemonFacts {
    let waiting_for = peers(engine, family).filter(|peer| peer.state != StateName::Established).count();
    DaemonFacts {
        version: version(),
        router_id: engine.intent().map_or(Ipv4Addr::UNSPECIFIED, |intent| intent.router_id),
        now: around.at(around.now),
        booted: around.began,
        reconfigured: around.at(around.reconfigured),
        recovery: engine.is_restarting().then(|| Recovery {
            waiting_for,
            timer: Timer { left: RECOVERY.saturating_sub(around.now.as_secs()), total: RECOVERY },
        }),
    }
}

fn peers(engine: &Engine, family: Family) -> impl Iterator<Item = PeerStatus> {
    let version = match family {
        Family::Ipv4 => IpVersion::V4,
        Family::Ipv6 => IpVersion::V6,
    };
    engine.summary().peers.into_iter().filter(move |peer| peer.intent.version == version)
}

fn protocols(engine: &Engine, family: Family, around: &Surroundings) -> Vec<ProtocolFacts> {
    let own = |name: &str, kind: &'static str, preference: u32, output_filter: &str| ProtocolFacts {
        name: name.to_owned(),
        kind,
        state: "up",
        since: around.began,
        preference,
        input_filter: "ACCEPT".to_owned(),
        output_filter: output_filter.to_owned(),
        counts: RouteCounts::default(),
        bgp: None,
    };
    let mut protocols = vec![
        own(STATIC, "Static", 200, "REJECT"),
        own(KERNEL, "Kernel", 10, "calico_kernel_programming"),
        own(DEVICE, "Device", 240, "REJECT"),
        own(DIRECT, "Direct", 240, "REJECT"),
    ];
    protocols.extend(peers(engine, family).map(|peer| protocol(engine, family, &peer, around)));
    protocols
}

fn protocol(engine: &Engine, family: Family, peer: &PeerStatus, around: &Surroundings) -> ProtocolFacts {
    let is_up = peer.state == StateName::Established;
    let address = engine.intent().and_then(|intent| intent.family(peer.intent.version).address);
    let session = peer.open.as_ref().filter(|_| is_up).map(|open| {
        let (hold, keepalive) = peer.times.unwrap_or_default();
        let timer = |seconds: u16| Timer { left: seconds.into(), total: seconds.into() };
        SessionFacts {
            neighbor_id: Ipv4Addr::from(open.router_id.0),
            neighbor_capabilities: capabilities(&open.capabilities),
            properties: properties(peer, &open.capabilities),
            source: peer.intent.source.or(address).unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            limit: None,
            hold: timer(hold),
            keepalive: timer(keepalive),
        }
    });
    let (remote, interface) = remote(peer);
    ProtocolFacts {
        name: peer.intent.name.to_string(),
        kind: "BGP",
        state: if is_up { "up" } else { "start" },
        since: around.at(peer.since),
        preference: 100,
        input_filter: "(unnamed)".to_owned(),
        output_filter: "(unnamed)".to_owned(),
        counts: counts(&peer.counts[family.index()]),
        bgp: Some(BgpFacts {
            state: state(peer),
            neighbor: remote,
            interface,
            neighbor_as: peer.intent.peer_as.0,
            restarting: peer.stale[family.index()],
            error_wait: None,
            connect_delay: None,
            session,
            last_error: peer.reason.clone().filter(|_| !is_up),
        }),
    }
}

/// The neighbour's address, and the interface of one that is only known by its interface.
fn remote(peer: &PeerStatus) -> (IpAddr, Option<String>) {
    let (address, interface) = match peer.remote.split_once('%') {
        Some((address, interface)) => (address, Some(interface.to_owned())),
        None => (peer.remote.as_str(), None),
    };
    (address.parse().unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)), interface)
}

fn state(peer: &PeerStatus) -> &'static str {
    match peer.state {
        StateName::Idle | StateName::Active if peer.intent.passive => "Passive",
        StateName::Idle => "Idle",
        StateName::Connect => "Connect",
        StateName::Active => "Active",
        StateName::OpenSent => "OpenSent",
        StateName::OpenConfirm => "OpenConfirm",
        StateName::Established => "Established",
    }
}

fn capabilities(capabilities: &[Capability]) -> Vec<&'static str> {
    let has = |wanted: fn(&Capability) -> bool| capabilities.iter().any(wanted);
    [
        ("refresh", has(|one| matches!(one, Capability::RouteRefresh))),
        ("enhanced-refresh", has(|one| matches!(one, Capability::EnhancedRouteRefresh))),
        (
            "restart-able",
            has(|one| matches!(one, Capability::GracefulRestart(gr) if !gr.families.is_empty())),
        ),
        (
            "restart-aware",
            has(|one| matches!(one, Capability::GracefulRestart(gr) if gr.families.is_empty())),
        ),
        ("AS4", has(|one| matches!(one, Capability::FourByteAs(_)))),
        ("ext-messages", has(|one| matches!(one, Capability::ExtendedMessage))),
    ]
    .into_iter()
    .filter_map(|(name, has)| has.then_some(name))
    .collect()
}

fn properties(peer: &PeerStatus, open: &[Capability]) -> Vec<&'static str> {
    let mut words = vec![if peer.intent.is_internal() { "internal" } else { "external" }, "multihop"];
    if peer.intent.reflector_client.is_some() {
        words.push("route-reflector");
    }
    if open.iter().any(|one| matches!(one, Capability::FourByteAs(_))) {
        words.push("AS4");
    }
    words
}

fn counts(counts: &Counts) -> RouteCounts {
    let taken = counts.updates - counts.rejected - counts.filtered - counts.ignored;
    let gone = counts.withdrawals - counts.withdrawals_ignored;
    RouteCounts {
        imported: counts.imported,
        exported: counts.exported,
        preferred: counts.preferred,
        import_updates: [counts.updates, counts.rejected, counts.filtered, counts.ignored, taken],
        import_withdraws: [counts.withdrawals, 0, counts.withdrawals_ignored, gone],
        export_updates: [counts.exports, 0, 0, counts.exports],
        export_withdraws: [counts.export_withdrawals; 2],
    }
}

fn routes(engine: &Engine, family: Family, question: &RouteQuestion, around: &Surroundings) -> Facts {
    let sessions: Vec<PeerStatus> = peers(engine, family).collect();
    let number = |name: &Option<String>| -> Result<Option<PeerId>, String> {
        let Some(name) = name else { return Ok(None) };
        let found = sessions.iter().find(|peer| peer.intent.name.as_str() == name);
        found.map(|peer| Some(peer.id)).ok_or_else(|| name.clone())
    };
    let peers = number(&question.export).and_then(|export| Ok((export, number(&question.noexport)?)));
    let (exported_to, not_exported_to) = match peers {
        Ok(peers) => peers,
        Err(name) => return Facts::NoSuchProtocol(name),
    };
    let protocol_of = |source: Source| -> String {
        match source {
            Source::Peer(id, _) => {
                let session = sessions.iter().find(|peer| peer.id == id);
                session.map(|peer| peer.intent.name.to_string()).unwrap_or_default()
            }
            Source::Originated | Source::Gateway => STATIC.to_owned(),
            Source::Direct => DIRECT.to_owned(),
            Source::Host => KERNEL.to_owned(),
        }
    };
    if let Some(name) = &question.protocol {
        let own = [STATIC, KERNEL, DEVICE, DIRECT].contains(&name.as_str());
        if !own && !sessions.iter().any(|peer| peer.intent.name.as_str() == name) {
            return Facts::NoSuchProtocol(name.clone());
        }
    }
    let query = Query {
        destination: question.destination.map(|destination| match destination {
            Destination::Exact(net) => rib::Destination::Exact(net),
            Destination::For(net) => rib::Destination::For(net),
            Destination::In(net) => rib::Destination::In(net),
        }),
        best_only: question.primary,
        exported_to,
        not_exported_to,
    };
    let shown = engine.rib().routes(family, &query);
    let wanted = |name: &String| question.protocol.as_ref().is_none_or(|wanted| wanted == name);
    let routes = shown
        .into_iter()
        .map(|shown| (protocol_of(shown.source), shown))
        .filter(|(name, _)| wanted(name))
        .map(|(name, shown)| {
            let session = shown.source.peer().and_then(|id| sessions.iter().find(|peer| peer.id == id));
            route(name, &shown, session, around)
        })
        .collect();
    Facts::Routes { now: around.at(around.now), routes, networks: engine.rib().len(family) }
}

fn route(protocol: String, shown: &Shown, session: Option<&PeerStatus>, around: &Surroundings) -> RouteFacts {
    let hop = shown
        .hop
        .as_ref()
        .map(|hop| NextHop { gateway: hop.gateway, interface: hop.interface.name.to_string() });
    let target = match (&*shown.route, hop) {
        (Route::Originated, _) => RouteTarget::Blackhole,
        (Route::Direct(interface), _) => RouteTarget::Device(interface.name.to_string()),
        (Route::Host { gateway: Some(gateway), interface: Some(interface), .. }, _) => {
            RouteTarget::Via(NextHop { gateway: *gateway, interface: interface.name.to_string() })
        }
        (Route::Host { interface: Some(interface), .. }, _) => {
            RouteTarget::Device(interface.name.to_string())
        }
        (Route::Host { interface: None, .. }, _) => RouteTarget::Unreachable,
        (Route::Bgp(_), Some(_)) if shown.is_multipath() => RouteTarget::Multipath(kernel_hops(shown)),
        (Route::Bgp(_) | Route::Gateway { .. }, Some(hop)) => RouteTarget::Via(hop),
        (Route::Bgp(_) | Route::Gateway { .. }, None) => RouteTarget::Unreachable,
    };
    let gateway = shown.hop.as_ref().map(|hop| hop.gateway);
    RouteFacts {
        destination: shown.prefix,
        target,
        protocol,
        source: match &*shown.route {
            Route::Bgp(_) => "BGP",
            Route::Originated | Route::Gateway { .. } => "static",
            Route::Direct(_) => "device",
            Route::Host { .. } => "inherit",
        },
        since: around.at(Moment::from_secs(shown.since.0.into())),
        from: session.map(|peer| remote(peer).0).filter(|address| Some(*address) != gateway),
        primary: shown.best,
        stale: shown.stale,
        preference: shown.preference,
        path: shown.route.as_bgp().map(|bgp| PathFacts {
            distance: match &shown.hop {
                Some(hop) => hop.metric.map_or(Distance::Far, Distance::Metric),
                None => Distance::Unreachable,
            },
            origin: match bgp.announcement.attributes.origin {
                Origin::Igp => 'i',
                Origin::Egp => 'e',
                Origin::Incomplete => '?',
            },
            origin_as: bgp.announcement.attributes.as_path.origin().map(|number| number.0),
            attributes: attributes(&bgp.announcement),
        }),
    }
}

fn kernel_hops(shown: &Shown) -> Vec<NextHop> {
    let Some(KernelTarget::Via(hops)) = shown.kernel.as_ref().map(|route| &route.target) else {
        return Vec::new();
    };
    let name = |link: &rib::Link| match link {
        rib::Link::Interface(interface) => interface.name.to_string(),
        rib::Link::IpIpTunnel => "tunl0".to_owned(),
    };
    hops.iter().map(|hop| NextHop { gateway: hop.gateway, interface: name(&hop.link) }).collect()
}

/// Attributes by BIRD's names, in the order of their type codes.
fn attributes(announcement: &rib::Announcement) -> Vec<(&'static str, String)> {
    let attributes = &announcement.attributes;
    let mut shown = vec![
        ("BGP.origin", attributes.origin.to_string()),
        ("BGP.as_path", attributes.as_path.to_string()),
        ("BGP.next_hop", announcement.next_hop.to_string()),
    ];
    let mut push = |name: &'static str, value: String| {
        if !value.is_empty() {
            shown.push((name, value));
        }
    };
    let text = |value: Option<u32>| value.map(|value| value.to_string()).unwrap_or_default();
    let list = |parts: Vec<String>| parts.join(" ");
    push("BGP.med", text(attributes.med));
    push("BGP.local_pref", text(attributes.local_pref));
    let communities = attributes.communities.iter();
    push(
        "BGP.community",
        list(communities.map(|one| format!("({},{})", one.system(), one.value())).collect()),
    );
    push("BGP.originator_id", attributes.originator_id.map(|id| id.to_string()).unwrap_or_default());
    push("BGP.cluster_list", list(attributes.cluster_list.iter().map(ToString::to_string).collect()));
    push(
        "BGP.ext_community",
        list(attributes.extended_communities.iter().map(ToString::to_string).collect()),
    );
    let large = attributes.large_communities.iter();
    push(
        "BGP.large_community",
        list(large.map(|one| format!("({}, {}, {})", one.system, one.first, one.second)).collect()),
    );
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::{address, block, mesh};
    use bird_control::server::answer;
    use std::time::Duration;

    fn ask(engine: &Engine, line: &str) -> String {
        let around = Surroundings {
            began: Timestamp::UNIX_EPOCH,
            now: Duration::from_mins(1),
            reconfigured: Duration::ZERO,
            memory: 1 << 20,
            interfaces: Vec::new(),
        };
        let question = Question::parse(line);
        let facts = match &question {
            Ok(question) => facts(engine, Family::Ipv4, question, &around),
            Err(_) => Facts::None,
        };
        answer(&question, &facts)
    }

    #[test]
    fn a_mesh_in_birds_words() {
        let mut simulation = mesh(3);
        simulation.run_for(Duration::from_mins(1));
        let engine = &simulation.nodes[0].engine;
        let status = ask(engine, "show status");
        assert!(
            status.contains("1011-Router ID is ") && status.ends_with("0013 Daemon is up and running\n"),
            "{status}"
        );
        let name = format!("Mesh_{}", address(1).to_string().replace('.', "_"));
        let protocols = ask(engine, "show protocols");
        assert!(protocols.contains("1002-static1  Static   master   up "), "{protocols}");
        assert!(protocols.contains(&format!(" {name} BGP      master   up ")), "{protocols}");
        let details = ask(engine, &format!("show protocols all {name}"));
        for line in [
            "   BGP state:          Established\n",
            "     Session:          internal multihop AS4\n",
            " 1 imported, ",
        ] {
            assert!(details.contains(line), "{line}: {details}");
        }
        let routes = ask(engine, "show route");
        assert!(routes.contains(" blackhole [static1 ") && routes.contains(&format!("[{name} ")), "{routes}");
        let exported = ask(engine, &format!("show route export {name}"));
        assert!(
            exported.contains(&block(0).to_string()) && !exported.contains(&block(2).to_string()),
            "{exported}"
        );
        let one = ask(engine, &format!("show route {} all", block(1)));
        assert!(one.contains("\tType: BGP unicast univ\n") && one.contains("\tBGP.next_hop: "), "{one}");
        assert_eq!(ask(engine, "show route protocol Mesh_9"), "9002 Mesh_9 is not a protocol\n");
        assert!(ask(engine, "show memory").contains("Total:            1024 kB"));

        let count = ask(engine, "show route count");
        assert!(count.starts_with("0014 "), "{count}");
    }
}
