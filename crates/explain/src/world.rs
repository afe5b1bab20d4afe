//! The cluster prepared for evaluation: the labels and addresses of endpoints, and the policies in the order of
//! evaluation.

use crate::cluster::{Cluster, Identity};
use crate::kubernetes_policy::LeftOut;
use crate::report::Direction;
use crate::selection::{Labels, Selection};
use crate::settings::NodeSettings;
use api::scalars::{IntOrString, Protocol};
use api::words::{
    LABEL_NAMESPACE, LABEL_SERVICE_ACCOUNT, NAMESPACE_LABEL_PREFIX, NAMESPACE_PROFILE_PREFIX,
    SERVICE_ACCOUNT_LABEL_PREFIX,
};
use api::{
    Action, GlobalNetworkPolicySpec, Kind, NetworkPolicySpec, PolicyType, ProfileSpec, Resource, Rule,
    StagedAction,
};
use ipnet::IpNet;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The kinds of objects with labels and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ItemKind {
    Workload,
    Host,
    Set,
}

/// An object with labels and addresses.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) identity: Identity,
    pub(crate) kind: ItemKind,
    /// The display name: `pod shop/web`.
    pub(crate) name: String,
    /// The name of the pod or workload, or of the host endpoint.
    pub(crate) short_name: String,
    pub(crate) labels: Labels,
    pub(crate) nets: Vec<IpNet>,
    pub(crate) ports: Vec<NamedPort>,
    pub(crate) node: String,
    pub(crate) interface: String,
    pub(crate) profiles: Vec<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct NamedPort {
    pub(crate) name: String,
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
}

/// A policy, ready for evaluation.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) identity: Identity,
    pub(crate) tier: String,
    order: f64,
    pub(crate) selection: Selection,
    pub(crate) ingress: Option<Vec<PolicyRule>>,
    pub(crate) egress: Option<Vec<PolicyRule>>,
    pub(crate) do_not_track: bool,
    pub(crate) pre_dnat: bool,
    pub(crate) apply_on_forward: bool,
    pub(crate) staged: Option<StagedAction>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// A rule with its place and its parsed selectors.
#[derive(Clone, Debug)]
pub(crate) struct PolicyRule {
    pub(crate) place: String,
    pub(crate) rule: Rule,
    pub(crate) source: EndSelections,
    pub(crate) destination: EndSelections,
    pub(crate) namespace: String,
}

/// The selectors of one end of a rule.
#[derive(Clone, Debug)]
pub(crate) struct EndSelections {
    pub(crate) positive: Selection,
    pub(crate) negative: Selection,
}

impl Policy {
    /// The rules of a direction, if the policy applies to it.
    pub(crate) fn rules(&self, direction: Direction) -> Option<&[PolicyRule]> {
        match direction {
            Direction::Ingress => self.ingress.as_deref(),
            Direction::Egress => self.egress.as_deref(),
        }
    }

    /// Kind and name as users write them.
    pub(crate) fn name(&self) -> String {
        let (kind, namespace, name) = &self.identity;
        let kind = match kind {
            Kind::KubernetesNetworkPolicy => "Kubernetes NetworkPolicy",
            Kind::KubernetesClusterNetworkPolicy => "Kubernetes ClusterNetworkPolicy",
            other => other.as_str(),
        };
        if namespace.is_empty() { format!("{kind} {name}") } else { format!("{kind} {namespace}/{name}") }
    }

    /// The enforced policy that a staged policy refers to.
    pub(crate) fn stands_for(&self) -> Identity {
        let (kind, namespace, name) = self.identity.clone();
        let kind = match kind {
            Kind::StagedNetworkPolicy => Kind::NetworkPolicy,
            Kind::StagedGlobalNetworkPolicy => Kind::GlobalNetworkPolicy,
            Kind::StagedKubernetesNetworkPolicy => Kind::KubernetesNetworkPolicy,
            other => other,
        };
        (kind, namespace, name)
    }
}

/// A tier.
#[derive(Clone, Debug)]
pub(crate) struct TierEntry {
    pub(crate) name: String,
    pub(crate) passes: bool,
    pub(crate) exists: bool,
}

/// A cluster, prepared for evaluation.
#[derive(Debug)]
pub struct World<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) items: Vec<Item>,
    by_address: BTreeMap<IpAddr, Vec<usize>>,
    wide: Vec<usize>,
    /// In the order of evaluation.
    pub(crate) policies: Vec<Policy>,
    pub(crate) tiers: Vec<TierEntry>,
    pub(crate) profiles: BTreeMap<String, Profile>,
}

/// A profile, ready for evaluation.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    pub(crate) ingress: Vec<PolicyRule>,
    pub(crate) egress: Vec<PolicyRule>,
    labels: Labels,
}

impl<'a> World<'a> {
    /// Prepares a cluster.
    #[must_use]
    pub fn new(cluster: &'a Cluster) -> Self {
        let profiles = cluster
            .of_kind(Kind::Profile)
            .filter_map(|resource| match resource {
                Resource::Profile(object) => Some((object.metadata.name.clone(), profile(&object.spec))),
                _ => None,
            })
            .collect();
        let mut world = Self {
            cluster,
            items: Vec::new(),
            by_address: BTreeMap::new(),
            wide: Vec::new(),
            policies: Vec::new(),
            tiers: Vec::new(),
            profiles,
        };
        for resource in cluster.resources() {
            if let Some(item) = world.item(resource) {
                let index = world.items.len();
                for net in &item.nets {
                    if net.prefix_len() == net.max_prefix_len() {
                        world.by_address.entry(net.addr()).or_default().push(index);
                    } else {
                        world.wide.push(index);
                    }
                }
                world.items.push(item);
            }
            world.policies.extend(world.policy(resource));
        }
        world.wide.dedup();
        world.policies.sort_by(|one, other| {
            let text = |policy: &Policy| {
                let (kind, namespace, name) = &policy.identity;
                format!("{name}/{namespace}/{kind}")
            };
            one.order.total_cmp(&other.order).then_with(|| text(one).cmp(&text(other)))
        });
        world.tiers = tiers(cluster, &world.policies);
        world
    }

    /// Every item that has the address.
    pub(crate) fn owners(&self, address: IpAddr) -> Vec<&Item> {
        let exact = self.by_address.get(&address).into_iter().flatten();
        let wide = self
            .wide
            .iter()
            .filter(|index| self.items[**index].nets.iter().any(|net| net.contains(&address)));
        let mut indexes: Vec<usize> = exact.chain(wide).copied().collect();
        indexes.sort_unstable();
        indexes.dedup();
        indexes.into_iter().map(|index| &self.items[index]).collect()
    }

    pub(crate) fn settings(&self, node: &str) -> NodeSettings {
        NodeSettings::of(self.cluster, node)
    }

    /// Own labels, plus those of the profiles for names that are not set.
    fn labels(&self, own: &Labels, profiles: &[String]) -> Labels {
        let mut labels = own.clone();
        for profile in profiles.iter().filter_map(|name| self.profiles.get(name)) {
            for (name, value) in &profile.labels {
                labels.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
        labels
    }

    fn item(&self, resource: &Resource) -> Option<Item> {
        let identity = (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
        let (namespace, name) = (resource.namespace(), resource.name());
        Some(match resource {
            Resource::WorkloadEndpoint(object) => {
                let spec = &object.spec;
                // An endpoint without addresses cannot send or receive.
                if spec.ip_networks.is_empty() {
                    return None;
                }
                let mut own = object.metadata.labels.clone();
                // An endpoint must not set the labels of a namespace or of an account itself.
                own.retain(|label, _| {
                    !label.starts_with(NAMESPACE_LABEL_PREFIX)
                        && !label.starts_with(SERVICE_ACCOUNT_LABEL_PREFIX)
                });
                if !spec.service_account_name.is_empty() {
                    own.insert(LABEL_SERVICE_ACCOUNT.to_owned(), spec.service_account_name.clone());
                }
                let (what, short_name) = match (spec.pod.as_str(), spec.workload.as_str()) {
                    ("", "") => ("endpoint", name),
                    ("", workload) => ("workload", workload),
                    (pod, _) => ("pod", pod),
                };
                Item {
                    identity,
                    kind: ItemKind::Workload,
                    name: format!("{what} {namespace}/{short_name}"),
                    short_name: short_name.to_owned(),
                    labels: self.labels(&own, &spec.profiles),
                    nets: spec
                        .ip_networks
                        .iter()
                        .filter_map(|net| net.parse().ok())
                        .map(|net| IpNet::from(net.masked().addr()))
                        .collect(),
                    ports: spec
                        .ports
                        .iter()
                        .filter(|port| !port.name.is_empty())
                        .map(|port| NamedPort {
                            name: port.name.clone(),
                            protocol: known_protocol(&port.protocol),
                            port: port.port,
                        })
                        .collect(),
                    node: spec.node.clone(),
                    interface: spec.interface_name.clone(),
                    profiles: spec.profiles.clone(),
                }
            }
            Resource::HostEndpoint(object) => {
                let spec = &object.spec;
                Item {
                    identity,
                    kind: ItemKind::Host,
                    name: format!("host endpoint {name}"),
                    short_name: name.to_owned(),
                    labels: self.labels(&object.metadata.labels, &spec.profiles),
                    nets: spec
                        .expected_ips
                        .iter()
                        .filter_map(|ip| ip.parse().ok())
                        .map(IpNet::from)
                        .collect(),
                    ports: spec
                        .ports
                        .iter()
                        .map(|port| NamedPort {
                            name: port.name.clone(),
                            protocol: known_protocol(&port.protocol),
                            port: port.port,
                        })
                        .collect(),
                    node: spec.node.clone(),
                    interface: spec.interface_name.clone(),
                    profiles: spec.profiles.clone(),
                }
            }
            Resource::NetworkSet(object) => {
                let mut own = object.metadata.labels.clone();
                own.insert(LABEL_NAMESPACE.to_owned(), namespace.to_owned());
                let profiles = vec![format!("{NAMESPACE_PROFILE_PREFIX}{namespace}")];
                let labels = self.labels(&own, &profiles);
                set_item(identity, format!("network set {namespace}/{name}"), labels, &object.spec.nets)
            }
            Resource::GlobalNetworkSet(object) => {
                let labels = object.metadata.labels.clone();
                set_item(identity, format!("global network set {name}"), labels, &object.spec.nets)
            }
            _ => return None,
        })
    }

    fn policy(&self, resource: &Resource) -> Option<Policy> {
        let identity = (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
        let namespace = resource.namespace();
        Some(match resource {
            Resource::NetworkPolicy(object) => namespaced(identity, namespace, &object.spec, None),
            Resource::KubernetesNetworkPolicy(object) => {
                let mut policy = namespaced(identity, namespace, &object.spec.0, None);
                if let Some(origins) = self.cluster.origins.get(&policy.identity) {
                    for (rules, places) in
                        [(&mut policy.ingress, &origins.ingress), (&mut policy.egress, &origins.egress)]
                    {
                        for (rule, place) in rules.iter_mut().flatten().zip(places) {
                            rule.place.clone_from(place);
                        }
                    }
                    policy.left_out.clone_from(&origins.left_out);
                }
                policy
            }
            Resource::StagedNetworkPolicy(object) => {
                let action = object.spec.staged_action.clone();
                namespaced(identity, namespace, &object.spec.to_enforced(), Some(action))
            }
            Resource::StagedKubernetesNetworkPolicy(object) => {
                let mut metadata = object.metadata.clone();
                metadata.uid.clear();
                let policy = api::kubernetes::NetworkPolicy { metadata, spec: object.spec.to_enforced() };
                let converted = model::kubernetes::network_policy::kubernetes_network_policy(&policy).ok()?;
                let Some(Resource::KubernetesNetworkPolicy(policy)) = converted.pair.as_resource() else {
                    return None;
                };
                namespaced(identity, namespace, &policy.spec.0, Some(object.spec.staged_action.clone()))
            }
            Resource::GlobalNetworkPolicy(object) => global(identity, &object.spec, None),
            Resource::KubernetesClusterNetworkPolicy(object) => global(identity, &object.spec.0, None),
            Resource::StagedGlobalNetworkPolicy(object) => {
                let action = object.spec.staged_action.clone();
                global(identity, &object.spec.to_enforced(), Some(action))
            }
            _ => return None,
        })
    }
}

fn set_item(identity: Identity, name: String, labels: Labels, nets: &[api::scalars::IpOrCidr]) -> Item {
    Item {
        short_name: identity.2.clone(),
        identity,
        kind: ItemKind::Set,
        name,
        labels,
        nets: nets.iter().filter_map(|net| net.parse().ok()).map(|net| net.masked()).collect(),
        ports: Vec::new(),
        node: String::new(),
        interface: String::new(),
        profiles: Vec::new(),
    }
}

/// Names of protocols are case-insensitive.
pub(crate) fn known_protocol(protocol: &Protocol) -> Protocol {
    match protocol {
        Protocol::Other(IntOrString::String(name)) => Protocol::from_name(name),
        other => other.clone(),
    }
}

fn rules(namespace: &str, field: &str, rules: &[Rule]) -> Vec<PolicyRule> {
    let end = |end| EndSelections {
        positive: Selection::of_end(namespace, end),
        negative: Selection::of_not_selector(end),
    };
    rules
        .iter()
        .enumerate()
        .map(|(index, rule)| PolicyRule {
            place: format!("{field}[{index}]"),
            source: end(&rule.source),
            destination: end(&rule.destination),
            rule: rule.clone(),
            namespace: namespace.to_owned(),
        })
        .collect()
}

/// A profile, whose rules may omit the action: they allow.
fn profile(spec: &ProfileSpec) -> Profile {
    let allowing = |list: &[Rule]| -> Vec<Rule> {
        let mut list = list.to_vec();
        for rule in list.iter_mut().filter(|rule| rule.action.is_unset()) {
            rule.action = Action::Allow;
        }
        list
    };
    Profile {
        ingress: rules("", "ingress", &allowing(&spec.ingress)),
        egress: rules("", "egress", &allowing(&spec.egress)),
        labels: spec.labels_to_apply.clone(),
    }
}

/// Whether a list of directions includes one; an empty or unreadable list includes both.
fn is_for(types: &[PolicyType], wanted: &PolicyType) -> bool {
    types.is_empty()
        || types.contains(wanted)
        || types.iter().any(|found| found.is_unset() || !found.is_known())
}

fn namespaced(
    identity: Identity,
    namespace: &str,
    spec: &NetworkPolicySpec,
    staged: Option<StagedAction>,
) -> Policy {
    let list =
        |wanted, field, list: &[Rule]| is_for(&spec.types, wanted).then(|| rules(namespace, field, list));
    Policy {
        identity,
        tier: tier_name(&spec.tier),
        order: spec.order.map_or(f64::INFINITY, |order| order.0 + 0.0),
        selection: Selection::of_namespaced(namespace, &spec.selector, &spec.service_account_selector),
        ingress: list(&PolicyType::Ingress, "ingress", &spec.ingress),
        egress: list(&PolicyType::Egress, "egress", &spec.egress),
        do_not_track: false,
        pre_dnat: false,
        apply_on_forward: false,
        staged,
        left_out: Vec::new(),
    }
}

fn global(identity: Identity, spec: &GlobalNetworkPolicySpec, staged: Option<StagedAction>) -> Policy {
    let list = |wanted, field, list: &[Rule]| is_for(&spec.types, wanted).then(|| rules("", field, list));
    Policy {
        identity,
        tier: tier_name(&spec.tier),
        order: spec.order.map_or(f64::INFINITY, |order| order.0 + 0.0),
        selection: Selection::of_global(
            &spec.selector,
            &spec.namespace_selector,
            &spec.service_account_selector,
        ),
        ingress: list(&PolicyType::Ingress, "ingress", &spec.ingress),
        egress: list(&PolicyType::Egress, "egress", &spec.egress),
        do_not_track: spec.do_not_track,
        pre_dnat: spec.pre_dnat,
        apply_on_forward: spec.apply_on_forward,
        staged,
        left_out: Vec::new(),
    }
}

fn tier_name(name: &str) -> String {
    if name.is_empty() { api::words::DEFAULT_TIER.to_owned() } else { name.to_owned() }
}

/// The tiers that have policies, in order; tiers that do not exist come last and deny.
fn tiers(cluster: &Cluster, policies: &[Policy]) -> Vec<TierEntry> {
    let mut entries: Vec<(bool, Option<f64>, TierEntry)> = Vec::new();
    for policy in policies {
        if entries.iter().any(|(.., entry)| entry.name == policy.tier) {
            continue;
        }
        let spec = match cluster.get(Kind::Tier, "", &policy.tier) {
            Some(Resource::Tier(object)) => Some(&object.spec),
            _ => None,
        };
        let entry = TierEntry {
            name: policy.tier.clone(),
            passes: spec.is_some_and(|spec| spec.default_action == Some(Action::Pass)),
            exists: spec.is_some(),
        };
        entries.push((spec.is_none(), spec.and_then(|spec| spec.order).map(|order| order.0 + 0.0), entry));
    }
    entries.sort_by(|(missing_a, order_a, a), (missing_b, order_b, b)| {
        let order = |order: &Option<f64>| order.unwrap_or(f64::INFINITY);
        missing_a
            .cmp(missing_b)
            .then(order_a.is_none().cmp(&order_b.is_none()))
            .then(order(order_a).total_cmp(&order(order_b)))
            .then_with(|| a.name.cmp(&b.name))
    });
    entries.into_iter().map(|(.., entry)| entry).collect()
}
