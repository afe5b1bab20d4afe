//! Plans a migration from facts. Pure: it can be read, printed (`--dry-run`) and tested without a cluster.

use super::{PREVIOUS_IMAGES, PREVIOUS_STRATEGY};
use crate::rollout::is_ready;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The facts that the plan is computed from.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The daemon set `calico-node` or `canal`.
    pub daemon_set: Option<Value>,
    /// Its pods.
    pub pods: Vec<Value>,
    /// The deployment of kube-controllers.
    pub controllers: Option<Value>,
    /// The deployment of Typha.
    pub typha: Option<Value>,
    /// Names of nodes that should have a pod.
    pub nodes: Vec<String>,
    /// Whether Calico's operator is installed.
    pub has_operator: bool,
    /// FelixConfiguration `default`.
    pub felix: Option<Value>,
    /// Whether Calico's definitions exist (they do not if its data is in an etcd).
    pub has_definitions: bool,
}

/// The user's request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Only these nodes; empty for all.
    pub nodes: Vec<String>,
    /// Whether to go back to Calico.
    pub is_back: bool,
    /// Where our images come from.
    pub registry: String,
    /// Their tag.
    pub tag: String,
    /// Whether to continue despite unhealthy nodes.
    pub force: bool,
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Bring the definitions to a state that suits both.
    ApplyDefinitions,
    /// Change a workload by a strategic merge patch, and report it.
    Change {
        /// `DaemonSet` or `Deployment`.
        kind: &'static str,
        /// Its name.
        name: String,
        /// What is changed, for display.
        what: String,
        /// The patch.
        patch: Value,
    },
    /// Wait until a deployment is ready.
    AwaitDeployment {
        /// Its name.
        name: String,
    },
    /// Delete the pod of a node, and wait until the new one is ready with these images.
    ReplacePod {
        /// The node.
        node: String,
        /// The current pod.
        pod: String,
    },
}

/// The steps, refusals and warnings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The reasons why nothing may be done; then there are no steps.
    pub refusals: Vec<String>,
    /// What the user should know.
    pub warnings: Vec<String>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// Computes the plan.
#[must_use]
pub fn plan(facts: &Facts, request: &Request) -> Plan {
    let mut plan = Plan::default();
    let Some(set) = &facts.daemon_set else {
        plan.refusals.push(
            "neither the daemon set calico-node nor canal is in kube-system: there is no Calico to replace"
                .to_owned(),
        );
        return plan;
    };
    preflight(facts, set, request, &mut plan);
    let images = match wanted_images(set, request) {
        Ok(images) => images,
        Err(reason) => {
            plan.refusals.push(reason);
            BTreeMap::new()
        }
    };
    let mut controllers = Vec::new();
    let mut typha = Vec::new();
    for (workload, steps) in [(&facts.controllers, &mut controllers), (&facts.typha, &mut typha)] {
        let Some(workload) = workload else { continue };
        match wanted_images(workload, request) {
            Ok(images) => steps.extend(change_deployment(workload, &images, request)),
            Err(reason) => plan.refusals.push(reason),
        }
    }
    if !plan.refusals.is_empty() {
        return plan;
    }
    let nodes = nodes(facts, set, &images, request, &mut plan.warnings);
    if request.is_back {
        plan.steps.extend(typha);
        plan.steps.extend(nodes);
        plan.steps.extend(controllers);
    } else {
        if facts.has_definitions {
            plan.steps.push(Step::ApplyDefinitions);
        }
        plan.steps.extend(controllers);
        plan.steps.extend(nodes);
        // Nodes that still have Calico's agents need Calico's Typha.
        if request.nodes.is_empty() {
            plan.steps.extend(typha);
        }
    }
    plan
}

fn preflight(facts: &Facts, set: &Value, request: &Request, plan: &mut Plan) {
    let annotation = |name: &str| annotation(set, name);
    let is_ignored = annotation("unsupported.operator.tigera.io/ignore").as_deref() == Some("true");
    if facts.has_operator && !is_ignored {
        plan.refusals.push(
            "Calico's operator owns these objects and would change them back: scale it down (kubectl -n tigera-operator scale \
             deploy/tigera-operator --replicas=0), or set the annotation unsupported.operator.tigera.io/ignore: \"true\" on the \
             daemon set"
                .to_owned(),
        );
    }
    let bpf = facts.felix.as_ref().and_then(|felix| felix.pointer("/spec/bpfEnabled")?.as_bool());
    if bpf.or_else(|| variable(set, "FELIX_BPFENABLED").map(|value| value == "true")) == Some(true) {
        let text = match request.is_back {
            false => {
                "eBPF: our programs replace Calico's, link by link, and connections continue in its maps. This was tried with \
                 stand-ins for Calico's programs, not with its own: begin with one node (--node)"
            }
            true => {
                "eBPF: Calico's programs replace ours. Our own maps stay pinned on nodes until they restart, or \
                 until `cd /sys/fs/bpf && rm -rf tc/globals/bpfp_* tc/globals/generation_* cali_xdp`; the last are programs of untracked policy"
            }
        };
        plan.warnings.push(text.to_owned());
    }
    for node in &request.nodes {
        if !facts.nodes.contains(node) {
            plan.refusals.push(format!("there is no node {node}; there are {}", facts.nodes.join(", ")));
        }
    }
    let unready: Vec<&str> = facts.pods.iter().filter(|pod| !is_ready(pod)).map(node_of).collect();
    if !unready.is_empty() {
        let text = format!("calico-node is not ready on {}", unready.join(", "));
        match request.force || request.is_back {
            true => plan.warnings.push(text),
            false => plan.refusals.push(format!("{text}: start with a healthy cluster, or pass --force")),
        }
    }
    if facts.typha.is_none() && facts.nodes.len() > 50 {
        plan.warnings.push(format!("{} nodes without Typha: above 50, run it", facts.nodes.len()));
    }
}

/// The images that each container of a workload should have, by the container's name.
fn wanted_images(workload: &Value, request: &Request) -> Result<BTreeMap<String, String>, String> {
    let name = workload.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    if request.is_back {
        let Some(text) = annotation(workload, PREVIOUS_IMAGES) else {
            // It was never migrated: it keeps its images.
            return Ok(images(workload));
        };
        return serde_json::from_str(&text)
            .map_err(|error| format!("{name}: the annotation {PREVIOUS_IMAGES} cannot be read: {error}"));
    }
    let mut wanted = BTreeMap::new();
    for (container, image) in images(workload) {
        if container == "kube-flannel" {
            continue;
        }
        let ours = match last_part(&image) {
            "node" => "node",
            "cni" => "cni",
            "calico" => "calico",
            "kube-controllers" => "kube-controllers",
            "typha" => "typha",
            "pod2daemon-flexvol" => "pod2daemon-flexvol",
            other => {
                return Err(format!(
                    "{name}: the container {container} has the image {image}, and there is no image {other:?} of ours to replace it"
                ));
            }
        };
        wanted
            .insert(container, format!("{}/{ours}:{}", request.registry.trim_end_matches('/'), request.tag));
    }
    Ok(wanted)
}

/// The name of an image without registry, path, tag and digest.
fn last_part(image: &str) -> &str {
    let image = image.split('@').next().unwrap_or(image);
    let last = image.rsplit('/').next().unwrap_or(image);
    last.split(':').next().unwrap_or(last)
}

fn images(workload: &Value) -> BTreeMap<String, String> {
    containers(workload)
        .filter_map(|(_, container)| {
            Some((container["name"].as_str()?.to_owned(), container["image"].as_str()?.to_owned()))
        })
        .collect()
}

fn containers(workload: &Value) -> impl Iterator<Item = (&'static str, &Value)> {
    ["initContainers", "containers"].into_iter().flat_map(|list| {
        let found = workload.pointer(&format!("/spec/template/spec/{list}")).and_then(Value::as_array);
        found.into_iter().flatten().map(move |container| (list, container))
    })
}

/// The pod template patch with other images; sets the user ID where Calico's image relied on its default user.
fn template_patch(
    workload: &Value,
    wanted: &BTreeMap<String, String>,
    request: &Request,
) -> Map<String, Value> {
    let mut spec = Map::new();
    for (list, container) in containers(workload) {
        let Some(name) = container["name"].as_str() else { continue };
        let Some(image) = wanted.get(name) else { continue };
        let mut change = json!({"name": name, "image": image});
        let is_privileged = container.pointer("/securityContext/privileged") == Some(&Value::Bool(true));
        let has_user = container.pointer("/securityContext/runAsUser").is_some();
        // The image of all components does not run as root, and a privileged container needs root.
        if !request.is_back && is_privileged && !has_user && last_part(image) == "calico" {
            change["securityContext"] = json!({"runAsUser": 0});
        }
        if let Some(items) = spec.entry(list).or_insert_with(|| json!([])).as_array_mut() {
            items.push(change);
        }
    }
    spec
}

fn previous(workload: &Value, request: &Request) -> Value {
    match (request.is_back, annotation(workload, PREVIOUS_IMAGES)) {
        (true, _) => Value::Null,
        // The first run records Calico's images; a later run only sees ours.
        (false, Some(kept)) => json!(kept),
        (false, None) => json!(
            Value::Object(images(workload).into_iter().map(|(name, image)| (name, json!(image))).collect())
                .to_string()
        ),
    }
}

fn is_changed(workload: &Value, wanted: &BTreeMap<String, String>) -> bool {
    let now = images(workload);
    wanted.iter().any(|(name, image)| now.get(name).is_some_and(|is| is != image))
}

fn change_deployment(workload: &Value, wanted: &BTreeMap<String, String>, request: &Request) -> Vec<Step> {
    if !is_changed(workload, wanted) {
        return Vec::new();
    }
    let name = workload.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let patch = json!({
        "metadata": {"annotations": {PREVIOUS_IMAGES: previous(workload, request)}},
        "spec": {"template": {"spec": template_patch(workload, wanted, request)}},
    });
    vec![
        Step::Change { kind: "Deployment", name: name.clone(), what: "its images".to_owned(), patch },
        Step::AwaitDeployment { name },
    ]
}

/// Steps for the daemon set and its pods.
fn nodes(
    facts: &Facts,
    set: &Value,
    wanted: &BTreeMap<String, String>,
    request: &Request,
    warnings: &mut Vec<String>,
) -> Vec<Step> {
    let name = set.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut steps = Vec::new();
    let strategy =
        set.pointer("/spec/updateStrategy").cloned().unwrap_or_else(|| json!({"type": "RollingUpdate"}));
    let kept = annotation(set, PREVIOUS_STRATEGY);
    if is_changed(set, wanted) {
        let mut spec = template_patch(set, wanted, request);
        if !request.is_back {
            keep_dataplane(facts, set, &mut spec, warnings);
        }
        let mut annotations = json!({PREVIOUS_IMAGES: previous(set, request)});
        annotations[PREVIOUS_STRATEGY] = json!(kept.clone().unwrap_or_else(|| strategy.to_string()));
        steps.push(Step::Change {
            kind: "DaemonSet",
            name: name.clone(),
            what: "its images; pods are replaced only when they are deleted".to_owned(),
            patch: json!({
                "metadata": {"annotations": annotations},
                "spec": {
                    "updateStrategy": {"type": "OnDelete", "rollingUpdate": null},
                    "template": {"spec": spec},
                },
            }),
        });
    }
    let mut pods: Vec<&Value> = facts.pods.iter().filter(|pod| pod_differs(pod, wanted)).collect();
    pods.sort_by_key(|pod| node_of(pod));
    for pod in pods {
        let node = node_of(pod);
        if request.nodes.is_empty() || request.nodes.iter().any(|wanted| wanted == node) {
            let pod = pod.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
            steps.push(Step::ReplacePod { node: node.to_owned(), pod: pod.to_owned() });
        }
    }
    // After a part of the nodes, the others must not be updated automatically.
    let is_whole = request.nodes.is_empty();
    if is_whole && (kept.is_some() || !steps.is_empty()) {
        let before: Value = kept.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or(strategy);
        if before["type"] != "OnDelete" {
            steps.push(Step::Change {
                kind: "DaemonSet",
                name,
                what: "its update strategy, back to the previous one".to_owned(),
                patch: json!({
                    "metadata": {"annotations": {PREVIOUS_STRATEGY: null}},
                    "spec": {"updateStrategy": before},
                }),
            });
        }
    }
    steps
}

/// Up to v3.31, Calico's Felix filtered with iptables by default; ours follows kube-proxy, as Calico's does since. The
/// replacement must not change that under running pods.
fn keep_dataplane(facts: &Facts, set: &Value, spec: &mut Map<String, Value>, warnings: &mut Vec<String>) {
    let is_said =
        facts.felix.as_ref().is_some_and(says_mode) || variable(set, "FELIX_NFTABLESMODE").is_some();
    if is_said {
        return;
    }
    let node = images(set).into_iter().find(|(_, image)| last_part(image) == "node").map(|(_, image)| image);
    let version = node.as_deref().and_then(version);
    let (text, is_old) = match version {
        Some((major, minor)) => (format!("Calico v{major}.{minor}"), (major, minor) < (3, 32)),
        None => return warnings.push(
            "the image of calico-node has no version in its tag, so nftablesMode is left to be detected: if Calico was \
             v3.31 or older and kube-proxy uses nftables, set FELIX_NFTABLESMODE=Disabled first"
                .to_owned(),
        ),
    };
    if !is_old {
        return;
    }
    warnings.push(format!(
        "{text} filters with iptables by default: FELIX_NFTABLESMODE=Disabled keeps it that way"
    ));
    let list = spec.entry("containers").or_insert_with(|| json!([]));
    let Some(containers) = list.as_array_mut() else { return };
    if let Some(container) = containers.iter_mut().find(|container| container["name"] == "calico-node") {
        container["env"] = json!([{"name": "FELIX_NFTABLESMODE", "value": "Disabled"}]);
    }
}

/// Whether a user chose how packets are filtered. Our definitions fill in `Auto` if not, and after an interrupted run
/// they are already in place: only the field's owner tells the two apart.
fn says_mode(felix: &Value) -> bool {
    let owners = felix.pointer("/metadata/managedFields").and_then(Value::as_array);
    let is_owned = |entry: &Value| entry.pointer("/fieldsV1/f:spec/f:nftablesMode").is_some();
    match felix.pointer("/spec/nftablesMode").and_then(Value::as_str) {
        None => false,
        Some("Auto") => owners.into_iter().flatten().any(is_owned),
        Some(_) => true,
    }
}

/// The release in an image's tag: `v3.31.0`, `v3.31.0-hardened`.
fn version(image: &str) -> Option<(u64, u64)> {
    let tag = image.split('@').next()?.rsplit('/').next()?.split_once(':')?.1;
    let mut numbers = tag.strip_prefix('v')?.split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn pod_differs(pod: &Value, wanted: &BTreeMap<String, String>) -> bool {
    ["/spec/initContainers", "/spec/containers"]
        .iter()
        .filter_map(|list| pod.pointer(list)?.as_array())
        .flatten()
        .any(|container| {
            let name = container["name"].as_str().unwrap_or_default();
            wanted.get(name).is_some_and(|image| container["image"] != *image)
        })
}

fn node_of(pod: &Value) -> &str {
    pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or("no node")
}

fn annotation(object: &Value, name: &str) -> Option<String> {
    object.pointer("/metadata/annotations")?.get(name)?.as_str().map(str::to_owned)
}

fn variable(set: &Value, name: &str) -> Option<String> {
    containers(set)
        .filter_map(|(_, container)| container["env"].as_array())
        .flatten()
        .find(|entry| entry["name"] == name)?
        .get("value")?
        .as_str()
        .map(str::to_owned)
}

/// For display.
impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ApplyDefinitions => {
                f.write_str("bring the custom resource definitions up to what both need")
            }
            Self::Change { kind, name, what, .. } => write!(f, "{kind} {name}: change {what}"),
            Self::AwaitDeployment { name } => write!(f, "Deployment {name}: wait until it is ready"),
            Self::ReplacePod { node, pod } => {
                write!(f, "node {node}: replace {pod}, and wait until the new one is ready")
            }
        }
    }
}

#[cfg(test)]
mod tests;
