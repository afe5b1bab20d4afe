//! KubeVirt's machines and their instances: which exist, and whether an instance has a machine.

use crate::informer::kinds::{WireMeta, null_as_default};
use crate::informer::{ObjectKey, Slim, Strings, Taken};
use kube_access::cluster::Collection;
use serde::Deserialize;

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VirtualMachine;

/// A running instance of a machine, or one without a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VirtualMachineInstance {
    /// Whether a machine owns it; such an instance is deleted along with its machine.
    pub has_machine: bool,
}

/// The fields of a machine that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireMachine {
    metadata: WireMeta,
}

/// The fields of an instance that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireInstance {
    metadata: WireInstanceMeta,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireInstanceMeta {
    namespace: String,
    name: String,
    #[serde(rename = "resourceVersion")]
    revision: String,
    #[serde(rename = "ownerReferences", deserialize_with = "null_as_default")]
    owners: Vec<WireOwner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireOwner {
    kind: String,
}

impl Slim for VirtualMachine {
    const COLLECTION: Collection = Collection { prefix: "/apis/kubevirt.io/v1", plural: "virtualmachines" };
    const OPTIONAL: bool = true;
    type Wire = WireMachine;

    fn take(wire: WireMachine, strings: &mut Strings) -> Taken<Self> {
        let key = wire.metadata.key(strings);
        Taken { key, revision: wire.metadata.revision, object: Self }
    }
}

impl Slim for VirtualMachineInstance {
    const COLLECTION: Collection =
        Collection { prefix: "/apis/kubevirt.io/v1", plural: "virtualmachineinstances" };
    const OPTIONAL: bool = true;
    type Wire = WireInstance;

    fn take(wire: WireInstance, strings: &mut Strings) -> Taken<Self> {
        let metadata = wire.metadata;
        let has_machine = metadata.owners.iter().any(|owner| owner.kind == "VirtualMachine");
        let key =
            ObjectKey { namespace: strings.share(&metadata.namespace), name: metadata.name.as_str().into() };
        Taken { key, revision: metadata.revision, object: Self { has_machine } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_instance_knows_whether_it_has_a_machine() {
        for (owners, has_machine) in [
            (json!([{"kind": "VirtualMachine", "name": "db"}]), true),
            (json!([{"kind": "Other"}]), false),
            (json!(null), false),
        ] {
            let wire = json!({"metadata": {"namespace": "shop", "name": "db", "ownerReferences": owners}});
            let wire = serde_json::from_value(wire).expect("an instance");
            let taken = VirtualMachineInstance::take(wire, &mut Strings::default());
            assert_eq!((taken.key.to_string().as_str(), taken.object.has_machine), ("shop/db", has_machine));
        }
    }
}
