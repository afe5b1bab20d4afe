//! Kubernetes NetworkPolicy → KubernetesNetworkPolicy.
//!
//! A rule that cannot be converted is left out: these rules only ever allow, so leaving one out restricts more, never
//! less. The conversion fails only if the uid is not one.

use super::label_selector::{namespace_selector, pod_selector};
use super::ports::ProtocolPorts;
use super::{ConversionError, Converted, translated_uid};
use api::kubernetes::NetworkPolicy;
use api::kubernetes::policy::{NetworkPolicyPeer, NetworkPolicyPort};
use api::scalars::{Cidr, GoFloat, IpOrCidr, Port, SelectorText};
use api::{
    Action, EntityRule, KubernetesNetworkPolicy, KubernetesNetworkPolicySpec, NetworkPolicySpec, ObjectMeta,
    PolicyType, Rule,
};

/// The order of Kubernetes' policies in the default tier.
const ORDER: f64 = 1000.0;

/// The direction of a rule: its peers are the source of ingress rules and the destination of egress rules.
#[derive(Clone, Copy)]
enum Direction {
    Ingress,
    Egress,
}

/// Converts a policy into Calico's form.
///
/// # Errors
/// When the object's uid is not one.
pub fn kubernetes_network_policy(policy: &NetworkPolicy) -> Result<Converted, ConversionError> {
    let mut problems = Vec::new();
    let mut ingress = Vec::new();
    for (index, rule) in policy.spec.ingress.iter().enumerate() {
        match convert_rule(&rule.from, &rule.ports, Direction::Ingress) {
            Ok(rules) => ingress.extend(rules),
            Err(reason) => problems.push(format!("spec.ingress[{index}] is left out: {reason}")),
        }
    }
    let mut egress = Vec::new();
    for (index, rule) in policy.spec.egress.iter().enumerate() {
        match convert_rule(&rule.to, &rule.ports, Direction::Egress) {
            Ok(rules) => egress.extend(rules),
            Err(reason) => problems.push(format!("spec.egress[{index}] is left out: {reason}")),
        }
    }
    let spec = NetworkPolicySpec {
        tier: api::words::DEFAULT_TIER.to_owned(),
        order: Some(GoFloat(ORDER)),
        ingress,
        egress,
        selector: pod_selector(Some(&policy.spec.pod_selector)),
        types: types(policy),
        ..NetworkPolicySpec::default()
    };
    let metadata = ObjectMeta {
        name: policy.metadata.name.clone(),
        namespace: policy.metadata.namespace.clone(),
        uid: translated_uid(&policy.metadata.uid)?,
        creation_timestamp: policy.metadata.creation_timestamp.clone(),
        ..ObjectMeta::default()
    };
    let object = KubernetesNetworkPolicy {
        metadata,
        spec: KubernetesNetworkPolicySpec(spec),
        ..KubernetesNetworkPolicy::default()
    };
    let mut converted = Converted::new(object, &policy.metadata.resource_version);
    converted.problems = problems;
    Ok(converted)
}

/// Returns the directions that the policy names; ingress for an object that predates the field.
fn types(policy: &NetworkPolicy) -> Vec<PolicyType> {
    let named = |name: &str| policy.spec.policy_types.iter().any(|policy_type| policy_type == name);
    let mut types = Vec::new();
    if named("Ingress") {
        types.push(PolicyType::Ingress);
    }
    if named("Egress") {
        types.push(PolicyType::Egress);
    }
    if types.is_empty() {
        types.push(PolicyType::Ingress);
    }
    types
}

/// One rule for each protocol and peer.
fn convert_rule(
    peers: &[NetworkPolicyPeer],
    ports: &[NetworkPolicyPort],
    direction: Direction,
) -> Result<Vec<Rule>, String> {
    let ports = collect_ports(ports)?;
    let mut entities = peers.iter().map(convert_peer).collect::<Result<Vec<_>, _>>()?;
    if entities.is_empty() {
        entities.push(EntityRule::default());
    }
    let mut rules = Vec::new();
    for (protocol, ports) in ports.into_rules() {
        for entity in &entities {
            let mut rule = Rule { action: Action::Allow, protocol: protocol.clone(), ..Rule::default() };
            match direction {
                Direction::Ingress => {
                    rule.source = entity.clone();
                    rule.destination.ports.clone_from(&ports);
                }
                Direction::Egress => rule.destination = EntityRule { ports: ports.clone(), ..entity.clone() },
            }
            rules.push(rule);
        }
    }
    Ok(rules)
}

fn collect_ports(ports: &[NetworkPolicyPort]) -> Result<ProtocolPorts, String> {
    if ports.is_empty() {
        return Ok(ProtocolPorts::everything());
    }
    let mut collected = ProtocolPorts::new();
    for entry in ports {
        // Without a protocol, Kubernetes means TCP.
        let protocol = entry.protocol.as_deref().unwrap_or("TCP");
        match entry.to_calico() {
            None => collected.add_all(protocol),
            Some(Port::Other(text)) => return Err(format!("'{text}' is not a port")),
            Some(port) => collected.add(protocol, port),
        }
    }
    Ok(collected)
}

fn convert_peer(peer: &NetworkPolicyPeer) -> Result<EntityRule, String> {
    let Some(block) = &peer.ip_block else {
        return Ok(EntityRule {
            selector: pod_selector(peer.pod_selector.as_ref()),
            namespace_selector: namespace_selector(peer.namespace_selector.as_ref()),
            ..EntityRule::default()
        });
    };
    Ok(EntityRule {
        nets: vec![masked(&block.cidr)?],
        not_nets: block.except.iter().map(|cidr| masked(cidr)).collect::<Result<_, _>>()?,
        selector: SelectorText::default(),
        ..EntityRule::default()
    })
}

/// Returns the network without host bits, as Calico writes it.
pub(super) fn masked(cidr: &str) -> Result<IpOrCidr, String> {
    Ok(IpOrCidr::new(Cidr::from(cidr).parse()?.masked().to_string()))
}
