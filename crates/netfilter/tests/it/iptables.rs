//! The iptables driver on real kernels, in both variants: foreign changes, refusals, old versions, and foreign rules.

use crate::captured::{CALICO_IPSETS, saved};
use crate::host::Host;
use crate::takeover::{iptables_driver, want_shop};
use netfilter::iptables::{Backend as Variant, Driver, Found, Portions, Programs, Settings, choose, probe};
use netfilter::{Part, RuleDriver};
use netlink::netfilter::watch::Watch;
use rules::Backend;
use rules::tree::{Action, Chain, End, IpVersion, KernelChain, Match, Rule, Table};
use std::time::{Duration, Instant};

const VARIANTS: [Variant; 2] = [Variant::Nft, Variant::Legacy];

fn rule(action: Action) -> Rule {
    Rule { matches: vec![], action: Some(action), comments: vec![] }
}

fn with_set(name: &str, action: Action) -> Rule {
    let matches = vec![Match::IpSet { end: End::Source, name: name.into(), negated: false }];
    Rule { matches, action: Some(action), comments: vec![] }
}

fn hook(targets: &[&str]) -> KernelChain {
    let inserted = targets.iter().map(|target| rule(Action::Jump((*target).into()))).collect();
    let appended = vec![Rule { comments: vec!["at the end".into()], ..rule(Action::Accept) }];
    KernelChain { name: "FORWARD", inserted, appended }
}

#[test]
fn foreign_damage_is_repaired() {
    for variant in VARIANTS {
        let host = Host::new();
        let name = variant.as_str();
        host.feed("ipset restore", CALICO_IPSETS);
        let mut driver = iptables_driver(variant, IpVersion::V4);
        let apply =
            |driver: &mut Driver<Programs>| host.run(|| driver.apply(Instant::now()).expect("applied").wrote);
        // Foreign rules, before and after ours.
        host.shell(&format!(
            "iptables-{name} -A FORWARD -s 192.0.2.1 -j ACCEPT; iptables-{name} -A INPUT -s 192.0.2.2 -j DROP"
        ));
        want_shop(&mut driver, Backend::Iptables);
        assert!(apply(&mut driver));
        let good = saved(&host, name);
        assert!(good.contains("-s 192.0.2.1/32") && good.contains("-s 192.0.2.2/32"));
        for damage in [
            "iptables -F cali-FORWARD",
            "iptables -D FORWARD 1",
            "iptables -I FORWARD 1 -j ACCEPT; iptables -F INPUT; iptables -A INPUT -s 192.0.2.2 -j DROP",
            "iptables -R cali-INPUT 2 -j ACCEPT",
            "iptables -A cali-failsafe-in -j ACCEPT",
            "iptables -t nat -F; iptables -t nat -X; iptables -t raw -F",
            "iptables -N cali-left-over; iptables -A OUTPUT -j cali-left-over",
        ] {
            host.shell(&damage.replace("iptables", &format!("iptables-{name}")));
            driver.invalidate();
            assert!(apply(&mut driver), "{name}: `{damage}`");
            assert_eq!(driver.refused(), []);
            // A foreign rule before ours is not ours to remove; ours is moved before it again.
            let now = saved(&host, name);
            let without = |text: &str| {
                text.lines()
                    .filter(|line| *line != "-A FORWARD -j ACCEPT")
                    .map(str::to_owned)
                    .collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!(without(&now), without(&good), "{name}: after `{damage}`");
            host.shell(&format!("while iptables-{name} -D FORWARD -j ACCEPT 2>/dev/null; do :; done"));
        }
        let forward: Vec<String> = saved(&host, name)
            .lines()
            .filter(|line| line.starts_with("-A FORWARD"))
            .map(str::to_owned)
            .collect();
        assert!(
            forward[0].contains("cali-FORWARD") && forward[1].contains("192.0.2.1") && forward.len() == 4,
            "{forward:#?}"
        );
    }
}

#[test]
fn a_refused_rule_does_not_stop_the_rest() {
    for variant in VARIANTS {
        let host = Host::new();
        let mut driver = iptables_driver(variant, IpVersion::V4);
        let apply =
            |driver: &mut Driver<Programs>, now| host.run(|| driver.apply(now).expect("applied").wrote);
        let bad = vec![
            rule(Action::ClearMark(4)),
            with_set("cali40s:missing", Action::SetMark(1)),
            rule(Action::SetMark(2)),
        ];
        let logs =
            vec![with_set("cali40s:missing", Action::Log { prefix: "x".into() }), rule(Action::SetMark(2))];
        for (name, rules) in
            [("cali-pi-bad", bad), ("cali-pi-logs", logs), ("cali-pi-good", vec![rule(Action::SetMark(1))])]
        {
            driver.update_chain(Table::Filter, Chain::new(name, rules));
        }
        let names = ["cali-pi-bad", "cali-pi-good", "cali-pi-logs", "cali-undefined"];
        driver.set_kernel_chain(Table::Filter, hook(&names));
        let begin = Instant::now();
        assert!(apply(&mut driver, begin));
        let chain = |name: &str| {
            let prefix = format!("-A {name} ");
            saved(&host, variant.as_str())
                .lines()
                .filter_map(|line| line.strip_prefix(&prefix).map(str::to_owned))
                .collect::<Vec<_>>()
        };
        let now = chain("cali-pi-bad");
        assert!(now.len() == 2 && now[0].contains("MARK") && now[1].ends_with("-j DROP"), "{now:#?}");
        assert_eq!(chain("cali-pi-good").len(), 1);
        let now = chain("cali-pi-logs");
        assert!(now.len() == 1 && now[0].contains("MARK"), "{now:#?}");
        assert!(chain("cali-undefined")[0].ends_with("-j DROP"));
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
        assert_eq!(
            told,
            [(Some(1), "cali-pi-bad"), (Some(0), "cali-pi-logs"), (None, "cali-undefined")],
            "{refused:#?}"
        );
        assert!(refused[0].to_string().contains("--match-set cali40s:missing"), "{}", refused[0]);

        // The missing set appears; some time later the rule is retried.
        host.shell("ipset create cali40s:missing hash:net");
        assert!(!apply(&mut driver, begin));
        assert!(apply(&mut driver, begin + Duration::from_secs(1)));
        assert_eq!((chain("cali-pi-bad").len(), chain("cali-pi-logs").len()), (3, 2));
        assert_eq!(driver.refused().len(), 1);
    }
}

/// The nft variant is read from the kernel; the program is run only for the text of rules that have to be removed.
#[test]
fn existing_rules_are_read_without_a_program() {
    let host = Host::new();
    host.feed("ipset restore", CALICO_IPSETS);
    let programs = |driver: &Driver<Programs>| -> u64 {
        Table::ALL.iter().map(|layer| driver.metrics(*layer).save_calls).sum()
    };
    let apply =
        |driver: &mut Driver<Programs>| host.run(|| driver.apply(Instant::now()).expect("applied").wrote);
    let begin = || {
        let mut driver = iptables_driver(Variant::Nft, IpVersion::V4);
        want_shop(&mut driver, Backend::Iptables);
        driver
    };
    host.shell(
        "iptables-nft -A FORWARD -s 192.0.2.1 -j ACCEPT
         iptables-nft -t nat -A POSTROUTING -s 192.0.2.0/24 ! -o eth0 -j MASQUERADE
         nft add chain ip filter others; nft add rule ip filter others ip saddr 192.0.2.7 tcp dport 7 drop",
    );
    let mut first = begin();
    assert_eq!((apply(&mut first), programs(&first)), (true, 0));
    // Another driver finds the same, rule by rule, and can continue from there.
    let mut next = begin();
    assert_eq!((apply(&mut next), programs(&next)), (false, 0));
    assert_eq!(next.metrics(Table::Filter).rules, first.metrics(Table::Filter).rules);
    next.set_kernel_chain(Table::Filter, hook(&["cali-FORWARD"]));
    assert_eq!((apply(&mut next), programs(&next), next.refused()), (true, 0, vec![]));
    let forward = host.shell("iptables-nft -S FORWARD");
    assert_eq!(forward.matches("cali-FORWARD").count(), 1, "{forward}");
    assert!(forward.contains("at the end") && forward.contains("192.0.2.1"), "{forward}");

    // Rules of ours in wrong places, and one of a version before hashes.
    for (damage, asked) in [
        ("iptables-nft -F cali-FORWARD", 0),
        ("iptables-nft -A FORWARD -j cali-FORWARD", 1),
        (
            "iptables-nft -t nat -A POSTROUTING -o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out \
          -m addrtype --src-type LOCAL -j MASQUERADE",
            1,
        ),
        ("iptables-nft -D FORWARD 1", 1),
    ] {
        host.shell(damage);
        next.invalidate();
        let before = programs(&next);
        assert!(apply(&mut next), "`{damage}`");
        assert_eq!(programs(&next) - before, asked, "`{damage}`");
        assert!(!host.shell("iptables-nft -t nat -S POSTROUTING").contains("tunl0"));
        assert_eq!(host.shell("iptables-nft -S FORWARD"), forward, "`{damage}`");
    }
    assert!(host.shell("nft list chain ip filter others").contains("192.0.2.7"));
}

/// The older variant detects circles on commit, and names no rule.
#[test]
fn a_circle_is_closed_where_it_closes() {
    let host = Host::new();
    let mut driver = iptables_driver(Variant::Legacy, IpVersion::V4);
    let name = |index: usize| format!("cali-pi-{index:02}");
    for index in 0..20 {
        let mut rules = vec![rule(Action::SetMark(1))];
        if index == 7 || index == 13 {
            rules.push(rule(Action::Jump(name(20 - index).into())));
        }
        driver.update_chain(Table::Filter, Chain::new(name(index), rules));
    }
    let names: Vec<String> = (0..20).map(name).collect();
    driver.set_kernel_chain(Table::Filter, hook(&names.iter().map(String::as_str).collect::<Vec<_>>()));
    host.run(|| driver.apply(Instant::now()).expect("applied"));
    let refused = driver.refused();
    assert_eq!(refused.len(), 1, "{refused:#?}");
    assert!(["cali-pi-07", "cali-pi-13"].contains(&&*refused[0].name), "{refused:?}");
    let now = saved(&host, "legacy");
    assert_eq!(
        now.lines().filter(|line| line.starts_with("-A cali-pi-") && line.ends_with("-j DROP")).count(),
        1,
        "{now}"
    );
    assert_eq!(now.lines().filter(|line| line.starts_with("-A FORWARD")).count(), 21);
}

#[test]
fn rules_at_the_end_and_of_old_versions() {
    for variant in VARIANTS {
        let host = Host::new();
        let name = variant.as_str();
        host.feed(
            &format!("iptables-{name}-restore"),
            "*filter\n:felix-FORWARD - -\n:califw-x - -\n:mine - -\n-A FORWARD -j felix-FORWARD\n-A FORWARD -s 192.0.2.1 -j ACCEPT\n\
             -A mine -m comment --comment \"cali:AAAAAAAAAAAAAAAA\" -j ACCEPT\n-A felix-FORWARD -j califw-x\nCOMMIT\n",
        );
        let settings = Settings {
            backend: variant,
            insert_mode: api::ChainInsert::Append,
            refresh: None,
            post_write_check: Duration::from_secs(5),
            portions: Portions::default(),
        };
        let programs = Programs::new(IpVersion::V4, variant, None);
        let mut driver = Driver::new(programs, IpVersion::V4, &settings);
        driver.update_chain(Table::Filter, Chain::new("cali-FORWARD", vec![]));
        driver.set_kernel_chain(Table::Filter, hook(&["cali-FORWARD"]));
        assert!(host.run(|| driver.apply(Instant::now()).expect("applied").wrote));
        let now: Vec<String> = saved(&host, name)
            .lines()
            .filter(|line| line.starts_with("-A") || line.contains("felix") || line.contains("califw"))
            .map(str::to_owned)
            .collect();
        assert_eq!(now.len(), 3, "{now:#?}");
        assert!(
            now[0].contains("192.0.2.1")
                && now[1].contains("-j cali-FORWARD")
                && now[2].contains("at the end"),
            "{now:#?}"
        );
        driver.invalidate();
        assert!(!host.run(|| driver.apply(Instant::now()).expect("applied").wrote));
    }
}

/// After a write the table is checked at increasing intervals; a change is found without a notification.
#[test]
fn tables_are_checked_after_writes() {
    let host = Host::new();
    let mut driver = iptables_driver(Variant::Legacy, IpVersion::V4);
    driver.update_chain(Table::Filter, Chain::new("cali-FORWARD", vec![rule(Action::SetMark(1))]));
    driver.set_kernel_chain(Table::Filter, hook(&["cali-FORWARD"]));
    let start = Instant::now();
    let at = |driver: &mut Driver<Programs>, seconds| {
        host.run(|| driver.apply(start + Duration::from_secs(seconds)).expect("applied"))
    };
    assert_eq!(at(&mut driver, 0).again_in, Some(Duration::from_secs(5)));
    host.shell("iptables-legacy -F cali-FORWARD");
    assert!(!at(&mut driver, 4).wrote);
    let applied = at(&mut driver, 5);
    assert!(applied.wrote);
    assert_eq!(applied.again_in, Some(Duration::from_secs(5)), "it was written again");
    let applied = at(&mut driver, 10);
    assert_eq!(
        (applied.wrote, applied.again_in),
        (false, Some(Duration::from_secs(5))),
        "ten seconds after the write"
    );
    assert_eq!(at(&mut driver, 16).again_in, Some(Duration::from_secs(9)));
}

/// The variant over nftables announces its changes, so no checks are needed.
#[test]
fn foreign_changes_are_seen_at_once_in_the_nft_variant() {
    let host = Host::new();
    let mut driver = iptables_driver(Variant::Nft, IpVersion::V4);
    driver.update_chain(Table::Filter, Chain::new("cali-FORWARD", vec![rule(Action::SetMark(1))]));
    driver.set_kernel_chain(Table::Filter, hook(&["cali-FORWARD"]));
    let apply =
        |driver: &mut Driver<Programs>| host.run(|| driver.apply(Instant::now()).expect("applied").wrote);
    assert!(apply(&mut driver));
    let mut watch = host.run(|| Watch::open().expect("a socket"));
    host.shell("iptables-nft -F cali-FORWARD");
    let seen = watch.wait(&[], Some(Duration::from_secs(5))).expect("looked");
    let watched = driver.watched();
    assert_eq!(watched.iter().filter(|table| seen.concerns(table)).count(), 1, "{seen:?}");
    driver.invalidate();
    assert!(apply(&mut driver));
    assert_eq!(iptables_driver(Variant::Legacy, IpVersion::V4).watched(), []);
}

#[test]
fn the_used_variant_is_detected() {
    let host = Host::new();
    let found = || host.run(probe);
    host.shell("iptables-legacy -A FORWARD -j ACCEPT");
    let (legacy, nft) = found();
    assert_eq!((legacy, nft), (Found { kubernetes: false, rules: 1 }, Found::default()));
    assert_eq!(choose(None, legacy, nft), Variant::Legacy);
    host.shell("iptables-nft -A FORWARD -j ACCEPT; iptables-nft -A FORWARD -j DROP");
    let (legacy, nft) = found();
    assert_eq!(choose(None, legacy, nft), Variant::Nft);
    host.shell("iptables-legacy -t mangle -N KUBE-KUBELET-CANARY");
    let (legacy, nft) = found();
    assert_eq!(choose(None, legacy, nft), Variant::Legacy);
}

#[test]
fn a_missing_program_is_an_error_that_says_so() {
    let settings = Settings {
        backend: Variant::Nft,
        insert_mode: api::ChainInsert::Insert,
        refresh: None,
        post_write_check: Duration::from_secs(5),
        portions: Portions::default(),
    };
    struct Nothing;
    impl netfilter::iptables::Commands for Nothing {
        fn save(&mut self, _: Table) -> Result<String, netfilter::iptables::CommandFailed> {
            std::process::Command::new("no-such-iptables-save").output().map(|_| String::new()).map_err(
                |error| netfilter::iptables::CommandFailed {
                    program: "no-such-iptables-save".into(),
                    reason: error.to_string(),
                    code: None,
                },
            )
        }
        fn restore(
            &mut self,
            _: &mut dyn Iterator<Item = String>,
        ) -> Result<(), netfilter::iptables::CommandFailed> {
            Ok(())
        }
    }
    let mut driver = Driver::new(Nothing, IpVersion::V4, &settings);
    let error = driver.apply(Instant::now()).expect_err("there is no such program");
    assert!(error.to_string().starts_with("no-such-iptables-save: "), "{error}");
}
