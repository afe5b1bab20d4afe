//! `IPAMHandle`: how many addresses of each block one owner has. In etcd the same data is stored under a key of its
//! own.

use crate::errors::FieldErrors;
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use api_derive::resource_struct;
use std::collections::BTreeMap;

/// The addresses held under one handle.
pub type IPAMHandle = Object<IPAMHandleSpec>;

/// A handle and its counts.
#[resource_struct]
pub struct IPAMHandleSpec {
    /// The handle, in its own case; the object's name is the same in lower case.
    #[field(name = "handleID", always, required)]
    pub handle_id: String,
    /// For each block (as a CIDR), how many of its addresses the handle holds.
    #[field(always, required)]
    pub block: BTreeMap<String, i64>,
    /// Set just before the object is removed, so that nobody builds on it meanwhile. Not for people to set.
    #[field(always)]
    pub deleted: bool,
}

impl Spec for IPAMHandleSpec {
    const KIND: Kind = Kind::IPAMHandle;
    type Status = NoStatus;

    // Only IPAM writes handles; their names are derived from handle ids and follow no user-facing rule.
    fn validate(&self, _metadata: &ObjectMeta, _errors: &mut FieldErrors) {}
}
