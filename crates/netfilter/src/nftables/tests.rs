//! The driver against a kernel built from maps that refuses what the real one refuses, and more on request.

use super::{Driver, Kernel, Snapshot};
use crate::driver::{ApplyError, RuleDriver};
use messages::InterfaceName;
use netlink::netfilter::nft::{
    ChainFound, Change, CommitRefused, Element, ElementFound, Expression, KeyType, RuleFound, SetFound,
    Table as NftTable, Verdict,
};
use netlink::netfilter::{Error, Refusal, Result};
use proptest::prelude::*;
use rules::nftables::{Family, chain_name, comment, hashes};
use rules::tree::{Action, Chain, ChainName, KernelChain, Match, Rule, Table, VerdictMap};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// A mark that the kernel of these tests refuses.
const BAD: u32 = 0xbad;
/// A mark that is refused only with the whole transaction, without naming a change.
const BAD_AS_A_WHOLE: u32 = 0xbad2;

/// A rule's handle, comment and body.
pub(crate) type FakeRule = (u64, String, Vec<Expression>);
/// Where a chain is attached, and its rules.
pub(crate) type FakeChain = (Option<(u32, i32, String)>, Vec<FakeRule>);

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Tables {
    pub(crate) chains: BTreeMap<String, FakeChain>,
    pub(crate) maps: BTreeMap<String, BTreeMap<String, String>>,
}

/// A kernel built from maps.
#[derive(Debug, Default)]
pub(crate) struct Fake {
    pub(crate) tables: Tables,
    next_handle: u64,
    commits: usize,
    changes: usize,
    /// The error codes with which the next commits fail.
    fail_with: Vec<i32>,
}

fn refusal(code: i32) -> Refusal {
    Refusal::new(code)
}

fn targets(expressions: &[Expression]) -> impl Iterator<Item = &str> {
    expressions.iter().filter_map(|one| match one {
        Expression::Verdict(Verdict::Jump(chain) | Verdict::Goto(chain)) => Some(&**chain),
        _ => None,
    })
}

fn sets_mark(expressions: &[Expression], mark: u32) -> bool {
    expressions.iter().any(|one| match one {
        Expression::Bitwise { xor, .. } => xor.as_bytes() == mark.to_ne_bytes(),
        _ => false,
    })
}

impl Tables {
    fn is_referred_to(&self, chain: &str) -> bool {
        let by_rule = self
            .chains
            .values()
            .flat_map(|(_, rules)| rules)
            .any(|(_, _, body)| targets(body).any(|one| one == chain));
        by_rule || self.maps.values().flat_map(BTreeMap::values).any(|one| one == chain)
    }

    fn change(&mut self, change: &Change, next_handle: &mut u64) -> std::result::Result<(), Refusal> {
        let missing = || refusal(Refusal::NOT_FOUND);
        match change {
            Change::AddTable => {}
            Change::AddChain { name, base } => {
                if name.contains("unnameable") {
                    return Err(refusal(Refusal::INVALID));
                }
                let base =
                    base.map(|base| (base.hook.number(), base.priority, base.kind.as_str().to_owned()));
                self.chains.entry(name.to_string()).or_insert((base, Vec::new()));
            }
            Change::FlushChain(name) => self.chains.get_mut(&**name).ok_or_else(missing)?.1.clear(),
            Change::DeleteChain(name) => {
                let (_, rules) = self.chains.get(&**name).ok_or_else(missing)?;
                if !rules.is_empty() || self.is_referred_to(name) {
                    return Err(refusal(Refusal::BUSY));
                }
                self.chains.remove(&**name);
            }
            Change::AppendRule(rule) => {
                let known = |name: &str| self.chains.contains_key(name);
                let map_missing = rule.expressions.iter().any(|one| {
                    matches!(one, Expression::LookupVerdict { map, .. } if !self.maps.contains_key(&**map))
                });
                if !targets(&rule.expressions).all(known) || map_missing {
                    return Err(missing());
                }
                if sets_mark(&rule.expressions, BAD) {
                    return Err(Refusal { code: Refusal::INVALID, message: "bad".to_owned() });
                }
                *next_handle += 1;
                let rules = &mut self.chains.get_mut(&*rule.chain).ok_or_else(missing)?.1;
                rules.push((*next_handle, rule.comment.to_string(), rule.expressions.clone()));
            }
            Change::DeleteRule { chain, handle } => {
                let rules = &mut self.chains.get_mut(&**chain).ok_or_else(missing)?.1;
                let place = rules.iter().position(|(one, ..)| one == handle).ok_or_else(missing)?;
                rules.remove(place);
            }
            Change::AddSet(set) => {
                self.maps.entry(set.name.to_string()).or_default();
            }
            Change::DeleteSet(name) => {
                self.maps.remove(&**name).ok_or_else(missing)?;
            }
            Change::FlushSet(name) => self.maps.get_mut(&**name).ok_or_else(missing)?.clear(),
            Change::AddElements { set, elements } => {
                for element in elements {
                    let Element::Verdict(key, Verdict::Goto(chain)) = element else {
                        return Err(refusal(Refusal::INVALID));
                    };
                    if !self.chains.contains_key(&**chain) {
                        return Err(missing());
                    }
                    let map = self.maps.get_mut(&**set).ok_or_else(missing)?;
                    if map
                        .insert(key.as_interface().unwrap_or_default().to_owned(), chain.to_string())
                        .is_some()
                    {
                        return Err(refusal(Refusal::EXISTS));
                    }
                }
            }
            Change::DeleteElements { set, elements } => {
                for element in elements {
                    let Element::Single(key) = element else { return Err(refusal(Refusal::INVALID)) };
                    let map = self.maps.get_mut(&**set).ok_or_else(missing)?;
                    map.remove(key.as_interface().unwrap_or_default()).ok_or_else(missing)?;
                }
            }
            Change::DeleteTable
            | Change::AddFlowTable { .. }
            | Change::DeleteFlowDevices { .. }
            | Change::DeleteFlowTable(_) => {
                return Err(refusal(Refusal::UNSUPPORTED));
            }
        }
        Ok(())
    }
}

impl Kernel for Fake {
    fn read(&mut self, _: &NftTable) -> Result<Snapshot> {
        let set = |name: &String| SetFound {
            name: name.clone(),
            key: Some(KeyType::InterfaceName),
            interval: false,
            map: true,
        };
        let key = |name: &String| netlink::netfilter::nft::Key::interface(name).expect("a name");
        let entry = |(interface, chain): (&String, &String)| {
            ElementFound::Known(Element::Verdict(key(interface), Verdict::Goto(chain.as_str().into())))
        };
        Ok(Snapshot {
            chains: self
                .tables
                .chains
                .iter()
                .map(|(name, (base, _))| ChainFound { name: name.clone(), base: base.clone() })
                .collect(),
            rules: self.tables.chains.keys().flat_map(|name| self.rules(name)).collect(),
            maps: self
                .tables
                .maps
                .iter()
                .map(|(name, entries)| (set(name), entries.iter().map(entry).collect()))
                .collect(),
            flow_tables: vec![],
        })
    }

    fn read_chain(&mut self, _: &NftTable, chain: &str) -> Result<Vec<RuleFound>> {
        Ok(self.rules(chain))
    }

    fn commit(&mut self, _: &NftTable, changes: &[Change]) -> Result<std::result::Result<(), CommitRefused>> {
        self.commits += 1;
        self.changes += changes.len();
        if let Some(code) = self.fail_with.pop() {
            return Ok(Err(CommitRefused { refused: vec![], whole: Some(refusal(code)) }));
        }
        let mut tables = self.tables.clone();
        let mut refused = Vec::new();
        for (index, change) in changes.iter().enumerate() {
            // Like the kernel, it continues in order to find all faults, and does nothing if there is one.
            if let Err(refusal) = tables.change(change, &mut self.next_handle) {
                refused.push((index, refusal));
            }
        }
        let marked = tables
            .chains
            .values()
            .flat_map(|(_, rules)| rules)
            .any(|(_, _, body)| sets_mark(body, BAD_AS_A_WHOLE));
        if !refused.is_empty() || marked {
            let whole = marked.then(|| refusal(22));
            return Ok(Err(CommitRefused { refused, whole }));
        }
        self.tables = tables;
        Ok(Ok(()))
    }
}

impl Fake {
    fn rules(&self, chain: &str) -> Vec<RuleFound> {
        let rules = self.tables.chains.get(chain).into_iter().flat_map(|(_, rules)| rules);
        rules
            .map(|(handle, comment, _)| RuleFound {
                chain: chain.to_owned(),
                handle: *handle,
                comment: Some(comment.clone()),
            })
            .collect()
    }
}

fn rule(action: Action) -> Rule {
    Rule { matches: vec![], action: Some(action), comments: vec![] }
}

fn hook(targets: impl IntoIterator<Item = ChainName>) -> KernelChain {
    let inserted = targets.into_iter().map(|target| rule(Action::Jump(target))).collect();
    KernelChain { name: "FORWARD", inserted, appended: vec![rule(Action::Accept)] }
}

fn driver() -> Driver<Fake> {
    Driver::new(Fake::default(), Family::Ip, Some(Duration::from_secs(100)))
}

fn apply(driver: &mut Driver<Fake>) -> bool {
    driver.apply(Instant::now()).expect("applied").wrote
}

/// The chains of the fake that are not base chains, with their numbers of rules.
fn sizes(driver: &mut Driver<Fake>) -> Vec<(String, usize)> {
    let chains = &driver.kernel().tables.chains;
    chains
        .iter()
        .filter(|(_, (base, _))| base.is_none())
        .map(|(name, (_, rules))| (name.clone(), rules.len()))
        .collect()
}

#[test]
fn one_transaction_at_first_and_then_only_changes() {
    let mut driver = driver();
    for index in 0..50 {
        let rules = (0..10).map(|mark| rule(Action::SetMark(mark))).collect();
        driver.update_chain(Table::Filter, Chain::new(format!("cali-pi-{index}"), rules));
    }
    driver.set_kernel_chain(Table::Filter, hook((0..50).map(|index| format!("cali-pi-{index}").into())));
    assert!(apply(&mut driver));
    assert_eq!((driver.kernel().commits, sizes(&mut driver).len()), (1, 50));
    assert!(!apply(&mut driver));
    let before = driver.kernel().changes;
    let mut rules: Vec<Rule> = (0..10).map(|mark| rule(Action::SetMark(mark))).collect();
    rules[9] = rule(Action::Drop);
    driver.update_chain(Table::Filter, Chain::new("cali-pi-7", rules.clone()));
    assert!(apply(&mut driver));
    assert_eq!(driver.kernel().changes - before, 3, "the table, one rule away, one rule new");
    // The same definition again is not a change.
    driver.update_chain(Table::Filter, Chain::new("cali-pi-7", rules));
    assert!(!apply(&mut driver));
    assert_eq!(driver.kernel().commits, 2);
}

#[test]
fn a_kept_chain_needs_no_reference() {
    let mut driver = driver();
    let kept = ChainName::from("cali-pi-kept");
    for name in ["cali-pi-kept", "cali-pi-unused"] {
        driver.update_chain(Table::Filter, Chain::new(name, vec![rule(Action::Drop)]));
    }
    driver.keep_chain(Table::Filter, &kept, true);
    apply(&mut driver);
    let only_kept = [("filter-cali-pi-kept".to_owned(), 1)];
    assert_eq!(sizes(&mut driver), only_kept);
    // A reference to it is added and removed again.
    driver.set_kernel_chain(Table::Filter, hook([kept.clone()]));
    apply(&mut driver);
    driver.set_kernel_chain(Table::Filter, hook([]));
    apply(&mut driver);
    assert_eq!(sizes(&mut driver), only_kept);
    driver.keep_chain(Table::Filter, &kept, false);
    apply(&mut driver);
    assert_eq!(sizes(&mut driver), []);
    driver.keep_chain(Table::Filter, &kept, true);
    apply(&mut driver);
    driver.remove_chain(Table::Filter, &kept);
    apply(&mut driver);
    assert_eq!((sizes(&mut driver), driver.refused()), (vec![], vec![]));
}

#[test]
fn base_chains_without_rules_are_left_out_on_request() {
    let base = |driver: &mut Driver<Fake>| -> Vec<String> {
        let chains = driver.kernel().tables.chains.iter();
        chains.filter(|(_, (base, _))| base.is_some()).map(|(name, _)| name.clone()).collect()
    };
    let mut all = driver();
    apply(&mut all);
    assert!(base(&mut all).len() > 10, "all of them, as Calico does");
    // The same table, from now on with the used base chains only.
    let kernel = std::mem::take(all.kernel());
    let mut driver = Driver::new(kernel, Family::Ip, None).with_only_used_hooks();
    driver.set_kernel_chain(Table::Filter, hook([]));
    apply(&mut driver);
    assert_eq!(base(&mut driver), ["filter-FORWARD"]);
    let mangle = |inserted| KernelChain { name: "POSTROUTING", inserted, appended: vec![] };
    driver.set_kernel_chain(Table::Mangle, mangle(vec![rule(Action::SetMark(1))]));
    apply(&mut driver);
    assert_eq!(base(&mut driver), ["filter-FORWARD", "mangle-POSTROUTING"]);
    driver.set_kernel_chain(Table::Mangle, mangle(vec![]));
    apply(&mut driver);
    assert_eq!((base(&mut driver), driver.refused()), (vec!["filter-FORWARD".to_owned()], vec![]));
}

#[test]
fn unnamed_faults_are_found_by_bisection() {
    let mut driver = driver();
    let bad = [3_usize, 20, 37];
    for index in 0..40 {
        let mark = if bad.contains(&index) { BAD_AS_A_WHOLE } else { 1 };
        driver.update_chain(
            Table::Filter,
            Chain::new(format!("cali-pi-{index}"), vec![rule(Action::SetMark(mark))]),
        );
    }
    driver.set_kernel_chain(Table::Filter, hook((0..40).map(|index| format!("cali-pi-{index}").into())));
    assert!(apply(&mut driver));
    let refused: Vec<String> = driver.refused().iter().map(|one| one.name.to_string()).collect();
    assert_eq!(refused, ["cali-pi-20", "cali-pi-3", "cali-pi-37"]);
    let drops = |rules: &[(u64, String, Vec<Expression>)]| {
        rules.iter().any(|(_, _, body)| body.contains(&Expression::Verdict(Verdict::Drop)))
    };
    for index in 0..40 {
        let (_, rules) = &driver.kernel().tables.chains[&format!("filter-cali-pi-{index}")];
        assert_eq!(drops(rules), bad.contains(&index), "{index}");
    }
    assert_eq!(driver.kernel().tables.chains["filter-FORWARD"].1.len(), 41);
    // It stays so without further attempts, until the chain is redefined.
    let commits = driver.kernel().commits;
    assert!(!apply(&mut driver));
    driver.update_chain(Table::Filter, Chain::new("cali-pi-3", vec![rule(Action::SetMark(2))]));
    assert!(apply(&mut driver));
    assert_eq!((driver.kernel().commits, driver.refused().len()), (commits + 1, 2));
}

#[test]
fn a_chain_that_cannot_be_created_closes_its_callers() {
    let mut driver = driver();
    driver.update_chain(Table::Filter, Chain::new("cali-unnameable", vec![]));
    let rules = vec![
        rule(Action::SetMark(1)),
        rule(Action::Jump("cali-unnameable".into())),
        rule(Action::SetMark(2)),
    ];
    driver.update_chain(Table::Filter, Chain::new("cali-fw-x", rules));
    driver.update_chain(Table::Filter, Chain::new("cali-fw-y", vec![rule(Action::SetMark(1))]));
    let entries = [
        ("cali1", "cali-fw-x"),
        ("cali2", "cali-fw-y"),
        ("cali3", "cali-unnameable"),
        ("a-name-of-sixteen", "cali-fw-y"),
    ];
    let entries = entries.iter().map(|(interface, chain)| ((*interface).into(), (*chain).into())).collect();
    driver.update_map(Table::Filter, VerdictMap { name: "cali-from".into(), entries });
    assert!(apply(&mut driver));
    assert_eq!(sizes(&mut driver), [("filter-cali-fw-x".to_owned(), 2), ("filter-cali-fw-y".to_owned(), 1)]);
    let map = driver.kernel().tables.maps["filter-cali-from"].clone();
    assert_eq!(map.keys().collect::<Vec<_>>(), ["cali1", "cali2"]);
    let told: Vec<String> = driver
        .refused()
        .iter()
        .map(|one| one.to_string().split(':').next().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(
        told,
        [
            "filter cali-from entry a-name-of-sixteen",
            "filter cali-from entry cali3",
            "filter cali-fw-x rule 2 `counter jump filter-cali-unnameable`",
            "filter cali-unnameable",
        ]
    );
    assert!(!apply(&mut driver));
}

#[test]
fn transient_failures_close_nothing() {
    let mut driver = driver();
    driver.update_chain(Table::Filter, Chain::new("cali-x", vec![rule(Action::Drop)]));
    driver.set_kernel_chain(Table::Filter, hook([ChainName::from("cali-x")]));
    driver.kernel().fail_with = vec![12];
    let error = driver.apply(Instant::now()).expect_err("no memory");
    assert!(matches!(error, ApplyError::Netfilter(Error::Refused { .. })), "{error}");
    assert_eq!(driver.refused(), []);
    assert!(apply(&mut driver), "the next time it is done");
    // One refusal because the table is not in the expected state: it is read again, and nothing is blamed.
    driver.kernel().tables.chains.clear();
    driver.update_chain(Table::Filter, Chain::new("cali-x", vec![rule(Action::Accept)]));
    assert!(apply(&mut driver));
    assert_eq!((driver.refused(), sizes(&mut driver)), (vec![], vec![("filter-cali-x".to_owned(), 1)]));
}

#[test]
fn refused_objects_are_retried_on_their_own_schedule() {
    let mut driver = driver();
    driver.update_chain(Table::Filter, Chain::new("cali-x", vec![rule(Action::SetMark(BAD))]));
    driver.set_kernel_chain(Table::Filter, hook([ChainName::from("cali-x")]));
    let start = Instant::now();
    // Other reads of the table, however many, do not postpone the retry.
    let mut due = start;
    for pause in [1, 2, 4] {
        let applied = driver.apply(due).expect("applied");
        assert_eq!((applied.again_in, driver.refused().len()), (Some(Duration::from_secs(pause)), 1));
        let commits = driver.kernel().commits;
        due += Duration::from_secs(pause);
        driver.invalidate();
        driver.apply(due - Duration::from_millis(1)).expect("applied");
        assert_eq!(driver.kernel().commits, commits);
    }
    let lists = driver.metrics().list_calls;
    driver.apply(start + Duration::from_secs(110)).expect("applied");
    assert!(driver.metrics().list_calls > lists, "a refresh reads the table");
}

#[derive(Clone, Debug)]
enum Step {
    Define(u8, Vec<u8>),
    Remove(u8),
    Hook(Vec<u8>),
    Entry(u8, Option<u8>),
    Damage(u8),
    Apply,
}

fn step() -> impl Strategy<Value = Step> {
    let chain = 0..6_u8;
    prop_oneof![
        4 => (chain.clone(), prop::collection::vec(0..12_u8, 0..5)).prop_map(|(name, rules)| Step::Define(name, rules)),
        1 => chain.clone().prop_map(Step::Remove),
        1 => prop::collection::vec(chain.clone(), 0..4).prop_map(Step::Hook),
        2 => (0..3_u8, prop::option::of(chain)).prop_map(|(interface, chain)| Step::Entry(interface, chain)),
        1 => (0..4_u8).prop_map(Step::Damage),
        3 => Just(Step::Apply),
    ]
}

fn name(index: u8) -> ChainName {
    format!("cali-{index}").into()
}

/// A rule of a random chain: marks, jumps to later chains (so that there are no circles), and some that are refused.
fn random_rule(chain: u8, kind: u8) -> Rule {
    match kind {
        0..=4 => rule(Action::SetMark(u32::from(kind))),
        5..=7 => rule(Action::Jump(name((chain + 1).max(kind)))),
        8 => rule(Action::SetMark(BAD)),
        9 => rule(Action::SetMark(BAD_AS_A_WHOLE)),
        _ => rule(Action::Accept),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    /// In whatever order changes and damage occur, the programmed state depends only on what is wanted now: chains
    /// without faults are complete, faulty ones drop, and nothing else is left.
    #[test]
    fn only_the_current_state_matters(steps in prop::collection::vec(step(), 1..40)) {
        let mut driver = driver();
        let mut chains: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let (mut hooks, mut entries) = (Vec::new(), BTreeMap::new());
        for step in steps.into_iter().chain([Step::Apply]) {
            match step {
                Step::Define(index, rules) => {
                    let body = rules.iter().map(|kind| random_rule(index, *kind)).collect();
                    driver.update_chain(Table::Filter, Chain::new(name(index), body));
                    chains.insert(index, rules);
                }
                Step::Remove(index) => {
                    driver.remove_chain(Table::Filter, &name(index));
                    chains.remove(&index);
                }
                Step::Hook(targets) => {
                    driver.set_kernel_chain(Table::Filter, hook(targets.iter().map(|index| name(*index))));
                    hooks = targets;
                }
                Step::Entry(interface, chain) => {
                    let key: InterfaceName = format!("cali{interface}").into();
                    driver.set_map_entry(Table::Filter, "cali-map", &key, chain.map(name).as_ref());
                    match chain { Some(chain) => entries.insert(key, chain), None => entries.remove(&key) };
                }
                Step::Damage(kind) => {
                    let tables = &mut driver.kernel().tables;
                    match kind {
                        0 => *tables = Tables::default(),
                        1 => if let Some((_, rules)) = tables.chains.values_mut().last() { rules.clear() },
                        2 => { tables.chains.insert("filter-cali-stranger".into(), (None, vec![(9999, "x".into(), vec![])])); }
                        _ => if let Some(map) = tables.maps.values_mut().next() { map.pop_first(); },
                    }
                    driver.invalidate();
                }
                Step::Apply => {
                    let outcome = driver.apply(Instant::now());
                    prop_assert!(outcome.is_ok(), "{:?}", outcome);
                    check(&mut driver, &chains, &hooks, &entries)?;
                }
            }
        }
    }
}

/// Compares the fake with the expected content, computed the simple way.
fn check(
    driver: &mut Driver<Fake>,
    chains: &BTreeMap<u8, Vec<u8>>,
    hooks: &[u8],
    entries: &BTreeMap<InterfaceName, u8>,
) -> std::result::Result<(), TestCaseError> {
    let mut open: Vec<u8> = hooks.iter().chain(entries.values()).copied().collect();
    let mut wanted = BTreeSet::new();
    while let Some(index) = open.pop() {
        if wanted.insert(index) {
            let rules = chains.get(&index).into_iter().flatten();
            open.extend(rules.filter(|kind| (5..=7).contains(*kind)).map(|kind| (index + 1).max(*kind)));
        }
    }
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut at_fault = BTreeSet::new();
    for index in &wanted {
        let full = chain_name(Table::Filter, &name(*index));
        let Some(kinds) = chains.get(index) else {
            at_fault.insert(name(*index));
            continue;
        };
        if kinds.iter().any(|kind| (8..=9).contains(kind)) {
            at_fault.insert(name(*index));
            continue;
        }
        let rules: Vec<Rule> = kinds.iter().map(|kind| random_rule(*index, *kind)).collect();
        let hashes = hashes(Table::Filter, Family::Ip, &full, &rules);
        expected.insert(full, rules.iter().zip(hashes).map(|(rule, hash)| comment(rule, hash)).collect());
    }
    let refused: BTreeSet<ChainName> = driver.refused().into_iter().map(|one| one.name.into()).collect();
    prop_assert_eq!(&refused, &at_fault);
    let tables = &driver.kernel().tables;
    let ours =
        |(name, (base, rules)): (&String, &FakeChain)| base.is_none().then(|| (name.clone(), rules.clone()));
    for (chain, rules) in tables.chains.iter().filter_map(ours) {
        match expected.remove(&chain) {
            Some(comments) => {
                prop_assert_eq!(
                    rules.iter().map(|(_, comment, _)| comment.clone()).collect::<Vec<_>>(),
                    comments
                );
            }
            None => {
                let is_closed = at_fault.iter().any(|name| chain_name(Table::Filter, name) == chain);
                let last =
                    rules.last().map(|(_, _, body)| body.contains(&Expression::Verdict(Verdict::Drop)));
                prop_assert_eq!((is_closed, last), (true, Some(true)), "{}", chain);
            }
        }
    }
    prop_assert!(expected.is_empty(), "missing: {:?}", expected);
    let map: BTreeMap<String, String> = entries
        .iter()
        .map(|(interface, chain)| (interface.to_string(), chain_name(Table::Filter, &name(*chain))))
        .collect();
    prop_assert_eq!(tables.maps.get("filter-cali-map").cloned().unwrap_or_default(), map);
    let forward = &tables.chains["filter-FORWARD"].1;
    prop_assert_eq!(forward.len(), if hooks.is_empty() && forward.is_empty() { 0 } else { hooks.len() + 1 });
    Ok(())
}

#[test]
fn a_condition_that_only_a_map_decides_needs_its_map() {
    let mut driver = driver();
    let side = rules::tree::Side::In;
    let vmap = Rule {
        matches: vec![Match::InterfaceMap { side, map: "cali-from".into() }],
        action: None,
        comments: vec![],
    };
    driver.update_chain(Table::Filter, Chain::new("cali-dispatch", vec![vmap]));
    driver.set_kernel_chain(Table::Filter, hook([ChainName::from("cali-dispatch")]));
    assert!(apply(&mut driver));
    assert_eq!(driver.refused()[0].name, "cali-dispatch".into());
    driver.update_map(Table::Filter, VerdictMap { name: "cali-from".into(), entries: BTreeMap::new() });
    let vmap = Rule {
        matches: vec![Match::InterfaceMap { side, map: "cali-from".into() }],
        action: None,
        comments: vec!["x".into()],
    };
    driver.update_chain(Table::Filter, Chain::new("cali-dispatch", vec![vmap]));
    assert!(apply(&mut driver));
    assert_eq!(driver.refused(), []);
}
