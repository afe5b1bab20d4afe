//! Who asks, and what they may do: both are Kubernetes' decisions, asked for and remembered for a few seconds.
//!
//! - [`identity`]: what a connection and its headers say about who asks.
//! - [`subject`]: the names in a certificate.
//! - [`authorities`]: whose word about that counts, from the config map that Kubernetes keeps for servers like this one.
//! - [`reviews`]: tokens and permissions, by TokenReview and SubjectAccessReview.

pub mod authorities;
pub mod identity;
pub mod reviews;
pub mod subject;

pub use kube_access::reviews::User;
