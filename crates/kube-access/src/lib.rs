//! What components ask of Kubernetes beside Calico's data: config maps, a node's addresses and conditions, and tokens for
//! the CNI plugin; and how the files that carry such tokens are written.
//!
//! - [`access`]: a connection, found as Calico's node finds it (`KUBECONFIG`, or the pod's service account).
//! - [`token`]: tokens of service accounts, and when to fetch the next one.
//! - [`kubeconfig`]: the file that the CNI plugin reads.
//! - [`files`]: files that appear whole or not at all; [`watch`]: folders that change.
//!
//! It refuses to retry, except what a busy API turned away ([`datastore::kubernetes::repeating`]): who calls decides. It
//! holds no Calico data; that is the datastore's.

pub mod access;
pub mod files;
pub mod kubeconfig;
pub mod token;
pub mod watch;

pub use access::{ApiError, KubeAccess, OpenError};
pub use token::{Token, TokenError};
