//! Assigns addresses to Services of type LoadBalancer, from pools with that use.
//!
//! - [`service`]: a reduced Service, whether it is ours, and which addresses it requests.
//! - [`tracker`]: which service has which address, from the blocks of `virtual:load-balancer`.
//! - [`plan`](mod@plan): the actions for one service.
//! - [`run`]: when plans are made, and how they are carried out.
//!
//! Addresses are held under a handle built from name, namespace and uid, so that a service that was deleted and created
//! again is a different one. Nothing is assigned before all blocks are known: a service could get a second address.

pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod tracker;

pub use run::LoadBalancer;
