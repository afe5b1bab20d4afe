//! `BlockAffinity`: which node owns which block, as users see it. Users should only read and list these objects: IPAM
//! maintains them, and marking one as deleted manually is refused.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::scalars::Cidr;
use crate::scalars::names::check_metadata;
use crate::text::string_enum;
use api_derive::resource_struct;
use serde_json::{Map, Value};

/// The claim of a node (or virtual host) on a block.
pub type BlockAffinity = Object<BlockAffinitySpec>;

/// The claim.
#[resource_struct]
pub struct BlockAffinitySpec {
    /// How far the claim has come.
    #[field(always, required, schema = state_values)]
    pub state: BlockAffinityState,
    /// The node that claims the block.
    #[field(always, required)]
    pub node: String,
    /// `host` or `virtual`; nothing means `host`.
    #[field(name = "type")]
    pub affinity_type: String,
    /// The block's range.
    #[field(always, required, format = "cidr")]
    pub cidr: Cidr,
    /// Set just before the object is removed; such an object counts as gone.
    #[field(always, required, default = "false")]
    pub deleted: bool,
}

string_enum! {
    /// How far a claim on a block has come.
    BlockAffinityState {
        /// The block is the node's.
        Confirmed = "confirmed",
        /// The node wants the block, but has not written it yet.
        Pending = "pending",
        /// The node is giving the block up.
        PendingDeletion = "pendingDeletion",
    }
}

fn state_values(field: &mut Map<String, Value>) {
    let mut values = vec![Value::from("")];
    values.extend(BlockAffinityState::KNOWN.iter().copied().map(Value::from));
    field.insert("enum".into(), values.into());
}

impl Spec for BlockAffinitySpec {
    const KIND: Kind = Kind::BlockAffinity;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        if let Err(reason) = self.cidr.parse() {
            errors.add(spec.child("cidr"), &self.cidr, reason);
        }
        // It also becomes a label, by which claims are found.
        let known = matches!(self.affinity_type.as_str(), "" | "host" | "virtual");
        errors.require(known, spec.child("type"), &self.affinity_type, "must be host or virtual");
        errors.require(!self.deleted, spec.child("deleted"), self.deleted, "cannot be set to true");
    }
}
