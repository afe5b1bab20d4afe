//! The driver against programs built from maps that refuse what the real ones refuse, and some things more.

use super::{Backend, CommandFailed, Commands, Driver, Portions, Settings};
use crate::driver::RuleDriver;
use api::ChainInsert;
use proptest::prelude::*;
use rules::iptables::{appended_hashes, hashes, render_append};
use rules::tree::ChainName;
use rules::tree::{Action, Chain, IpVersion, KernelChain, Rule, Table};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::{Duration, Instant};

/// A mark that is refused, with the number of the line.
const BAD: u32 = 0xbad;
/// A mark for which the whole transaction is refused.
const BAD_AS_A_WHOLE: u32 = 0xbad2;

pub(crate) type Chains = BTreeMap<String, Vec<String>>;

#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) tables: BTreeMap<&'static str, Chains>,
    saves: usize,
    restores: usize,
    /// The number of chains of each table after each transaction.
    transactions: Vec<(&'static str, usize)>,
    /// Errors of the next restores.
    fail_with: Vec<&'static str>,
}

impl Default for Fake {
    fn default() -> Self {
        let chains = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), vec![])).collect();
        let all = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];
        let tables = Table::ALL.into_iter().map(|table| (table.as_str(), chains(&all))).collect();
        Self { tables, saves: 0, restores: 0, transactions: vec![], fail_with: vec![] }
    }
}

fn failed(reason: &str) -> CommandFailed {
    CommandFailed { program: "iptables-restore".into(), reason: reason.to_owned(), code: Some(1) }
}

fn target(rule: &str) -> Option<&str> {
    let words: Vec<&str> = rule.split(' ').collect();
    let place = words.iter().position(|word| ["-j", "--jump", "-g", "--goto"].contains(word))?;
    words.get(place + 1).copied().filter(|target| target.starts_with("cali-"))
}

/// One line within a transaction.
fn change(chains: &mut Chains, line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    let missing = |name: &str| format!("no chain {name}");
    if let Some(rest) = line.strip_prefix(':') {
        chains.insert(rest.split(' ').next().unwrap_or_default().to_owned(), vec![]);
        return Ok(());
    }
    let name = words[1];
    let rule = words[2..].join(" ");
    let check = |chains: &Chains, rule: &str| {
        if target(rule).is_some_and(|target| !chains.contains_key(target)) {
            return Err(format!("couldn't load target of `{rule}'"));
        }
        if rule.contains(&format!("--set-mark {BAD:#x}/")) { Err("bad mark".to_owned()) } else { Ok(()) }
    };
    match words[0] {
        "-A" => {
            check(chains, &rule)?;
            chains.get_mut(name).ok_or_else(|| missing(name))?.push(rule);
        }
        "-I" => {
            check(chains, &rule)?;
            chains.get_mut(name).ok_or_else(|| missing(name))?.insert(0, rule);
        }
        "-R" => {
            let place: usize = words[2].parse().map_err(|_| "no place".to_owned())?;
            let rule = words[3..].join(" ");
            check(chains, &rule)?;
            let rules = chains.get_mut(name).ok_or_else(|| missing(name))?;
            *rules.get_mut(place - 1).ok_or("no such place")? = rule;
        }
        "-D" => {
            let rules = chains.get_mut(name).ok_or_else(|| missing(name))?;
            let place = words[2].parse::<usize>().ok().map(|place| place - 1);
            let place = place.or_else(|| rules.iter().position(|one| *one == rule)).ok_or("no such rule")?;
            if place >= rules.len() {
                return Err("no such place".to_owned());
            }
            rules.remove(place);
        }
        "--delete-chain" => {
            let referred = chains.values().flatten().any(|rule| target(rule) == Some(name));
            if referred || chains.get(name).is_none_or(|rules| !rules.is_empty()) {
                return Err(format!("chain {name} is in use"));
            }
            chains.remove(name);
        }
        other => return Err(format!("what is {other}?")),
    }
    Ok(())
}

impl Commands for Fake {
    fn save(&mut self, table: Table) -> Result<String, CommandFailed> {
        self.saves += 1;
        let chains = &self.tables[table.as_str()];
        let mut printed = format!("*{table}\n");
        for name in chains.keys() {
            let _ = writeln!(printed, ":{name} - [0:0]");
        }
        for (name, rule) in chains.iter().flat_map(|(name, rules)| rules.iter().map(move |rule| (name, rule)))
        {
            let _ = writeln!(printed, "-A {name} {rule}");
        }
        Ok(printed + "COMMIT\n")
    }

    fn restore(&mut self, pieces: &mut dyn Iterator<Item = String>) -> Result<(), CommandFailed> {
        let input: String = pieces.collect();
        if input.is_empty() {
            return Ok(());
        }
        self.restores += 1;
        if let Some(reason) = self.fail_with.pop() {
            return Err(failed(reason));
        }
        let mut open: Option<(&'static str, Chains)> = None;
        for (index, line) in input.lines().enumerate() {
            if let Some(name) = line.strip_prefix('*') {
                let (name, chains) = self.tables.get_key_value(name).expect("a table");
                open = Some((name, chains.clone()));
            } else if line == "COMMIT" {
                let (name, chains) = open.take().expect("a transaction");
                let bad = format!("--set-mark {BAD_AS_A_WHOLE:#x}/");
                if chains.values().flatten().any(|rule| rule.contains(&bad)) {
                    return Err(failed(&format!("iptables-restore: line {} failed", index + 1)));
                }
                self.transactions.push((name, chains.len()));
                self.tables.insert(name, chains);
            } else {
                let (_, chains) = open.as_mut().expect("a transaction");
                change(chains, line)
                    .map_err(|reason| failed(&format!("{reason}; Error occurred at line: {}", index + 1)))?;
            }
        }
        Ok(())
    }
}

fn settings(backend: Backend, insert_mode: ChainInsert) -> Settings {
    Settings {
        backend,
        insert_mode,
        refresh: Some(Duration::from_secs(180)),
        post_write_check: Duration::from_secs(5),
        // A transaction holds only a few chains, and there are no other programs to wait for.
        portions: Portions { lines: 4, pause: Duration::ZERO },
    }
}

fn driver(backend: Backend) -> Driver<Fake> {
    Driver::new(Fake::default(), IpVersion::V4, &settings(backend, ChainInsert::Insert))
}

fn rule(action: Action) -> Rule {
    Rule { matches: vec![], action: Some(action), comments: vec![] }
}

fn hook(targets: impl IntoIterator<Item = ChainName>) -> KernelChain {
    let inserted = targets.into_iter().map(|target| rule(Action::Jump(target))).collect();
    KernelChain { name: "FORWARD", inserted, appended: vec![rule(Action::Accept)] }
}

fn apply(driver: &mut Driver<Fake>) -> bool {
    driver.apply(Instant::now()).expect("applied").wrote
}

#[test]
fn a_second_apply_reads_and_writes_nothing() {
    for backend in [Backend::Nft, Backend::Legacy] {
        let mut driver = driver(backend);
        driver.update_chain(Table::Filter, Chain::new("cali-x", vec![rule(Action::Drop)]));
        driver.update_chain(Table::Filter, Chain::new("cali-unused", vec![rule(Action::Drop)]));
        driver.set_kernel_chain(Table::Filter, hook(["cali-x".into()]));
        assert!(apply(&mut driver));
        assert_eq!(
            (driver.commands().saves, driver.commands().restores),
            (4, 1),
            "only one table had to be written"
        );
        assert!(!driver.commands().tables["filter"].contains_key("cali-unused"));
        assert!(!apply(&mut driver));
        assert_eq!((driver.commands().saves, driver.commands().restores), (4, 1));
        driver.update_chain(
            Table::Filter,
            Chain::new("cali-x", vec![rule(Action::Drop), rule(Action::Accept)]),
        );
        assert!(apply(&mut driver));
        assert_eq!((driver.commands().saves, driver.commands().restores), (4, 2));
        let lines = driver.metrics(Table::Filter).lines;
        // In place where that is safe; the whole chain where the helper miscounts.
        assert_eq!(lines, if backend == Backend::Legacy { 5 } else { 7 });
    }
}

#[test]
fn a_kept_chain_needs_no_reference() {
    for backend in [Backend::Nft, Backend::Legacy] {
        let mut driver = driver(backend);
        let kept = ChainName::from("cali-pi-kept");
        for name in ["cali-pi-kept", "cali-pi-unused"] {
            driver.update_chain(Table::Filter, Chain::new(name, vec![rule(Action::Drop)]));
        }
        driver.keep_chain(Table::Filter, &kept, true);
        assert!(apply(&mut driver));
        let ours = |driver: &mut Driver<Fake>| -> Vec<String> {
            let chains = driver.commands().tables["filter"].keys();
            chains.filter(|name| name.starts_with("cali-")).cloned().collect()
        };
        assert_eq!(ours(&mut driver), ["cali-pi-kept"]);
        // A reference to it is added and removed again.
        driver.set_kernel_chain(Table::Filter, hook([kept.clone()]));
        apply(&mut driver);
        driver.set_kernel_chain(Table::Filter, hook([]));
        apply(&mut driver);
        assert_eq!(ours(&mut driver), ["cali-pi-kept"]);
        driver.remove_chain(Table::Filter, &kept);
        apply(&mut driver);
        assert_eq!((ours(&mut driver), driver.refused()), (vec![], vec![]));
    }
}

#[test]
fn many_new_chains_are_created_before_they_are_referenced() {
    let set_up = |driver: &mut Driver<Fake>| {
        for index in 0..8 {
            let body = vec![rule(Action::SetMark(index + 1))];
            driver.update_chain(Table::Filter, Chain::new(format!("cali-pi-{index}"), body));
        }
        let body = (0..8).map(|index| rule(Action::Jump(format!("cali-pi-{index}").into())));
        driver.update_chain(Table::Filter, Chain::new("cali-all", body.collect()));
        driver.set_kernel_chain(Table::Filter, hook(["cali-all".into()]));
    };
    let mut one = driver(Backend::Nft);
    set_up(&mut one);
    assert!(apply(&mut one));
    let there = |driver: &mut Driver<Fake>| {
        driver.commands().transactions.iter().map(|(_, chains)| chains - 5).collect::<Vec<_>>()
    };
    assert_eq!((one.commands().restores, there(&mut one)), (1, vec![2, 4, 6, 8, 9, 9]));
    assert_eq!(one.commands().tables["filter"]["FORWARD"].len(), 2);

    // The other variant rewrites the whole table each time.
    let mut other = driver(Backend::Legacy);
    set_up(&mut other);
    assert!(apply(&mut other));
    assert_eq!(there(&mut other), [9]);
    assert_eq!(one.commands().tables, other.commands().tables);

    // An existing chain changes together with the chains that refer to it.
    let body = vec![rule(Action::Drop)];
    one.update_chain(Table::Filter, Chain::new("cali-pi-1", body));
    one.update_chain(Table::Filter, Chain::new("cali-new", vec![rule(Action::Accept)]));
    one.set_kernel_chain(Table::Filter, hook(["cali-all".into(), "cali-new".into()]));
    one.commands().transactions.clear();
    assert!(apply(&mut one));
    assert_eq!(there(&mut one), [10, 10]);
}

#[test]
fn faults_without_a_line_number_are_found_by_bisection() {
    let mut driver = driver(Backend::Nft);
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
    for index in 0..40 {
        let rules = &driver.commands().tables["filter"][&format!("cali-pi-{index}")];
        assert_eq!(rules[0].ends_with("--jump DROP"), bad.contains(&index), "{index}");
    }
    assert_eq!(driver.commands().tables["filter"]["FORWARD"].len(), 41);
}

#[test]
fn only_the_faulty_rules_of_a_chain_are_closed() {
    let mut driver = driver(Backend::Nft);
    let marks = |bad: &[u32]| {
        (0..20).map(|index| if bad.contains(&index) { BAD_AS_A_WHOLE } else { index + 1 }).collect::<Vec<_>>()
    };
    let rules = marks(&[7, 13]).into_iter().map(|mark| rule(Action::SetMark(mark)));
    driver.update_chain(Table::Filter, Chain::new("cali-pi-x", rules.collect()));
    driver.set_kernel_chain(Table::Filter, hook(["cali-pi-x".into()]));
    assert!(apply(&mut driver));
    // Rules before the first refused one are kept, and from there on everything is dropped.
    let there = &driver.commands().tables["filter"]["cali-pi-x"];
    assert_eq!(there.len(), 8, "{there:?}");
    assert!(there[6].contains("--set-mark 0x7/") && there[7].ends_with("--jump DROP"), "{there:?}");
    let refused = driver.refused();
    assert!(
        matches!(refused.as_slice(), [one] if matches!(one.part, Some(crate::Part::Rule(7, _)))),
        "{refused:?}"
    );
}

#[test]
fn a_transient_failure_closes_nothing() {
    let mut driver = driver(Backend::Legacy);
    driver.update_chain(Table::Filter, Chain::new("cali-x", vec![rule(Action::Drop)]));
    driver.set_kernel_chain(Table::Filter, hook(["cali-x".into()]));
    driver.commands().fail_with = vec!["line 3 failed", "line 4 failed"];
    assert!(apply(&mut driver));
    assert_eq!(driver.refused(), []);
    assert_eq!(driver.commands().restores, 3);
}

/// A referenced chain is not touched, however long the program fails; in the end everything is as desired.
#[test]
fn a_lasting_transient_failure_changes_and_closes_nothing() {
    for backend in [Backend::Nft, Backend::Legacy] {
        for failures in [1, 2, 5, 50] {
            let mut driver = driver(backend);
            driver.update_chain(Table::Filter, Chain::new("cali-pi-deny", vec![rule(Action::Drop)]));
            driver.set_kernel_chain(Table::Filter, hook(["cali-pi-deny".into()]));
            assert!(apply(&mut driver));
            let before = driver.commands().tables.clone();
            driver.update_chain(
                Table::Filter,
                Chain::new("cali-pi-deny", vec![rule(Action::SetMark(1)), rule(Action::Drop)]),
            );
            driver.commands().fail_with = vec!["Memory allocation problem"; failures];
            for _ in 0..failures {
                let error = driver.apply(Instant::now()).expect_err("it fails");
                assert!(error.to_string().contains("Memory allocation"), "{error}");
                assert_eq!((driver.refused(), &driver.commands().tables), (vec![], &before));
            }
            assert!(apply(&mut driver));
            assert_eq!(driver.commands().tables["filter"]["cali-pi-deny"].len(), 2);
        }
    }
}

/// Nor does a failure that looks like a refused rule leave any chain empty, and the closed chains open again by
/// themselves.
#[test]
fn an_odd_failure_leaves_nothing_open_and_recovers() {
    for backend in [Backend::Nft, Backend::Legacy] {
        for failures in 0..25 {
            let mut driver = driver(backend);
            let body = |mark| vec![rule(Action::SetMark(mark)), rule(Action::Drop)];
            let names = ["cali-pi-a", "cali-pi-b", "cali-pi-c"];
            for name in names {
                driver.update_chain(Table::Filter, Chain::new(name, body(1)));
            }
            driver.set_kernel_chain(Table::Filter, hook(names.map(ChainName::from)));
            assert!(apply(&mut driver));
            for name in names {
                driver.update_chain(Table::Filter, Chain::new(name, body(2)));
            }
            driver.commands().fail_with = vec!["something odd"; failures];
            let mut now = Instant::now();
            for _ in 0..20 {
                // The runner calls again after a failure, and when requested.
                let pause = driver.apply(now).ok().and_then(|applied| applied.again_in);
                now += pause.unwrap_or(Duration::from_millis(100));
                for name in names {
                    let rules = &driver.commands().tables["filter"][name];
                    assert!(
                        rules.last().is_some_and(|last| last.ends_with("--jump DROP")),
                        "{name}: {rules:?}"
                    );
                }
            }
            assert_eq!(driver.refused(), [], "after {failures} failures");
            for name in names {
                assert!(driver.commands().tables["filter"][name][0].contains("--set-mark 0x2/"));
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Define(u8, Vec<u8>),
    Remove(u8),
    Hook(Vec<u8>),
    Damage(u8),
    Apply,
}

fn step() -> impl Strategy<Value = Step> {
    let chain = 0..6_u8;
    prop_oneof![
        4 => (chain.clone(), prop::collection::vec(0..12_u8, 0..5)).prop_map(|(name, rules)| Step::Define(name, rules)),
        1 => chain.clone().prop_map(Step::Remove),
        2 => prop::collection::vec(chain, 0..4).prop_map(Step::Hook),
        1 => (0..5_u8).prop_map(Step::Damage),
        3 => Just(Step::Apply),
    ]
}

fn name(index: u8) -> ChainName {
    format!("cali-{index}").into()
}

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
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]
    /// In whatever order changes and damage occur, on either variant and in either mode: the programmed state depends
    /// only on what is wanted now, and foreign rules remain.
    #[test]
    fn only_the_current_state_matters(
        steps in prop::collection::vec(step(), 1..25),
        legacy in any::<bool>(),
        append in any::<bool>(),
    ) {
        let backend = if legacy { Backend::Legacy } else { Backend::Nft };
        let mode = if append { ChainInsert::Append } else { ChainInsert::Insert };
        let mut driver = Driver::new(Fake::default(), IpVersion::V4, &settings(backend, mode));
        driver.commands().tables.get_mut("filter").expect("filter").get_mut("FORWARD").expect("a chain").push("-s 192.0.2.1 -j ACCEPT".into());
        let mut chains: BTreeMap<u8, Vec<u8>> = BTreeMap::new();
        let mut hooks: Option<Vec<u8>> = None;
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
                    hooks = Some(targets);
                }
                Step::Damage(kind) => {
                    let filter = driver.commands().tables.get_mut("filter").expect("filter");
                    match kind {
                        0 => filter.retain(|name, rules| { rules.retain(|rule| rule.contains("192.0.2.1")); !name.starts_with("cali-") }),
                        1 => if let Some(rules) = filter.values_mut().rfind(|rules| !rules.is_empty()) { rules.retain(|rule| rule.contains("192.0.2.1")) },
                        2 => { filter.insert("cali-stranger".into(), vec!["-j DROP".into()]); }
                        3 => filter.get_mut("FORWARD").expect("a chain").rotate_left(1),
                        _ => filter.get_mut("INPUT").expect("a chain").push("-j cali-old".into()),
                    }
                    driver.invalidate();
                }
                Step::Apply => {
                    let outcome = driver.apply(Instant::now());
                    prop_assert!(outcome.is_ok(), "{:?}", outcome);
                    check(&mut driver, &chains, hooks.as_deref(), mode)?;
                }
            }
        }
    }
}

fn check(
    driver: &mut Driver<Fake>,
    chains: &BTreeMap<u8, Vec<u8>>,
    hooks: Option<&[u8]>,
    mode: ChainInsert,
) -> Result<(), TestCaseError> {
    let mut open: Vec<u8> = hooks.into_iter().flatten().copied().collect();
    let mut wanted = BTreeSet::new();
    while let Some(index) = open.pop() {
        if wanted.insert(index) {
            let rules = chains.get(&index).into_iter().flatten();
            open.extend(rules.filter(|kind| (5..=7).contains(*kind)).map(|kind| (index + 1).max(*kind)));
        }
    }
    let refused: BTreeSet<ChainName> = driver.refused().into_iter().map(|one| one.name.into()).collect();
    let filter = driver.commands().tables["filter"].clone();
    let text = |chain: &str, rule: &Rule, hash| {
        render_append(chain, rule, hash)
            .split_once(&format!("-A {chain} "))
            .map_or(String::new(), |(_, rest)| rest.to_owned())
    };
    let mut at_fault = BTreeSet::new();
    for index in &wanted {
        let chain = name(*index);
        let found = filter.get(&*chain);
        let kinds = chains.get(index).filter(|kinds| !kinds.iter().any(|kind| (8..=9).contains(kind)));
        match kinds {
            Some(kinds) => {
                let rules: Vec<Rule> = kinds.iter().map(|kind| random_rule(*index, *kind)).collect();
                let expected: Vec<String> = rules
                    .iter()
                    .zip(hashes(&chain, &rules))
                    .map(|(rule, hash)| text(&chain, rule, hash))
                    .collect();
                prop_assert_eq!(found, Some(&expected));
            }
            None => {
                at_fault.insert(chain);
                prop_assert!(
                    found.and_then(|rules| rules.last()).is_some_and(|rule| rule.ends_with("--jump DROP")),
                    "{:?}",
                    found
                );
            }
        }
    }
    prop_assert_eq!(refused, at_fault);
    let ours: Vec<&String> = filter.keys().filter(|name| name.starts_with("cali-")).collect();
    prop_assert_eq!(ours.len(), wanted.len(), "{:?}", ours);
    prop_assert!(filter["INPUT"].is_empty());
    let mut expected = vec![];
    if let Some(hooks) = hooks {
        let hook = hook(hooks.iter().map(|index| name(*index)));
        expected = hook
            .inserted
            .iter()
            .zip(hashes("FORWARD", &hook.inserted))
            .map(|(rule, hash)| text("FORWARD", rule, hash))
            .collect();
        let end = hook
            .appended
            .iter()
            .zip(appended_hashes("FORWARD", &hook.appended))
            .map(|(rule, hash)| text("FORWARD", rule, hash));
        let foreign = if mode == ChainInsert::Insert { expected.len() } else { 0 };
        expected.insert(foreign, "-s 192.0.2.1 -j ACCEPT".to_owned());
        expected.extend(end);
    } else {
        expected.push("-s 192.0.2.1 -j ACCEPT".to_owned());
    }
    prop_assert_eq!(&filter["FORWARD"], &expected);
    Ok(())
}
