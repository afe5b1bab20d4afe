//! Who asks, and what they may do: both are Kubernetes' decisions, asked for and remembered for a few seconds.
//!
//! - [`identity`]: what a connection and its headers say about who asks.
//! - [`subject`]: the names in a certificate.
//! - [`authorities`]: whose word about that counts, from the config map that Kubernetes keeps for servers like this one.
//! - [`reviews`]: tokens and permissions, by TokenReview and SubjectAccessReview.

pub(crate) mod authorities;
pub(crate) mod identity;
pub(crate) mod reviews;
pub(crate) mod subject;

pub(crate) use kube_access::reviews::User;
