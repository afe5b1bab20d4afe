//! The common interface of packet rule drivers: how they take the desired state, and what they report.
//!
//! Managers define chains, set the content of the kernel's own chains, and fill dispatch maps; [`RuleDriver::apply`]
//! brings the kernel to that state. Both backends take the same tree of rules. Nothing is written before `apply`.

use crate::refused::{Refused, SetFaults};
use messages::InterfaceName;
use rules::tree::{Chain, ChainName, KernelChain, Table, VerdictMap};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// The result of bringing the kernel to the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether anything had to be written.
    pub wrote: bool,
    /// When to call again even if nothing changes; `None` if that is not needed.
    pub again_in: Option<Duration>,
}

/// Why the kernel could not be brought to the desired state; what is pending stays pending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The kernel or the socket to it failed.
    #[error(transparent)]
    Netfilter(#[from] netlink::netfilter::Error),
    /// The kernel refused, and the refusal could not be attributed to any part.
    #[error("{table}: {reason}")]
    Refused {
        /// The table.
        table: String,
        /// The reason, in one sentence.
        reason: String,
    },
    /// A helper program failed.
    #[error("{program}: {reason}")]
    Program {
        /// The program that was started.
        program: String,
        /// How the program ended, and the end of its output.
        reason: String,
    },
}

/// A figure of a driver: its name, its labels in braces, its value.
pub type DriverFigure = (&'static str, String, f64);

/// A driver of packet rules of one family.
pub trait RuleDriver {
    /// Defines a chain or replaces its definition. It is programmed once something leads to it.
    fn update_chain(&mut self, layer: Table, chain: Chain);

    /// Sets whether a defined chain is programmed even when nothing leads to it. Off for a new chain.
    fn keep_chain(&mut self, layer: Table, name: &ChainName, keep: bool);

    /// Removes the definition of a chain.
    fn remove_chain(&mut self, layer: Table, name: &ChainName);

    /// Sets the content of one of the kernel's own chains.
    fn set_kernel_chain(&mut self, layer: Table, chain: KernelChain);

    /// Defines a dispatch map with all its entries. Backends without maps do nothing.
    fn update_map(&mut self, layer: Table, map: VerdictMap);

    /// Sets or, with `None`, removes one entry of a map, which is defined if necessary.
    fn set_map_entry(
        &mut self,
        layer: Table,
        map: &str,
        interface: &InterfaceName,
        chain: Option<&ChainName>,
    );

    /// Removes a map.
    fn remove_map(&mut self, layer: Table, name: &str);

    /// Notes that another program may have changed the kernel: the next `apply` reads it again.
    fn invalidate(&mut self);

    /// Notes that no other program changed nftables during the last write, and that later changes are announced: a
    /// driver that would check its write after a while need not do so.
    fn undisturbed(&mut self) {}

    /// Sets the faulty sets: rules that would let packets through because of them are closed.
    fn set_faults(&mut self, faults: &SetFaults);

    /// Retries with the next `apply` what was refused: something it needs, such as a set, may exist by now.
    fn retry_refused(&mut self);

    /// Brings the kernel to the desired state.
    ///
    /// # Errors
    /// When nothing could be written. Refusals of single rules are not an error: see [`RuleDriver::refused`].
    fn apply(&mut self, now: Instant) -> Result<Applied, ApplyError>;

    /// Everything that is not in the kernel as desired, in order.
    fn refused(&self) -> Vec<Refused>;

    /// The devices that the flow table covers; `None` for no flow table. Only nftables has one.
    fn set_flow_devices(&mut self, _devices: Option<BTreeSet<InterfaceName>>) {}

    /// The counters of the driver's work so far.
    fn figures(&self) -> Vec<DriverFigure> {
        Vec::new()
    }
}

/// A count as a figure.
pub(crate) fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

pub(crate) fn total(count: u64) -> f64 {
    number(usize::try_from(count).unwrap_or(usize::MAX))
}
