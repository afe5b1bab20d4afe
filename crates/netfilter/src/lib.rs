//! Drivers of packet filters: they compare the desired rules and sets with those in the kernel, and write the
//! difference in one batch.
//!
//! ```text
//!  chains, maps, hooks ─► RuleDriver:  nftables │ iptables ─► kernel
//!  sets and members    ─► IpSetDriver: nftables │ ip_set   ─┘
//!          └── PacketFilter: both of one IP version, in an order in which nothing is ever open
//! ```
//!
//! - [`nftables`]: the table `calico` of a family, through netlink transactions.
//! - [`iptables`]: our own chains and hooks in the four tables of a family, through `iptables-restore`.
//! - [`ipsets`]: the sets that rules name, for either backend.
//! - [`filter`]: sets and rules of one IP version, and the guarantees when writing one of them fails.
//! - [`environment`]: the host's features, and the choice of packet filter.
//!
//! Rules and sets that the kernel refuses are narrowed down, replaced by ones that fail closed, and reported
//! ([`refused::Refused`]); they never keep the rest from being programmed. Nothing that is not recognisably ours is
//! ever changed. The meaning of policy is not known here.

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
