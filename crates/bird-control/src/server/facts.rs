//! The state of a speaker, as values: everything that an answer may contain.

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
        /// The time of the answer.
        now: Timestamp,
        /// All protocols, or the requested one.
        protocols: Vec<ProtocolFacts>,
    },
    /// For `show route`.
    Routes {
        /// The time of the answer.
        now: Timestamp,
        /// The requested routes, grouped by destination, the best one first.
        routes: Vec<RouteFacts>,
        /// The numbers of destinations and routes in the whole table.
        networks: (usize, usize),
    },
    /// For `show interfaces`.
    Interfaces(Vec<InterfaceFacts>),
    /// For `show memory`.
    Memory(MemoryFacts),
    /// A question about routes names a protocol that does not exist.
    NoSuchProtocol(String),
    /// For questions that need no facts.
    None,
    /// The speaker is shutting down and answers nothing else.
    Ending,
}

/// Facts about the daemon itself.
#[derive(Clone, Debug)]
pub struct DaemonFacts {
    /// Its version, such as `v1.2.3+tortie`. Calico's tools require the letter.
    pub version: String,
    /// The router id.
    pub router_id: Ipv4Addr,
    /// Its current time.
    pub now: Timestamp,
    /// When it started.
    pub booted: Timestamp,
    /// When its configuration last changed.
    pub reconfigured: Timestamp,
    /// Its graceful restart, while it lasts.
    pub recovery: Option<Recovery>,
}

/// A graceful restart of the daemon that is in progress.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    /// The number of sessions that it waits for.
    pub waiting_for: usize,
    /// The remaining and total waiting time.
    pub timer: Timer,
}

/// A timer: the remaining and the total time, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timer {
    /// The remaining time.
    pub left: u64,
    /// The total time.
    pub total: u64,
}

/// A protocol: a source or a consumer of routes.
#[derive(Clone, Debug)]
pub struct ProtocolFacts {
    /// Its name, such as `Mesh_10_0_0_1` or `static1`.
    pub name: String,
    /// Its kind: `BGP`, `Static`, `Kernel`, `Direct` or `Device`.
    pub kind: &'static str,
    /// `up`, `start`, `stop` or `down`.
    pub state: &'static str,
    /// When the state last changed.
    pub since: Timestamp,
    /// The preference of its routes.
    pub preference: u32,
    /// The name of its import filter.
    pub input_filter: String,
    /// The name of its export filter.
    pub output_filter: String,
    /// The numbers of its routes.
    pub counts: RouteCounts,
    /// The session, if it is one.
    pub bgp: Option<BgpFacts>,
}

/// Counters of a protocol, in BIRD's columns.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteCounts {
    /// Imported routes, after filters.
    pub imported: usize,
    /// Exported routes.
    pub exported: usize,
    /// Imported routes that are the best for their destination.
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

/// A session, up or not.
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
    /// The pause after an error.
    pub error_wait: Option<Timer>,
    /// The pause before the next attempt.
    pub connect_delay: Option<Timer>,
    /// Details of the session, if it is up.
    pub session: Option<SessionFacts>,
    /// Why the last session ended, in BIRD's words: `Socket: No route to host`, `Received: Cease` and so on.
    pub last_error: Option<String>,
}

/// A session that is up.
#[derive(Clone, Debug)]
pub struct SessionFacts {
    /// The neighbour's router id.
    pub neighbor_id: Ipv4Addr,
    /// The neighbour's capabilities, in BIRD's words: `refresh`, `enhanced-refresh`, `restart-able`, `AS4` and so on.
    pub neighbor_capabilities: Vec<&'static str>,
    /// The session's properties: `internal` or `external`, then `multihop`, `route-reflector`, `AS4` and so on.
    pub properties: Vec<&'static str>,
    /// Our address.
    pub source: IpAddr,
    /// The maximum and the current number of its routes.
    pub limit: Option<(usize, usize)>,
    /// The hold timer.
    pub hold: Timer,
    /// The keepalive timer.
    pub keepalive: Timer,
}

/// One route to a destination.
#[derive(Clone, Debug)]
pub struct RouteFacts {
    /// The destination network.
    pub destination: IpNet,
    /// The next hop or device for packets.
    pub target: RouteTarget,
    /// The protocol that provided it.
    pub protocol: String,
    /// The kind of its source: `BGP`, `static`, `device` or `inherit`.
    pub source: &'static str,
    /// When it last changed.
    pub since: Timestamp,
    /// The peer that sent it, if that is not its next hop.
    pub from: Option<IpAddr>,
    /// Whether it is the best one.
    pub primary: bool,
    /// Whether it is from before the neighbour's restart and not yet confirmed.
    pub stale: bool,
    /// The preference of its protocol.
    pub preference: u32,
    /// Its BGP attributes.
    pub path: Option<PathFacts>,
}

/// The target of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteTarget {
    /// To a router.
    Via(NextHop),
    /// To several routers.
    Multipath(Vec<NextHop>),
    /// To an interface.
    Device(String),
    /// Dropped silently.
    Blackhole,
    /// The next hop cannot be resolved.
    Unreachable,
}

/// A router on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Its address.
    pub gateway: IpAddr,
    /// The interface.
    pub interface: String,
}

/// The distance of a next hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Distance {
    /// The metric of the route to it.
    Metric(u32),
    /// There is a route to it without a metric.
    Far,
    /// There is no route to it.
    #[default]
    Unreachable,
}

/// The attributes of a BGP route, and the distance of its next hop.
#[derive(Clone, Debug, Default)]
pub struct PathFacts {
    /// The distance of the next hop.
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
    /// The address with its network.
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

/// Memory usage in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryFacts {
    /// Used for routes.
    pub tables: u64,
    /// Used for attributes.
    pub attributes: u64,
    /// Used for sessions.
    pub protocols: u64,
    /// The total of this process.
    pub total: u64,
}
