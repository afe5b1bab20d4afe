//! Derives rules from flows.

use super::Options;
use super::labels::Labelled;
use crate::flow::{self, Flow};
use flows::{Action, Direction, EndpointType, Peer, Reporter};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The networks that `pvt` stands for in flows.
const PRIVATE: [&str; 3] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"];
const LONGEST_NAME: usize = 60;

/// A recommended policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The selector of its workloads.
    pub selector: String,
    /// Rules for incoming traffic; `None` if none was recorded.
    pub ingress: Option<Vec<Rule>>,
    /// Rules for outgoing traffic; `None` if none was recorded.
    pub egress: Option<Vec<Rule>>,
}

/// A recommended rule; it always allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The other end.
    pub peer: PeerClause,
    /// The protocol, as flows name it.
    pub protocol: String,
    /// The ports of the destination, where the protocol has ports.
    pub ports: BTreeSet<u16>,
    /// The flows that it is for, with the number of connections of each.
    pub flows: BTreeMap<String, u64>,
}

/// The other end of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PeerClause {
    /// Endpoints and sets with labels.
    Labels {
        /// Where they are.
        place: Place,
        /// Their labels; empty for all of them.
        selector: String,
    },
    /// Addresses of the private networks without a known owner.
    Private,
    /// Other addresses without a known owner.
    Public,
}

/// Where endpoints are.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// In the namespace of the policy.
    Own,
    /// In another namespace.
    Namespace(String),
    /// In no namespace: hosts, global sets.
    Global,
}

/// Both ends, protocol and port.
type Connection<'a> = (&'a Peer, &'a Peer, &'a str, i64);

/// The connections that were denied at least once, and which end reported that.
pub(super) struct Denied<'a>(BTreeSet<(Connection<'a>, Reporter)>);

/// Where a connection was denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DeniedAt {
    /// Nowhere.
    Nowhere,
    /// At the end that reports the flow.
    ThisEnd,
    /// At the other end: the packets that left, or would have arrived, were of no use.
    OtherEnd,
}

fn connection(flow: &Flow) -> Connection<'_> {
    let key = &flow.key;
    let port = if flow::has_ports(&key.protocol) { key.dest_port } else { 0 };
    (&key.source, &key.dest, &key.protocol, port)
}

impl<'a> Denied<'a> {
    pub(super) fn new(flows: &'a [Flow]) -> Self {
        let denied = flows.iter().filter(|flow| flow.key.action == Action::Deny);
        Self(denied.map(|flow| (connection(flow), flow.key.reporter)).collect())
    }

    /// Where the connection of a flow was denied.
    pub(super) fn at(&self, flow: &'a Flow) -> DeniedAt {
        let other = match flow.key.reporter {
            Reporter::Src => Reporter::Dst,
            _ => Reporter::Src,
        };
        if self.0.contains(&(connection(flow), flow.key.reporter)) {
            DeniedAt::ThisEnd
        } else if self.0.contains(&(connection(flow), other)) {
            DeniedAt::OtherEnd
        } else {
            DeniedAt::Nowhere
        }
    }
}

/// Whether the end that reports a flow gets recommended policies.
pub(super) fn is_for(flow: &Flow, options: &Options) -> bool {
    let (peer, _) = flow::reporting(flow);
    peer.kind == EndpointType::Workload
        && flow::namespace(peer).is_some_and(|namespace| {
            options.namespaces.is_empty() || options.namespaces.iter().any(|wanted| wanted == namespace)
        })
}

type RulesByPeer = BTreeMap<(PeerClause, String), Rule>;

/// Builds the policies, and notes on what could not be done.
#[must_use]
pub fn policies(flows: &[Flow], labels: &Labelled, options: &Options) -> (Vec<Policy>, Vec<String>) {
    let denied = Denied::new(flows);
    let mut notes: BTreeSet<String> = BTreeSet::new();
    let mut found: BTreeMap<(String, String), [Option<RulesByPeer>; 2]> = BTreeMap::new();
    for flow in flows.iter().filter(|flow| is_for(flow, options)) {
        let (peer, _) = flow::reporting(flow);
        let Some(selector) = labels.selector(peer) else {
            notes.insert(format!(
                "{} has no lasting label to select it by, and gets no policy",
                flow::peer_text(peer)
            ));
            continue;
        };
        let namespace = flow::namespace(peer).unwrap_or_default().to_owned();
        let direction = flow.key.reporter.direction();
        let rules = &mut found.entry((namespace.clone(), selector)).or_default()
            [usize::from(direction == Direction::Egress)];
        // A direction in which everything was denied gets an empty list of rules, and so denies everything.
        let rules = rules.get_or_insert_default();
        if flow.key.action != Action::Allow {
            continue;
        }
        let text = flow::connection_text(flow);
        match denied.at(flow) {
            DeniedAt::Nowhere => {}
            DeniedAt::ThisEnd => {
                notes.insert(format!("{text} was recorded as allowed and as denied: it is not allowed here"));
                continue;
            }
            DeniedAt::OtherEnd => {
                notes.insert(format!("{text} was denied at the other end: it is not allowed here"));
                continue;
            }
        }
        match clause(flow::other(flow).0, &namespace, labels) {
            Ok(clause) => {
                let protocol = flow.key.protocol.to_string();
                let rule = rules.entry((clause.clone(), protocol.clone())).or_insert_with(|| Rule {
                    peer: clause,
                    protocol,
                    ports: BTreeSet::new(),
                    flows: BTreeMap::new(),
                });
                if flow::has_ports(&rule.protocol) {
                    rule.ports.extend(u16::try_from(flow.key.dest_port).ok());
                }
                let count = rule.flows.entry(text).or_default();
                *count = count.saturating_add(flow.counters.started);
            }
            Err(reason) => {
                notes.insert(format!("{text} is not allowed here: {reason}"));
            }
        }
    }
    let mut names: BTreeSet<(String, String)> = BTreeSet::new();
    let policies = found.into_iter().map(|((namespace, selector), [ingress, egress])| {
        let list = |rules: Option<RulesByPeer>| rules.map(|rules| rules.into_values().collect());
        let name = free_name(&mut names, &namespace, &selector, &options.tier);
        Policy { namespace, name, selector, ingress: list(ingress), egress: list(egress) }
    });
    (policies.collect(), notes.into_iter().collect())
}

/// The clause for the other end in a rule of a policy in this namespace.
fn clause(peer: &Peer, namespace: &str, labels: &Labelled) -> Result<PeerClause, String> {
    let place = match flow::namespace(peer) {
        Some(other) if other == namespace => Place::Own,
        Some(other) => Place::Namespace(other.to_owned()),
        None => Place::Global,
    };
    let selector = labels.selector(peer);
    match (peer.kind, &*peer.name, selector) {
        (EndpointType::Network, "pvt", _) => Ok(PeerClause::Private),
        (EndpointType::Network, _, _) => Ok(PeerClause::Public),
        (_, _, Some(selector)) => Ok(PeerClause::Labels { place, selector }),
        (EndpointType::Workload, _, None) if place != Place::Global => {
            Err(format!("{} has no lasting label to select it by", flow::peer_text(peer)))
        }
        _ => Err(format!("{} has no labels", flow::peer_text(peer))),
    }
}

fn free_name(taken: &mut BTreeSet<(String, String)>, namespace: &str, selector: &str, tier: &str) -> String {
    let values = selector.split(" && ").filter_map(|part| part.split('\'').nth(1));
    let mut slug: String = values
        .collect::<Vec<_>>()
        .join("-")
        .to_lowercase()
        .chars()
        .map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' })
        .collect();
    slug.truncate(LONGEST_NAME);
    let slug = slug.trim_matches('-');
    let prefix = if tier == "default" { String::new() } else { format!("{tier}.") };
    let base =
        if slug.is_empty() { format!("{prefix}recommended") } else { format!("{prefix}recommended-{slug}") };
    let numbered = (2..).map(|number| format!("{base}-{number}"));
    let name = std::iter::once(base.clone())
        .chain(numbered)
        .find(|name| !taken.contains(&(namespace.to_owned(), name.clone())))
        .unwrap_or(base.clone());
    taken.insert((namespace.to_owned(), name.clone()));
    name
}

impl Rule {
    /// The rules as objects. Addresses without an owner cannot be selected in a namespaced policy, so all known
    /// endpoints are denied first; allowed ones have rules before these.
    #[must_use]
    pub fn to_values(&self, direction: Direction) -> Vec<Value> {
        let labels = |namespaces: Option<&str>, selector: &str| {
            let mut peer = Map::new();
            peer.extend(namespaces.map(|text| ("namespaceSelector".to_owned(), text.into())));
            peer.insert("selector".to_owned(), selector.into());
            peer
        };
        let nets = |name: &str| Map::from_iter([(name.to_owned(), json!(PRIVATE))]);
        let allow = match &self.peer {
            PeerClause::Labels { place: Place::Own, selector } => labels(None, selector),
            PeerClause::Labels { place: Place::Global, selector } => labels(Some("global()"), selector),
            PeerClause::Labels { place: Place::Namespace(name), selector } => {
                labels(Some(&format!("{} == '{name}'", api::words::LABEL_NAME)), selector)
            }
            PeerClause::Private => nets("nets"),
            PeerClause::Public => nets("notNets"),
        };
        let mut rules = Vec::new();
        if matches!(self.peer, PeerClause::Private | PeerClause::Public) {
            let known = ["all()", "global()"].map(|namespaces| labels(Some(namespaces), "all()"));
            rules.extend(known.map(|peer| self.one("Deny", peer, direction)));
        }
        rules.push(self.one("Allow", allow, direction));
        rules
    }

    fn one(&self, action: &str, peer: Map<String, Value>, direction: Direction) -> Value {
        let mut rule = Map::new();
        rule.insert("action".to_owned(), action.into());
        rule.insert("protocol".to_owned(), protocol(&self.protocol));
        let (source, mut destination) = match direction {
            Direction::Ingress => (peer, Map::new()),
            Direction::Egress => (Map::new(), peer),
        };
        if !self.ports.is_empty() {
            destination.insert("ports".to_owned(), json!(self.ports));
        }
        for (name, end) in [("source", source), ("destination", destination)] {
            if !end.is_empty() {
                rule.insert(name.to_owned(), Value::Object(end));
            }
        }
        Value::Object(rule)
    }
}

/// A flow's protocol in the form that rules use.
fn protocol(text: &str) -> Value {
    match text {
        "tcp" => "TCP".into(),
        "udp" => "UDP".into(),
        "icmp" => "ICMP".into(),
        "icmp6" => "ICMPv6".into(),
        "sctp" => "SCTP".into(),
        "ipip" => 4.into(),
        "esp" => 50.into(),
        other => other.parse::<u8>().map_or_else(|_| other.into(), Into::into),
    }
}

impl Policy {
    /// The types of the policy.
    #[must_use]
    pub fn types(&self) -> Vec<&'static str> {
        let ingress = self.ingress.is_some().then_some("Ingress");
        ingress.into_iter().chain(self.egress.is_some().then_some("Egress")).collect()
    }

    /// The policy as an object, in its enforced form.
    #[must_use]
    pub fn to_enforced(&self, options: &Options) -> Value {
        let mut spec = Map::new();
        spec.insert("tier".to_owned(), options.tier.clone().into());
        spec.insert("order".to_owned(), options.order.into());
        spec.insert("selector".to_owned(), self.selector.clone().into());
        spec.insert("types".to_owned(), json!(self.types()));
        for (name, rules, direction) in
            [("ingress", &self.ingress, Direction::Ingress), ("egress", &self.egress, Direction::Egress)]
        {
            if let Some(rules) = rules {
                let rules = rules.iter().flat_map(|rule| rule.to_values(direction)).collect();
                spec.insert(name.to_owned(), Value::Array(rules));
            }
        }
        json!({
            "apiVersion": api::kind::API_VERSION,
            "kind": "NetworkPolicy",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": spec,
        })
    }
}
