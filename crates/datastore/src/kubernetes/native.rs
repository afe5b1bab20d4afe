//! Kinds that are computed from Kubernetes' own objects: nodes, workload endpoints, policies, services, migrations.
//!
//! All of them can be listed and watched. Of the underlying objects, only a node's annotations and, for the CNI plugin,
//! a pod's address annotations are ever written.

use super::feed::{Conversion, Feed};
use super::path::ApiResource;
use super::transport::{ListQuery, Transport};
use crate::backend::{KvList, ListParts, Watch, WatchOptions};
use crate::error::{Error, Result};
use api::kubernetes::{
    ClusterNetworkPolicy, EndpointSlice, NetworkPolicy, Node, Pod, Service, VirtualMachineInstanceMigration,
};
use api::meta::StringMap;
use api::{Kind, Resource};
use http::Method;
use model::kubernetes::{cluster_network_policy, live_migration, network_policy, node, pod, service};
use model::names::WorkloadEndpointIdentifiers;
use model::{Key, KvPair, ListOptions, ResourceKey};
use serde_json::Value;

const NODES: ApiResource = ApiResource::cluster("api/v1", "nodes");
const PODS: ApiResource = ApiResource::namespaced("api/v1", "pods");
const SERVICES: ApiResource = ApiResource::namespaced("api/v1", "services");
const ENDPOINT_SLICES: ApiResource = ApiResource::namespaced("apis/discovery.k8s.io/v1", "endpointslices");
const NETWORK_POLICIES: ApiResource = ApiResource::namespaced("apis/networking.k8s.io/v1", "networkpolicies");
const CLUSTER_NETWORK_POLICIES: ApiResource =
    ApiResource::cluster("apis/policy.networking.k8s.io/v1alpha2", "clusternetworkpolicies");
const MIGRATIONS: ApiResource =
    ApiResource::namespaced("apis/kubevirt.io/v1", "virtualmachineinstancemigrations");

/// Kubernetes' own objects on one server.
#[derive(Clone, Debug)]
pub(crate) struct Native {
    pub(crate) transport: Transport,
    pub(crate) use_pod_cidr: bool,
    pub(crate) interface_prefix: String,
    /// Whether workload endpoints are written by patching pods, as the CNI plugin does.
    pub(crate) cni: bool,
}

impl Native {
    pub(crate) async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        match resource_key(&entry.key, "Create")?.kind {
            Kind::WorkloadEndpoint => self.tell_addresses(entry, "Create").await,
            _ => Err(not_supported("Create", &entry.key, "it is derived from Kubernetes' own objects")),
        }
    }

    pub(crate) async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        match resource_key(&entry.key, "Update")?.kind {
            Kind::WorkloadEndpoint => self.tell_addresses(entry, "Update").await,
            Kind::Node => self.update_node(entry).await,
            _ => Err(not_supported("Update", &entry.key, "it is derived from Kubernetes' own objects")),
        }
    }

    pub(crate) async fn delete(
        &self,
        key: &Key,
        revision: Option<&str>,
        uid: Option<&str>,
    ) -> Result<KvPair> {
        match resource_key(key, "Delete")?.kind {
            // The pod stays; its addresses are removed.
            Kind::WorkloadEndpoint => {
                self.patch_pod(key, &pod::addresses_removed_patch(revision, uid), "delete").await
            }
            _ => Err(not_supported("Delete", key, "it is derived from Kubernetes' own objects")),
        }
    }

    pub(crate) async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        let resource = resource_key(key, "Get")?;
        let address = |kind: ApiResource, name: &str| {
            kind.object(&resource.namespace, name).with_optional("resourceVersion", revision)
        };
        let failed =
            |failure: super::transport::Failure| failure.into_error(&format!("get {key}"), &key.to_string());
        let conversion = match resource.kind {
            Kind::Node => {
                let object =
                    self.transport.get::<Node>(&address(NODES, &resource.name)).await.map_err(failed)?;
                convert_node(&object, self.use_pod_cidr)
            }
            Kind::KubernetesService => {
                let object = self
                    .transport
                    .get::<Service>(&address(SERVICES, &resource.name))
                    .await
                    .map_err(failed)?;
                convert_service(object)
            }
            Kind::LiveMigration => {
                let address = address(MIGRATIONS, &resource.name);
                let object = self.transport.get(&address).await.map_err(failed)?;
                convert_migration(&object)
            }
            Kind::WorkloadEndpoint => {
                let name = pod_name(key)?;
                let object = self.transport.get::<Pod>(&address(PODS, &name)).await.map_err(failed)?;
                convert_pod(&object, &self.interface_prefix)
            }
            _ => return Err(not_supported("Get", key, "it can only be listed and watched")),
        };
        match conversion {
            Conversion::Entry(pair) if pair.key == *key => Ok(*pair),
            Conversion::Entry(_) | Conversion::Nothing | Conversion::Gone(_) => {
                Err(Error::DoesNotExist { key: key.to_string(), reason: String::new() })
            }
            Conversion::Invalid(entry, _) => Err(Error::Parse { key: key.to_string(), reason: entry.reason }),
        }
    }

    pub(crate) async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        let selection = Selection::new(list)?;
        if self.cni && selection.kind == Kind::WorkloadEndpoint && selection.name.is_some() {
            return self.list_one_pod(list, &selection).await;
        }
        let query = ListQuery { revision, ..selection.query() };
        let transport = &self.transport;
        match selection.kind {
            Kind::Node => self.nodes(list).list(transport, &query, list).await,
            Kind::WorkloadEndpoint => self.pods(list).list(transport, &query, list).await,
            Kind::KubernetesService => services(list).list(transport, &query, list).await,
            Kind::KubernetesEndpointSlice => endpoint_slices(list).list(transport, &query, list).await,
            Kind::KubernetesNetworkPolicy => network_policies(list).list(transport, &query, list).await,
            Kind::KubernetesClusterNetworkPolicy => {
                cluster_network_policies(list).list(transport, &query, list).await
            }
            Kind::LiveMigration => migrations(list).list(transport, &query, list).await,
            _ => Err(not_supported("List", list, "")),
        }
    }

    /// Lists the kinds that may have very many objects, page by page; `None` for other kinds, and for partial lists.
    pub(crate) fn list_parts(&self, list: &ListOptions, revision: Option<&str>) -> Option<ListParts> {
        let ListOptions::Resource { kind, namespace: None, name: None, .. } = list else { return None };
        let (transport, what) = (&self.transport, list.to_string());
        match kind {
            Kind::WorkloadEndpoint => Some(self.pods(list).list_parts(transport, revision, &what)),
            Kind::KubernetesService => Some(services(list).list_parts(transport, revision, &what)),
            Kind::KubernetesEndpointSlice => {
                Some(endpoint_slices(list).list_parts(transport, revision, &what))
            }
            _ => None,
        }
    }

    pub(crate) async fn watch(&self, list: &ListOptions, options: &WatchOptions) -> Result<Watch> {
        let selection = Selection::new(list)?;
        let query = selection.query();
        let transport = &self.transport;
        match selection.kind {
            Kind::Node => self.nodes(list).watch(transport, &query, list, options).await,
            Kind::WorkloadEndpoint => self.pods(list).watch(transport, &query, list, options).await,
            Kind::KubernetesService => services(list).watch(transport, &query, list, options).await,
            Kind::KubernetesEndpointSlice => {
                endpoint_slices(list).watch(transport, &query, list, options).await
            }
            Kind::KubernetesNetworkPolicy => {
                network_policies(list).watch(transport, &query, list, options).await
            }
            Kind::KubernetesClusterNetworkPolicy => {
                cluster_network_policies(list).watch(transport, &query, list, options).await
            }
            Kind::LiveMigration => migrations(list).watch(transport, &query, list, options).await,
            _ => Err(not_supported("Watch", list, "")),
        }
    }

    fn nodes(&self, list: &ListOptions) -> Feed<Node> {
        let use_pod_cidr = self.use_pod_cidr;
        Feed::new(NODES, Some(Kind::Node), list, move |node| convert_node(&node, use_pod_cidr))
    }

    fn pods(&self, list: &ListOptions) -> Feed<Pod> {
        let prefix = self.interface_prefix.clone();
        Feed::new(PODS, None, list, move |pod| convert_pod(&pod, &prefix))
    }

    /// Reads a single pod: the CNI plugin may not list pods.
    async fn list_one_pod(&self, list: &ListOptions, selection: &Selection) -> Result<KvList> {
        let name = selection.name.as_deref().unwrap_or_default();
        let mut found = KvList::default();
        match self.transport.get::<Pod>(&PODS.object(&selection.namespace, name)).await {
            Ok(object) => match convert_pod(&object, &self.interface_prefix) {
                Conversion::Entry(pair) if list.matches(&pair.key) => {
                    found.revision.clone_from(&pair.revision);
                    found.items.push(*pair);
                }
                Conversion::Invalid(entry, _) => found.invalid.push(entry),
                _ => {}
            },
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure.into_error(&format!("get pod {name}"), &list.to_string())),
        }
        Ok(found)
    }

    async fn tell_addresses(&self, entry: &KvPair, operation: &'static str) -> Result<KvPair> {
        if !self.cni {
            return Err(not_supported(
                operation,
                &entry.key,
                "only the CNI plugin writes workload endpoints",
            ));
        }
        let Some(Resource::WorkloadEndpoint(endpoint)) = entry.as_resource() else {
            return Err(not_supported(operation, &entry.key, "the value is not a workload endpoint"));
        };
        self.patch_pod(&entry.key, &pod::addresses_patch(endpoint), "update").await
    }

    async fn patch_pod(&self, key: &Key, patch: &Value, verb: &str) -> Result<KvPair> {
        let name = pod_name(key)?;
        let address = PODS.object(&resource_key(key, "Patch")?.namespace, &name).segment("status");
        let body = patch.to_string().into_bytes();
        let outcome = self
            .transport
            .send::<Pod>(Method::PATCH, &address, body, "application/strategic-merge-patch+json")
            .await;
        let patched =
            outcome.map_err(|failure| failure.into_error(&format!("{verb} {key}"), &key.to_string()))?;
        match convert_pod(&patched, &self.interface_prefix) {
            Conversion::Entry(pair) => Ok(*pair),
            Conversion::Invalid(entry, _) => Err(Error::Parse { key: key.to_string(), reason: entry.reason }),
            _ => Err(Error::DoesNotExist {
                key: key.to_string(),
                reason: "the pod is not a workload endpoint".to_owned(),
            }),
        }
    }

    /// Writes Calico's part of a node; everything else is left unchanged.
    async fn update_node(&self, entry: &KvPair) -> Result<KvPair> {
        let key = resource_key(&entry.key, "Update")?;
        let Some(Resource::Node(calico)) = entry.as_resource() else {
            return Err(not_supported("Update", &entry.key, "the value is not a node"));
        };
        let failed = |failure: super::transport::Failure| {
            failure.into_error(&format!("update {key}"), &key.to_string())
        };
        let address = NODES.object("", &key.name);
        let mut object = self.transport.get::<Value>(&address).await.map_err(failed)?;
        let revision =
            object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default();
        if !entry.revision.is_empty() && revision != entry.revision {
            return Err(Error::UpdateConflict { key: key.to_string(), existing: None });
        }
        let unreadable = |reason: String| Error::Parse { key: key.to_string(), reason };
        let metadata =
            object.get_mut("metadata").ok_or_else(|| unreadable("it has no metadata".to_owned()))?;
        let current = metadata.get("annotations").cloned().unwrap_or(Value::Null);
        let mut annotations = serde_json::from_value::<Option<StringMap>>(current)
            .map_err(|error| unreadable(error.to_string()))?
            .unwrap_or_default();
        node::write_annotations(calico, &mut annotations).map_err(|error| unreadable(error.to_string()))?;
        metadata["annotations"] = serde_json::json!(annotations);
        // Annotations may be written through the status, which is all that Calico is permitted to write.
        let body = object.to_string().into_bytes();
        let address = address.segment("status");
        let written = self
            .transport
            .send::<Node>(Method::PUT, &address, body, "application/json")
            .await
            .map_err(failed)?;
        match convert_node(&written, self.use_pod_cidr) {
            Conversion::Entry(pair) => Ok(*pair),
            _ => Err(unreadable("the node that was written cannot be read".to_owned())),
        }
    }
}

fn services(list: &ListOptions) -> Feed<Service> {
    Feed::new(SERVICES, Some(Kind::KubernetesService), list, convert_service)
}

fn endpoint_slices(list: &ListOptions) -> Feed<EndpointSlice> {
    Feed::new(ENDPOINT_SLICES, Some(Kind::KubernetesEndpointSlice), list, |slice| {
        Conversion::Entry(Box::new(service::kubernetes_endpoint_slice(slice).pair))
    })
}

fn network_policies(list: &ListOptions) -> Feed<NetworkPolicy> {
    let kind = Kind::KubernetesNetworkPolicy;
    Feed::new(NETWORK_POLICIES, Some(kind), list, move |policy: NetworkPolicy| {
        let metadata = &policy.metadata;
        Conversion::new(
            kind,
            &metadata.namespace,
            &metadata.name,
            network_policy::kubernetes_network_policy(&policy),
        )
    })
}

fn cluster_network_policies(list: &ListOptions) -> Feed<ClusterNetworkPolicy> {
    let kind = Kind::KubernetesClusterNetworkPolicy;
    Feed::new(CLUSTER_NETWORK_POLICIES, Some(kind), list, move |policy: ClusterNetworkPolicy| {
        let outcome = cluster_network_policy::kubernetes_cluster_network_policy(&policy);
        Conversion::new(kind, "", &policy.metadata.name, outcome)
    })
}

fn migrations(list: &ListOptions) -> Feed<VirtualMachineInstanceMigration> {
    Feed::new(MIGRATIONS, Some(Kind::LiveMigration), list, |migration| convert_migration(&migration))
}

fn convert_node(object: &Node, use_pod_cidr: bool) -> Conversion {
    Conversion::new(Kind::Node, "", &object.metadata.name, node::calico_node(object, use_pod_cidr))
}

fn convert_service(object: Service) -> Conversion {
    Conversion::Entry(Box::new(service::kubernetes_service(object).pair))
}

fn convert_migration(object: &VirtualMachineInstanceMigration) -> Conversion {
    let pair = Box::new(live_migration::live_migration(object).pair);
    if live_migration::is_live_migration(object) { Conversion::Entry(pair) } else { Conversion::Gone(pair) }
}

fn convert_pod(object: &Pod, interface_prefix: &str) -> Conversion {
    if !pod::is_workload_endpoint(object) {
        return Conversion::Nothing;
    }
    let metadata = &object.metadata;
    // Without a name the endpoint cannot have been reported either.
    let name = pod::endpoint_name(&object.spec.node_name, &metadata.name).unwrap_or_default();
    let outcome = pod::workload_endpoint(object, interface_prefix);
    Conversion::new(Kind::WorkloadEndpoint, &metadata.namespace, &name, outcome)
}

/// The part of a selection that the server can evaluate.
struct Selection {
    kind: Kind,
    namespace: String,
    name: Option<String>,
}

impl Selection {
    fn new(list: &ListOptions) -> Result<Self> {
        let ListOptions::Resource { kind, namespace, name, name_is_prefix } = list else {
            return Err(not_supported("List", list, ""));
        };
        let name = match (kind, name) {
            // The name of an endpoint, or its prefix, contains the pod's name.
            (Kind::WorkloadEndpoint, Some(name)) => WorkloadEndpointIdentifiers::parse(name)
                .filter(|ids| {
                    ids.orchestrator == api::words::KUBERNETES
                        && !ids.pod.is_empty()
                        && !(*name_is_prefix && ids.endpoint.is_empty() && !name.ends_with('-'))
                })
                .map(|ids| ids.pod),
            (_, name) => name.clone().filter(|_| !name_is_prefix),
        };
        Ok(Self { kind: *kind, namespace: namespace.clone().unwrap_or_default(), name })
    }

    fn query(&self) -> ListQuery<'_> {
        ListQuery { namespace: &self.namespace, name: self.name.as_deref(), ..ListQuery::default() }
    }
}

fn pod_name(key: &Key) -> Result<String> {
    let resource = resource_key(key, "Get")?;
    match WorkloadEndpointIdentifiers::parse(&resource.name) {
        Some(ids) if !ids.pod.is_empty() => Ok(ids.pod),
        _ => {
            let reason = "cannot derive the pod's name from the endpoint's name".to_owned();
            Err(Error::DoesNotExist { key: key.to_string(), reason })
        }
    }
}

fn resource_key<'a>(key: &'a Key, operation: &'static str) -> Result<&'a ResourceKey> {
    key.as_resource().ok_or_else(|| not_supported(operation, key, ""))
}

pub(crate) fn not_supported(operation: &'static str, key: &dyn std::fmt::Display, reason: &str) -> Error {
    Error::NotSupported { operation, key: key.to_string(), reason: reason.to_owned() }
}
