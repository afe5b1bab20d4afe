//! Manifests, as stored in the directories of a repository: Kubernetes' objects and Calico's, as JSON values.
//!
//! Objects that do not affect packets are counted and left out. An unreadable object that does is an error: an
//! explanation that silently ignores a policy would be worse than none.

use crate::cluster::Cluster;
use crate::kubernetes_policy;
use api::kind::{API_VERSION, CRD_API_VERSION};
use api::kubernetes::{
    ClusterNetworkPolicy, EndpointSlice, Namespace, NetworkPolicy, Pod, Service, ServiceAccount,
};
use api::{Kind, Resource};
use ipnet::IpNet;
use model::kubernetes::{ConversionError, Converted, cluster_network_policy, node, pod, profile, service};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The node of pods that are not scheduled yet.
pub(crate) const UNSCHEDULED: &str = "unscheduled";

/// The pool for addresses if the manifests contain none: Calico's default.
const USUAL_POOL: &str = "192.168.0.0/16";

/// An object that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct ManifestError {
    /// Kind and name.
    pub what: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Cluster {
    /// Adds the contents of one document of a manifest: an object, or a list of objects. When all are added, call
    /// [`Cluster::complete`].
    ///
    /// # Errors
    /// When the object affects packets and cannot be read.
    pub fn add_manifest(&mut self, value: Value) -> Result<(), ManifestError> {
        match value {
            Value::Null => Ok(()),
            Value::Array(items) => items.into_iter().try_for_each(|item| self.add_manifest(item)),
            Value::Object(mut object) => {
                let kind = text(&object, "kind").to_owned();
                if kind.ends_with("List")
                    && let Some(Value::Array(items)) = object.get_mut("items").map(Value::take)
                {
                    let (version, item_kind) =
                        (text(&object, "apiVersion").to_owned(), kind.trim_end_matches("List"));
                    return items.into_iter().try_for_each(|mut item| {
                        // Items of a typed list may leave out kind and version, which the list implies.
                        if let Value::Object(fields) = &mut item
                            && !item_kind.is_empty()
                        {
                            fields.entry("kind").or_insert_with(|| item_kind.into());
                            fields.entry("apiVersion").or_insert_with(|| version.clone().into());
                        }
                        self.add_manifest(item)
                    });
                }
                let metadata = object.get("metadata").and_then(Value::as_object);
                let named = |field| metadata.map_or("", |metadata| text(metadata, field));
                let what = match named("namespace") {
                    "" => format!("{kind} {}", named("name")),
                    namespace => format!("{kind} {namespace}/{}", named("name")),
                };
                self.add_object(&kind, object).map_err(|reason| ManifestError { what, reason })
            }
            other => Err(ManifestError {
                what: "document".to_owned(),
                reason: format!("is not an object: {other}"),
            }),
        }
    }

    fn add_object(&mut self, kind: &str, object: Map<String, Value>) -> Result<(), String> {
        let version = text(&object, "apiVersion").to_owned();
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, kind) {
            _ if version == API_VERSION || version == CRD_API_VERSION => {
                self.add_calico(kind, &version, object)
            }
            ("", "Pod") => self.add_pod(Value::Object(object)),
            ("", "Namespace") => {
                let mut namespace: Namespace = read(Value::Object(object))?;
                let name = namespace.metadata.name.clone();
                // The API server gives every namespace this label.
                namespace.metadata.labels.insert("kubernetes.io/metadata.name".to_owned(), name);
                namespace.metadata.uid.clear();
                self.add_converted(profile::namespace_profile(&namespace))
            }
            ("", "ServiceAccount") => {
                let mut account: ServiceAccount = read(Value::Object(with_namespace(object)))?;
                account.metadata.uid.clear();
                self.used_namespaces.insert(account.metadata.namespace.clone());
                self.add_converted(profile::service_account_profile(&account))
            }
            ("", "Node") => {
                let node: api::kubernetes::Node = read(Value::Object(object))?;
                self.add_converted(node::calico_node(&node, false))
            }
            ("", "Service") => {
                let found: Service = read(Value::Object(with_namespace(object)))?;
                self.add_converted(Ok(service::kubernetes_service(found)))
            }
            ("discovery.k8s.io", "EndpointSlice") => {
                let bytes = serde_json::to_vec(&Value::Object(with_namespace(object)))
                    .map_err(|error| error.to_string())?;
                let slice = EndpointSlice::from_json(&bytes).map_err(|error| error.to_string())?;
                self.add_converted(Ok(service::kubernetes_endpoint_slice(slice)))
            }
            ("networking.k8s.io" | "extensions", "NetworkPolicy") => {
                let mut policy: NetworkPolicy = read(Value::Object(with_namespace(object)))?;
                policy.metadata.uid.clear();
                self.add_kubernetes_policy(policy)
            }
            ("policy.networking.k8s.io", "ClusterNetworkPolicy") => {
                self.swapped_peers(&object);
                let mut policy: ClusterNetworkPolicy = read(Value::Object(object))?;
                policy.metadata.uid.clear();
                self.add_converted(cluster_network_policy::kubernetes_cluster_network_policy(&policy))
            }
            ("apps", "Deployment" | "StatefulSet" | "DaemonSet" | "ReplicaSet")
            | ("batch", "Job")
            | ("", "ReplicationController") => self.add_template(&object, &["spec", "template"]),
            ("batch", "CronJob") => self.add_template(&object, &["spec", "jobTemplate", "spec", "template"]),
            _ => {
                *self.ignored.entry(kind.to_owned()).or_default() += 1;
                Ok(())
            }
        }
    }

    fn add_calico(&mut self, kind: &str, version: &str, object: Map<String, Value>) -> Result<(), String> {
        let Some(kind) = Kind::from_name(kind).filter(|kind| kind.info().stored) else {
            return Err(format!("{version} has no kind {kind}"));
        };
        let mut object = if kind.is_namespaced() { with_namespace(object) } else { object };
        let mut resource =
            Resource::from_value(kind, Value::Object(object.clone())).map_err(|error| error.to_string())?;
        let tier = model::names::policy_tier(&resource).map(str::to_owned);
        if version == CRD_API_VERSION {
            if let Some(tier) = tier {
                model::names::restore_policy_name(resource.metadata_mut(), &tier)
                    .map_err(|error| error.to_string())?;
            }
            object.insert("apiVersion".to_owned(), API_VERSION.into());
        }
        self.check_strictly(&mut resource, &object);
        resource.set_defaults();
        self.add(resource);
        Ok(())
    }

    /// Parses the object again like `calicoctl apply`: to find its mistakes (unknown fields, values out of range), and,
    /// if it has none, to use it in its stored form (with the case of field names corrected).
    fn check_strictly(&mut self, resource: &mut Resource, object: &Map<String, Value>) {
        let Ok(bytes) = serde_json::to_vec(object) else { return };
        let found = match api::document::read("", &bytes, api::document::Checks::Everything) {
            Ok(documents) => {
                let Some(document) = documents.into_iter().next() else { return };
                let warnings = document.warnings().to_vec();
                let metadata = std::mem::take(resource.metadata_mut());
                *resource = document.resource;
                if !metadata.name.is_empty() {
                    *resource.metadata_mut() = metadata;
                }
                warnings
            }
            Err(found) => found.as_slice().to_vec(),
        };
        for diagnostic in found {
            let help = diagnostic.help.as_deref().map(|help| format!(": {help}")).unwrap_or_default();
            self.add_problem(format!(
                "{} {}: {}: {}{help}",
                resource.kind(),
                resource.name(),
                diagnostic.path,
                diagnostic.message
            ));
        }
    }

    fn add_kubernetes_policy(&mut self, policy: NetworkPolicy) -> Result<(), String> {
        let read = kubernetes_policy::read(policy).map_err(|error| error.to_string())?;
        let metadata = &read.policy.metadata;
        let identity = (Kind::KubernetesNetworkPolicy, metadata.namespace.clone(), metadata.name.clone());
        self.add(read.policy.into());
        self.origins.insert(identity, read.origins);
        for problem in read.problems {
            self.add_problem(problem);
        }
        Ok(())
    }

    /// Reports peers of a ClusterNetworkPolicy under the other direction's field name.
    fn swapped_peers(&mut self, object: &Map<String, Value>) {
        let name = object.get("metadata").and_then(|metadata| metadata["name"].as_str()).unwrap_or_default();
        let mut found = Vec::new();
        for (list, wrong, right) in [("ingress", "to", "from"), ("egress", "from", "to")] {
            let rules = object.get("spec").and_then(|spec| spec[list].as_array());
            for (index, rule) in rules.into_iter().flatten().enumerate() {
                if rule.get(wrong).is_some() {
                    found.push(format!(
                        "ClusterNetworkPolicy {name}: spec.{list}[{index}].{wrong} is not a field of this rule: did you mean \
                         `{right}`?; Kubernetes refuses the policy"
                    ));
                }
            }
        }
        found.into_iter().for_each(|problem| self.add_problem(problem));
    }

    fn add_converted(&mut self, converted: Result<Converted, ConversionError>) -> Result<(), String> {
        let converted = converted.map_err(|error| error.to_string())?;
        let Some(resource) = converted.pair.as_resource() else {
            return Err("was not converted to a resource".to_owned());
        };
        for problem in &converted.problems {
            self.add_problem(format!("{} {}: {problem}", resource.kind(), resource.name()));
        }
        self.add(resource.clone());
        Ok(())
    }

    /// The pods of a workload are identical: one represents them, under the workload's name.
    fn add_template(&mut self, owner: &Map<String, Value>, path: &[&str]) -> Result<(), String> {
        let mut template = Value::Object(owner.clone());
        for step in path {
            template = template.get_mut(*step).map(Value::take).unwrap_or_default();
        }
        let Value::Object(mut pod) = template else { return Err(format!("has no {}", path.join("."))) };
        let of_owner =
            |field: &str| owner.get("metadata").map_or(Value::Null, |metadata| metadata[field].clone());
        let metadata = pod.entry("metadata").or_insert_with(|| json!({}));
        if !metadata.is_object() {
            *metadata = json!({});
        }
        metadata["name"] = of_owner("name");
        metadata["namespace"] = of_owner("namespace");
        self.add_pod(Value::Object(pod))
    }

    fn add_pod(&mut self, value: Value) -> Result<(), String> {
        let Value::Object(object) = value else { return Err("is not an object".to_owned()) };
        let mut found: Pod = read(Value::Object(with_namespace(object)))?;
        if found.metadata.name.is_empty() {
            found.metadata.name = found.metadata.generate_name.trim_end_matches('-').to_owned();
        }
        let (namespace, name) = (found.metadata.namespace.clone(), found.metadata.name.clone());
        self.used_namespaces.insert(namespace.clone());
        if found.spec.node_name.is_empty() {
            UNSCHEDULED.clone_into(&mut found.spec.node_name);
        }
        if found.spec.service_account_name.is_empty() {
            "default".clone_into(&mut found.spec.service_account_name);
        }
        if found.spec.host_network {
            self.host_pods.insert((namespace, name), found.spec.node_name);
            return Ok(());
        }
        let containers = found.spec.containers.iter().chain(&found.spec.init_containers);
        let declared: BTreeSet<(u8, u16)> = containers
            .flat_map(|container| &container.ports)
            .filter_map(|port| {
                let name = if port.protocol.is_empty() { "TCP" } else { port.protocol.as_str() };
                let number = crate::Protocol::from_text(name)?.0;
                Some((number, u16::try_from(port.container_port).ok().filter(|port| *port > 0)?))
            })
            .collect();
        self.declared_ports.insert((namespace.clone(), name.clone()), declared);
        // A pod may have been stored under another node's name before.
        let same: Vec<String> = self
            .of_kind(Kind::WorkloadEndpoint)
            .filter(|other| {
                matches!(other, Resource::WorkloadEndpoint(object)
                    if object.metadata.namespace == namespace && object.spec.pod == name)
            })
            .map(|other| other.name().to_owned())
            .collect();
        for other in same {
            self.remove(Kind::WorkloadEndpoint, &namespace, &other);
        }
        self.add_converted(pod::workload_endpoint(&found, pod::DEFAULT_INTERFACE_PREFIX))
    }

    /// Adds what a cluster would add: namespaces that are used but not defined in the manifests, and addresses for pods
    /// without.
    pub fn complete(&mut self) {
        let used = std::mem::take(&mut self.used_namespaces);
        let mut missing = Vec::new();
        for name in &used {
            let profile_name = format!("{}{name}", api::words::NAMESPACE_PROFILE_PREFIX);
            if self.get(Kind::Profile, "", &profile_name).is_none() {
                let value = json!({"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}});
                if self.add_manifest(value).is_ok() {
                    missing.push(name.clone());
                }
            }
        }
        if !missing.is_empty() {
            self.add_note(format!(
                "namespaces without labels of their own are assumed: {}",
                missing.join(", ")
            ));
        }
        self.assume_service_accounts(&used);
        self.assume_addresses();
    }

    /// A missing profile denies; but a service account exists even if no manifest defines it.
    fn assume_service_accounts(&mut self, namespaces: &BTreeSet<String>) {
        let mut missing = BTreeSet::new();
        for resource in self.of_kind(Kind::WorkloadEndpoint) {
            let Resource::WorkloadEndpoint(object) = resource else { continue };
            let account = &object.spec.service_account_name;
            let namespace = &object.metadata.namespace;
            let name = profile::service_account_profile_name(namespace, account);
            let used = namespaces.contains(namespace) && object.spec.profiles.contains(&name);
            if used && self.get(Kind::Profile, "", &name).is_none() {
                missing.insert((namespace.clone(), account.clone()));
            }
        }
        for (namespace, name) in missing {
            let account = json!({"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": name, "namespace": namespace}});
            // Built from names alone, it is always readable.
            let _ = self.add_manifest(account);
        }
    }

    fn assume_addresses(&mut self) {
        let mut taken: BTreeSet<IpAddr> = BTreeSet::new();
        let mut without = Vec::new();
        for resource in self.of_kind(Kind::WorkloadEndpoint) {
            let Resource::WorkloadEndpoint(object) = resource else { continue };
            if object.spec.ip_networks.is_empty() {
                without.push((**object).clone());
            }
            taken.extend(
                object.spec.ip_networks.iter().filter_map(|net| net.parse().ok()).map(|net| net.address()),
            );
        }
        if without.is_empty() {
            return;
        }
        let pool = self.of_kind(Kind::IPPool).find_map(|resource| match resource {
            Resource::IPPool(pool) if !pool.spec.disabled => {
                pool.spec.cidr.parse().ok().map(|cidr| cidr.masked())
            }
            _ => None,
        });
        let pool = pool.or_else(|| USUAL_POOL.parse::<IpNet>().ok());
        let mut free =
            pool.into_iter().flat_map(|pool| pool.hosts()).filter(|address| !taken.contains(address));
        let mut names = Vec::new();
        for mut endpoint in without {
            let Some(address) = free.next() else {
                self.add_problem("the pool has too few addresses for all pods without one");
                return;
            };
            endpoint.spec.ip_networks = vec![IpNet::from(address).to_string().into()];
            let identity =
                (Kind::WorkloadEndpoint, endpoint.metadata.namespace.clone(), endpoint.metadata.name.clone());
            names.push(format!("{}/{}", endpoint.metadata.namespace, endpoint.spec.pod));
            self.add(endpoint.into());
            self.assumed.insert(identity);
        }
        let (shown, more) = names.split_at(names.len().min(5));
        let more = if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) };
        self.add_note(format!(
            "addresses are assumed for pods that have none yet: {}{more}",
            shown.join(", ")
        ));
    }
}

fn text<'a>(object: &'a Map<String, Value>, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// A namespaced object without a namespace belongs to `default`.
fn with_namespace(mut object: Map<String, Value>) -> Map<String, Value> {
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if let Value::Object(metadata) = metadata
        && text(metadata, "namespace").is_empty()
    {
        metadata.insert("namespace".to_owned(), "default".into());
    }
    object
}

fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}
