//! What drivers of packet rules have in common: how they take the desired state, and what they report.
//!
//! Managers define chains, say what is put into the kernel's own chains, and fill dispatch maps; [`RuleDriver::apply`]
//! brings the kernel there. Both backends take the same tree of rules. Nothing is written before `apply`.

use crate::refused::{Refused, SetFaults};
use messages::InterfaceName;
use rules::tree::{Chain, ChainName, KernelChain, Table, VerdictMap};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// What came of bringing the kernel to the desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Whether anything had to be written.
    pub wrote: bool,
    /// When to call again even if nothing changes; `None` for not at all.
    pub again_in: Option<Duration>,
}

/// Why the kernel could not be brought to the desired state; what is pending stays pending.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The kernel or the socket to it failed.
    #[error(transparent)]
    Netfilter(#[from] netlink::netfilter::Error),
    /// The kernel refused, and no part could be found to be at fault.
    #[error("{table}: {reason}")]
    Refused {
        /// Which table.
        table: String,
        /// The reason, in one sentence.
        reason: String,
    },
    /// A helper program failed.
    #[error("{program}: {reason}")]
    Program {
        /// The program that was started.
        program: String,
        /// The program's end, and its last words.
        reason: String,
    },
}

/// A figure of a driver: its name, its labels as they stand in braces, its value.
pub type DriverFigure = (&'static str, String, f64);

/// A driver of packet rules of one family.
pub trait RuleDriver {
    /// Defines a chain or replaces its definition. It is programmed once something leads to it.
    fn update_chain(&mut self, layer: Table, chain: Chain);

    /// Sets whether a defined chain is programmed even when nothing leads to it. Off for a new chain.
    fn keep_chain(&mut self, layer: Table, name: &ChainName, keep: bool);

    /// Takes a definition back.
    fn remove_chain(&mut self, layer: Table, name: &ChainName);

    /// Sets what is put into one of the kernel's own chains.
    fn set_kernel_chain(&mut self, layer: Table, chain: KernelChain);

    /// Defines a dispatch map with all its entries. Backends without maps do nothing.
    fn update_map(&mut self, layer: Table, map: VerdictMap);

    /// Sets or, with `None`, removes one entry of a map, which is defined if it was not.
    fn set_map_entry(
        &mut self,
        layer: Table,
        map: &str,
        interface: &InterfaceName,
        chain: Option<&ChainName>,
    );

    /// Takes a map back.
    fn remove_map(&mut self, layer: Table, name: &str);

    /// Another program may have changed the kernel: the next `apply` reads it again.
    fn invalidate(&mut self);

    /// No other program changed nftables during the last write, and later changes are announced: a driver that would check
    /// its write after a while need not.
    fn undisturbed(&mut self) {}

    /// Sets that are not as they should be: rules that would let packets through because of them are closed.
    fn set_faults(&mut self, faults: &SetFaults);

    /// Tries again with the next `apply` what was refused: something that it needs, such as a set, may be there by now.
    fn retry_refused(&mut self);

    /// Brings the kernel to the desired state.
    ///
    /// # Errors
    /// When nothing could be done. Refusals of single rules are not an error: see [`RuleDriver::refused`].
    fn apply(&mut self, now: Instant) -> Result<Applied, ApplyError>;

    /// What is not in the kernel as it should be, in order.
    fn refused(&self) -> Vec<Refused>;

    /// The devices that the flow table covers; `None` for no flow table. Only nftables has one.
    fn set_flow_devices(&mut self, _devices: Option<BTreeSet<InterfaceName>>) {}

    /// What the driver did so far.
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
