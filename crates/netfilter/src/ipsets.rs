//! IP sets: the members that rules match by name, in the kernel's `ip_set` subsystem or as sets of our nftables table.
//!
//! Sets exist before the rules that refer to them and outlive them: [`IpSetDriver::apply_updates`] comes before the
//! rules are written, [`IpSetDriver::apply_deletions`] after. Only our own sets, recognised by their names, are read or
//! written. Members of the other IP version are ignored, so that both versions' drivers can be given the same members.

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

/// Counters of a driver's work, with the names of Felix's metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// `felix_ipset_calls` or `felix_nft_set_calls`: batches that were written.
    pub calls: u64,
    /// `felix_ipset_errors` or `felix_nft_set_errors`: batches that failed.
    pub errors: u64,
    /// `felix_ipset_lines_executed`: members added and removed, sets created and destroyed.
    pub operations: u64,
    /// `felix_ipsets_calico` or `felix_nft_sets`: sets of ours that are wanted.
    pub sets: usize,
}

/// Refused sets or members, with the reason.
type RefusedMembers<M> = BTreeMap<(SetName, Option<M>), String>;

/// The refusals as values for reports, in order.
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

/// The faulty sets, given whether a member of a set is wanted.
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
    /// Defines a set with all its members, or replaces its definition.
    fn update_set(&mut self, id: &str, set_type: IpSetType, members: &[IpSetMember]);

    /// Changes the members of a set that was defined.
    fn update_members(&mut self, id: &str, added: &[IpSetMember], removed: &[IpSetMember]);

    /// Removes a set; it is destroyed by [`IpSetDriver::apply_deletions`].
    fn remove_set(&mut self, id: &str);

    /// Notes that another program may have changed the kernel: it is read again with the next apply.
    fn invalidate(&mut self);

    /// Retries refused sets and members with the next `apply_updates`.
    fn retry_refused(&mut self);

    /// Sets whether existing sets stay as they are for now, because the rules in the kernel are older than the desired
    /// sets; new sets are still created.
    fn hold(&mut self, hold: bool);

    /// Creates and fills sets.
    ///
    /// # Errors
    /// When nothing could be written. Refusals of single sets and members are not an error: see
    /// [`IpSetDriver::refused`].
    fn apply_updates(&mut self) -> Result<Applied, ApplyError>;

    /// Destroys sets that are no longer wanted. Sets that rules still refer to are retried with the next call.
    ///
    /// # Errors
    /// When nothing could be destroyed.
    fn apply_deletions(&mut self) -> Result<Applied, ApplyError>;

    /// Everything that is not in the kernel as desired, in order.
    fn refused(&self) -> Vec<Refused>;

    /// The sets that differ from the desired ones, by the kernel's names.
    fn faults(&self) -> BTreeMap<SetName, SetFault>;

    /// The counters of the driver's work so far.
    fn metrics(&self) -> Metrics;
}
