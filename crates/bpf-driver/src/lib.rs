//! The driver of the eBPF dataplane: what policy, routes and interfaces ask for, brought into maps and onto interfaces.
//!
//! - [`Driver`]: everything together: probes, maps, programs, attachments.
//! - [`PolicyMaps`]: tables of policy into their maps, in an order in which every packet sees the state before or after; over
//!   any [`Store`], so that the order itself is tested without a kernel.
//! - [`routes`]: what `cali_v4_routes` and its like should hold, as values.
//! - `attachments`: programs on interfaces by pinned links, or by filters where a kernel has no such links; `at_driver`: those at
//!   their drivers.
//! - `services`, `serving`: services into the NAT maps; `sockets`: the programs by which sockets of the host get backends.
//! - `denied`: packets that policy denied, counted by programs.
//! - `logs`: lines about packets that met a rule that logs.
//! - `import`: flows that Linux knew before programs did.
//! - `sweeper`: connections that have ended leave their maps; `usage`: how full those are.
//! - `files`: where pins are; `predecessor`: what Calico's own eBPF dataplane left.
//!
//! What is wanted is a value, and what is written is a difference of values. It refuses to decide which interfaces have
//! programs and which lists, to remove what is not recognisably ours, and to write a part of a policy that does not fit.

mod at_driver;
mod attachments;
mod denied;
mod driver;
mod error;
pub mod files;
mod filter;
mod import;
mod limits;
mod logs;
mod maps;
mod plan;
mod policy;
mod predecessor;
mod programs;
mod reading;
pub mod routes;
mod services;
mod serving;
pub mod sockets;
mod store;
mod sweeper;
mod usage;

pub use attachments::{Way, remove_filters};
pub use denied::Denied;
pub use driver::{Driver, Interface, Settings};
pub use error::Error;
pub use filter::Filters;
pub use limits::WantedLimits;
pub use logs::Logging;
pub use policy::{Applied, Holders, PolicyMaps};
pub use programs::Kind;
pub use store::Store;
pub use usage::{Usage, Usages};
