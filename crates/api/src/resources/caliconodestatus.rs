//! CalicoNodeStatus: a request to one node (which facts, how often) and, in its status, the node's answer.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::{ObjectMeta, Time};
use crate::object::{Object, Spec, StatusPart};
use crate::resources::policy::repeated;
use crate::resources::setting_checks::check_range;
use crate::scalars::names::{check_metadata, is_dns_subdomain};
use crate::text::string_enum;
use api_derive::resource_struct;
use serde_json::{Map, Value};

/// What one node says about itself.
pub type CalicoNodeStatus = Object<CalicoNodeStatusSpec>;

/// The longest time between two answers: a day.
const MAX_PERIOD_SECONDS: i64 = 86_400;

/// Which node is asked, and for what.
#[resource_struct]
pub struct CalicoNodeStatusSpec {
    /// The node.
    pub node: String,
    /// The facts to report.
    #[field(list = "set")]
    pub classes: Vec<NodeStatusClass>,
    /// The time between two reports, at most a day; 0 stops them.
    pub update_period_seconds: Option<u32>,
}

string_enum! {
    /// A group of facts.
    NodeStatusClass { Agent = "Agent", BGP = "BGP", Routes = "Routes" }
}

/// The node's answer.
#[resource_struct]
pub struct CalicoNodeStatusStatus {
    /// When the node last answered.
    #[field(always, schema = nullable)]
    pub last_updated: Option<Time>,
    /// The state of the node's routing daemons.
    #[field(always)]
    pub agent: CalicoNodeAgentStatus,
    /// The state of the node's BGP sessions.
    #[field(always)]
    pub bgp: CalicoNodeBGPStatus,
    /// The routes that the node knows.
    #[field(always)]
    pub routes: CalicoNodeBGPRouteStatus,
}

fn nullable(schema: &mut Map<String, Value>) {
    schema.insert("nullable".into(), true.into());
}

impl StatusPart for CalicoNodeStatusStatus {}

/// The state of the node's routing daemons.
#[resource_struct]
pub struct CalicoNodeAgentStatus {
    /// The daemon for IPv4.
    #[field(always)]
    pub bird_v4: BGPDaemonStatus,
    /// The daemon for IPv6.
    #[field(always)]
    pub bird_v6: BGPDaemonStatus,
}

/// The state of one routing daemon.
#[resource_struct]
pub struct BGPDaemonStatus {
    /// Whether it is ready.
    pub state: BGPDaemonState,
    /// Its version.
    pub version: String,
    /// Its router id.
    #[field(name = "routerID")]
    pub router_id: String,
    /// When it was started, in its own spelling.
    pub last_boot_time: String,
    /// When it last took a new configuration, in its own spelling.
    pub last_reconfiguration_time: String,
}

string_enum! {
    /// Whether a routing daemon is ready.
    BGPDaemonState { Ready = "Ready", NotReady = "NotReady" }
}

/// The node's BGP sessions.
#[resource_struct]
pub struct CalicoNodeBGPStatus {
    /// How many IPv4 sessions are up.
    #[field(always, required)]
    pub number_established_v4: i64,
    /// How many IPv4 sessions are not up.
    #[field(always, required)]
    pub number_not_established_v4: i64,
    /// How many IPv6 sessions are up.
    #[field(always, required)]
    pub number_established_v6: i64,
    /// How many IPv6 sessions are not up.
    #[field(always, required)]
    pub number_not_established_v6: i64,
    /// The IPv4 sessions.
    #[field(list = "atomic")]
    pub peers_v4: Vec<CalicoNodePeer>,
    /// The IPv6 sessions.
    #[field(list = "atomic")]
    pub peers_v6: Vec<CalicoNodePeer>,
}

/// One BGP session.
#[resource_struct]
pub struct CalicoNodePeer {
    /// The address of the other side.
    #[field(name = "peerIP")]
    pub peer_ip: String,
    /// Why the session exists.
    #[field(name = "type")]
    pub kind: BGPPeerType,
    /// The state of the session.
    pub state: BGPSessionState,
    /// Since when it is in this state, in the daemon's spelling.
    pub since: String,
}

string_enum! {
    /// Why a BGP session exists: the mesh, a peer of this node, a peer of all nodes.
    BGPPeerType { NodeMesh = "NodeMesh", NodePeer = "NodePeer", GlobalPeer = "GlobalPeer" }
}

string_enum! {
    /// The state of a BGP session.
    BGPSessionState {
        Idle = "Idle",
        Connect = "Connect",
        Active = "Active",
        OpenSent = "OpenSent",
        OpenConfirm = "OpenConfirm",
        Established = "Established",
        Close = "Close",
    }
}

/// The routes of a node.
#[resource_struct]
pub struct CalicoNodeBGPRouteStatus {
    /// The IPv4 routes.
    #[field(list = "atomic")]
    pub routes_v4: Vec<CalicoNodeRoute>,
    /// The IPv6 routes.
    #[field(list = "atomic")]
    pub routes_v6: Vec<CalicoNodeRoute>,
}

/// One route.
#[resource_struct]
pub struct CalicoNodeRoute {
    /// Whether the route is in use.
    #[field(name = "type")]
    pub kind: CalicoNodeRouteType,
    /// Where it leads.
    pub destination: String,
    /// The next hop.
    pub gateway: String,
    /// The outgoing interface.
    pub interface: String,
    /// Where it came from.
    #[field(always)]
    pub learned_from: CalicoNodeRouteLearnedFrom,
}

string_enum! {
    /// Whether a route forwards packets (FIB) or is only known (RIB).
    CalicoNodeRouteType { FIB = "FIB", RIB = "RIB" }
}

/// Where a route came from.
#[resource_struct]
pub struct CalicoNodeRouteLearnedFrom {
    /// The kind of source.
    pub source_type: CalicoNodeRouteSourceType,
    /// For routes learned by BGP, the router that sent it.
    #[field(name = "peerIP")]
    pub peer_ip: String,
}

string_enum! {
    /// The kind of source of a route.
    CalicoNodeRouteSourceType {
        Kernel = "Kernel",
        Static = "Static",
        Direct = "Direct",
        NodeMesh = "NodeMesh",
        BGPPeer = "BGPPeer",
    }
}

impl Spec for CalicoNodeStatusSpec {
    const KIND: Kind = Kind::CalicoNodeStatus;
    type Status = CalicoNodeStatusStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        if self.node.is_empty() {
            errors.add(spec.child("node"), "", "is required");
        } else if !is_dns_subdomain(&self.node) {
            errors.add(spec.child("node"), &self.node, "is not the name of a node");
        }
        errors.require(!self.classes.is_empty(), spec.child("classes"), "", "is required");
        for (index, class) in repeated(&self.classes) {
            errors.add(spec.child("classes").index(index), class, "specified more than once");
        }
        let period = spec.child("updatePeriodSeconds");
        match self.update_period_seconds {
            None => errors.add(period, "", "is required"),
            Some(seconds) => check_range(Some(seconds.into()), &(0..=MAX_PERIOD_SECONDS), &period, errors),
        }
    }
}
