//! The nftables driver on a real kernel: foreign changes, refusals, large tables, and death in the middle of a write.

use crate::host::Host;
use crate::takeover::{nft_driver, nft_sets, want_sets, want_shop};
use messages::InterfaceName;
use netfilter::ipsets::IpSetDriver;
use netfilter::nftables::Driver;
use netfilter::{Part, RuleDriver};
use netlink::netfilter::nft::{self, Client};
use netlink::netfilter::watch::{LaterWatch, Watch};
use rules::Backend;
use rules::nftables::Family;
use rules::tree::{Action, Chain, ChainName, End, KernelChain, Match, Rule, Table, VerdictMap};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

fn rule(action: Action) -> Rule {
    Rule { matches: vec![], action: Some(action), comments: vec![] }
}

fn hook(targets: &[&str]) -> KernelChain {
    let inserted = targets.iter().map(|target| rule(Action::Jump((*target).into()))).collect();
    KernelChain { name: "FORWARD", inserted, appended: vec![] }
}

fn with_set(name: &str, action: Action) -> Rule {
    let matches = vec![Match::IpSet { end: End::Source, name: name.into(), negated: false }];
    Rule { matches, action: Some(action), comments: vec![] }
}

fn apply(driver: &mut Driver<Client>) -> bool {
    driver.apply(Instant::now()).expect("applied").wrote
}

#[test]
fn foreign_damage_is_seen_and_repaired() {
    let host = Host::new();
    let (mut watch, mut sets, mut driver) =
        host.run(|| (Watch::open().expect("a socket"), nft_sets(), nft_driver(Family::Ip)));
    want_sets(&mut sets);
    want_shop(&mut driver, Backend::Nftables);
    sets.apply_updates().expect("applied");
    apply(&mut driver);
    let good = host.ruleset();
    let own = [driver.kernel().port(), sets.kernel().port()];
    assert!(watch.look(&own).expect("looked").is_empty(), "our own changes are not news");
    let table = driver.table().clone();
    for damage in [
        "nft flush chain ip calico filter-cali-FORWARD",
        "nft delete element ip calico filter-cali-from-wl-dispatch '{ \"cali00000000001\" }'",
        "nft add rule ip calico filter-cali-INPUT counter accept",
        "nft insert rule ip calico filter-FORWARD counter accept",
        "nft delete element ip calico cali40this-host '{ 10.65.0.1 }'",
        "nft delete table ip calico",
        "nft add chain ip calico filter-cali-left-over; nft add rule ip calico filter-cali-left-over drop",
        "nft add element ip calico filter-cali-to-wl-dispatch '{ \"califfffffffff\" : drop }'",
        "nft flush ruleset",
    ] {
        host.shell(damage);
        let seen = watch.wait(&own, Some(Duration::from_secs(5))).expect("looked");
        assert!(seen.concerns(&table), "`{damage}` is seen");
        sets.invalidate();
        driver.invalidate();
        sets.apply_updates().expect("applied");
        apply(&mut driver);
        sets.apply_deletions().expect("applied");
        assert_eq!(host.ruleset(), good, "after `{damage}`");
        assert_eq!(driver.refused(), []);
        let _ = watch.look(&own).expect("looked");
    }
    // Other tables are ignored.
    host.shell("nft add table ip somebody");
    assert!(!watch.wait(&own, Some(Duration::from_secs(5))).expect("looked").concerns(&table));
}

#[test]
fn a_late_listener_knows_whether_others_made_changes() {
    for (damage, expected) in [("true", false), ("nft add table ip somebody", true)] {
        let host = Host::new();
        let (later, mut sets, mut driver) =
            host.run(|| (LaterWatch::open().expect("a socket"), nft_sets(), nft_driver(Family::Ip)));
        want_sets(&mut sets);
        want_shop(&mut driver, Backend::Nftables);
        sets.apply_updates().expect("applied");
        apply(&mut driver);
        host.shell(damage);
        let own = driver.kernel().commits().load(Ordering::Relaxed)
            + sets.kernel().commits().load(Ordering::Relaxed);
        assert!(own >= 2, "{own}");
        let (mut watch, mut transactions, others) = later.listen(own).expect("listening");
        assert_eq!(others, expected, "`{damage}`");
        assert!(!transactions.others(own).expect("counted"), "only what follows is counted");
        assert!(watch.look(&[]).expect("looked").is_empty(), "only later changes are reported");
        host.shell("nft flush chain ip calico filter-cali-FORWARD");
        let seen = watch.wait(&[], Some(Duration::from_secs(5))).expect("looked");
        assert!(seen.concerns(driver.table()));
        assert!(transactions.others(own).expect("counted"));
    }
}

#[test]
fn a_refused_rule_does_not_stop_the_rest() {
    let host = Host::new();
    let mut driver = host.run(|| nft_driver(Family::Ip));
    let bad = Chain::new(
        "cali-pi-bad",
        vec![
            rule(Action::ClearMark(4)),
            with_set("cali40s:missing", Action::SetMark(1)),
            rule(Action::SetMark(2)),
        ],
    );
    let logs = Chain::new(
        "cali-pi-logs",
        vec![with_set("cali40s:missing", Action::Log { prefix: "x".into() }), rule(Action::SetMark(2))],
    );
    let good = Chain::new("cali-pi-good", vec![rule(Action::SetMark(1))]);
    for chain in [bad.clone(), good.clone(), logs] {
        driver.update_chain(Table::Filter, chain);
    }
    driver.set_kernel_chain(
        Table::Filter,
        hook(&["cali-pi-bad", "cali-pi-good", "cali-pi-logs", "cali-undefined"]),
    );
    assert!(apply(&mut driver));
    let listed = |name: &str| host.shell(&format!("nft -s list chain ip calico filter-{name}"));
    let bad_now = listed("cali-pi-bad");
    assert!(
        bad_now.contains("0xfffffffb")
            && bad_now.contains("counter drop comment")
            && !bad_now.contains("0x00000002"),
        "{bad_now}"
    );
    assert!(listed("cali-pi-good").contains("0x00000001"));
    let logs_now = listed("cali-pi-logs");
    assert!(logs_now.contains("0x00000002") && !logs_now.contains("drop"), "{logs_now}");
    assert!(listed("cali-undefined").contains("drop"));
    let refused = driver.refused();
    let told: Vec<(Option<usize>, &str)> = refused
        .iter()
        .map(|one| {
            (
                one.part.as_ref().map(|part| if let Part::Rule(index, _) = part { *index } else { 99 }),
                &*one.name,
            )
        })
        .collect();
    assert_eq!(told, [(Some(1), "cali-pi-bad"), (Some(0), "cali-pi-logs"), (None, "cali-undefined")]);
    assert!(refused[0].to_string().contains("ip saddr @cali40s-missing"), "{}", refused[0]);
    assert!(!apply(&mut driver), "nothing is retried without a reason");

    // After a new definition the rule is retried.
    driver.update_chain(Table::Filter, Chain::new("cali-pi-bad", vec![rule(Action::SetMark(2))]));
    assert!(apply(&mut driver));
    assert!(!listed("cali-pi-bad").contains("drop"));
    // It is also retried when the missing set appears, at the next refresh.
    host.shell("nft add set ip calico cali40s-missing '{ type ipv4_addr; flags interval; }'");
    driver.update_chain(Table::Filter, bad);
    assert!(apply(&mut driver));
    assert!(listed("cali-pi-bad").contains("@cali40s-missing"));
    let later = Instant::now() + Duration::from_secs(181);
    assert!(driver.apply(later).expect("applied").wrote);
    assert!(listed("cali-pi-logs").contains("log prefix"));
    assert_eq!(driver.refused().len(), 1, "the undefined chain");
}

/// The kernel detects circles in the table as a whole, and may name any rule or none.
#[test]
fn a_circle_is_closed_where_it_closes() {
    let host = Host::new();
    let mut driver = host.run(|| nft_driver(Family::Ip));
    let name = |index: usize| format!("cali-pi-{index:03}");
    for index in 0..40 {
        let mut rules = vec![rule(Action::SetMark(1))];
        if index == 17 || index == 23 {
            rules.push(rule(Action::Jump(name(40 - index).into())));
        }
        driver.update_chain(Table::Filter, Chain::new(name(index), rules));
    }
    let names: Vec<String> = (0..40).map(name).collect();
    driver.set_kernel_chain(Table::Filter, hook(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    assert!(apply(&mut driver));
    let refused = driver.refused();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(["cali-pi-017", "cali-pi-023"].contains(&&*refused[0].name), "{refused:?}");
    let ruleset = host.ruleset();
    for index in 0..40 {
        let rules = &ruleset.rules[&format!("ip calico filter-{}", name(index))];
        let is_closed = rules.iter().any(|(_, body)| body.to_string().contains("drop"));
        assert_eq!(is_closed, name(index) == *refused[0].name, "{}", name(index));
    }
    assert_eq!(ruleset.rules["ip calico filter-FORWARD"].len(), 40);
}

#[test]
fn thousands_of_rules_and_small_changes() {
    let host = Host::new();
    let mut driver = host.run(|| nft_driver(Family::Ip));
    let chain = |index: u32, first: u32| {
        let rules = (0..20).map(|bit| rule(Action::SetMark(first + bit))).collect();
        Chain::new(format!("cali-pi-{index}"), rules)
    };
    let name = |index: u32| ChainName::from(format!("cali-fw-{index}"));
    let mut entries = std::collections::BTreeMap::new();
    for index in 0..1000 {
        driver.update_chain(Table::Filter, chain(index, 1));
        let jump = rule(Action::Jump(format!("cali-pi-{index}").into()));
        driver.update_chain(Table::Filter, Chain::new(name(index), vec![jump]));
        entries.insert(InterfaceName::from(format!("cali{index}")), name(index));
    }
    driver.update_map(Table::Filter, VerdictMap { name: "cali-from-wl-dispatch".into(), entries });
    assert!(apply(&mut driver));
    // 1,000 pairs of chains that are not referenced yet, each of 21 rules; a part ends with the chain that fills the
    // thousand. Then the chains that refer to them.
    assert_eq!(driver.metrics().calls, 21 + 1);
    let ruleset = host.ruleset();
    assert_eq!(ruleset.rules.values().map(Vec::len).sum::<usize>(), 21_000);
    assert_eq!(
        ruleset.sets["ip calico filter-cali-from-wl-dispatch"]["elem"].as_array().map(Vec::len),
        Some(1000)
    );

    // The end of one chain changes: the rules before it keep their handles.
    let handles = |index: u32| {
        host.shell(&format!("nft -a list chain ip calico filter-cali-pi-{index} | sed -n 's/.*handle //p'"))
    };
    let before = handles(500);
    let mut changed = chain(500, 1);
    let kept = changed.rules.iter().take(15).cloned();
    changed.rules = kept.chain([rule(Action::ClearMark(9))]).collect();
    driver.update_chain(Table::Filter, changed);
    assert!(apply(&mut driver));
    let after = handles(500);
    let kept = |text: &str| text.lines().take(16).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(kept(&after), kept(&before), "the chain and fifteen rules");
    assert_eq!(after.lines().count(), 17);

    // A workload is removed: its entry and both chains.
    driver.set_map_entry(Table::Filter, "cali-from-wl-dispatch", &"cali7".into(), None);
    assert!(apply(&mut driver));
    assert_eq!(driver.metrics().list_calls, 1, "nothing was read again");
    let ruleset = host.ruleset();
    assert!(!ruleset.rules.contains_key("ip calico filter-cali-fw-7"));
    assert!(!ruleset.rules.contains_key("ip calico filter-cali-pi-7"));

    driver.remove_map(Table::Filter, "cali-from-wl-dispatch");
    assert!(apply(&mut driver));
    let ruleset = host.ruleset();
    assert_eq!((ruleset.rules.len(), ruleset.sets.len()), (14, 0), "only the base chains are left");
    driver.set_kernel_chain(Table::Filter, hook(&["cali-pi-1"]));
    assert!(apply(&mut driver));
    let forward = || host.shell("nft list chain ip calico filter-FORWARD");
    assert!(forward().contains("jump filter-cali-pi-1"));
    assert!(driver.detach_table().expect("detached"));
    assert!(!forward().contains("jump"), "no packet comes in");
    assert!(host.ruleset().rules.contains_key("ip calico filter-cali-pi-1"), "what is inside stays for now");
    assert!(!driver.detach_table().expect("there is nothing to detach any more"));
    driver.remove_table().expect("removed");
    assert_eq!(host.ruleset().chains.len(), 0);
    assert!(!driver.detach_table().expect("there is nothing to detach"));
    driver.remove_table().expect("there is nothing to remove, which is fine");
}

/// A base chain that another program attached elsewhere, and a map of another type.
#[test]
fn objects_of_the_wrong_shape_are_recreated() {
    let host = Host::new();
    host.feed(
        "nft -f -",
        "add table ip calico\n\
         add chain ip calico filter-FORWARD { type filter hook input priority 7; }\n\
         add map ip calico filter-cali-from-wl-dispatch { type ipv4_addr : verdict; }\n\
         add chain ip calico filter-cali-fw-x\n\
         add rule ip calico filter-cali-fw-x ip saddr vmap @filter-cali-from-wl-dispatch\n\
         add rule ip calico filter-FORWARD jump filter-cali-fw-x\n\
         add chain ip calico filter-cali-gone\n\
         add map ip calico filter-foreign { type inet_service : verdict; }\n\
         add element ip calico filter-foreign { 80 : goto filter-cali-gone }\n\
         add chain ip calico mine\n\
         add rule ip calico mine tcp dport vmap @filter-foreign\n",
    );
    let mut driver = host.run(|| nft_driver(Family::Ip));
    driver.update_chain(Table::Filter, Chain::new("cali-fw-x", vec![rule(Action::Drop)]));
    driver.set_map_entry(Table::Filter, "cali-from-wl-dispatch", &"cali1".into(), Some(&"cali-fw-x".into()));
    let vmap = Match::InterfaceMap { side: rules::tree::Side::In, map: "cali-from-wl-dispatch".into() };
    let inserted = vec![Rule { matches: vec![vmap], action: None, comments: vec![] }];
    driver.set_kernel_chain(Table::Filter, KernelChain { name: "FORWARD", inserted, appended: vec![] });
    assert!(apply(&mut driver));
    assert_eq!(driver.refused(), []);
    let ruleset = host.ruleset();
    assert_eq!(ruleset.chains["ip calico filter-FORWARD"]["hook"], "forward");
    assert_eq!(ruleset.sets["ip calico filter-cali-from-wl-dispatch"]["type"], "ifname");
    assert_eq!(
        (ruleset.sets.len(), ruleset.chains.len()),
        (1, 15),
        "what is not wanted in our table is gone"
    );
    driver.invalidate();
    assert!(!apply(&mut driver));
}

/// A process that dies while it writes leaves one of the two states, never a mixture.
#[test]
fn death_in_the_middle_leaves_a_consistent_table() {
    const VICTIM: &str = "TORTIE_TEST_VICTIM";
    let chain = |mark: u32| {
        let rules = (0..300).map(|_| rule(Action::SetMark(mark))).collect();
        Chain::new("cali-pi-flip", rules)
    };
    if std::env::var_os(VICTIM).is_some() {
        let mut driver = nft_driver(Family::Ip);
        driver.set_kernel_chain(Table::Filter, hook(&["cali-pi-flip"]));
        for mark in (1..=2).cycle() {
            driver.update_chain(Table::Filter, chain(mark));
            apply(&mut driver);
        }
    }
    let host = Host::new();
    for round in 0..8_u64 {
        let test = std::env::current_exe().expect("this program");
        let mut victim = host.run(|| {
            std::process::Command::new(&test)
                .args(["--exact", "nftables::death_in_the_middle_leaves_a_consistent_table"])
                .env(VICTIM, "1")
                .stdout(std::process::Stdio::null())
                .spawn()
                .expect("the victim starts")
        });
        let started = Instant::now();
        while host.ruleset().rules.get("ip calico filter-cali-pi-flip").is_none_or(Vec::is_empty) {
            assert!(started.elapsed() < Duration::from_secs(60), "the victim writes");
        }
        std::thread::sleep(Duration::from_millis(3 * round));
        victim.kill().expect("killed");
        victim.wait().expect("ended");
        let ruleset = host.ruleset();
        let comments = ruleset.comments("ip calico filter-cali-pi-flip");
        assert_eq!(comments.len(), 300);
        let hashes =
            |mark| rules::nftables::hashes(Table::Filter, Family::Ip, "cali-pi-flip", &chain(mark).rules);
        let whole = (1..=2).any(|mark| {
            comments.iter().zip(hashes(mark)).all(|(comment, hash)| *comment == format!("cali:{hash};"))
        });
        assert!(whole, "a mixture of both states");
    }
    // The next process takes over what it finds.
    let mut driver = host.run(|| nft_driver(Family::Ip));
    driver.set_kernel_chain(Table::Filter, hook(&["cali-pi-flip"]));
    driver.update_chain(Table::Filter, chain(3));
    assert!(apply(&mut driver));
    assert_eq!(host.ruleset().rules["ip calico filter-cali-pi-flip"].len(), 300);
}

#[test]
fn both_families_and_arp_side_by_side() {
    let host = Host::new();
    for family in [Family::Ip, Family::Ip6] {
        let mut driver = host.run(|| nft_driver(family));
        driver.update_chain(
            Table::Filter,
            Chain::new("cali-x", vec![rule(Action::Reject(rules::tree::RejectWith::PortUnreachable))]),
        );
        driver.set_kernel_chain(Table::Filter, hook(&["cali-x"]));
        assert!(apply(&mut driver));
        assert_eq!(driver.refused(), []);
    }
    let tables = host.run(|| Client::open().expect("a socket").tables().expect("listed"));
    assert_eq!(tables, [(2, "calico".to_owned()), (10, "calico".to_owned())]);
    let has =
        |family| host.run(|| Client::open().expect("a socket").has_chains(family, "calico").expect("listed"));
    assert_eq!((has(nft::Family::Ip6), has(nft::Family::Arp)), (true, false));
}
