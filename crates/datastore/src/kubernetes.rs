//! The Kubernetes API as Calico's datastore.
//!
//! | Calico | Kubernetes | module |
//! |---|---|---|
//! | most kinds | custom resources | [`custom`] |
//! | blocks, claims, handles, IPAM's settings | custom resources, deleted by mark | [`ipam`] |
//! | nodes, workload endpoints, Kubernetes' policies, services, migrations | Kubernetes' own objects | [`native`] |
//! | profiles | namespaces and service accounts | [`profile`] |
//!
//! Revisions are the API server's resource versions. A read at a revision is "not older than": the API server keeps no
//! history to read from. Status reports and endpoint states cannot be stored here; writing them is refused.

mod config;
mod connecting;
mod custom;
mod feed;
mod group;
mod install;
mod ipam;
mod native;
mod objects;
mod path;
mod profile;
mod renewing;
pub mod repeating;
mod status;
mod transport;

pub use config::KubernetesConfig;
pub use group::ApiGroup;
pub use objects::KubernetesObjects;
pub use renewing::Renewal;

use crate::backend::{Backend, KvList, ListParts, Watch, WatchOptions};
use crate::error::Result;
use api::kind::KubernetesForm;
use api::{Kind, Resource};
use async_trait::async_trait;
use custom::CustomResources;
use futures::stream::StreamExt as _;
use ipam::Ipam;
use model::kubernetes::pod::DEFAULT_INTERFACE_PREFIX;
use model::{Key, KvPair, ListOptions, Value};
use native::{Native, not_supported};
use profile::Profiles;
use transport::Transport;

/// Calico's datastore in a Kubernetes API server.
#[derive(Clone, Debug)]
pub struct KubernetesBackend {
    custom: CustomResources,
    ipam: Ipam,
    native: Native,
    profiles: Profiles,
    use_pod_cidr: bool,
}

/// The module responsible for a key or list.
enum Keeper {
    Custom,
    Ipam,
    Native,
    Profiles,
}

impl KubernetesBackend {
    /// Connects, and determines the API group of Calico's objects unless it is configured.
    ///
    /// # Errors
    /// When the configuration is invalid. A server that does not answer is not an error yet.
    pub async fn connect(config: &KubernetesConfig) -> Result<Self> {
        let transport = Transport::new(config.client().await?);
        let group = match ApiGroup::configured(&config.calico_api_group) {
            Some(group) => group,
            None => ApiGroup::discover(&transport).await,
        };
        let custom = CustomResources { transport: transport.clone(), group };
        let interface_prefix = match config.interface_prefix.split(',').next() {
            None | Some("") => DEFAULT_INTERFACE_PREFIX.to_owned(),
            Some(prefix) => prefix.to_owned(),
        };
        let native = Native {
            transport: transport.clone(),
            use_pod_cidr: config.use_pod_cidr,
            interface_prefix,
            cni: false,
        };
        Ok(Self {
            ipam: Ipam { custom: custom.clone() },
            custom,
            native,
            profiles: Profiles { transport },
            use_pod_cidr: config.use_pod_cidr,
        })
    }

    /// The same store as seen by the CNI plugin: creating or updating a workload endpoint writes the pod's address
    /// annotations, and a list of one endpoint reads that one pod.
    #[must_use]
    pub fn for_cni(mut self) -> Self {
        self.native.cni = true;
        self
    }

    /// The API group that Calico's objects are in.
    #[must_use]
    pub fn api_group(&self) -> ApiGroup {
        self.custom.group
    }

    fn keeper_of(&self, key: &Key, operation: &'static str) -> Result<Keeper> {
        match key {
            Key::Resource(resource) => Ok(keeper_of_kind(resource.kind)),
            key if ipam::is_ipam(key) && self.use_pod_cidr => Err(not_supported(
                operation,
                key,
                "with host-local address management there are no such objects",
            )),
            key if ipam::is_ipam(key) => Ok(Keeper::Ipam),
            key => Err(not_supported(operation, key, "it cannot be stored in Kubernetes")),
        }
    }

    fn keeper_of_list(&self, list: &ListOptions, operation: &'static str) -> Result<Keeper> {
        match list {
            ListOptions::Resource { kind, .. } => Ok(keeper_of_kind(*kind)),
            list if ipam::kind_of(list).is_some() && self.use_pod_cidr => Err(not_supported(
                operation,
                list,
                "with host-local address management there are no such objects",
            )),
            list if ipam::kind_of(list).is_some() => Ok(Keeper::Ipam),
            list => Err(not_supported(operation, list, "it cannot be stored in Kubernetes")),
        }
    }

    /// The user's view of a claim is deleted in the same way as by address management itself.
    async fn delete_claim(&self, entry: &KvPair) -> Result<KvPair> {
        let Value::Resource(Resource::BlockAffinity(claim)) = &entry.value else {
            return Err(not_supported("Delete", &entry.key, "the value is not a block affinity"));
        };
        let mut marked = entry.clone();
        let mut claim = claim.clone();
        claim.spec.deleted = true;
        marked.value = Value::Resource(Resource::BlockAffinity(claim));
        let marked = self.custom.update(&marked).await?;
        match self.custom.delete(&marked.key, None, marked.uid.as_deref()).await {
            Err(error) if !error.is_does_not_exist() => Err(error),
            _ => Ok(KvPair { revision: marked.revision, uid: marked.uid, ..entry.clone() }),
        }
    }
}

fn keeper_of_kind(kind: Kind) -> Keeper {
    match kind.info().kubernetes {
        KubernetesForm::CustomResource { .. } => Keeper::Custom,
        KubernetesForm::Native if kind == Kind::Profile => Keeper::Profiles,
        KubernetesForm::Native => Keeper::Native,
    }
}

fn is_claim(key: &Key) -> bool {
    key.as_resource().is_some_and(|key| key.kind == Kind::BlockAffinity)
}

const FROM_KUBERNETES: &str = "profiles are derived from namespaces and service accounts";

#[async_trait]
impl Backend for KubernetesBackend {
    async fn create(&self, entry: &KvPair) -> Result<KvPair> {
        match self.keeper_of(&entry.key, "Create")? {
            Keeper::Custom => self.custom.create(entry).await,
            Keeper::Ipam => self.ipam.create(entry).await,
            Keeper::Native => self.native.create(entry).await,
            Keeper::Profiles => Err(not_supported("Create", &entry.key, FROM_KUBERNETES)),
        }
    }

    async fn update(&self, entry: &KvPair) -> Result<KvPair> {
        match self.keeper_of(&entry.key, "Update")? {
            Keeper::Custom => self.custom.update(entry).await,
            Keeper::Ipam => self.ipam.update(entry).await,
            Keeper::Native => self.native.update(entry).await,
            Keeper::Profiles => Err(not_supported("Update", &entry.key, FROM_KUBERNETES)),
        }
    }

    async fn update_status(&self, entry: &KvPair) -> Result<KvPair> {
        match self.keeper_of(&entry.key, "UpdateStatus")? {
            Keeper::Custom => self.custom.update_status(entry).await,
            _ => self.update(entry).await,
        }
    }

    async fn apply(&self, entry: &KvPair) -> Result<KvPair> {
        match self.keeper_of(&entry.key, "Apply")? {
            Keeper::Custom => self.custom.apply(entry).await,
            Keeper::Ipam => self.ipam.apply(entry).await,
            Keeper::Native => {
                let unconditional = KvPair { revision: String::new(), ..entry.clone() };
                self.native.update(&unconditional).await
            }
            Keeper::Profiles => Err(not_supported("Apply", &entry.key, FROM_KUBERNETES)),
        }
    }

    async fn delete(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        match self.keeper_of(key, "Delete")? {
            Keeper::Custom if is_claim(key) => {
                let mut claim = self.custom.get(key).await?;
                if let Some(revision) = revision.filter(|revision| !revision.is_empty()) {
                    claim.set_revision(revision);
                }
                self.delete_claim(&claim).await
            }
            Keeper::Custom => self.custom.delete(key, revision, None).await,
            Keeper::Ipam => self.ipam.delete(key, revision).await,
            Keeper::Native => self.native.delete(key, revision, None).await,
            Keeper::Profiles => Err(not_supported("Delete", key, FROM_KUBERNETES)),
        }
    }

    async fn delete_entry(&self, entry: &KvPair) -> Result<KvPair> {
        let revision = Some(entry.revision.as_str()).filter(|revision| !revision.is_empty());
        match self.keeper_of(&entry.key, "Delete")? {
            Keeper::Custom if is_claim(&entry.key) => self.delete_claim(entry).await,
            Keeper::Custom => self.custom.delete(&entry.key, revision, entry.uid.as_deref()).await,
            Keeper::Ipam => self.ipam.delete_entry(entry).await,
            Keeper::Native => self.native.delete(&entry.key, revision, entry.uid.as_deref()).await,
            Keeper::Profiles => Err(not_supported("Delete", &entry.key, FROM_KUBERNETES)),
        }
    }

    async fn get(&self, key: &Key, revision: Option<&str>) -> Result<KvPair> {
        match self.keeper_of(key, "Get")? {
            // A custom resource is always read at its current revision, which is not older than any other.
            Keeper::Custom => self.custom.get(key).await,
            Keeper::Ipam => self.ipam.get(key).await,
            Keeper::Native => self.native.get(key, revision).await,
            Keeper::Profiles => self.profiles.get(key, revision).await,
        }
    }

    async fn list(&self, list: &ListOptions, revision: Option<&str>) -> Result<KvList> {
        match self.keeper_of_list(list, "List")? {
            Keeper::Custom => self.custom.list(list, revision).await,
            Keeper::Ipam => self.ipam.list(list, revision).await,
            Keeper::Native => self.native.list(list, revision).await,
            Keeper::Profiles => self.profiles.list(list, revision).await,
        }
    }

    async fn list_parts(&self, list: &ListOptions, revision: Option<&str>) -> Result<ListParts> {
        if let Keeper::Native = self.keeper_of_list(list, "List")?
            && let Some(parts) = self.native.list_parts(list, revision)
        {
            return Ok(parts);
        }
        let whole = self.list(list, revision).await?;
        Ok(futures::stream::once(std::future::ready(Ok(whole))).boxed())
    }

    async fn watch(&self, list: &ListOptions, options: WatchOptions) -> Result<Watch> {
        match self.keeper_of_list(list, "Watch")? {
            Keeper::Custom => self.custom.watch(list, &options).await,
            Keeper::Ipam => self.ipam.watch(list, &options).await,
            Keeper::Native => self.native.watch(list, &options).await,
            Keeper::Profiles => self.profiles.watch(list, &options).await,
        }
    }

    async fn ensure_ready(&self) -> Result<()> {
        self.custom.group.ensure_installed(&self.custom.transport).await
    }

    async fn install(&self) -> Result<()> {
        install::install(&self.custom.transport, self.custom.group).await
    }

    async fn store_under_own_name(&self, entry: &KvPair) -> Result<bool> {
        self.custom.store_under_own_name(entry).await
    }

    /// Removes Calico's custom resources, and Calico's BGP annotations on nodes.
    async fn clean(&self) -> Result<()> {
        for kind in Kind::ALL {
            self.custom.clear(*kind).await?;
        }
        for mut node in self.native.list(&ListOptions::resources(Kind::Node), None).await?.items {
            if let Value::Resource(Resource::Node(calico)) = &mut node.value
                && calico.spec.bgp.take().is_some()
            {
                self.native.update(&node).await?;
            }
        }
        Ok(())
    }

    fn is_kubernetes(&self) -> bool {
        true
    }
}
