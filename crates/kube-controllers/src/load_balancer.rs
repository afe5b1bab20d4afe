//! Addresses for Services of type LoadBalancer, from pools with that use.
//!
//! - [`service`]: a Service cut down, whose it is, and what it asks for.
//! - [`tracker`]: who has which address, from the blocks of `virtual:load-balancer`.
//! - [`plan`](mod@plan): what is to be done about one service.
//! - [`run`]: when, and how it is done.
//!
//! Addresses are held under a handle made from name, namespace and uid, so that a service that was deleted and made again
//! is another one. It refuses to work before all blocks are known: a service would get a second address.

pub(crate) mod plan;
pub(crate) mod run;
pub(crate) mod service;
pub(crate) mod tracker;

pub use run::LoadBalancer;
