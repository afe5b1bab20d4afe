//! IP sets: the members that rules match by name, in the kernel's `ip_set` subsystem or as sets of our nftables table.
//!
//! Sets exist before the rules that name them and outlive them: [`IpSetDriver::apply_updates`] comes before the rules are
//! written, [`IpSetDriver::apply_deletions`] after. Only sets of ours, known by their names, are read or written. Members of
//! the other IP version are passed over, so that both versions' drivers can be given the same.

mod cover;
mod kernel;
mod nft;

#[cfg(test)]
pub(crate) mod tests;

pub use kernel::{KernelSets, SetKernel};
pub use nft::{NftSetKernel, NftSets};

use crate::driver::{Applied, ApplyError};
use crate::refused::{Part, Refused, SetFault};
use messages::{IpSetMember, IpSetType};
use rules::tree::SetName;
use std::collections::BTreeMap;

/// Counters of what a driver did, with the names of Felix's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// `felix_ipset_calls` or `felix_nft_set_calls`: batches that were written.
    pub calls: u64,
    /// `felix_ipset_errors` or `felix_nft_set_errors`: batches that failed.
    pub errors: u64,
    /// `felix_ipset_lines_executed`: members added and removed, sets made and destroyed.
    pub operations: u64,
    /// `felix_ipsets_calico` or `felix_nft_sets`: sets of ours that are wanted.
    pub sets: usize,
}

/// What was refused: a set or a member of it, and why.
type RefusedMembers<M> = BTreeMap<(SetName, Option<M>), String>;

/// What was refused, in words and in order.
fn describe_refused<M>(refused: &RefusedMembers<M>, describe: impl Fn(&M) -> String) -> Vec<Refused> {
    let one = |((name, member), reason): (&(SetName, Option<M>), &String)| Refused {
        layer: None,
        name: name.text().clone(),
        part: member.as_ref().map(|member| Part::Member(describe(member))),
        reason: reason.clone(),
    };
    let mut all: Vec<Refused> = refused.iter().map(one).collect();
    all.sort();
    all
}

/// The sets that are not as they should be, given whether a member of a set is wanted.
fn faults<M>(
    refused: &RefusedMembers<M>,
    is_wanted: impl Fn(&SetName, &M) -> bool,
) -> BTreeMap<SetName, SetFault> {
    let mut faults = BTreeMap::new();
    for (name, member) in refused.keys() {
        let lacks = member.as_ref().is_some_and(|member| is_wanted(name, member));
        let fault = if lacks { SetFault::Lacks } else { SetFault::Differs };
        let known = faults.entry(name.clone()).or_insert(fault);
        *known = fault.max(*known);
    }
    faults
}

/// A driver of the IP sets of one IP version.
pub trait IpSetDriver {
    /// Defines a set with all its members, or defines it again.
    fn update_set(&mut self, id: &str, set_type: IpSetType, members: &[IpSetMember]);

    /// Changes the members of a set that was defined.
    fn update_members(&mut self, id: &str, added: &[IpSetMember], removed: &[IpSetMember]);

    /// Takes a set back; it is destroyed by [`IpSetDriver::apply_deletions`].
    fn remove_set(&mut self, id: &str);

    /// Says that somebody else may have changed the kernel: it is read again with the next apply.
    fn invalidate(&mut self);

    /// Tries again with the next `apply_updates` what was refused.
    fn retry_refused(&mut self);

    /// Whether sets that are in the kernel stay as they are for now, because the rules there are older than they; new ones are
    /// made.
    fn hold(&mut self, hold: bool);

    /// Makes and fills sets.
    ///
    /// # Errors
    /// When nothing could be done. Refusals of single sets and members are not an error: see [`IpSetDriver::refused`].
    fn apply_updates(&mut self) -> Result<Applied, ApplyError>;

    /// Destroys sets that are no longer wanted. Those that rules still name are tried again with the next call.
    ///
    /// # Errors
    /// When nothing could be done.
    fn apply_deletions(&mut self) -> Result<Applied, ApplyError>;

    /// What is not in the kernel as it should be, in order.
    fn refused(&self) -> Vec<Refused>;

    /// The sets that are in the kernel other than they should be, by the kernel's names.
    fn faults(&self) -> BTreeMap<SetName, SetFault>;

    /// What was done so far.
    fn metrics(&self) -> Metrics;
}
