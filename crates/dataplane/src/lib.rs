//! Drivers that bring the kernel's packet rules, IP sets and connection table to a desired state.
//!
//! - [`nftables`]: the table `calico` of a family, by netlink transactions.
//! - [`iptables`]: own chains and hooks in the four tables of a family, by `iptables-restore`.
//! - [`ipsets`]: the sets that rules name, for either backend.
//! - [`conntrack`]: connections of addresses that are gone.
//! - [`environment`]: which of these the host can do, and which it uses.
//!
//! Each driver is told what should be there, reads what is there, computes the difference as a value and writes it in one
//! batch; afterwards it writes what changed. A part that the kernel refuses is narrowed down, replaced by one that fails
//! closed, and reported ([`refused::Refused`]); it never keeps the rest from being programmed.
//!
//! Nothing here decides what should be there, and nothing that is not ours is ever changed.

mod chains;
pub mod conntrack;
pub mod driver;
pub mod environment;
pub mod ipsets;
pub mod iptables;
pub mod managers;
pub mod nftables;
pub mod refused;
pub mod routes;
pub mod runner;
pub mod settings;

pub use driver::{Applied, ApplyError, RuleDriver};
pub use refused::{Part, Refused};
