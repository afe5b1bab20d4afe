//! The plugin's access to the datastore and the Kubernetes API. Only calls; decisions are made elsewhere.

use crate::config::NetConf;
use crate::endpoint::{self, PodFacts};
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result, code};
use crate::identity::{Identity, interface_prefix};
use crate::request::Environment;
use api::kubernetes::{Namespace, Node, Pod};
use api::{ClusterInformationSpec, ProfileSpec, Resource, WorkloadEndpoint, WorkloadEndpointSpec};
use client::config::EtcdSettings;
use client::{Client, ClientConfig, DatastoreType, ListQuery, open_for_cni};
use daemon::Variables;
use datastore::kubernetes::{KubernetesConfig, KubernetesObjects};
use ipam::Ipam;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tokio::sync::OnceCell;

/// Open connections.
#[derive(Debug)]
pub struct Store {
    /// The client for Calico's resources.
    pub client: Client,
    /// Address management.
    pub ipam: Ipam,
    objects: OnceCell<KubernetesObjects>,
    /// The datastore's settings: an agent serves only requests for the same datastore.
    config: ClientConfig,
}

impl Store {
    /// Opens the datastore that a configuration, or else the environment, names. Sends nothing yet.
    ///
    /// # Errors
    /// When the settings cannot be used.
    pub async fn open(conf: &NetConf, environment: &Environment) -> Result<Self> {
        let config = client_config(conf, environment)?;
        let (backend, objects) = open_for_cni(&config).await.map_err(|error| {
            CniError::new(code::DATASTORE, format!("error creating calico client: {error}"))
                .with_details("check the datastore settings and credentials in the CNI configuration")
        })?;
        let ipam = Ipam::new(backend.clone());
        Ok(Self { client: Client::new(backend), ipam, objects: OnceCell::new_with(objects), config })
    }

    /// The same connections, with address management that caches this host's blocks.
    #[must_use]
    pub fn warmed(self, node: &str) -> Self {
        Self { ipam: Ipam::warm(self.client.backend().clone(), node), ..self }
    }

    /// Whether a request with this configuration is for this datastore.
    #[must_use]
    pub fn serves(&self, conf: &NetConf, environment: &Environment) -> bool {
        let Ok(other) = client_config(conf, environment) else { return false };
        let own = &self.config;
        own.datastore_type == other.datastore_type
            && match own.datastore_type {
                DatastoreType::EtcdV3 => is_same_etcd(&own.etcd, &other.etcd),
                DatastoreType::Embedded => own.embedded_path == other.embedded_path,
                // An agent's own credentials are preferred to those of the request; there is one API per node.
                DatastoreType::Kubernetes => true,
            }
    }

    /// Checks that the datastore is ready for use.
    ///
    /// # Errors
    /// When it is not initialised, is being upgraded, or cannot be reached.
    pub async fn check_ready(&self) -> Result<()> {
        let information =
            self.client.resource::<ClusterInformationSpec>().get("", api::words::GLOBAL_NAME).await;
        let information = match information {
            // Accounts of Calico's policy-only manifest may not read this; the API enforces their rights in any case.
            Err(datastore::Error::Unauthorized { reason }) if reason.contains("is forbidden") => {
                tracing::debug!(%reason, "this account may not read whether the datastore is ready");
                return Ok(());
            }
            information => information
                .map_err(|error| CniError::datastore("error getting ClusterInformation", &error))?,
        };
        if information.spec.datastore_ready == Some(true) {
            return Ok(());
        }
        Err(CniError::new(code::DATASTORE_NOT_READY, "Calico is currently not ready to process requests")
            .with_details("an upgrade may be in progress: ClusterInformation \"default\" does not have datastoreReady set to true"))
    }

    /// The endpoint of this container, whatever its interface.
    ///
    /// # Errors
    /// When the datastore cannot be read.
    pub async fn find_endpoint(&self, identity: &Identity) -> Result<Option<WorkloadEndpoint>> {
        let mut query = ListQuery::with_name_prefix(&identity.endpoint_prefix()?);
        query.namespace = Some(identity.namespace.clone());
        let found = self.client.resource::<WorkloadEndpointSpec>().list(&query).await;
        let found = found.map_err(|error| CniError::datastore("listing WorkloadEndpoints", &error))?;
        if let Some(entry) =
            found.invalid.iter().find(|entry| entry.key.contains(&identity.identifiers.container_id))
        {
            tracing::warn!(key = %entry.key, reason = %entry.reason, "an endpoint cannot be read");
        }
        Ok(found.items.into_iter().find(|endpoint| identity.owns(&endpoint.metadata.name)))
    }

    /// One endpoint by its name.
    ///
    /// # Errors
    /// When the datastore cannot be read.
    pub async fn get_endpoint(
        &self,
        namespace: &str,
        name: &str,
    ) -> std::result::Result<Option<WorkloadEndpoint>, datastore::Error> {
        match self.client.resource::<WorkloadEndpointSpec>().get(namespace, name).await {
            Ok(endpoint) => Ok(Some(endpoint)),
            Err(error) if error.is_does_not_exist() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores an endpoint: a new one, or a changed one that was read before.
    ///
    /// # Errors
    /// When the datastore reports an error.
    pub async fn write_endpoint(&self, endpoint: WorkloadEndpoint) -> Result<WorkloadEndpoint> {
        let name = endpoint.metadata.name.clone();
        let endpoints = self.client.resource::<WorkloadEndpointSpec>();
        let outcome = if endpoint.metadata.resource_version.is_empty() {
            endpoints.create(endpoint).await
        } else {
            endpoints.update(endpoint).await
        };
        outcome.map_err(|error| CniError::datastore(&format!("writing WorkloadEndpoint {name}"), &error))
    }

    /// Creates the profile of a network, unless it exists.
    ///
    /// # Errors
    /// When the datastore reports an error.
    pub async fn ensure_profile(&self, network: &str, is_pod: bool) -> Result<()> {
        let profiles = self.client.resource::<ProfileSpec>();
        let step = format!("profile {network}");
        match profiles.get("", network).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_does_not_exist() => {}
            Err(error) => return Err(CniError::datastore(&format!("reading {step}"), &error)),
        }
        match profiles.create(endpoint::network_profile(network, is_pod)).await {
            Ok(_) => Ok(()),
            // Another container of the network was faster.
            Err(error) if error.is_already_exists() => Ok(()),
            Err(error) => Err(CniError::datastore(&format!("creating {step}"), &error)),
        }
    }

    async fn objects(&self, conf: &NetConf) -> Result<&KubernetesObjects> {
        let open = || async {
            let policy = &conf.policy;
            // Older configurations contain the whole path of the API.
            let root = policy.k8s_api_root.split("/api/").next().unwrap_or_default();
            let endpoint =
                if conf.kubernetes.k8s_api_root.is_empty() { root } else { &conf.kubernetes.k8s_api_root };
            let config = KubernetesConfig {
                kubeconfig: Some(PathBuf::from(&conf.kubernetes.kubeconfig))
                    .into_iter()
                    .filter(|path| !path.as_os_str().is_empty())
                    .collect(),
                api_endpoint: endpoint.to_owned(),
                cert_file: policy.k8s_client_certificate.clone(),
                key_file: policy.k8s_client_key.clone(),
                ca_file: policy.k8s_certificate_authority.clone(),
                api_token: policy.k8s_auth_token.clone(),
                ..KubernetesConfig::default()
            };
            KubernetesObjects::connect(&config)
                .await
                .map_err(|error| kubernetes_error("preparing the connection to Kubernetes", &error))
        };
        self.objects.get_or_try_init(open).await
    }

    /// Reads a pod.
    ///
    /// # Errors
    /// When the pod cannot be read.
    pub async fn pod(&self, conf: &NetConf, namespace: &str, name: &str) -> Result<Pod> {
        self.objects(conf)
            .await?
            .get("api/v1", "pods", namespace, name)
            .await
            .map_err(|error| kubernetes_error(&format!("reading pod {namespace}/{name}"), &error))
    }

    /// Reads a pod that may be gone.
    ///
    /// # Errors
    /// When the pod cannot be read.
    pub async fn find_pod(&self, conf: &NetConf, namespace: &str, name: &str) -> Result<Option<Pod>> {
        match self.objects(conf).await?.get("api/v1", "pods", namespace, name).await {
            Ok(pod) => Ok(Some(pod)),
            Err(error) if error.is_does_not_exist() => Ok(None),
            Err(error) => Err(kubernetes_error(&format!("reading pod {namespace}/{name}"), &error)),
        }
    }

    /// Reads a namespace.
    ///
    /// # Errors
    /// When the namespace cannot be read.
    pub async fn namespace(&self, conf: &NetConf, name: &str) -> Result<Namespace> {
        self.objects(conf)
            .await?
            .get("api/v1", "namespaces", "", name)
            .await
            .map_err(|error| kubernetes_error(&format!("failed to get namespace {name}"), &error))
    }

    /// Reads a node's pod ranges.
    ///
    /// # Errors
    /// When the node cannot be read or has none.
    pub async fn pod_cidrs(&self, conf: &NetConf, node: &str) -> Result<Vec<String>> {
        let name = if conf.kubernetes.node_name.is_empty() { node } else { &conf.kubernetes.node_name };
        let found: Node = self
            .objects(conf)
            .await?
            .get("api/v1", "nodes", "", name)
            .await
            .map_err(|error| kubernetes_error(&format!("reading Kubernetes node {name}"), &error))?;
        if found.spec.pod_cidrs.is_empty() {
            return Err(CniError::new(code::NODE_NOT_READY, format!("no podCidr for node {name}")).with_details(
                "usePodCidr needs a range in the Kubernetes node's spec.podCIDRs; its controller-manager assigns it",
            ));
        }
        Ok(found.spec.pod_cidrs)
    }

    /// Reads an object of KubeVirt's; `None` when it does not exist.
    ///
    /// # Errors
    /// When the object cannot be read.
    pub async fn virtual_machine<T: serde::de::DeserializeOwned>(
        &self,
        conf: &NetConf,
        plural: &'static str,
        namespace: &str,
        name: &str,
    ) -> Result<T> {
        self.objects(conf).await?.get("apis/kubevirt.io/v1", plural, namespace, name).await.map_err(|error| {
            kubernetes_error(&format!("failed to query {plural} {namespace}/{name}"), &error)
        })
    }
}

/// Kubernetes' information about a pod that goes into the endpoint.
///
/// # Errors
/// When an annotation about addresses cannot be followed.
pub(crate) fn pod_facts(pod: &Pod, environment: &Environment) -> Result<PodFacts> {
    let converted = model::kubernetes::pod::workload_endpoint(pod, &interface_prefix(environment))
        .map_err(|error| CniError::new(code::ANNOTATION, error.to_string()))?;
    for problem in &converted.problems {
        tracing::warn!(%problem, "an annotation of the pod was not fully applied");
    }
    let Some(Resource::WorkloadEndpoint(endpoint)) = converted.pair.as_resource() else {
        return Err(CniError::new(code::INTERNAL, "a pod was not converted to a workload endpoint"));
    };
    Ok(PodFacts {
        labels: endpoint.metadata.labels.clone(),
        annotations: pod.metadata.annotations.clone(),
        ports: endpoint.spec.ports.clone(),
        profiles: endpoint.spec.profiles.clone(),
        generate_name: endpoint.metadata.generate_name.clone(),
        service_account: endpoint.spec.service_account_name.clone(),
    })
}

fn kubernetes_error(step: &str, error: &datastore::Error) -> CniError {
    let mut told = CniError::datastore(step, error);
    if !told.is_transient() {
        told.code = code::KUBERNETES;
    }
    told
}

/// Whether a configuration's datastore is the Kubernetes API.
#[must_use]
pub(crate) fn is_on_kubernetes(conf: &NetConf, environment: &Environment) -> bool {
    client_config(conf, environment).is_ok_and(|config| config.datastore_type == DatastoreType::Kubernetes)
}

/// Whether two settings name the same etcd. A member belongs to only one cluster, so one common member is enough: the
/// list of members may have grown since a release was written to the journal.
fn is_same_etcd(one: &EtcdSettings, other: &EtcdSettings) -> bool {
    let members = |settings: &EtcdSettings| -> BTreeSet<String> {
        let members = settings.endpoints.split(',').map(|it| it.trim().trim_end_matches('/').to_lowercase());
        members.filter(|it| !it.is_empty()).collect()
    };
    if one.discovery_srv != other.discovery_srv {
        return false;
    }
    !one.discovery_srv.is_empty() || !members(one).is_disjoint(&members(other))
}

fn client_config(conf: &NetConf, environment: &Environment) -> Result<ClientConfig> {
    let source = Variables::new(environment).with(conf.client_variables());
    ClientConfig::from_environment(&source)
        .map_err(|error| CniError::new(code::INVALID_CONFIGURATION, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::is_same_etcd;
    use client::config::EtcdSettings;

    #[test]
    fn one_common_member_means_the_same_etcd() {
        let settings = |endpoints: &str, srv: &str| EtcdSettings {
            endpoints: endpoints.into(),
            discovery_srv: srv.into(),
            ..EtcdSettings::default()
        };
        for (one, other, same) in [
            (("http://a:2379", ""), ("http://a:2379/", ""), true),
            (("http://a:2379", ""), ("http://b:2379, http://A:2379", ""), true),
            (("http://a:2379", ""), ("http://b:2379", ""), false),
            (("", "example.org"), ("", "example.org"), true),
            (("", "example.org"), ("", "example.net"), false),
            (("", ""), ("", ""), false),
        ] {
            let (one, other) = (settings(one.0, one.1), settings(other.0, other.1));
            assert_eq!(is_same_etcd(&one, &other), same, "{one:?} {other:?}");
        }
    }
}
