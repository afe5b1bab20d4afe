//! Rules that Calico's Felix programmed are taken over unchanged: with the same desired state nothing is written. Rules
//! that we program from scratch mean the same as Calico's ([`crate::meaning`] defines how their texts may differ).

use crate::captured::{CALICO_IPSETS, CALICO_IPTABLES, CALICO_NFT, saved, sets};
use crate::host::Host;
use crate::meaning::Meaning;
use crate::shop;
use netfilter::RuleDriver;
use netfilter::ipsets::{IpSetDriver, KernelSets, NftSets};
use netfilter::iptables::{self, Backend as Variant, Portions, Programs, Settings};
use netfilter::nftables::{Driver, Kernel};
use netlink::netfilter::{ipset, nft};
use rules::nftables::Family;
use rules::tree::{IpVersion, Table};
use rules::{Backend, Renderer, RulesConfig};
use std::time::{Duration, Instant};

/// Passes the rendered rules of the host to a driver.
pub(crate) fn want_shop(driver: &mut impl RuleDriver, backend: Backend) {
    let world = shop::world(backend);
    for layer in Table::ALL {
        let rendered = world.render(layer, IpVersion::V4);
        rendered.chains.into_values().for_each(|chain| driver.update_chain(layer, chain));
        rendered.kernel.into_iter().for_each(|chain| driver.set_kernel_chain(layer, chain));
        rendered.maps.into_iter().for_each(|map| driver.update_map(layer, map));
    }
}

fn want_arp(driver: &mut impl RuleDriver) {
    let renderer = Renderer::new(RulesConfig::default());
    let workloads = ["cali00000000001", "cali00000000002", "cali12345678903"];
    let (dispatch, map) = renderer.arp_dispatch(&workloads.iter().map(|name| (*name).into()).collect());
    for (name, net) in workloads.iter().zip(["10.66.1.1/32", "10.66.1.2/32", "10.66.1.3/32"]) {
        driver.update_chain(Table::Filter, renderer.workload_arp_chain(name, &[net.parse().expect("net")]));
    }
    driver.update_chain(Table::Filter, dispatch);
    driver.update_map(Table::Filter, map);
    driver.set_kernel_chain(Table::Filter, renderer.arp_kernel_chain());
}

pub(crate) fn nft_driver(family: Family) -> Driver<nft::Client> {
    Driver::new(nft::Client::open().expect("a socket"), family, Some(Duration::from_secs(180)))
}

pub(crate) fn nft_sets() -> NftSets<nft::Client> {
    NftSets::new(nft::Client::open().expect("a socket"), IpVersion::V4)
}

pub(crate) fn want_sets(driver: &mut impl IpSetDriver) {
    for (id, kind, members) in sets() {
        driver.update_set(id, kind, &members);
    }
}

fn check<K: Kernel>(driver: &mut Driver<K>, expect_write: bool) {
    let applied = driver.apply(Instant::now()).expect("applied");
    assert_eq!(driver.refused(), []);
    assert_eq!(applied.wrote, expect_write, "{}", driver.table());
    assert!(!driver.apply(Instant::now()).expect("applied").wrote, "the second time nothing is left to do");
}

#[test]
fn nothing_is_written_over_calicos_nftables() {
    let host = Host::new();
    host.feed("nft -f -", CALICO_NFT);
    let before = host.ruleset();
    host.run(|| {
        let mut sets = nft_sets();
        want_sets(&mut sets);
        assert!(!sets.apply_updates().expect("applied").wrote);
        let mut driver = nft_driver(Family::Ip);
        want_shop(&mut driver, Backend::Nftables);
        check(&mut driver, false);
        assert_eq!((driver.metrics().calls, driver.metrics().list_calls), (0, 1));
        let mut arp = nft_driver(Family::Arp);
        want_arp(&mut arp);
        check(&mut arp, false);
        assert!(!sets.apply_deletions().expect("applied").wrote);
    });
    assert_eq!(host.ruleset(), before);
}

#[test]
fn from_nothing_the_same_nftables_as_calico() {
    let (calico, ours) = (Host::new(), Host::new());
    calico.feed("nft -f -", CALICO_NFT);
    ours.run(|| {
        let mut sets = nft_sets();
        want_sets(&mut sets);
        assert!(sets.apply_updates().expect("applied").wrote);
        let mut driver = nft_driver(Family::Ip);
        want_shop(&mut driver, Backend::Nftables);
        check(&mut driver, true);
        assert_eq!(driver.metrics().calls, 1, "one transaction");
        let mut arp = nft_driver(Family::Arp);
        want_arp(&mut arp);
        check(&mut arp, true);
    });
    let (theirs, ours) = (calico.ruleset(), ours.ruleset());
    assert_eq!(ours.chains, theirs.chains);
    assert_eq!(ours.sets, theirs.sets);
    for (chain, rules) in &theirs.rules {
        assert_eq!(ours.comments(chain), theirs.comments(chain), "{chain}");
        for (their, our) in rules.iter().zip(&ours.rules[chain]) {
            // The rule that means something else to nft than to its readers: see `expressions`.
            if !their.1.to_string().contains(r#""key":"status""#)
                || their.1.to_string().contains(r#""op":"in""#)
            {
                assert_eq!(our.0, their.0, "{chain}");
                assert_eq!(Meaning::of(&our.1), Meaning::of(&their.1), "{chain}: {}", our.0);
            }
        }
    }
}

/// One more policy and one workload less: the change is small, and everything else keeps its counters and handles.
#[test]
fn taken_over_and_then_changed() {
    let host = Host::new();
    host.feed("nft -f -", CALICO_NFT);
    let before = host.shell("nft -a list chain ip calico filter-cali-tw-cali00000000001");
    host.run(|| {
        let mut driver = nft_driver(Family::Ip);
        want_shop(&mut driver, Backend::Nftables);
        check(&mut driver, false);
        driver.set_map_entry(Table::Filter, "cali-from-wl-dispatch", &"cali12345678903".into(), None);
        driver.set_map_entry(Table::Filter, "cali-to-wl-dispatch", &"cali12345678903".into(), None);
        check(&mut driver, true);
    });
    let after = host.ruleset();
    assert!(!after.rules.contains_key("ip calico filter-cali-tw-cali12345678903"));
    assert!(!after.rules.contains_key("ip calico filter-cali-fw-cali12345678903"));
    assert_eq!(host.shell("nft -a list chain ip calico filter-cali-tw-cali00000000001"), before);
}

pub(crate) fn iptables_driver(variant: Variant, version: IpVersion) -> iptables::Driver<Programs> {
    let settings = Settings {
        backend: variant,
        insert_mode: api::ChainInsert::Insert,
        refresh: Some(Duration::from_secs(180)),
        post_write_check: Duration::from_secs(5),
        portions: Portions::default(),
    };
    let programs = Programs::new(version, variant, Some(Duration::from_millis(50)));
    iptables::Driver::new(programs, version, &settings)
}

pub(crate) fn kernel_sets() -> KernelSets<ipset::Client> {
    KernelSets::new(ipset::Client::open().expect("a socket"), IpVersion::V4, 1_048_576)
}

fn iptables_take_over(variant: Variant) {
    let host = Host::new();
    host.feed("ipset restore", CALICO_IPSETS);
    let program = format!("iptables-{}-restore", variant.as_str());
    host.feed(&program, CALICO_IPTABLES);
    let before = (saved(&host, variant.as_str()), host.shell("ipset save"));
    host.run(|| {
        let mut sets = kernel_sets();
        want_sets(&mut sets);
        assert!(!sets.apply_updates().expect("applied").wrote);
        let mut driver = iptables_driver(variant, IpVersion::V4);
        want_shop(&mut driver, Backend::Iptables);
        let applied = driver.apply(Instant::now()).expect("applied");
        assert_eq!((applied.wrote, driver.refused()), (false, vec![]));
        assert!(!sets.apply_deletions().expect("applied").wrote);
    });
    assert_eq!((saved(&host, variant.as_str()), host.shell("ipset save")), before);
}

#[test]
fn nothing_is_written_over_calicos_iptables_nft() {
    iptables_take_over(Variant::Nft);
}

#[test]
fn nothing_is_written_over_calicos_iptables_legacy() {
    iptables_take_over(Variant::Legacy);
}

fn iptables_from_nothing(variant: Variant) {
    let (calico, ours) = (Host::new(), Host::new());
    calico.feed("ipset restore", CALICO_IPSETS);
    calico.feed(&format!("iptables-{}-restore", variant.as_str()), CALICO_IPTABLES);
    ours.run(|| {
        let mut sets = kernel_sets();
        want_sets(&mut sets);
        assert!(sets.apply_updates().expect("applied").wrote);
        assert_eq!(sets.refused(), []);
        let mut driver = iptables_driver(variant, IpVersion::V4);
        want_shop(&mut driver, Backend::Iptables);
        assert!(driver.apply(Instant::now()).expect("applied").wrote);
        assert_eq!(driver.refused(), []);
        for layer in Table::ALL {
            assert_eq!(driver.metrics(layer).restore_calls, 1, "one restore for {layer}");
        }
        driver.invalidate();
        assert!(!driver.apply(Instant::now()).expect("applied").wrote, "what was written is recognised");
        // With an empty desired state, a driver leaves nothing of ours: this is how the other variant is cleaned.
        let mut cleaner =
            iptables::cleaner(IpVersion::V6, variant, None).expect("its programs are installed");
        assert!(!cleaner.apply(Instant::now()).expect("applied").wrote);
    });
    let sorted = |text: String| {
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    // Chains are listed in the order of their creation, which may differ; rules keep their order, by their hashes.
    assert_eq!(sorted(saved(&ours, variant.as_str())), sorted(saved(&calico, variant.as_str())));
    let members = |host: &Host| {
        let printed = host.shell("ipset save");
        let lines = printed.lines().map(|line| line.split(" initval").next().unwrap_or(line).to_owned());
        let mut lines: Vec<String> = lines.collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(members(&ours), members(&calico));
    ours.run(|| {
        let mut cleaner =
            iptables::cleaner(IpVersion::V4, variant, None).expect("its programs are installed");
        assert!(cleaner.apply(Instant::now()).expect("applied").wrote);
        let mut sets = kernel_sets();
        assert!(!sets.apply_updates().expect("applied").wrote);
        assert!(sets.apply_deletions().expect("applied").wrote);
    });
    let left = saved(&ours, variant.as_str());
    assert!(!left.contains("cali"), "{left}");
    assert_eq!(ours.shell("ipset save"), "");
}

#[test]
fn from_nothing_the_same_iptables_nft_as_calico() {
    iptables_from_nothing(Variant::Nft);
}

#[test]
fn from_nothing_the_same_iptables_legacy_as_calico() {
    iptables_from_nothing(Variant::Legacy);
}
