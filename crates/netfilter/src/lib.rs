//! Drivers of packet filters: what rules and sets should be in the kernel, what is there, and the difference as a value
//! that is written in one batch.
//!
//! ```text
//!  chains, maps, hooks ─► RuleDriver:  nftables │ iptables ─► kernel
//!  sets and members    ─► IpSetDriver: nftables │ ip_set   ─┘
//!          └── PacketFilter: both of one IP version, in an order in which nothing is ever open
//! ```
//!
//! - [`nftables`]: the table `calico` of a family, by netlink transactions.
//! - [`iptables`]: own chains and hooks in the four tables of a family, by `iptables-restore`.
//! - [`ipsets`]: the sets that rules name, for either backend.
//! - [`filter`]: sets and rules of one IP version, and what holds when one of them fails.
//! - [`environment`]: what the host can do, and which packet filter it uses.
//!
//! A part that the kernel refuses is narrowed down, replaced by one that fails closed, and reported
//! ([`refused::Refused`]); it never keeps the rest from being programmed. Nothing that is not recognisably ours is ever
//! changed. What policy means is not known here.

mod chains;
pub mod desired;
pub mod driver;
pub mod environment;
#[cfg(test)]
mod faults;
pub mod filter;
pub mod ipsets;
pub mod iptables;
pub mod nftables;
pub mod refused;

pub use driver::{Applied, ApplyError, DriverFigure, RuleDriver};
pub use filter::PacketFilter;
pub use refused::{Part, Refused};
