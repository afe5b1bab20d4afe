//! A packet filter over kernels built from maps, driven as by the runner, and the resulting state of the kernel.

use super::kernels::{Faulty, Plan, lock};
use super::scenario::{ACCEPT, MAP, Policy, hook, net, passing, scenario, verdicts, when};
use crate::PacketFilter;
use crate::ipsets::tests::{Ranges, Sets};
use crate::ipsets::{KernelSets, NftSets};
use crate::iptables::{self, Portions};
use crate::nftables::{self, expressions};
use ipnet::IpNet;
use messages::{IpSetMember, IpSetType};
use netlink::netfilter::ipset::Member;
use netlink::netfilter::nft::{self, Element, Verdict};
use rules::Backend;
use rules::iptables::{hashes, render_append};
use rules::names::ip_set;
use rules::nftables::{Family, set_name};
use rules::simulate::Simulation;
use rules::tree::{Action, Chain, IpVersion, Rule, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many members fit into a set.
const ROOM: u32 = 3;

/// A packet filter and its kernel.
pub(super) struct World {
    backend: Backend,
    pub(super) filter: PacketFilter,
    pub(super) plan: Arc<Mutex<Plan>>,
    sets: Arc<Mutex<Sets>>,
    ranges: Arc<Mutex<Ranges>>,
    programs: Arc<Mutex<iptables::tests::Fake>>,
    nft: Arc<Mutex<nftables::tests::Fake>>,
    pub(super) has_refused: bool,
    pub(super) now: Instant,
}

impl World {
    pub(super) fn new(backend: Backend, variant: iptables::Backend) -> Self {
        let (plan, sets) = (Arc::<Mutex<Plan>>::default(), Arc::<Mutex<Sets>>::default());
        let ranges = Arc::<Mutex<Ranges>>::default();
        let programs = Arc::<Mutex<iptables::tests::Fake>>::default();
        let nft = Arc::<Mutex<nftables::tests::Fake>>::default();
        let settings = iptables::Settings {
            backend: variant,
            insert_mode: api::ChainInsert::Insert,
            refresh: None,
            post_write_check: Duration::from_secs(5),
            // A transaction holds only a few chains, and there are no other programs to wait for.
            portions: Portions { lines: 4, pause: Duration::ZERO },
        };
        macro_rules! faulty {
            ($kernel:expr, $is_rules:expr) => {
                Faulty {
                    is_rules: $is_rules,
                    kernel: Arc::clone(&$kernel),
                    plan: Arc::clone(&plan),
                    sets: Arc::clone(&sets),
                }
            };
        }
        let rules: Box<dyn crate::RuleDriver + Send> = match backend {
            Backend::Iptables => {
                Box::new(iptables::Driver::new(faulty!(programs, true), IpVersion::V4, &settings))
            }
            Backend::Nftables => Box::new(nftables::Driver::new(faulty!(nft, true), Family::Ip, None)),
        };
        let set_driver: Box<dyn crate::ipsets::IpSetDriver + Send> = match backend {
            Backend::Iptables => Box::new(KernelSets::new(faulty!(sets, false), IpVersion::V4, ROOM)),
            Backend::Nftables => Box::new(NftSets::new(faulty!(ranges, false), IpVersion::V4)),
        };
        let filter = PacketFilter::new(rules, set_driver);
        let now = Instant::now();
        // Sets of nftables have no limit; instead the kernel refuses one of the members.
        lock(&ranges).bad_member = Some(Element::Range(
            nft::Key::address([10, 0, 0, 5].into()),
            nft::Key::address([10, 0, 0, 5].into()),
        ));
        Self { backend, filter, plan, sets, ranges, programs, nft, has_refused: false, now }
    }

    /// Reports the changes to the drivers, in the order in which the calculation does.
    pub(super) fn tell(&mut self, before: &Policy, next: &Policy) {
        let members = |lasts: &mut dyn Iterator<Item = &u8>| -> Vec<IpSetMember> {
            lasts.map(|last| IpSetMember::Net(net(*last))).collect()
        };
        for (id, wanted) in &next.sets {
            match before.sets.get(id) {
                None => self.filter.sets.update_set(id, IpSetType::Net, &members(&mut wanted.iter())),
                Some(old) => {
                    let added = members(&mut wanted.difference(old));
                    let removed = members(&mut old.difference(wanted));
                    self.filter.sets.update_members(id, &added, &removed);
                }
            }
        }
        for (name, rules) in &next.chains {
            self.filter.rules.update_chain(Table::Filter, Chain::new(*name, rules.clone()));
        }
        self.filter.rules.set_kernel_chain(Table::Filter, hook());
        self.tell_map(before, next);
        for name in before.chains.keys().filter(|name| !next.chains.contains_key(*name)) {
            self.filter.rules.remove_chain(Table::Filter, &(*name).into());
        }
        for id in before.sets.keys().filter(|id| !next.sets.contains_key(*id)) {
            self.filter.sets.remove_set(id);
        }
    }

    /// A map is added and removed as a whole; its entries change one by one.
    fn tell_map(&mut self, before: &Policy, next: &Policy) {
        match (&before.map, &next.map) {
            (None, None) => {}
            (None, Some(map)) => {
                let map = verdicts(map.iter().map(|(interface, chain)| (*interface, *chain)));
                self.filter.rules.update_map(Table::Filter, map);
            }
            (Some(_), None) => self.filter.rules.remove_map(Table::Filter, MAP),
            (Some(old), Some(map)) => {
                for interface in old.keys().filter(|interface| !map.contains_key(*interface)) {
                    self.filter.rules.set_map_entry(Table::Filter, MAP, &(*interface).into(), None);
                }
                for (interface, chain) in
                    map.iter().filter(|(interface, chain)| old.get(*interface) != Some(chain))
                {
                    let chain = (*chain).into();
                    self.filter.rules.set_map_entry(Table::Filter, MAP, &(*interface).into(), Some(&chain));
                }
            }
        }
    }

    /// One round as the runner performs it; returns whether everything succeeded, and when to call again.
    pub(super) fn round(&mut self) -> (bool, Option<Duration>) {
        let sets = match self.filter.fill_sets(ACCEPT, self.has_refused, self.now) {
            Ok(applied) => applied,
            Err(_) => {
                self.filter.sets.invalidate();
                return (false, None);
            }
        };
        let Ok(rules) = self.filter.write_rules(ACCEPT, self.has_refused, self.now) else {
            return (false, None);
        };
        let gone = self.filter.sets.apply_deletions();
        self.has_refused = !self.filter.rules.refused().is_empty() || !self.filter.sets.refused().is_empty();
        let again = [sets.again_in, rules.again_in, gone.ok().and_then(|applied| applied.again_in)];
        (!self.has_refused, again.into_iter().flatten().min())
    }

    /// The sources that get through the rules in the kernel.
    pub(super) fn passing(&self, known: &Known) -> BTreeSet<u8> {
        let mut simulation = Simulation::new(self.backend);
        let member = |last: u8| IpSetMember::Net(net(last));
        match self.backend {
            Backend::Iptables => {
                let read = |text: &String| known.rule(&words(text), text.ends_with("--jump DROP"));
                for (name, rules) in &lock(&self.programs).tables["filter"] {
                    simulation.add_chains([Chain::new(name.as_str(), rules.iter().map(read).collect())]);
                }
                for (name, (_, members)) in &lock(&self.sets).sets {
                    let last = |one: &Member| match one {
                        Member::Net(IpNet::V4(net)) => member(net.addr().octets()[3]),
                        other => panic!("{other:?}"),
                    };
                    simulation.add_set(name.as_str().into(), members.iter().map(last).collect());
                }
            }
            Backend::Nftables => {
                let drops = nft::Expression::Verdict(Verdict::Drop);
                let read = |(_, _, body): &nftables::tests::FakeRule| {
                    known.rule(&format!("{body:?}"), body.contains(&drops))
                };
                for (name, (_, rules)) in &lock(&self.nft).tables.chains {
                    let Some(name) = name.strip_prefix("filter-") else { continue };
                    simulation.add_chains([Chain::new(name, rules.iter().map(read).collect())]);
                }
                for (name, entries) in &lock(&self.nft).tables.maps {
                    let Some(name) = name.strip_prefix("filter-") else { continue };
                    assert_eq!(name, MAP);
                    let layer = |chain: &'_ String| {
                        chain.strip_prefix("filter-").expect("a chain of the layer").to_owned()
                    };
                    let entries: Vec<_> =
                        entries.iter().map(|(one, chain)| (one.clone(), layer(chain))).collect();
                    simulation.add_maps([verdicts(entries.iter().map(|(one, chain)| (&**one, &**chain)))]);
                }
                for id in ["s:a", "s:d"] {
                    let name = ip_set(IpVersion::V4, id);
                    let ranges = lock(&self.ranges);
                    let Some((_, members)) = ranges.sets.get(&set_name(&name)) else { continue };
                    let last = |one: &Element| match one {
                        Element::Range(first, _) => member(first.as_bytes()[3]),
                        other => panic!("{other:?}"),
                    };
                    simulation.add_set(name, members.iter().map(last).collect());
                }
            }
        }
        passing(&mut simulation)
    }
}

/// A rule's text after its hash.
pub(super) fn words(text: &str) -> String {
    text.split_once("\" ").map_or(text, |(_, rest)| rest).to_owned()
}

/// All rules of the scenario, by their form in the kernel.
pub(super) struct Known(BTreeMap<String, Rule>);

impl Known {
    pub(super) fn new(backend: Backend) -> Self {
        let text = |rule: &Rule| match backend {
            Backend::Iptables => {
                let hash = hashes("x", std::slice::from_ref(rule))[0];
                words(render_append("x", rule, hash).strip_prefix("-A x ").expect("a rule"))
            }
            Backend::Nftables => format!("{:?}", expressions(Table::Filter, Family::Ip, rule)),
        };
        let rules = scenario(backend).into_iter().flat_map(|policy| policy.chains.into_values().flatten());
        Self(rules.chain(hook().inserted).map(|rule| (text(&rule), rule)).collect())
    }

    /// The rule with this text; a rule that is not of the scenario may only drop.
    pub(super) fn rule(&self, text: &str, drops: bool) -> Rule {
        match self.0.get(text) {
            Some(rule) => rule.clone(),
            None if drops => when(vec![], Action::Drop),
            None => panic!("what is `{text}'?"),
        }
    }
}
