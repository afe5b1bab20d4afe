//! Kubernetes' NetworkPolicy from a manifest: converted like those in the datastore, with two additions. Each converted
//! rule remembers its place in the user's object, and unknown fields are reported: `from` under `egress` is a common
//! mistake.
//!
//! A rule with such a field is left out. Kubernetes refuses the whole object, so the rule allows nothing either way,
//! and the explanation can show it in its place with the reason.

use crate::report::Direction;
use api::codec::Extra;
use api::kubernetes::NetworkPolicy;
use api::kubernetes::policy::{LabelSelector, NetworkPolicyPeer, NetworkPolicyPort};
use api::{Kind, KubernetesNetworkPolicy, Resource};
use model::kubernetes::ConversionError;
use model::kubernetes::network_policy::kubernetes_network_policy;

/// The origins of the rules of a converted policy, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleOrigins {
    pub(crate) ingress: Vec<String>,
    pub(crate) egress: Vec<String>,
    pub(crate) left_out: Vec<LeftOut>,
}

/// A rule that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) direction: Direction,
    pub(crate) place: String,
    pub(crate) reason: String,
}

/// A converted policy with its problems.
pub(crate) struct ReadPolicy {
    pub(crate) policy: KubernetesNetworkPolicy,
    pub(crate) origins: RuleOrigins,
    pub(crate) problems: Vec<String>,
}

/// Converts a Kubernetes policy like the datastore, and lists its mistakes: a rule with an unknown field is left out,
/// so that a mistake never allows more than was meant.
///
/// # Errors
/// When it cannot be converted at all.
pub fn strict_kubernetes_policy(
    policy: NetworkPolicy,
) -> Result<(KubernetesNetworkPolicy, Vec<String>), ConversionError> {
    let read = read(policy)?;
    Ok((read.policy, read.problems))
}

/// Converts a policy, with the defaults of the API server.
pub(crate) fn read(mut policy: NetworkPolicy) -> Result<ReadPolicy, ConversionError> {
    let name = format!("NetworkPolicy {}/{}", policy.metadata.namespace, policy.metadata.name);
    let mut problems = Vec::new();
    let mut origins = RuleOrigins::default();
    for field in policy.spec.extra.keys() {
        problems.push(format!(
            "{name}: spec.{field} is not a field{}; Kubernetes refuses the policy",
            meant(field, &["podSelector", "ingress", "egress", "policyTypes"])
        ));
    }
    for mistake in selector_mistakes("spec.podSelector", Some(&policy.spec.pod_selector)) {
        problems.push(format!("{name}: {mistake}; Kubernetes refuses the policy"));
    }
    default_types(&mut policy, &name, &mut problems);
    let ingress = std::mem::take(&mut policy.spec.ingress);
    let egress = std::mem::take(&mut policy.spec.egress);
    let mut leave_out = |direction, place: String, reason: String| {
        problems
            .push(format!("{name}: {reason}; Kubernetes refuses the policy, and the rule allows nothing"));
        origins.left_out.push(LeftOut { direction, place, reason });
    };
    for (index, rule) in ingress.into_iter().enumerate() {
        let place = format!("spec.ingress[{index}]");
        let mut single = NetworkPolicy { metadata: policy.metadata.clone(), ..NetworkPolicy::default() };
        single.spec.ingress.push(rule.clone());
        let found = rule_mistakes(&place, &rule.extra, &rule.ports, &rule.from, &["ports", "from"]);
        match count(&single, &found, |object| object.spec.ingress.len())? {
            Ok(count) => {
                origins.ingress.extend(std::iter::repeat_n(place, count));
                policy.spec.ingress.push(rule);
            }
            Err(reason) => leave_out(Direction::Ingress, place, reason),
        }
    }
    for (index, rule) in egress.into_iter().enumerate() {
        let place = format!("spec.egress[{index}]");
        let mut single = NetworkPolicy { metadata: policy.metadata.clone(), ..NetworkPolicy::default() };
        single.spec.egress.push(rule.clone());
        let found = rule_mistakes(&place, &rule.extra, &rule.ports, &rule.to, &["ports", "to"]);
        match count(&single, &found, |object| object.spec.egress.len())? {
            Ok(count) => {
                origins.egress.extend(std::iter::repeat_n(place, count));
                policy.spec.egress.push(rule);
            }
            Err(reason) => leave_out(Direction::Egress, place, reason),
        }
    }
    let policy = converted(&policy)?.0;
    Ok(ReadPolicy { policy, origins, problems })
}

/// How many rules a policy with a single rule is converted to, or why to none.
fn count(
    single: &NetworkPolicy,
    mistakes: &[String],
    rules: fn(&KubernetesNetworkPolicy) -> usize,
) -> Result<Result<usize, String>, ConversionError> {
    if !mistakes.is_empty() {
        return Ok(Err(mistakes.join("; ")));
    }
    let (policy, problems) = converted(single)?;
    Ok(match problems.into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(rules(&policy)),
    })
}

fn converted(policy: &NetworkPolicy) -> Result<(KubernetesNetworkPolicy, Vec<String>), ConversionError> {
    let converted = kubernetes_network_policy(policy)?;
    match converted.pair.as_resource() {
        Some(Resource::KubernetesNetworkPolicy(object)) => Ok(((**object).clone(), converted.problems)),
        _ => Err(ConversionError::Name(format!(
            "{} was not converted to a policy",
            Kind::KubernetesNetworkPolicy
        ))),
    }
}

/// Sets the directions that the API server defaults to: ingress always, egress if there are rules for it.
fn default_types(policy: &mut NetworkPolicy, name: &str, problems: &mut Vec<String>) {
    let spec = &mut policy.spec;
    if spec.policy_types.is_empty() {
        spec.policy_types.push("Ingress".to_owned());
        if !spec.egress.is_empty() {
            spec.policy_types.push("Egress".to_owned());
        }
    }
    for (direction, count) in [("Ingress", spec.ingress.len()), ("Egress", spec.egress.len())] {
        if count > 0 && !spec.policy_types.iter().any(|named| named == direction) {
            let field = direction.to_lowercase();
            problems.push(format!(
                "{name}: the rules under spec.{field} do nothing, because spec.policyTypes does not name {direction}"
            ));
        }
    }
    for other in spec.policy_types.iter().filter(|named| !matches!(named.as_str(), "Ingress" | "Egress")) {
        problems.push(format!(
            "{name}: spec.policyTypes: '{other}' is neither Ingress nor Egress; Kubernetes refuses the policy"
        ));
    }
}

fn rule_mistakes(
    place: &str,
    extra: &Extra,
    ports: &[NetworkPolicyPort],
    peers: &[NetworkPolicyPeer],
    known: &[&str; 2],
) -> Vec<String> {
    let mut mistakes = Vec::new();
    for field in extra.keys() {
        let mut said = meant(field, known);
        // The common mistake: the names are too different to count as a misspelling.
        if matches!(field.as_str(), "from" | "to") {
            said = format!(": did you mean `{}`?", known[1]);
        }
        mistakes.push(format!("{place}.{field} is not a field of this rule{said}"));
    }
    for (index, port) in ports.iter().enumerate() {
        for field in port.extra.keys() {
            let said = meant(field, &["protocol", "port", "endPort"]);
            mistakes.push(format!("{place}.ports[{index}].{field} is not a field{said}"));
        }
    }
    for (index, peer) in peers.iter().enumerate() {
        let place = format!("{place}.{}[{index}]", known[1]);
        for field in peer.extra.keys() {
            let said = meant(field, &["podSelector", "namespaceSelector", "ipBlock"]);
            mistakes.push(format!("{place}.{field} is not a field{said}"));
        }
        mistakes.extend(selector_mistakes(&format!("{place}.podSelector"), peer.pod_selector.as_ref()));
        let namespaces = format!("{place}.namespaceSelector");
        mistakes.extend(selector_mistakes(&namespaces, peer.namespace_selector.as_ref()));
        if peer.pod_selector.is_none()
            && peer.namespace_selector.is_none()
            && peer.ip_block.is_none()
            && peer.extra.is_empty()
        {
            mistakes.push(format!("{place} is empty: it needs podSelector, namespaceSelector or ipBlock"));
        }
        if let Some(block) = &peer.ip_block {
            for field in block.extra.keys() {
                mistakes.push(format!(
                    "{place}.ipBlock.{field} is not a field{}",
                    meant(field, &["cidr", "except"])
                ));
            }
        }
    }
    mistakes
}

fn selector_mistakes(place: &str, selector: Option<&LabelSelector>) -> Vec<String> {
    let Some(selector) = selector else { return Vec::new() };
    let unknown = selector.extra.keys().map(|field| {
        let said = meant(field, &["matchLabels", "matchExpressions"]);
        format!("{place}.{field} is not a field{said}")
    });
    let operators = selector.match_expressions.iter().filter_map(|term| {
        let known = ["In", "NotIn", "Exists", "DoesNotExist"];
        let operator = term.operator.as_str();
        (!known.contains(&operator))
            .then(|| format!("{place}: '{operator}' is not an operator{}", meant(operator, &known)))
    });
    unknown.chain(operators).collect()
}

/// `: did you mean ...?` if a known name is similar.
pub(crate) fn meant(field: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&field.to_lowercase(), &name.to_lowercase()), name))
        .min()
        .filter(|(distance, name)| *distance <= 1 + name.len() / 4);
    near.map(|(_, name)| format!(": did you mean `{name}`?")).unwrap_or_default()
}
