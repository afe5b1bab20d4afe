//! The driver of the eBPF dataplane: brings policy, routes and interfaces into maps and attaches programs.
//!
//! - [`Driver`]: combines probes, maps, programs and attachments.
//! - [`PolicyMaps`]: writes tables of policy to their maps, in an order in which every packet sees the state before or
//!   after; over any [`Store`], so that the order itself is tested without a kernel.
//! - [`routes`]: the desired contents of `cali_v4_routes` and its like, as values.
//! - `attachments`: programs on interfaces by pinned links, or by filters if a kernel has no such links; `at_driver`:
//!   XDP programs.
//! - `services`, `serving`: services in the NAT maps; `sockets`: the programs that connect sockets of the host to
//!   backends.
//! - `denied`: counts of packets that policy denied.
//! - `logs`: log lines about packets that matched a rule that logs.
//! - `import`: flows that Linux knew before programs did.
//! - `sweeper`: removes ended connections from their maps; `usage`: how full those maps are.
//! - `files`: the location of pins; `predecessor`: the remains of Calico's own eBPF dataplane.
//!
//! Desired state is a value, and only differences between values are written. Does not decide which interfaces have
//! programs and lists, does not remove anything that is not recognisably ours, and does not write part of a policy that
//! does not fit.

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
