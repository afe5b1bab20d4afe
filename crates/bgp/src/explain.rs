//! Explains why a node has a route to an address, or has none: the block, pool, sessions and filters that determine it.
//!
//! It follows the block's announcement from its owner over sessions between nodes, according to the intents of all of
//! them. It does not know whether sessions are up, nor what routers outside the cluster pass on.

mod policy;
#[cfg(test)]
mod tests;

use crate::convert;
use crate::intent::{Encapsulation, FamilyIntent, Intent, NextHop, Programmer, Session};
use crate::state::BgpState;
use crate::values::Prefix;
use crate::{NodeMissing, Settings};
use api::Resource;
use model::NodeName;
use model::{AffinityType, BlockAffinity, BlockAffinityKey, IpVersion, ResourceKey};
use policy::{Route, export, import};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;

/// The objects of a cluster, from which the intent of any of its nodes can be computed.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    resources: Vec<(ResourceKey, Resource)>,
    affinities: Vec<(BlockAffinityKey, BlockAffinity)>,
}

impl Cluster {
    /// Adds a resource.
    pub fn add(&mut self, resource: Resource) {
        let metadata = resource.metadata();
        let key = ResourceKey {
            kind: resource.kind(),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
        };
        self.resources.push((key, resource));
    }

    /// Adds a claim on a block.
    pub fn add_affinity(&mut self, key: BlockAffinityKey, affinity: BlockAffinity) {
        self.affinities.push((key, affinity));
    }

    /// The names of all nodes.
    #[must_use]
    pub fn nodes(&self) -> Vec<NodeName> {
        let nodes = self.resources.iter().filter(|(key, _)| key.kind == api::Kind::Node);
        nodes.map(|(key, _)| NodeName::from(key.name.as_str())).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// The intent of a node. Passwords and individual services are not known here.
    ///
    /// # Errors
    /// When the node does not exist.
    pub fn intent(&self, node: &NodeName) -> Result<Intent, NodeMissing> {
        let mut state = BgpState::new(Settings { node: node.clone(), ..Settings::default() });
        for (key, resource) in &self.resources {
            state.set_resource(key, Some(resource));
        }
        for (key, affinity) in &self.affinities {
            state.set_affinity(key, Some(affinity));
        }
        state.intent().map(|intent| (*intent).clone())
    }

    fn pool(&self, address: IpAddr) -> Option<(String, Prefix)> {
        let pools = self.resources.iter().filter_map(|(key, resource)| match resource {
            Resource::IPPool(pool) => {
                Some((key.name.clone(), Prefix::new(pool.spec.cidr.parse().ok()?.masked())))
            }
            _ => None,
        });
        pools.filter(|(_, prefix)| prefix.contains_address(address)).max_by_key(|(_, prefix)| prefix.length())
    }

    fn block(&self, address: IpAddr) -> Option<(NodeName, Prefix)> {
        let blocks = self.affinities.iter().filter(|(key, affinity)| {
            key.affinity_type == AffinityType::Host
                && !affinity.deleted
                && affinity.state != api::BlockAffinityState::Pending
        });
        let blocks = blocks.map(|(key, _)| (NodeName::from(key.host.as_str()), Prefix::new(key.cidr)));
        blocks
            .filter(|(_, prefix)| prefix.contains_address(address))
            .max_by_key(|(_, prefix)| prefix.length())
    }
}

/// The explanation of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RouteExplanation {
    /// The node that sends packets.
    pub from: String,
    /// The destination address.
    pub to: String,
    /// The pool that contains the address, with its network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// The block that contains the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<String>,
    /// The node that owns the block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// What happens to the block's announcement, step by step.
    pub steps: Vec<Step>,
    /// Whether the node has a route.
    pub routed: bool,
    /// The result in one sentence.
    pub outcome: String,
}

/// A decision on the way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The node that decides.
    pub node: String,
    /// The session, if the decision concerns one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The decision.
    pub decision: String,
}

/// Why the question cannot be answered.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExplainError {
    /// The node does not exist.
    #[error(transparent)]
    Node(#[from] NodeMissing),
}

impl RouteExplanation {
    /// The explanation as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = format!("{} -> {}: {}\n", self.from, self.to, self.outcome);
        for (title, value) in [("pool", &self.pool), ("block", &self.block), ("owner", &self.owner)] {
            if let Some(value) = value {
                let _ = writeln!(text, "  {title:<6} {value}");
            }
        }
        for step in &self.steps {
            let session = step.session.as_ref().map(|session| format!(" {session}")).unwrap_or_default();
            let _ = writeln!(text, "  {}{session}: {}", step.node, step.decision);
        }
        text
    }
}

/// Explains the route of a node to an address.
///
/// # Errors
/// When the node does not exist.
pub fn route(cluster: &Cluster, from: &str, to: IpAddr) -> Result<RouteExplanation, ExplainError> {
    let own = cluster.intent(&NodeName::from(from))?;
    let version = if to.is_ipv4() { IpVersion::V4 } else { IpVersion::V6 };
    let pool = cluster.pool(to);
    let block = cluster.block(to);
    let mut answer = RouteExplanation {
        from: from.to_owned(),
        to: to.to_string(),
        pool: pool.as_ref().map(|(name, prefix)| format!("{name} ({prefix})")),
        block: block.as_ref().map(|(_, prefix)| prefix.to_string()),
        owner: block.as_ref().map(|(owner, _)| owner.to_string()),
        steps: Vec::new(),
        routed: false,
        outcome: String::new(),
    };
    if let Some(network) =
        own.family(version).kernel.services.iter().find(|network| network.contains_address(to))
    {
        answer.outcome = format!("a service address in {network}: the node's own proxy handles it");
        return Ok(answer);
    }
    let Some((owner, prefix)) = block else {
        answer.outcome = match pool {
            Some(_) => "no node has a block with this address; a pod that nevertheless has it has borrowed it, and its node \
                        announces the address itself"
                .to_owned(),
            None => "not an address of a pool: the node's other routes, and those announced by BGP peers, decide"
                .to_owned(),
        };
        return Ok(answer);
    };
    if owner.as_str() == from {
        answer.outcome =
            "an address of the node's own block: a pod here has a route of its own, any other address is \
                          dropped (blackhole)"
                .to_owned();
        answer.routed = true;
        return Ok(answer);
    }
    let found = Search::new(cluster, version).run(&owner, from, prefix);
    answer.steps = found.steps;
    if !found.reached {
        answer.outcome = format!("no route: the announcement of {prefix} by {owner} does not arrive");
        if let Programmer::Felix | Programmer::FelixVxlan = own.family(version).kernel.programmer(prefix) {
            answer.routed = true;
            answer.outcome = format!(
                "programmed by Felix, which needs no announcement; BGP's of {prefix} does not arrive"
            );
        }
        return Ok(answer);
    }
    let (routed, outcome) = programmed(&own, version, prefix, &owner, found.next_hop);
    (answer.routed, answer.outcome) = (routed, outcome);
    Ok(answer)
}

/// The fate of a learned route on its way to the kernel.
fn programmed(
    own: &Intent,
    version: IpVersion,
    prefix: Prefix,
    owner: &NodeName,
    next_hop: Option<IpAddr>,
) -> (bool, String) {
    let kernel = &own.family(version).kernel;
    if let Some(hop) = next_hop.filter(|hop| kernel.wireguard.contains(hop)) {
        return (true, format!("programmed by Felix over WireGuard, because {hop} and this node use it"));
    }
    let via = next_hop.map_or_else(|| owner.to_string(), |hop| hop.to_string());
    match kernel.programmer(prefix) {
        Programmer::FelixVxlan => (true, "programmed by Felix over VXLAN, as the pool says".to_owned()),
        Programmer::Felix => (true, "programmed by Felix, as programClusterRoutes says".to_owned()),
        Programmer::Bgp(Encapsulation::None) => (true, format!("programmed by BGP: {prefix} via {via}")),
        Programmer::Bgp(Encapsulation::IpIp) => {
            (true, format!("programmed by BGP: {prefix} via {via} over tunl0 (IP in IP)"))
        }
        Programmer::Bgp(Encapsulation::IpIpCrossSubnet) => {
            let near = next_hop.zip(kernel.subnet).is_some_and(|(hop, subnet)| subnet.contains_address(hop));
            let how = if near {
                "directly, in the same subnet"
            } else {
                "over tunl0 (IP in IP), from another subnet"
            };
            (true, format!("programmed by BGP: {prefix} via {via} {how}"))
        }
    }
}

/// The announcement's path from node to node. Intents are computed when the search reaches their nodes.
struct Search<'a> {
    cluster: &'a Cluster,
    intents: BTreeMap<NodeName, Option<Arc<Intent>>>,
    nodes_by_address: BTreeMap<IpAddr, Neighbour>,
    version: IpVersion,
}

#[derive(Clone)]
struct Neighbour {
    name: NodeName,
    reflects: bool,
}

#[derive(Default)]
struct Found {
    reached: bool,
    steps: Vec<Step>,
    next_hop: Option<IpAddr>,
}

impl<'a> Search<'a> {
    fn new(cluster: &'a Cluster, version: IpVersion) -> Self {
        let mut nodes_by_address = BTreeMap::new();
        for (key, resource) in &cluster.resources {
            let Resource::Node(node) = resource else { continue };
            let facts = convert::node(node);
            if let Some(address) = facts.address(version) {
                let neighbour = Neighbour {
                    name: NodeName::from(key.name.as_str()),
                    reflects: facts.cluster_id.is_some(),
                };
                nodes_by_address.entry(address).or_insert(neighbour);
            }
        }
        Self { cluster, intents: BTreeMap::new(), nodes_by_address, version }
    }

    fn intent(&mut self, node: &NodeName) -> Option<Arc<Intent>> {
        let cluster = self.cluster;
        let calculated = || cluster.intent(node).ok().map(Arc::new);
        self.intents.entry(node.clone()).or_insert_with(calculated).clone()
    }

    /// Finds the shortest path; if there is none, returns all steps of the search.
    fn run(&mut self, owner: &NodeName, to: &str, prefix: Prefix) -> Found {
        let mut refusals = Vec::new();
        let mut seen = BTreeSet::from([owner.clone()]);
        let mut waiting = VecDeque::from([(owner.clone(), Route::own(prefix), Vec::<Step>::new())]);
        while let Some((at, route, steps)) = waiting.pop_front() {
            let Some(intent) = self.intent(&at) else { continue };
            let family = intent.family(self.version);
            for session in family.sessions.values() {
                let Some(peer) = session.remote.ip().and_then(|ip| self.nodes_by_address.get(&ip)).cloned()
                else {
                    continue;
                };
                // Within an AS, only reflectors pass on learned routes.
                let leads_on = peer.name.as_str() == to || peer.reflects || !session.is_internal();
                if seen.contains(&peer.name) || !leads_on {
                    continue;
                }
                let Some(theirs) = self.intent(&peer.name) else { continue };
                let mut sessions = theirs.family(self.version).sessions.values();
                let Some(back) = sessions.find(|theirs| theirs.remote.ip() == family.address) else {
                    continue;
                };
                let outcome = hop(&intent, family, session, &peer.name, back, &route);
                let mut here = steps.clone();
                here.extend(outcome.steps);
                match outcome.route {
                    Some(route) if peer.name.as_str() == to => {
                        return Found { reached: true, steps: here, next_hop: route.next_hop };
                    }
                    Some(route) => {
                        seen.insert(peer.name.clone());
                        waiting.push_back((peer.name, route, here));
                    }
                    None if peer.name.as_str() == to => refusals.extend(here),
                    None => {}
                }
            }
        }
        if refusals.is_empty() {
            refusals.push(Step {
                node: owner.to_string(),
                session: None,
                decision: format!("no session leads to {to}, neither directly nor over route reflectors"),
            });
        }
        Found { reached: false, steps: refusals, next_hop: None }
    }
}

struct Hop {
    route: Option<Route>,
    steps: Vec<Step>,
}

/// One session: the sender's export decision, and the receiver's import decision.
fn hop(
    intent: &Intent,
    family: &FamilyIntent,
    session: &Session,
    peer: &NodeName,
    back: &Session,
    route: &Route,
) -> Hop {
    let step = |node: &NodeName, session: &Session, decision: String| Step {
        node: node.to_string(),
        session: Some(format!("{} ({})", session.name, session.origin)),
        decision,
    };
    let sent = export(intent, family, session, route);
    let mut steps = vec![step(&intent.node, session, sent.because)];
    let Some(mut route) = sent.route else { return Hop { route: None, steps } };
    if route.next_hop.is_none() || !session.is_internal() || session.next_hop == NextHop::Itself {
        route.next_hop = family.address;
    }
    route.learned(back, session);
    let taken = import(back, &route);
    steps.push(step(peer, back, taken.because));
    Hop { route: taken.route, steps }
}
