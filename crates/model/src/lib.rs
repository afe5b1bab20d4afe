//! Datastore keys and values, their etcd paths and JSON, and pure conversions from and to Kubernetes objects. No IO, no
//! clock, no async.
//!
//! - [`key`]: [`Key`], its path in etcd (written and read), [`ListOptions`].
//! - [`value`]: [`Value`], its bytes in etcd (written and read), [`KvPair`].
//! - [`name_types!`]: types for names, such as [`NodeName`] and [`HandleId`].
//! - [`names`]: names that are computed from others.
//! - [`crd`]: resources and IPAM's values as custom resources of `crd.projectcalico.org/v1`, in both directions.
//! - [`convert`]: stored resources as the values of a feed.
//! - [`feed`]: what a feed delivers: entries in the shapes that components calculate with.
//! - [`kubernetes`]: Pods, Namespaces, Nodes and policies of Kubernetes as Calico resources.

pub mod convert;
pub mod crd;
pub mod feed;
pub mod key;
pub mod kubernetes;
mod name_types;
pub mod names;
pub mod value;

pub use key::{
    AffinityType, BlockAffinityKey, IpVersion, Key, KeyError, ListOptions, ResourceKey, V1Key, region_string,
    v1,
};
pub use name_types::{HandleId, NodeName, ProfileName, TierName};
pub use value::{
    AllocationBlock, BlockAffinity, EndpointStatus, IpamConfig, IpamHandle, KvPair, StatusReport, Value,
    ValueError, decode, encode,
};
