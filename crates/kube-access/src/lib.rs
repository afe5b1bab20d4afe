//! What components need from Kubernetes besides Calico's data: ConfigMaps, a node's addresses and conditions, and
//! tokens for the CNI plugin.
//!
//! - [`access`]: a connection, found in the same way as by Calico's node (`KUBECONFIG`, or the pod's service account).
//! - [`secret`]: one secret, read and watched.
//! - [`cluster`]: reads, lists, watches and writes of any object, decoded into the caller's types.
//! - [`followed`]: a collection for crate `follow`.
//! - [`reviews`]: the owner of a token, and the permissions of a user; [`remembered`]: a cache of answers.
//! - [`token`]: tokens of service accounts, and when to fetch the next one.
//! - [`kubeconfig`]: the file that the CNI plugin reads.
//!
//! Does not retry, except requests that a busy API rejected ([`datastore::kubernetes::repeating`]): the caller decides.
//! Has no Calico data; that is the datastore's.

pub mod access;
pub mod cluster;
pub mod followed;
pub mod kubeconfig;
pub mod remembered;
pub mod reviews;
pub mod secret;
pub mod token;

pub use access::{ApiError, KubeAccess, OpenError};
pub use secret::FoundSecret;
pub use token::{Token, TokenError};
