//! Services of the eBPF dataplane, replacing kube-proxy: from Kubernetes' Services and EndpointSlices and a few facts
//! of the node to the exact contents of `cali_v4_nat_fe3`, `…_nat_be`, `…_mglv2` and those of IPv6.
//!
//! [`Services`] handles one IP version. It takes changes of objects and returns the writes, in an order in which every
//! packet sees either the state before or the one after ([`MapChanges`]). A changed slice costs as much as its service
//! has endpoints, however many services there are.
//!
//! - `read`: the relevant parts of objects that this IP version serves.
//! - `choice`: the endpoints that a node uses.
//! - `render`: the frontends and backends of one port of one service.
//! - `told`: the meaning of messages to a dataplane.
//! - `ids`: the id that links a frontend to its backends: unique, kept over a restart, not reused soon.
//! - [`maglev`]: tables that are equal on every node, and on Calico's.
//! - `claims`: which service gets an address that two services claim.
//! - [`bootstrap`]: the Kubernetes API's service, before any other source of it is available.
//!
//! No IO, no clock, no waiting. Does not know the kernel, and never gives one id to two services.

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
