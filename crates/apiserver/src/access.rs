//! Authentication and authorization: both are decided by Kubernetes, and its answers are remembered for a few seconds.
//!
//! - [`identity`]: the user that a connection and its headers name.
//! - [`subject`]: the names in a certificate.
//! - [`authorities`]: the authorities that are trusted, from the config map that Kubernetes keeps for aggregated
//!   servers.
//! - [`reviews`]: tokens and permissions, by TokenReview and SubjectAccessReview.

pub(crate) mod authorities;
pub(crate) mod identity;
pub(crate) mod reviews;
pub(crate) mod subject;

pub(crate) use kube_access::reviews::User;
