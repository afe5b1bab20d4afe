//! The dataplane: from what the calculation says to what is in the kernel.
//!
//! ```text
//!  messages ─► runner ─► managers ─► desired state ─► drivers ─► kernel
//!              ▲ interfaces, addresses, changes by others ◄──────┘   └─► reports
//! ```
//!
//! - [`runner`]: one loop that owns everything, and the order in which the kernel is changed.
//! - [`managers`]: policies, endpoints, pools, tunnels and so on as pure state; they say what should be there.
//! - [`nftables`]: the table `calico` of a family, by netlink transactions.
//! - [`iptables`]: own chains and hooks in the four tables of a family, by `iptables-restore`.
//! - [`ipsets`]: the sets that rules name, for either backend.
//! - [`routes`]: routes, neighbours, forwarding entries, tunnel devices, addresses.
//! - [`bandwidth`]: limits on workloads' interfaces.
//! - [`wireguard`]: the WireGuard device, its peers, its table and rule.
//! - [`conntrack`]: connections of addresses that are gone.
//! - [`environment`]: what the host can do. [`settings`]: what follows from Felix's configuration.
//!
//! Each driver is told what should be there, reads what is there, computes the difference as a value and writes it in one
//! batch; afterwards it writes what changed. A part that the kernel refuses is narrowed down, replaced by one that fails
//! closed, and reported ([`refused::Refused`]); it never keeps the rest from being programmed.
//!
//! Nothing that is not recognisably ours is ever changed, and nothing is written before everything is known once.

pub mod bandwidth;
mod bpf_leftovers;
mod chains;
pub mod conntrack;
pub mod driver;
pub mod environment;
#[cfg(test)]
mod faults;
pub mod ipsets;
pub mod iptables;
pub mod managers;
pub mod nftables;
pub mod refused;
pub mod routes;
pub mod runner;
pub mod settings;
pub mod wireguard;

pub use driver::{Applied, ApplyError, RuleDriver};
pub use refused::{Part, Refused};
