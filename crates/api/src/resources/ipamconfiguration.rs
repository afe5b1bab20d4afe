//! `IPAMConfiguration`: the cluster's settings for address management. Only the object named `default` counts, so no
//! other name is accepted.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::names::check_metadata;
use crate::text::string_enum;
use crate::words::GLOBAL_NAME;
use api_derive::resource_struct;

/// Settings of address management.
pub type IPAMConfiguration = Object<IPAMConfigurationSpec>;

/// The settings.
#[resource_struct]
pub struct IPAMConfigurationSpec {
    /// Whether a node may only use addresses of its own blocks.
    #[field(always, required, default = "false")]
    pub strict_affinity: bool,
    /// How many blocks one node may own; 0 means the built-in limit.
    #[field(min = 0, max = 1_000_000, default = "0")]
    pub max_blocks_per_host: i32,
    /// Whether nodes may take new blocks by themselves.
    #[field(always, required, default = "true")]
    pub auto_allocate_blocks: bool,
    /// Whether a KubeVirt machine keeps its address when its pod is replaced. Unset means `Enabled`.
    #[field(name = "kubeVirtVMAddressPersistence")]
    pub kubevirt_vm_address_persistence: Option<VMAddressPersistence>,
    /// How many seconds a released address rests before it may be used again.
    #[field(min = 0, max = 1200)]
    pub ip_cooldown_seconds: i32,
}

string_enum! {
    /// Whether virtual machines keep their addresses.
    VMAddressPersistence { Enabled = "Enabled", Disabled = "Disabled" }
}

impl Spec for IPAMConfigurationSpec {
    const KIND: Kind = Kind::IPAMConfiguration;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        errors.require(
            metadata.name == GLOBAL_NAME,
            FieldPath::new("metadata.name"),
            &metadata.name,
            "the only object of this kind is named default",
        );
    }
}
