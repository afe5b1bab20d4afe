//! Pods that run virtual machines (KubeVirt): a machine keeps its addresses, whichever pod it runs in.
//!
//! The addresses are held under a handle of the machine. A pod that a machine is moving to is the alternate owner until
//! the move is over; it gets the addresses but no route on its host, because packets are still delivered to the other
//! pod.

use crate::config::NetConf;
use crate::error::{CniError, Result, code};
use crate::identity::Identity;
use crate::store::Store;
use api::ObjectMeta;
use api::kubernetes::Pod;
use model::HandleId;
use serde::Deserialize;

/// The prefix of the names of such pods.
const POD_PREFIX: &str = "virt-launcher-";
/// The label of a pod that a machine is moving to.
const MIGRATION_LABEL: &str = "kubevirt.io/migrationJobUID";
const API_VERSION: &str = "kubevirt.io/v1";

/// The machine that a pod runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine {
    /// The instance's name.
    pub(crate) name: String,
    /// The instance's uid.
    pub(crate) uid: String,
    /// The uid of the machine that the instance belongs to, if it does.
    pub(crate) owner_uid: Option<String>,
    /// Whether the machine, or an instance without one, is being deleted.
    pub(crate) is_going: bool,
    /// The migration that moves the machine to this pod, if there is one.
    pub(crate) migration: Option<String>,
}

/// The fields of KubeVirt's objects that we read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    metadata: ObjectMeta,
}

/// Whether a pod may run a machine. Asking the API about each pod would slow down all of them.
#[must_use]
pub(crate) fn may_run_one(identity: &Identity) -> bool {
    identity.identifiers.pod.starts_with(POD_PREFIX)
}

impl Machine {
    /// The machine that the pod of a request runs; `None` for other pods.
    ///
    /// # Errors
    /// When the pod or machine cannot be read, or they contradict each other. [`CniError::code`] is
    /// [`code::UNKNOWN_CONTAINER`] when the pod is gone.
    pub(crate) async fn of(store: &Store, conf: &NetConf, identity: &Identity) -> Result<Option<Self>> {
        let (namespace, name) = (&identity.namespace, &identity.identifiers.pod);
        if !may_run_one(identity) {
            return Ok(None);
        }
        let Some(pod) = store.find_pod(conf, namespace, name).await? else {
            let message = format!("pod {namespace}/{name} is gone");
            return Err(CniError::new(code::UNKNOWN_CONTAINER, message));
        };
        Self::of_pod(store, conf, &pod).await
    }

    async fn of_pod(store: &Store, conf: &NetConf, pod: &Pod) -> Result<Option<Self>> {
        let meta = &pod.metadata;
        let is_instance = |owner: &&api::meta::OwnerReference| {
            owner.api_version == API_VERSION
                && owner.kind == "VirtualMachineInstance"
                && owner.controller == Some(true)
        };
        let Some(reference) = meta.owner_references.iter().find(is_instance) else { return Ok(None) };
        let wrong = |message: String| CniError::new(code::KUBERNETES, message);
        if reference.name.is_empty() || reference.uid.is_empty() {
            return Err(wrong(format!(
                "pod {}/{} has invalid VMI ownerReference: name={:?} uid={:?}",
                meta.namespace, meta.name, reference.name, reference.uid
            )));
        }
        let instance: Object =
            store.virtual_machine(conf, "virtualmachineinstances", &meta.namespace, &reference.name).await?;
        let instance = instance.metadata;
        if instance.uid != reference.uid {
            return Err(wrong(format!(
                "VMI UID mismatch: pod ownerReference has {} but VMI resource has {}",
                reference.uid, instance.uid
            )));
        }
        let owner = instance.owner_references.iter().find(|owner| {
            owner.api_version == API_VERSION && owner.kind == "VirtualMachine" && !owner.name.is_empty()
        });
        let mut machine = Self {
            name: instance.name.clone(),
            uid: instance.uid.clone(),
            owner_uid: None,
            is_going: instance.deletion_timestamp.is_some(),
            migration: meta.labels.get(MIGRATION_LABEL).filter(|uid| !uid.is_empty()).cloned(),
        };
        if let Some(owner) = owner {
            let owner: Object =
                store.virtual_machine(conf, "virtualmachines", &meta.namespace, &owner.name).await?;
            machine.is_going = owner.metadata.deletion_timestamp.is_some();
            machine.owner_uid = Some(owner.metadata.uid);
        }
        Ok(Some(machine))
    }

    /// The handle that holds the machine's addresses.
    #[must_use]
    pub(crate) fn handle(&self, network: &str, namespace: &str) -> HandleId {
        ipam::machine_handle(network, namespace, &self.name)
    }
}
