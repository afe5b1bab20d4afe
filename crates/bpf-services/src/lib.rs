//! Services of the eBPF dataplane: from Kubernetes' Services and EndpointSlices and a few facts of the node to the exact
//! contents of `cali_v4_nat_fe3`, `…_nat_be`, `…_mglv2` and those of IPv6, in the place of kube-proxy.
//!
//! [`Services`] is for one IP version. It takes objects as they change and says what to write, in an order in which every
//! packet finds either the state before or the one after ([`MapChanges`]). One changed slice costs as much as its service
//! has endpoints, however many services there are.
//!
//! - `read`: what of an object matters, and nothing that this version does not serve.
//! - `choice`: which endpoints a node sends to.
//! - `render`: frontends and backends of one port of one service.
//! - `told`: what messages to a dataplane mean here.
//! - `ids`: the number that ties a frontend to its backends: unique, kept over a restart, never soon used again.
//! - [`maglev`]: tables that are equal on every node, and on Calico's.
//! - `claims`: who gets an address that two services want.
//! - [`bootstrap`]: the API's own service, before anyone can ask for it.
//!
//! It refuses IO, clock and waiting; to know the kernel; and to give one number to two services.

mod address;
pub mod bootstrap;
mod changes;
mod choice;
mod claims;
mod ids;
pub mod maglev;
mod questions;
mod read;
mod render;
mod services;
mod told;

pub use changes::{Contents, MapChanges, NatMap, Step};
pub use questions::HealthCheck;
pub use services::{Here, Services, Settings, Update};
