//! What drivers of packet rules have in common: how they are told the desired state, and what they answer.
//!
//! Managers define chains, say what is put into the kernel's own chains, and fill dispatch maps; [`RuleDriver::apply`]
//! brings the kernel there. Both backends take the same tree of rules. Nothing is written before `apply`.

use crate::refused::{Refused, SetFaults};
use messages::Text;
use rules::tree::{Chain, KernelChain, Table, VerdictMap};
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
        /// Why.
        reason: String,
    },
    /// A helper program failed.
    #[error("{program}: {reason}")]
    Program {
        /// Which.
        program: String,
        /// How.
        reason: String,
    },
}

/// A driver of packet rules of one family.
pub trait RuleDriver {
    /// Defines a chain, or defines it anew. It is programmed when something leads to it.
    fn update_chain(&mut self, layer: Table, chain: Chain);

    /// Whether a chain that is defined is programmed even when nothing leads to it. It is not, unless this was said since it
    /// was defined for the first time.
    fn keep_chain(&mut self, layer: Table, name: &Text, keep: bool);

    /// Takes a definition back.
    fn remove_chain(&mut self, layer: Table, name: &str);

    /// Says what is put into one of the kernel's own chains.
    fn set_kernel_chain(&mut self, layer: Table, chain: KernelChain);

    /// Defines a dispatch map with all its entries. Backends without maps do nothing.
    fn update_map(&mut self, layer: Table, map: VerdictMap);

    /// Sets or, with `None`, removes one entry of a map, which is defined if it was not.
    fn set_map_entry(&mut self, layer: Table, map: &str, interface: &Text, chain: Option<&Text>);

    /// Takes a map back.
    fn remove_map(&mut self, layer: Table, name: &str);

    /// Says that somebody else may have changed the kernel: it is read anew with the next `apply`.
    fn invalidate(&mut self);

    /// Says that nobody else changed nftables while the kernel was brought to its state, and that whoever does from now on is
    /// heard: where a driver would look again some time after a write, it need not.
    fn undisturbed(&mut self) {}

    /// Says which sets are not as they should be: rules that would let packets through because of that are closed.
    fn set_faults(&mut self, faults: &SetFaults);

    /// Tries again with the next `apply` what was refused: something that it needs, such as a set, may be there by now.
    fn retry_refused(&mut self);

    /// Brings the kernel to the desired state.
    ///
    /// # Errors
    /// When nothing could be done. Refusals of single rules are no error: see [`RuleDriver::refused`].
    fn apply(&mut self, now: Instant) -> Result<Applied, ApplyError>;

    /// What is not in the kernel as it should be, in order.
    fn refused(&self) -> Vec<Refused>;
}
