//! The facts about a cluster, as far as the account may read them.

use crate::cluster::{Reference, Target};
use crate::install::Existing;
use crate::status;
use futures::StreamExt as _;
use manifests::parts::Rule;
use manifests::{Like, NAMESPACE, roles};
use serde_json::{Value, json};

/// The facts.
#[derive(Clone, Debug, Default)]
pub struct ClusterFacts {
    /// The facts of `tortie status`.
    pub status: status::Facts,
    /// The existing definitions of Calico's kinds.
    pub definitions: Vec<Value>,
    /// Whether Calico's operator is installed.
    pub has_operator: bool,
    /// kubeadm's configuration of the cluster, as text.
    pub kubeadm: Option<String>,
    /// The ranges of services, from the cluster's ServiceCIDRs.
    pub service_ranges: Vec<String>,
    /// The number of nodes on which kube-proxy's daemon set runs; `None` without that daemon set.
    pub proxied_nodes: Option<i64>,
    /// Whether nodes are configured with the API's address, so that they need no service to reach it.
    pub has_api_endpoint: bool,
    /// Missing rights of components, one per line; `None` if they could not be queried.
    pub missing_rights: Option<Vec<String>>,
    /// The number of rights that were checked.
    pub rights_asked: usize,
    /// How many seconds the API's clock is ahead of this machine's.
    pub clock_ahead: Option<i64>,
}

/// Reads the facts.
pub async fn gather_cluster(target: &Target) -> ClusterFacts {
    let mut facts = ClusterFacts { status: status::gather(target).await, ..ClusterFacts::default() };
    let definitions = target.list("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").await;
    facts.definitions = definitions.unwrap_or_default();
    let group =
        |definition: &Value| definition.pointer("/spec/group").and_then(Value::as_str).map(str::to_owned);
    facts.definitions.retain(|definition| {
        matches!(group(definition).as_deref(), Some("crd.projectcalico.org" | "projectcalico.org"))
    });
    facts.has_operator = Existing::gather(target).await.is_ok_and(|existing| existing.has_operator);
    if let Ok(Some(map)) = target.get(&Reference::new("ConfigMap", NAMESPACE, "kubeadm-config")).await {
        facts.kubeadm = map["data"]["ClusterConfiguration"].as_str().map(str::to_owned);
    }
    // Older clusters do not serve this kind; kubeadm's configuration may still contain the ranges.
    let ranges = target.list("/apis/networking.k8s.io/v1/servicecidrs").await.unwrap_or_default();
    facts.service_ranges = ranges
        .iter()
        .filter_map(|range| range.pointer("/spec/cidrs")?.as_array())
        .flatten()
        .filter_map(|range| range.as_str().map(str::to_owned))
        .collect();
    if let Ok(Some(set)) = target.get(&Reference::new("DaemonSet", NAMESPACE, "kube-proxy")).await {
        facts.proxied_nodes = set.pointer("/status/desiredNumberScheduled").and_then(Value::as_i64);
    }
    facts.has_api_endpoint = has_api_endpoint(target, &facts.status.workloads).await;
    let questions = questions(&facts);
    facts.rights_asked = questions.len();
    facts.missing_rights = missing_rights(target, questions).await;
    facts.clock_ahead = clock_ahead(target).await;
    facts
}

/// Whether the config map that Calico's manifests read, or the daemon set itself, contains the API's address.
async fn has_api_endpoint(target: &Target, workloads: &[Value]) -> bool {
    let reference = Reference::new("ConfigMap", NAMESPACE, "kubernetes-services-endpoint");
    let map = target.get(&reference).await.ok().flatten();
    let variables = workloads
        .iter()
        .filter(|workload| workload["kind"] == "DaemonSet")
        .filter_map(|set| set.pointer("/spec/template/spec/containers")?.as_array())
        .flatten()
        .filter_map(|container| container["env"].as_array())
        .flatten();
    map.is_some_and(|map| map.pointer("/data/KUBERNETES_SERVICE_HOST").is_some())
        || variables.into_iter().any(|variable| variable["name"] == "KUBERNETES_SERVICE_HOST")
}

/// One right: the account, and the action.
struct Question {
    account: String,
    attributes: Value,
    text: String,
}

/// Every right that our components use, for the accounts of the daemon set and the deployments.
fn questions(facts: &ClusterFacts) -> Vec<Question> {
    let node = facts.status.workloads.iter().find(|workload| workload["kind"] == "DaemonSet");
    let Some(node) = node else { return Vec::new() };
    let text = |place: &str| node.pointer(place).and_then(Value::as_str).unwrap_or_default();
    let like = match (text("/metadata/name"), facts.status.config.as_ref()) {
        ("canal", _) => Like::Canal,
        (_, Some(config)) if config["data"].get("etcd_endpoints").is_some() => Like::CalicoEtcd,
        (_, Some(config)) if config["data"].get("calico_backend").is_none() => Like::CalicoPolicyOnly,
        _ => Like::Calico,
    };
    let namespace = text("/metadata/namespace").to_owned();
    let mut questions = Vec::new();
    let mut ask = |account: &str, rules: &[Rule]| {
        for rule in rules {
            let groups: Vec<&&str> =
                rule.groups.iter().filter(|group| **group != "projectcalico.org").collect();
            for (group, resource, verb) in groups
                .iter()
                .flat_map(|group| rule.resources.iter().map(move |resource| (group, resource)))
                .flat_map(|(group, resource)| rule.verbs.iter().map(move |verb| (group, resource, verb)))
            {
                // A refused right to an API that only some versions of Calico or Kubernetes serve counts as absent.
                let is_optional = **group == "kubevirt.io"
                    || **group == "policy.networking.k8s.io"
                    || resource.starts_with("global") && resource.ends_with("configs")
                    || *resource == "ipamconfigurations";
                if is_optional {
                    continue;
                }
                let (resource, part) = resource.split_once('/').unwrap_or((*resource, ""));
                let mut attributes =
                    json!({"group": group, "resource": resource, "subresource": part, "verb": verb});
                if let Some(name) = rule.names.first() {
                    attributes["name"] = json!(name);
                    attributes["namespace"] = json!(namespace);
                }
                let title = if part.is_empty() { resource.to_owned() } else { format!("{resource}/{part}") };
                let of = if group.is_empty() { String::new() } else { format!(" of {group}") };
                questions.push(Question {
                    account: format!("system:serviceaccount:{namespace}:{account}"),
                    attributes,
                    text: format!("{account} may not {verb} {title}{of}"),
                });
            }
        }
    };
    ask(like.node_name(), &roles::node_rules(like));
    ask(like.node_name(), &[roles::token_rule(like)]);
    ask("calico-cni-plugin", &roles::plugin_rules(like));
    ask("calico-kube-controllers", roles::controllers_rules(like));
    questions
}

async fn missing_rights(target: &Target, questions: Vec<Question>) -> Option<Vec<String>> {
    let answers = futures::stream::iter(questions.into_iter().map(|question| async move {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": question.account,
                "groups": ["system:serviceaccounts", "system:authenticated"],
                "resourceAttributes": question.attributes,
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let answer = target.create("ask for rights", path, &review).await.ok()?;
        Some((answer.pointer("/status/allowed")?.as_bool()?, question.text))
    }))
    .buffered(16)
    .collect::<Vec<_>>()
    .await;
    let mut missing = Vec::new();
    for answer in answers {
        let (is_allowed, text) = answer?;
        if !is_allowed {
            missing.push(text);
        }
    }
    Some(missing)
}

/// Compares clocks: a dry-run creation returns the server's time.
async fn clock_ahead(target: &Target) -> Option<i64> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tortie-clock", "namespace": "default"}});
    let path = "/api/v1/namespaces/default/configmaps?dryRun=All";
    let made = target.create("ask for the time", path, &map).await.ok()?;
    let text = made.pointer("/metadata/creationTimestamp")?.as_str()?.to_owned();
    let theirs: jiff::Timestamp = text.parse().ok()?;
    Some(theirs.as_second() - jiff::Timestamp::now().as_second())
}
