//! ClusterNetworkPolicy (`policy.networking.k8s.io/v1alpha2`) → KubernetesClusterNetworkPolicy.
//!
//! These policies can also deny. A Deny or Pass rule that cannot be converted becomes a rule that denies everything, so
//! that a mistake never opens what the policy was written to close; an Accept rule that cannot be converted is left
//! out. A policy whose tier or subject is unknown has no Calico form at all, and its conversion fails.

use super::label_selector::{namespace_selector, pod_selector};
use super::network_policy::masked;
use super::ports::ProtocolPorts;
use super::{ConversionError, Converted, translated_uid};
use api::kubernetes::cluster_policy::{
    ClusterNetworkPolicySpec, EgressPeer, IngressPeer, NamespacedPod, PolicyProtocol, PortNumbers, Subject,
};
use api::kubernetes::{ClusterNetworkPolicy, LabelSelector};
use api::scalars::{GoFloat, Port, SelectorText};
use api::{
    Action, EntityRule, GlobalNetworkPolicySpec, KubernetesClusterNetworkPolicy,
    KubernetesClusterNetworkPolicySpec, ObjectMeta, PolicyType, Rule, RuleMetadata,
};

/// The annotation under which a rule's name is kept.
const RULE_NAME: &str = "name";

/// Converts a policy into Calico's form.
///
/// # Errors
/// When tier or subject are unknown, or the object's uid is not one.
pub fn kubernetes_cluster_network_policy(
    policy: &ClusterNetworkPolicy,
) -> Result<Converted, ConversionError> {
    let spec = &policy.spec;
    let tier = calico_tier(&spec.tier)?;
    let (namespaces, pods) = subject(&spec.subject)?;
    let mut problems = Vec::new();
    let (ingress, egress) = rules(spec, &mut problems);
    // These tiers pass by default: a direction without rules must not be policed.
    let mut types = Vec::new();
    if !ingress.is_empty() {
        types.push(PolicyType::Ingress);
    }
    if !egress.is_empty() {
        types.push(PolicyType::Egress);
    }
    let converted = GlobalNetworkPolicySpec {
        tier: tier.to_owned(),
        order: Some(GoFloat(f64::from(spec.priority))),
        ingress,
        egress,
        selector: pods,
        namespace_selector: namespaces,
        types,
        ..GlobalNetworkPolicySpec::default()
    };
    let metadata = ObjectMeta {
        name: policy.metadata.name.clone(),
        uid: translated_uid(&policy.metadata.uid)?,
        creation_timestamp: policy.metadata.creation_timestamp.clone(),
        ..ObjectMeta::default()
    };
    let object = KubernetesClusterNetworkPolicy {
        metadata,
        spec: KubernetesClusterNetworkPolicySpec(converted),
        ..KubernetesClusterNetworkPolicy::default()
    };
    let mut converted = Converted::new(object, &policy.metadata.resource_version);
    converted.problems = problems;
    Ok(converted)
}

fn calico_tier(tier: &str) -> Result<&'static str, ConversionError> {
    match tier {
        "Admin" => Ok(api::words::ADMIN_TIER),
        "Baseline" => Ok(api::words::BASELINE_TIER),
        other => Err(ConversionError::field("spec.tier", format!("'{other}' is neither Admin nor Baseline"))),
    }
}

/// The selectors of the namespaces and the pods that a policy is for.
fn subject(subject: &Subject) -> Result<(SelectorText, SelectorText), ConversionError> {
    match (&subject.namespaces, &subject.pods) {
        // Even without terms, a selector of pods leaves host endpoints out.
        (Some(namespaces), _) => Ok((namespace_selector(Some(namespaces)), pod_selector(None))),
        (None, Some(pods)) => {
            Ok((namespace_selector(Some(&pods.namespace_selector)), pod_selector(Some(&pods.pod_selector))))
        }
        (None, None) => Err(ConversionError::field("spec.subject", "selects neither namespaces nor pods")),
    }
}

/// The rules for packets to the subject, and those for packets from it.
fn rules(spec: &ClusterNetworkPolicySpec, problems: &mut Vec<String>) -> (Vec<Rule>, Vec<Rule>) {
    let mut ingress = Vec::new();
    for (index, rule) in spec.ingress.iter().enumerate() {
        let converted = convert_rule(
            &rule.name,
            &rule.action,
            &rule.protocols,
            &rule.from,
            ingress_peer,
            |peer, ports| (peer, EntityRule { ports, ..EntityRule::default() }),
        );
        keep_or_close(converted, &rule.action, &format!("spec.ingress[{index}]"), &mut ingress, problems);
    }
    let mut egress = Vec::new();
    for (index, rule) in spec.egress.iter().enumerate() {
        let converted =
            convert_rule(&rule.name, &rule.action, &rule.protocols, &rule.to, egress_peer, |peer, ports| {
                (EntityRule::default(), EntityRule { ports, ..peer })
            });
        keep_or_close(converted, &rule.action, &format!("spec.egress[{index}]"), &mut egress, problems);
    }
    (ingress, egress)
}

fn keep_or_close(
    converted: Result<Vec<Rule>, String>,
    action: &str,
    place: &str,
    rules: &mut Vec<Rule>,
    problems: &mut Vec<String>,
) {
    match converted {
        Ok(converted) => rules.extend(converted),
        Err(reason) if matches!(action, "Deny" | "Pass") => {
            problems.push(format!("{place} becomes a rule that denies everything: {reason}"));
            rules.push(Rule { action: Action::Deny, ..Rule::default() });
        }
        Err(reason) => problems.push(format!("{place} is left out: {reason}")),
    }
}

/// One rule for each protocol and peer.
fn convert_rule<P>(
    name: &str,
    action: &str,
    protocols: &[PolicyProtocol],
    peers: &[P],
    convert_peer: fn(&P) -> Result<EntityRule, String>,
    ends: fn(EntityRule, Vec<Port>) -> (EntityRule, EntityRule),
) -> Result<Vec<Rule>, String> {
    let action = match action {
        "Accept" => Action::Allow,
        "Deny" => Action::Deny,
        "Pass" => Action::Pass,
        other => return Err(format!("'{other}' is not an action of these policies")),
    };
    let metadata = (!name.is_empty()).then(|| {
        let annotations = [(RULE_NAME.to_owned(), name.to_owned())].into();
        Box::new(RuleMetadata { annotations, ..RuleMetadata::default() })
    });
    let ports = collect_ports(protocols)?;
    let peers = peers.iter().map(convert_peer).collect::<Result<Vec<_>, _>>()?;
    let mut rules = Vec::new();
    for (protocol, ports) in ports.into_rules() {
        for peer in &peers {
            let (source, destination) = ends(peer.clone(), ports.clone());
            rules.push(Rule {
                action: action.clone(),
                protocol: protocol.clone(),
                source,
                destination,
                metadata: metadata.clone(),
                ..Rule::default()
            });
        }
    }
    Ok(rules)
}

fn selected(namespaces: Option<&LabelSelector>, pods: Option<&NamespacedPod>) -> EntityRule {
    let mut entity = EntityRule::default();
    if let Some(namespaces) = namespaces {
        entity.namespace_selector = namespace_selector(Some(namespaces));
    }
    if let Some(pods) = pods {
        entity.selector = pod_selector(Some(&pods.pod_selector));
        entity.namespace_selector = namespace_selector(Some(&pods.namespace_selector));
    }
    entity
}

fn ingress_peer(peer: &IngressPeer) -> Result<EntityRule, String> {
    let entity = selected(peer.namespaces.as_ref(), peer.pods.as_ref());
    if entity.namespace_selector == SelectorText::default() {
        return Err("a peer under 'from' has none of the fields that are supported".to_owned());
    }
    Ok(entity)
}

fn egress_peer(peer: &EgressPeer) -> Result<EntityRule, String> {
    let mut entity = selected(peer.namespaces.as_ref(), peer.pods.as_ref());
    entity.nets = peer.networks.iter().map(|network| masked(network)).collect::<Result<_, _>>()?;
    if entity == EntityRule::default() {
        return Err("a peer under 'to' has none of the fields that are supported".to_owned());
    }
    Ok(entity)
}

fn collect_ports(protocols: &[PolicyProtocol]) -> Result<ProtocolPorts, String> {
    if protocols.is_empty() {
        return Ok(ProtocolPorts::everything());
    }
    let mut collected = ProtocolPorts::new();
    for entry in protocols {
        let (protocol, ports) = if let Some(tcp) = &entry.tcp {
            ("TCP", tcp.destination_port.as_ref())
        } else if let Some(udp) = &entry.udp {
            ("UDP", udp.destination_port.as_ref())
        } else if let Some(sctp) = &entry.sctp {
            ("SCTP", sctp.destination_port.as_ref())
        } else if !entry.destination_named_port.is_empty() {
            match Port::from_text(&entry.destination_named_port) {
                // A port's name may belong to ports of any protocol.
                port @ Port::Named(_) => collected.add("", port),
                _ => return Err(format!("'{}' is not the name of a port", entry.destination_named_port)),
            }
            continue;
        } else {
            // Calico takes it to match everything. But it may be a condition of a later version, and an Accept rule
            // without its condition would allow more than it says.
            return Err("an entry under 'protocols' has none of the fields that are supported".to_owned());
        };
        match ports.map(number_or_range).transpose()? {
            Some(port) => collected.add(protocol, port),
            None => collected.add_all(protocol),
        }
    }
    Ok(collected)
}

fn number_or_range(port: &PortNumbers) -> Result<Port, String> {
    let checked = |number: i32| u16::try_from(number).map_err(|_| format!("{number} is not a port"));
    if port.number != 0 {
        return Ok(Port::single(checked(port.number)?));
    }
    let Some(range) = &port.range else {
        return Err("a port has neither a number nor a range".to_owned());
    };
    let (start, end) = (checked(range.start)?, checked(range.end)?);
    if start > end {
        return Err(format!("the ports {start} to {end} are not a range"));
    }
    Ok(Port::range(start, end))
}
