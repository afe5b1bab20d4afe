//! Distributes addresses of a block, and finds the outcome of a write that was never answered.
//!
//! One write serves several requests; each of them is a [`Job`]. [`order`] decides which blocks serve them.

pub mod order;

use crate::block::Block;
use crate::reservation::AddressSet;
use crate::take::{self, Holder};
use ipnet::IpNet;
use model::{AllocationBlock, HandleId, KvPair};
use std::collections::{BTreeMap, BTreeSet};

/// A request for addresses of one IP version.
#[derive(Clone, Debug, Default)]
pub struct Job {
    /// How many addresses are wanted.
    pub count: usize,
    /// The holder of the addresses.
    pub holder: Holder,
    /// The addresses it got so far, each with its block's prefix length.
    pub got: Vec<IpNet>,
    /// How many addresses the handle may have; 0 for any number.
    pub limit: usize,
    /// The handle as stored, if known.
    pub handle_entry: Option<KvPair>,
    /// Addresses of writes whose outcome is unknown.
    pub attempted: Vec<Attempt>,
    /// Whether the handle had these addresses before.
    pub is_adopted: bool,
}

impl Job {
    /// How many addresses are missing.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.count.saturating_sub(self.got.len())
    }

    /// Finds attempts on a block that were carried out after all.
    pub fn find_attempted(&mut self, block: &AllocationBlock) {
        for attempt in std::mem::take(&mut self.attempted) {
            let is_missing = self.missing() > 0 && !self.got.contains(&attempt.net);
            if is_missing && attempt.block() == block.cidr && attempt.happened(block, &self.holder) {
                self.got.push(attempt.net);
            } else {
                self.attempted.push(attempt);
            }
        }
    }
}

/// An address that a write was to assign, with the sequence number that the allocation has if the write happened.
/// Together with the holder this distinguishes it from any other allocation of the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The address, with its block's prefix length.
    pub net: IpNet,
    /// The block's sequence number at the write.
    pub sequence_number: u64,
}

impl Attempt {
    /// The block of the address.
    #[must_use]
    pub fn block(&self) -> IpNet {
        self.net.trunc()
    }

    /// Whether the write happened, given the block as it is now.
    #[must_use]
    pub fn happened(&self, block: &AllocationBlock, holder: &Holder) -> bool {
        let allocation = Block::new(block).allocation(self.net.addr());
        allocation.is_some_and(|allocation| {
            allocation.sequence_number == self.sequence_number
                && take::held_by(block, holder).contains(&self.net)
                && holder.handle.is_some()
        })
    }
}

/// The addresses that each job gets from a block, and how many addresses each handle gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// The addresses in the order of the jobs.
    pub by_job: Vec<Vec<IpNet>>,
    /// Counts of the handles.
    pub by_handle: BTreeMap<HandleId, i64>,
}

impl Shares {
    /// Whether no job gets anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_job.iter().all(Vec::is_empty)
    }
}

/// Jobs that are served together, and the progress so far.
#[derive(Debug)]
pub struct Jobs<'a> {
    /// The jobs.
    pub jobs: &'a mut [Job],
    /// The reasons why something is missing, in Calico's words, without duplicates.
    pub messages: Vec<String>,
    /// Blocks that have been tried.
    pub tried: BTreeSet<IpNet>,
}

impl<'a> Jobs<'a> {
    /// Jobs for which nothing has been tried yet.
    pub fn new(jobs: &'a mut [Job]) -> Self {
        Self { jobs, messages: Vec::new(), tried: BTreeSet::new() }
    }

    /// Whether all jobs have all their addresses.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.jobs.iter().all(|job| job.missing() == 0)
    }

    /// Records why something is missing.
    pub fn say(&mut self, message: impl Into<String>) {
        let message = message.into();
        if !self.messages.contains(&message) {
            self.messages.push(message);
        }
    }

    /// Takes missing addresses from a block. The jobs get them when the block is written: see [`Jobs::give`].
    pub fn take(&self, block: &mut AllocationBlock, reserved: &AddressSet) -> Shares {
        let mut shares = Shares::default();
        for job in &*self.jobs {
            let got = take::take(block, job.missing(), &job.holder, reserved);
            if let (Some(handle), false) = (&job.holder.handle, got.is_empty()) {
                *shares.by_handle.entry(handle.clone()).or_default() +=
                    i64::try_from(got.len()).unwrap_or(i64::MAX);
            }
            shares.by_job.push(got);
        }
        shares
    }

    /// Records that a write is about to happen: if its outcome is never known, [`Jobs::find_attempted`] can find it
    /// out.
    pub fn attempt(&mut self, shares: &Shares, sequence_number: u64) {
        for (job, nets) in self.jobs.iter_mut().zip(&shares.by_job) {
            job.attempted.extend(nets.iter().map(|net| Attempt { net: *net, sequence_number }));
        }
    }

    /// Removes an attempt on a block whose outcome is known.
    pub fn withdraw(&mut self, sequence_number: u64, cidr: IpNet) {
        for job in self.jobs.iter_mut() {
            job.attempted
                .retain(|attempt| attempt.sequence_number != sequence_number || attempt.block() != cidr);
        }
    }

    /// Gives the jobs their shares: the block is written, so no other attempt on it can succeed any more.
    pub fn give(&mut self, shares: Shares, cidr: IpNet) {
        for (job, got) in self.jobs.iter_mut().zip(shares.by_job) {
            job.attempted.retain(|attempt| attempt.block() != cidr);
            job.got.extend(got);
        }
    }

    /// Finds earlier attempts on a block that were carried out after all.
    pub fn find_attempted(&mut self, block: &AllocationBlock) {
        for job in self.jobs.iter_mut().filter(|job| !job.attempted.is_empty()) {
            job.find_attempted(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{Owner, advance};
    use jiff::Timestamp;
    use model::AffinityType;

    fn job(count: usize, handle: &str) -> Job {
        let holder = Holder { handle: Some(handle.into()), ..Holder::default() };
        Job { count, holder, ..Job::default() }
    }

    fn block() -> AllocationBlock {
        let owner = Owner { affinity_type: AffinityType::Host, host: "a".to_owned() };
        take::new_block("10.0.0.0/30".parse().expect("a range"), &owner, None, Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn jobs_share_a_block_in_their_order() {
        let mut jobs = [job(3, "one"), job(2, "two"), job(1, "three")];
        let mut batch = Jobs::new(&mut jobs);
        let mut block = block();
        let shares = batch.take(&mut block, &AddressSet::default());
        let sizes: Vec<usize> = shares.by_job.iter().map(Vec::len).collect();
        assert_eq!(sizes, [3, 1, 0]);
        assert_eq!(shares.by_handle, [("one".into(), 3), ("two".into(), 1)].into());
        assert!(!batch.is_done(), "nothing is given before it is written");
        batch.give(shares, block.cidr);
        assert_eq!(batch.jobs.iter().map(Job::missing).collect::<Vec<_>>(), [0, 1, 1]);
        assert!(batch.take(&mut block, &AddressSet::default()).is_empty());
    }

    #[test]
    fn an_unanswered_write_is_found_by_holder_and_sequence_number() {
        for (is_written, expected) in [(true, 1), (false, 0)] {
            let mut jobs = [job(1, "one")];
            let mut batch = Jobs::new(&mut jobs);
            let (mut written, unwritten) = (block(), block());
            let shares = batch.take(&mut written, &AddressSet::default());
            let sequence_number = advance(&mut written);
            batch.attempt(&shares, sequence_number);
            batch.find_attempted(if is_written { &written } else { &unwritten });
            assert_eq!(batch.jobs[0].got.len(), expected);
            // The next holder of the same address is not mistaken for the first.
            let mut later = job(1, "one");
            later.attempted =
                vec![Attempt { net: shares.by_job[0][0], sequence_number: sequence_number + 7 }];
            later.find_attempted(&written);
            assert!(later.got.is_empty());
        }
    }

    #[test]
    fn an_attempt_ends_with_any_write_of_its_block() {
        let mut jobs = [job(2, "one")];
        let mut batch = Jobs::new(&mut jobs);
        let net = |text: &str| text.parse::<IpNet>().expect("an address");
        let shares =
            Shares { by_job: vec![vec![net("10.0.0.1/30"), net("10.0.0.5/30")]], ..Shares::default() };
        batch.attempt(&shares, 4);
        batch.withdraw(4, net("10.0.0.0/30"));
        assert_eq!(batch.jobs[0].attempted, [Attempt { net: net("10.0.0.5/30"), sequence_number: 4 }]);
        batch
            .give(Shares { by_job: vec![vec![net("10.0.0.6/30")]], ..Shares::default() }, net("10.0.0.4/30"));
        assert!(batch.jobs[0].attempted.is_empty());
        assert_eq!(batch.jobs[0].got, [net("10.0.0.6/30")]);
    }
}
