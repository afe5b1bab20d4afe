//! Kernels and programs built from maps, in which some calls fail.

use crate::ipsets::tests::{Ranges, Sets};
use crate::ipsets::{NftSetKernel, SetKernel};
use crate::iptables::{self, CommandFailed, Commands};
use crate::nftables::{self, Kernel, Snapshot};
use netlink::netfilter::ipset::{self, Member, SetFound, SetHeader};
use netlink::netfilter::nft::{self, Change, CommitRefused, ElementFound, RuleFound};
use netlink::netfilter::{Error, Refusal, Result};
use rules::tree::Table;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// No memory, no lock.
    Passing,
    /// The error names no part.
    Odd,
    /// The error blames a part of the request.
    Blaming,
    /// The call is carried out, and the answer is lost.
    AnswerLost,
}

pub(super) const WAYS: [Way; 4] = [Way::Passing, Way::Odd, Way::Blaming, Way::AnswerLost];

/// Which calls fail.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) calls: usize,
    pub(super) failing: std::ops::Range<usize>,
    pub(super) way: Option<Way>,
    /// Whether only calls about rules fail, and not those about sets.
    pub(super) rules_only: bool,
}

/// A kernel built from maps that fails on request.
#[derive(Debug)]
pub(super) struct Faulty<T> {
    pub(super) kernel: Arc<Mutex<T>>,
    pub(super) plan: Arc<Mutex<Plan>>,
    /// Whether it holds rules rather than sets.
    pub(super) is_rules: bool,
    /// The sets that rules may refer to.
    pub(super) sets: Arc<Mutex<Sets>>,
}

pub(super) fn lock<T>(one: &Arc<Mutex<T>>) -> MutexGuard<'_, T> {
    one.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<T> Faulty<T> {
    pub(super) fn next(&self) -> Option<Way> {
        let mut plan = lock(&self.plan);
        plan.calls += 1;
        plan.way.filter(|_| plan.failing.contains(&plan.calls) && (self.is_rules || !plan.rules_only))
    }

    pub(super) fn call<A>(&self, carry_out: impl FnOnce(&mut T) -> Result<A>) -> Result<A> {
        let lost = || Error::Socket { what: "ask".into(), reason: "injected".into() };
        let refused = |code| Error::Refused { what: "ask".into(), refusal: Refusal::new(code) };
        match self.next() {
            None => carry_out(&mut lock(&self.kernel)),
            Some(Way::Passing) => Err(refused(12)),
            Some(Way::Odd) => Err(lost()),
            Some(Way::Blaming) => Err(refused(Refusal::INVALID)),
            Some(Way::AnswerLost) => carry_out(&mut lock(&self.kernel)).and_then(|_| Err(lost())),
        }
    }

    pub(super) fn commit(
        &self,
        changes: &[Change],
        carry_out: impl FnOnce(&mut T) -> Result<std::result::Result<(), CommitRefused>>,
    ) -> Result<std::result::Result<(), CommitRefused>> {
        let whole = |code| CommitRefused { refused: vec![], whole: Some(Refusal::new(code)) };
        match self.next() {
            None => carry_out(&mut lock(&self.kernel)),
            Some(Way::Passing) => Ok(Err(whole(12))),
            Some(Way::Odd) => Ok(Err(whole(Refusal::INVALID))),
            Some(Way::Blaming) => {
                let refused = vec![(changes.len() - 1, Refusal::new(Refusal::INVALID))];
                Ok(Err(CommitRefused { refused, whole: None }))
            }
            Some(Way::AnswerLost) => {
                let _ = carry_out(&mut lock(&self.kernel))?;
                Err(Error::Socket { what: "commit".into(), reason: "injected".into() })
            }
        }
    }
}

pub(super) fn failed(reason: &str, code: Option<i32>) -> CommandFailed {
    CommandFailed { program: "iptables-restore".into(), reason: reason.into(), code }
}

pub(super) type Programs = Faulty<iptables::tests::Fake>;

impl Commands for Programs {
    fn save(&mut self, table: Table) -> std::result::Result<String, CommandFailed> {
        match self.next() {
            None => lock(&self.kernel).save(table),
            Some(_) => Err(failed("injected", Some(1))),
        }
    }

    fn restore(
        &mut self,
        pieces: &mut dyn Iterator<Item = String>,
    ) -> std::result::Result<(), CommandFailed> {
        let input: String = pieces.collect();
        if input.is_empty() {
            return Ok(());
        }
        let way = self.next();
        match way {
            None | Some(Way::AnswerLost) => {}
            Some(Way::Passing) => return Err(failed("injected", Some(4))),
            Some(Way::Odd) => return Err(failed("injected", Some(1))),
            Some(Way::Blaming) => return Err(failed("Error occurred at line: 3", Some(2))),
        }
        for (place, line) in input.lines().enumerate() {
            let set = line.split("--match-set ").nth(1).and_then(|rest| rest.split(' ').next());
            if set.is_some_and(|set| !lock(&self.sets).sets.contains_key(set)) {
                return Err(failed(&format!("no set; Error occurred at line: {}", place + 1), Some(2)));
            }
        }
        lock(&self.kernel).restore(&mut std::iter::once(input))?;
        if way.is_some() { Err(failed("signal: 9", None)) } else { Ok(()) }
    }
}

impl Kernel for Faulty<nftables::tests::Fake> {
    fn read(&mut self, table: &nft::Table) -> Result<Snapshot> {
        self.call(|kernel| kernel.read(table))
    }

    fn read_chain(&mut self, table: &nft::Table, chain: &str) -> Result<Vec<RuleFound>> {
        self.call(|kernel| kernel.read_chain(table, chain))
    }

    fn commit(
        &mut self,
        table: &nft::Table,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        Faulty::commit(self, changes, |kernel| kernel.commit(table, changes))
    }
}

impl NftSetKernel for Faulty<Ranges> {
    fn read_sets(&mut self, table: &nft::Table) -> Result<Vec<(nft::SetFound, Vec<ElementFound>)>> {
        self.call(|kernel| kernel.read_sets(table))
    }

    fn commit(
        &mut self,
        table: &nft::Table,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        Faulty::commit(self, changes, |kernel| kernel.commit(table, changes))
    }
}

/// The refusal of one member.
fn refusal(way: Way) -> Refusal {
    Refusal::new(if way == Way::Passing { 12 } else { Refusal::INVALID })
}

impl SetKernel for Faulty<Sets> {
    fn names(&mut self) -> Result<Vec<String>> {
        self.call(SetKernel::names)
    }

    fn read(&mut self, name: &str) -> Result<Option<SetFound>> {
        self.call(|kernel| kernel.read(name))
    }

    fn create(&mut self, name: &str, header: &SetHeader) -> Result<()> {
        self.call(|kernel| kernel.create(name, header))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        self.call(|kernel| kernel.destroy(name))
    }

    fn swap(&mut self, first: &str, second: &str) -> Result<()> {
        self.call(|kernel| kernel.swap(first, second))
    }

    fn add(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        match self.next() {
            Some(way @ (Way::Blaming | Way::Passing)) => {
                lock(&self.kernel).add(name, &members[1..])?;
                Ok(vec![(members[0], refusal(way))])
            }
            Some(Way::Odd) => Ok(members.iter().map(|one| (*one, Refusal::new(ipset::ERROR_FULL))).collect()),
            Some(Way::AnswerLost) => {
                lock(&self.kernel).add(name, members)?;
                Err(Error::Socket { what: "add".into(), reason: "injected".into() })
            }
            None => lock(&self.kernel).add(name, members),
        }
    }

    fn delete(&mut self, name: &str, members: &[Member]) -> Result<Vec<(Member, Refusal)>> {
        match self.next() {
            Some(way @ (Way::Blaming | Way::Odd | Way::Passing)) => {
                lock(&self.kernel).delete(name, &members[1..])?;
                Ok(vec![(members[0], refusal(way))])
            }
            Some(Way::AnswerLost) => {
                lock(&self.kernel).delete(name, members)?;
                Err(Error::Socket { what: "delete".into(), reason: "injected".into() })
            }
            None => lock(&self.kernel).delete(name, members),
        }
    }
}
