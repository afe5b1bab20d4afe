//! The cost of rules on their way into the kernel: a driver with a simulated kernel that only counts.

use crate::counted::Counts;
use netfilter::RuleDriver as _;
use netfilter::nftables::{Driver, Kernel, Snapshot};
use netlink::netfilter::Result;
use netlink::netfilter::nft::{Change, CommitRefused, RuleFound, Table as KernelTable};
use rules::nftables::Family;
use rules::tree::{Action, Chain, Match, Rule, Table};
use std::time::Instant;

/// Accepts everything, stores nothing.
#[derive(Debug, Default)]
struct Counting {
    transactions: usize,
    changes: usize,
}

impl Kernel for Counting {
    fn read(&mut self, _: &KernelTable) -> Result<Snapshot> {
        Ok(Snapshot::default())
    }

    fn read_chain(&mut self, _: &KernelTable, _: &str) -> Result<Vec<RuleFound>> {
        Ok(Vec::new())
    }

    fn commit(
        &mut self,
        _: &KernelTable,
        changes: &[Change],
    ) -> Result<std::result::Result<(), CommitRefused>> {
        self.transactions += 1;
        self.changes += changes.len();
        Ok(Ok(()))
    }
}

fn chain(index: u32, edition: u32) -> Chain {
    let net = format!("10.{index}.{edition}.0/24").parse().unwrap();
    let rules = (0..10).map(|bit| Rule {
        matches: vec![
            Match::Mark { value: 0, mask: 0x20000, negated: false },
            Match::Net { end: rules::tree::End::Source, net, negated: false },
        ],
        action: Some(Action::SetMark(bit + 1)),
        comments: vec![],
    });
    Chain::new(format!("cali-tw-{index}"), rules.collect())
}

pub(crate) fn rules(counts: &mut Counts) {
    let now = Instant::now();
    let mut driver = Driver::new(Counting::default(), Family::Ip, None);
    counts.allocations("nftables: 100 workloads of 10 rules", || {
        for index in 0..100 {
            driver.update_chain(Table::Filter, chain(index, 0));
            let (device, name) = (format!("cali{index}").into(), format!("cali-tw-{index}").into());
            driver.set_map_entry(Table::Filter, "cali-to-wl-dispatch", &device, Some(&name));
        }
        driver.apply(now).unwrap();
    });
    report(counts, &mut driver, "nftables: 100 workloads of 10 rules");
    counts.allocations("nftables: one chain changes", || {
        driver.update_chain(Table::Filter, chain(50, 1));
        driver.apply(now).unwrap();
    });
    report(counts, &mut driver, "nftables: one chain changes");
    counts.allocations("nftables: nothing changes", || {
        driver.update_chain(Table::Filter, chain(50, 1));
        driver.apply(now).unwrap();
    });
    report(counts, &mut driver, "nftables: nothing changes");
}

fn report(counts: &mut Counts, driver: &mut Driver<Counting>, name: &str) {
    let Counting { transactions, changes } = std::mem::take(driver.kernel());
    counts.add(&format!("{name}: transactions"), transactions);
    counts.add(&format!("{name}: changes to the kernel"), changes);
}
