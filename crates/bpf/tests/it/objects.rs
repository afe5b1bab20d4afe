//! The checked-in objects: they match their sources, this kernel accepts them in every combination of constants, and
//! they are cheap to verify.

use anyhow::{Context, Result};
use bpf::connect::Connect;
use bpf::interface::{Interface, Kind, Options, ReversePath, Version};
use bpf::xdp::{self, AtDriver};
use bpf::{Object, Table};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A quarter of the verifier's limit.
const BUDGET: u32 = 250_000;

const CONNECT: Connect = Connect { excludes_udp: false, udp_seconds: 60, can_answer: false };

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf")
}

/// Reduces the sizes of maps to what a test needs.
pub(crate) fn small(object: Object, version: Version) -> Result<Object> {
    let connections = if version == Version::V4 { "cali_v4_ct4" } else { "cali_v6_ct4" };
    let mut object = sized(object)?;
    object.set_entries(connections, 1000)?;
    Ok(object)
}

/// Reduces the sizes of maps of any object.
pub(crate) fn sized(mut object: Object) -> Result<Object> {
    for definition in object.definitions()? {
        if definition.entries > 4000 {
            object.set_entries(&definition.name, 4000)?;
        }
    }
    Ok(object)
}

/// The combinations that make sense: a workload's device has Ethernet headers, and its source is checked on ingress.
fn combinations() -> impl Iterator<Item = Interface> {
    let all = (0..32_u32).map(|bits| {
        let bit = |place: u32| bits >> place & 1 == 1;
        Interface {
            is_workload: bit(0),
            is_leaving: bit(1),
            is_layer_3: bit(2),
            has_both: bit(3),
            checks_source: bit(4),
        }
    });
    all.filter(|one| if one.is_workload { !one.is_layer_3 } else { !one.checks_source })
        .filter(|one| !(one.is_leaving && one.checks_source))
}

/// Each combination without options, and with all compatible ones.
fn with_options(interface: Interface) -> Vec<(Interface, Options)> {
    let all = Options {
        reverse_path: ReversePath::Strict,
        drops_to_host: true,
        keeps_host_sources: true,
        looks_up_sources: true,
        tells_drops: true,
        tells_flows: true,
        asks_untracked: !interface.is_workload,
        redirects: true,
        redirects_to_peer: true,
        vxlan_port: 4789,
        vxlan_network: 4096,
        wireguard_port: 51820,
        maglev_places: 503,
        answers_directly: true,
        has_limits: interface.is_workload,
        keeps_fragments: true,
        service_mark: 1,
        bypasses_tracking: true,
        profiles: true,
        tunnel_address: Some([0xa1; 16].into()),
        ..Options::default()
    };
    let kinds = if interface.is_workload {
        vec![Kind::Plain]
    } else {
        vec![Kind::Plain, Kind::Tunnel, Kind::Loopback, Kind::Services]
    };
    let with = kinds.into_iter().map(|kind| (interface, Options { kind, ..all }));
    with.chain([(interface, Options::default())]).collect()
}

/// Loads an object for every `step`th combination, within the budget; returns the maximum that the verifier processed,
/// by program.
pub(crate) fn load(version: Version, step: usize) -> Result<BTreeMap<String, u32>> {
    let mut most = BTreeMap::new();
    let object = small(version.object()?, version)?;
    for (interface, options) in combinations().flat_map(with_options).step_by(step) {
        let loaded = interface
            .load_with(object.clone(), &options, &BTreeMap::new())
            .with_context(|| format!("{version:?} {interface:?} {options:?}"))?;
        for (name, program) in &loaded.programs {
            let most: &mut u32 = most.entry(name.clone()).or_default();
            *most = (*most).max(program.processed());
        }
    }
    eprintln!("{version:?}: instructions that the verifier processed: {most:?}");
    for (name, processed) in &most {
        assert!((1..=BUDGET).contains(processed), "{name} of {version:?}: {processed} of {BUDGET}");
    }
    Ok(most)
}

#[test]
fn every_combination_of_constants_loads_within_the_budget() -> Result<()> {
    for version in [Version::V4, Version::V6] {
        assert_eq!(load(version, 1)?.len(), 7);
    }
    Ok(())
}

#[test]
fn programs_of_sockets_load_within_the_budget() -> Result<()> {
    load_sockets()
}

pub(crate) fn load_sockets() -> Result<()> {
    for version in [Version::V4, Version::V6] {
        for excludes_udp in [false, true] {
            let connect = Connect { excludes_udp, ..CONNECT };
            let loaded = connect.load(sized(Connect::object(version)?)?, &BTreeMap::new())?;
            for (name, program) in &loaded.programs {
                assert!((1..=BUDGET).contains(&program.processed()), "{name}: {}", program.processed());
            }
            assert_eq!(loaded.programs.len(), if version == Version::V4 { 6 } else { 3 });
        }
    }
    Ok(())
}

#[test]
fn programs_at_drivers_load_within_the_budget() -> Result<()> {
    load_at_driver()
}

pub(crate) fn load_at_driver() -> Result<()> {
    let everything = Options {
        tells_drops: true,
        tells_flows: true,
        asks_untracked: true,
        vxlan_port: 4789,
        wireguard_port: 51820,
        ..Options::default()
    };
    for options in [Options::default(), everything] {
        let objects = [Version::V4, Version::V6].map(|version| Ok((version, sized(xdp::object(version)?)?)));
        let objects = objects.into_iter().collect::<Result<Vec<_>>>()?;
        let all = AtDriver::load(objects, &options, &BTreeMap::new())?;
        for (version, loaded) in &all.loaded {
            for (name, program) in &loaded.programs {
                let processed = program.processed();
                eprintln!("{version:?} {name}: {processed}");
                assert!((1..=BUDGET).contains(&processed), "{name} of {version:?}: {processed} of {BUDGET}");
            }
        }
    }
    Ok(())
}

#[test]
fn maps_match_the_layouts() -> Result<()> {
    use bpf::layout::{V4, V6, conntrack, devices, nat, network};
    let loaded = |version: Version| -> Result<bpf::Loaded> {
        let interface = combinations().next().context("no combination")?;
        Ok(interface.load(small(version.object()?, version)?, &BTreeMap::new())?)
    };
    let four = loaded(Version::V4)?;
    Table::<conntrack::Key<V4>, conntrack::Value<V4>>::new(four.map("cali_v4_ct4")?)?;
    Table::<network::RouteKey<V4>, network::Route<V4>>::new(four.map("cali_v4_routes")?)?;
    Table::<network::FailsafeKey<V4>, u32>::new(four.map("cali_v4_fsafes2")?)?;
    bpf::PerCpu::<network::CounterKey, network::Counters>::new(four.map("cali_counters6")?)?;
    bpf::PerCpu::<u64, u64>::new(four.map("cali_rule_ctrs2")?)?;
    Table::<devices::SourceKey<V4>, u32>::new(four.map("cali_v4_sprefix")?)?;
    Table::<nat::FrontendKey<V4>, nat::Frontend>::new(four.map("cali_v4_nat_fe3")?)?;
    Table::<nat::BackendKey, nat::Backend<V4>>::new(four.map("cali_v4_nat_be")?)?;
    Table::<nat::AffinityKey<V4>, nat::Affinity<V4>>::new(four.map("cali_v4_nat_aff")?)?;
    let sockets = CONNECT.load(sized(Connect::object(Version::V4)?)?, &BTreeMap::new())?;
    Table::<nat::SocketKey<V4, false>, nat::SocketService<V4>>::new(sockets.map("cali_v4_srmsg")?)?;
    Table::<nat::SocketKey<V4, true>, nat::SocketService<V4>>::new(sockets.map("cali_v4_ct_nats")?)?;
    let six = loaded(Version::V6)?;
    Table::<devices::SourceKey<V6>, u32>::new(six.map("cali_v6_sprefix")?)?;
    Table::<nat::FrontendKey<V6>, nat::Frontend>::new(six.map("cali_v6_nat_fe3")?)?;
    Table::<nat::BackendKey, nat::Backend<V6>>::new(six.map("cali_v6_nat_be")?)?;
    Table::<nat::AffinityKey<V6>, nat::Affinity<V6>>::new(six.map("cali_v6_nat_aff")?)?;
    let sockets = CONNECT.load(sized(Connect::object(Version::V6)?)?, &BTreeMap::new())?;
    Table::<nat::SocketKey<V6, false>, nat::SocketService<V6>>::new(sockets.map("cali_v6_srmsg")?)?;
    Table::<nat::SocketKey<V6, true>, nat::SocketService<V6>>::new(sockets.map("cali_v6_ct_nats")?)?;
    Table::<conntrack::Key<V6>, conntrack::Value<V6>>::new(six.map("cali_v6_ct4")?)?;
    Table::<network::RouteKey<V6>, network::Route<V6>>::new(six.map("cali_v6_routes")?)?;
    Table::<network::FailsafeKey<V6>, u32>::new(six.map("cali_v6_fsafes2")?)?;
    Ok(())
}

#[test]
fn a_shared_map_must_match_the_objects_definition() -> Result<()> {
    let interface = combinations().next().context("no combination")?;
    let first = interface.load(small(Version::V4.object()?, Version::V4)?, &BTreeMap::new())?;
    let map = first.map("cali_v4_ct4")?;
    let shared = BTreeMap::from([("cali_v4_ct4", map)]);
    let second = interface.load(small(Version::V4.object()?, Version::V4)?, &shared)?;
    assert!(!second.maps.contains_key("cali_v4_ct4"));
    let unfit = interface.load(Version::V4.object()?, &shared).unwrap_err().to_string();
    assert!(unfit.contains("1000 entries, not ") && unfit.contains("512000"), "{unfit}");
    let mut object = Version::V4.object()?;
    assert!(object.set_constant("settings", &[0; 3]).is_err());
    assert!(object.set_constant("nothing", &[0; 3]).is_err());
    assert!(Object::parse("junk", b"no object").is_err());
    Ok(())
}

/// With the same compiler version, the sources compile to the checked-in instructions; with another one, they only have
/// to be accepted.
#[test]
fn objects_match_their_sources() -> Result<()> {
    let facts = std::fs::read_to_string(folder().join("objects/BUILT"))?;
    let wanted =
        facts.lines().find_map(|line| line.strip_prefix("compiler ")).context("no compiler in BUILT")?;
    let clang = testkit::program("clang", "install Debian's clang")?;
    let answer = Command::new(&clang).arg("--version").output()?;
    let have = String::from_utf8_lossy(&answer.stdout).lines().next().unwrap_or_default().to_owned();
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags ")).context("no flags in BUILT")?;
    let output = tempfile::tempdir()?;
    for (version, family) in [(Version::V4, "-DFAMILY=4"), (Version::V6, "-DFAMILY=6")] {
        for (source, have_now) in [
            ("tc.c", version.object()?),
            ("xdp.c", xdp::object(version)?),
            ("connect.c", Connect::object(version)?),
        ] {
            let path = output.path().join("fresh.o");
            let built = Command::new(&clang)
                .args(flags.split(' '))
                .args([family, "-c", source, "-o"])
                .arg(&path)
                .current_dir(folder())
                .output()?;
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
            let fresh = Object::parse(source, &std::fs::read(&path)?)?;
            if have == wanted {
                assert_eq!(fresh.instructions(), have_now.instructions(), "run `cargo xtask bpf`");
                assert_eq!(fresh.definitions()?, have_now.definitions()?, "run `cargo xtask bpf`");
            }
            match source {
                "tc.c" => {
                    let interface = combinations().next().context("no combination")?;
                    interface.load(small(fresh, version)?, &BTreeMap::new())?;
                }
                "xdp.c" => {
                    AtDriver::load(vec![(version, sized(fresh)?)], &Options::default(), &BTreeMap::new())?;
                }
                _ => _ = CONNECT.load(sized(fresh)?, &BTreeMap::new())?,
            }
        }
    }
    Ok(())
}
