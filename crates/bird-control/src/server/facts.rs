//! What a speaker says about itself, as values: everything that an answer may show.

use ipnet::IpNet;
use jiff::Timestamp;
use model::IpVersion;
use std::net::{IpAddr, Ipv4Addr};

/// The facts for one question.
#[derive(Clone, Debug)]
pub enum Facts {
    /// For `show status`.
    Daemon(DaemonFacts),
    /// For `show protocols`.
    Protocols {
        /// The moment of the answer.
        now: Timestamp,
        /// All protocols, or the one that was asked for.
        protocols: Vec<ProtocolFacts>,
    },
    /// For `show route`.
    Routes {
        /// The moment of the answer.
        now: Timestamp,
        /// The routes that were asked for, those of one destination together, the best one first.
        routes: Vec<RouteFacts>,
        /// How many destinations and routes the whole table has.
        networks: (usize, usize),
    },
    /// For `show interfaces`.
    Interfaces(Vec<InterfaceFacts>),
    /// For `show memory`.
    Memory(MemoryFacts),
    /// A route question names a protocol that does not exist.
    NoSuchProtocol(String),
    /// For questions that need nothing.
    None,
    /// The speaker is ending and says nothing else.
    Ending,
}

/// The daemon itself.
#[derive(Clone, Debug)]
pub struct DaemonFacts {
    /// Its version, such as `v1.2.3+tortie`. Calico's tools want the letter.
    pub version: String,
    /// The router id.
    pub router_id: Ipv4Addr,
    /// Its clock.
    pub now: Timestamp,
    /// When it started.
    pub booted: Timestamp,
    /// When its configuration last changed.
    pub reconfigured: Timestamp,
    /// Whether it still waits for routes from before its restart.
    pub recovery: Option<Recovery>,
}

/// A graceful restart of the daemon that is not over.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// How many sessions are waited for.
    pub waiting_for: usize,
    /// How long at most.
    pub timer: Timer,
}

/// A timer: what is left of how much, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// What is left.
    pub left: u64,
    /// The whole.
    pub total: u64,
}

/// A protocol: a source or a user of routes.
#[derive(Clone, Debug)]
pub struct ProtocolFacts {
    /// Its name, such as `Mesh_10_0_0_1` or `static1`.
    pub name: String,
    /// What it is: `BGP`, `Static`, `Kernel`, `Direct` or `Device`.
    pub kind: &'static str,
    /// `up`, `start`, `stop` or `down`.
    pub state: &'static str,
    /// Since when.
    pub since: Timestamp,
    /// The preference of its routes.
    pub preference: u32,
    /// What its import filter is called.
    pub input_filter: String,
    /// What its export filter is called.
    pub output_filter: String,
    /// Its routes.
    pub counts: RouteCounts,
    /// The session, where it is one.
    pub bgp: Option<BgpFacts>,
}

/// Counters of a protocol, in BIRD's columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteCounts {
    /// Routes that it brought, after filters.
    pub imported: usize,
    /// Routes that it was given.
    pub exported: usize,
    /// Imported routes that are the best ones.
    pub preferred: usize,
    /// Import updates: received, rejected, filtered, ignored, accepted.
    pub import_updates: [u64; 5],
    /// Import withdrawals: received, rejected, ignored, accepted.
    pub import_withdraws: [u64; 4],
    /// Export updates: received, rejected, filtered, accepted.
    pub export_updates: [u64; 4],
    /// Export withdrawals: received, accepted.
    pub export_withdraws: [u64; 2],
}

/// A session, whether it is up or not.
#[derive(Clone, Debug)]
pub struct BgpFacts {
    /// `Idle`, `Connect`, `Active`, `OpenSent`, `OpenConfirm`, `Established`, `Close`, `Passive` or `Down`.
    pub state: &'static str,
    /// The neighbour's address.
    pub neighbor: IpAddr,
    /// The interface of a link-local neighbour.
    pub interface: Option<String>,
    /// The neighbour's AS number.
    pub neighbor_as: u32,
    /// Whether routes from before the neighbour's restart are kept.
    pub restarting: bool,
    /// Pause after an error.
    pub error_wait: Option<Timer>,
    /// Pause before the next attempt.
    pub connect_delay: Option<Timer>,
    /// The session, when it is up.
    pub session: Option<SessionFacts>,
    /// Why the last one ended, in BIRD's words: `Socket: No route to host`, `Received: Cease` and so on.
    pub last_error: Option<String>,
}

/// A session that is up.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The neighbour's router id.
    pub neighbor_id: Ipv4Addr,
    /// What the neighbour can do, in BIRD's words: `refresh`, `enhanced-refresh`, `restart-able`, `AS4` and so on.
    pub neighbor_capabilities: Vec<&'static str>,
    /// What the session is: `internal` or `external`, then `multihop`, `route-reflector`, `AS4` and so on.
    pub properties: Vec<&'static str>,
    /// Our address.
    pub source: IpAddr,
    /// The most routes it may bring, and how many it has.
    pub limit: Option<(usize, usize)>,
    /// Until the neighbour counts as dead.
    pub hold: Timer,
    /// Until we say that we are alive.
    pub keepalive: Timer,
}

/// One route to a destination.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    /// Where it leads.
    pub destination: IpNet,
    /// The gateway or device that packets take.
    pub target: RouteTarget,
    /// The protocol that it came from.
    pub protocol: String,
    /// What kind of protocol that is: `BGP`, `static`, `device` or `inherit`.
    pub source: &'static str,
    /// Since when it is as it is.
    pub since: Timestamp,
    /// Who sent it, if that is not its next hop.
    pub from: Option<IpAddr>,
    /// Whether it is the best one.
    pub primary: bool,
    /// Whether it is from before the neighbour's restart.
    pub stale: bool,
    /// The preference of its protocol.
    pub preference: u32,
    /// What BGP says about it.
    pub path: Option<PathFacts>,
}

/// Where packets go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a router.
    Via(NextHop),
    /// To several.
    Multipath(Vec<NextHop>),
    /// To an interface.
    Device(String),
    /// Nowhere, silently.
    Blackhole,
    /// Nowhere: the next hop is not known.
    Unreachable,
}

/// A router on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its address.
    pub gateway: IpAddr,
    /// The interface that it is on.
    pub interface: String,
}

/// How far away a next hop is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distance {
    /// By the metric of the route to it.
    Metric(u32),
    /// There is a route to it, which says nothing about that.
    Far,
    /// There is no route to it.
    #[default]
    Unreachable,
}

/// The attributes of a route that came by BGP, and how far its next hop is.
#[derive(Clone, Debug, Default)]
pub struct PathFacts {
    /// How far the next hop is.
    pub distance: Distance,
    /// `i`, `e` or `?`.
    pub origin: char,
    /// The AS number at the end of the path.
    pub origin_as: Option<u32>,
    /// Further attributes: BIRD's name and text, such as `("BGP.local_pref", "100")`.
    pub attributes: Vec<(&'static str, String)>,
}

/// A link.
#[derive(Clone, Debug)]
pub struct InterfaceFacts {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Whether it is up and has a carrier.
    pub up: bool,
    /// Its flags in BIRD's words: `MultiAccess`, `Broadcast` and so on.
    pub flags: Vec<&'static str>,
    /// Its MTU.
    pub mtu: u32,
    /// Its addresses, the primary one first.
    pub addresses: Vec<InterfaceAddress>,
}

/// An address of a link.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceAddress {
    /// The address and its network.
    pub address: IpNet,
}

impl InterfaceFacts {
    /// The first address of a family.
    #[must_use]
    pub fn first(&self, version: IpVersion) -> Option<IpNet> {
        let fits = |net: &IpNet| version.has_net(net);
        self.addresses.iter().map(|address| address.address).find(fits)
    }
}

/// Memory in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFacts {
    /// Of routes.
    pub tables: u64,
    /// Of attributes.
    pub attributes: u64,
    /// Of sessions.
    pub protocols: u64,
    /// Of all this process has.
    pub total: u64,
}
