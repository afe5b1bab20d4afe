//! What components ask of Kubernetes beside Calico's data: config maps, a node's addresses and conditions, and tokens for
//! the CNI plugin.
//!
//! - [`access`]: a connection, found as Calico's node finds it (`KUBECONFIG`, or the pod's service account).
//! - [`secret`]: one secret, read and waited for.
//! - [`cluster`]: any object, list, watch and write, decoded into the types of the caller.
//! - [`followed`]: a collection as something to follow.
//! - [`reviews`]: whose a token is, and what a user may do; [`remembered`]: answers for a while.
//! - [`token`]: tokens of service accounts, and when to fetch the next one.
//! - [`kubeconfig`]: the file that the CNI plugin reads.
//!
//! It refuses to retry, except what a busy API turned away ([`datastore::kubernetes::repeating`]): who calls decides. It
//! holds no Calico data; that is the datastore's.

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
