//! A node on which Calico's own eBPF dataplane ran, and one that returns to it. Stand-ins have the names, pins,
//! positions and layouts of Calico's objects; what they do with packets does not matter here.

use crate::kernel::{Host, names};
use anyhow::{Context as _, Result, ensure};
use bpf::clsact::{Direction, Filters};
use bpf::layout::V4;
use bpf::layout::conntrack::{Entry, Key, Leg, Tracking, Value};
use bpf::{Definition, Layout as _, Link, Map, Program, ProgramKind, Source, probe};
use bpf_driver::{Kind, Way};
use std::path::PathBuf;

const BOTH: [(&str, Kind); 2] = [("cali1", Kind::Workload), ("eth.0", Kind::Host)];
const HOOKS: [(&str, Direction); 2] = [("ingress", Direction::Ingress), ("egress", Direction::Egress)];
/// The name of Calico's filters: its program's name, as far as the kernel keeps it, and an id.
const FILTER: &str = "cali_tc_preambl:[7]";
/// The priority that the kernel chooses for the first filter without one.
const PRIORITY: u16 = 49_152;

/// Calico's attached program.
fn preamble() -> Result<Program> {
    let instructions = probe::returning(-1);
    let source = Source {
        name: "cali_tc_preamb",
        kind: ProgramKind::Classifier,
        instructions: &instructions,
        licence: c"GPL",
    };
    Ok(Program::load(&source)?)
}

fn pin(host: &Host, name: &str) -> PathBuf {
    host.files.path().join(name)
}

/// A map pinned where Calico pins it.
fn map(host: &Host, name: &str, kind: bpf::Kind, key: usize, value: usize, entries: u32) -> Result<Map> {
    let map = Map::create(Definition { name: name.to_owned(), kind, key, value, entries, flags: 0 })?;
    let place = pin(host, &format!("tc/globals/{name}"));
    std::fs::create_dir_all(place.parent().context("a folder")?)?;
    map.pin(&place)?;
    Ok(map)
}

/// Attaches Calico's program to an interface as its Felix does: replacing a link or the last filter of its name, or as
/// a new one.
fn start_calico(host: &Host, device: &str, program: &Program) -> Result<()> {
    let index = host.index(device)?;
    let plain: String = device.chars().filter(|letter| *letter != '.').collect();
    for (word, direction) in HOOKS {
        if host.way == Way::Filters {
            host.namespace.run(|| -> Result<()> {
                let mut filters = Filters::open()?;
                let found = filters.list(index, direction)?;
                let old = found.iter().rev().find(|one| one.name.contains("cali_tc_preambl"));
                let place = old.map_or(PRIORITY, |old| old.priority);
                Ok(filters.attach_as(index, direction, place, FILTER, program)?)
            })??;
            continue;
        }
        let place = pin(host, &format!("tcx/{plain}_{word}"));
        if place.exists() {
            Link::open(&place)?.replace(program)?;
            continue;
        }
        std::fs::create_dir_all(place.parent().context("a folder")?)?;
        let link = host.namespace.run(|| match direction {
            Direction::Ingress => Link::ingress(program, index),
            Direction::Egress => Link::egress(program, index),
        })??;
        link.pin(&place)?;
    }
    Ok(())
}

/// The ids of all programs on an interface, by direction.
fn programs(host: &Host, device: &str) -> Result<[Vec<u32>; 2]> {
    let index = host.index(device)?;
    let mut all = [Vec::new(), Vec::new()];
    for ((word, direction), found) in HOOKS.into_iter().zip(&mut all) {
        if host.way == Way::Filters {
            let listed = host.namespace.run(|| Filters::open()?.list(index, direction))??;
            found.extend(listed.iter().map(|one| one.program));
        } else {
            for name in names(&pin(host, "tcx")).iter().filter(|name| name.ends_with(word)) {
                let link = Link::open(&pin(host, &format!("tcx/{name}")))?;
                if link.device()? == index {
                    found.push(link.program_id()?);
                }
            }
        }
    }
    Ok(all)
}

fn there_and_back(test: &str, way: Way) -> Result<()> {
    let host = Host::new(test, way)?;
    let calico = preamble()?;
    let theirs = calico.id()?;
    for (device, _) in BOTH {
        start_calico(&host, device, &calico)?;
    }
    // An entry that no sweep treats as idle.
    let tracking =
        Tracking { a_to_b: Leg { syn: true, ack: true, ..Leg::default() }, ..Tracking::<V4>::default() };
    let value =
        Value { rst_seen: 0, last_seen: u64::MAX / 2, flags: 0, entry: Entry::Normal(tracking) }.bytes();
    let key = Key::<V4>::new(17, ([10, 65, 0, 2], 4000), ([10, 65, 0, 3], 53)).0.bytes();
    map(&host, "cali_v4_ct4", bpf::Kind::LruHash, 16, 88, 1024)?.set(&key, &value)?;
    map(&host, "cali_jump_ing2", bpf::Kind::ProgramArray, 4, 4, 100)?;
    map(&host, "cali_state6", bpf::Kind::PerCpuArray, 4, 512, 2)?;
    let connections = || Map::open(&pin(&host, "tc/globals/cali_v4_ct4"));
    let id = connections()?.id()?;

    // Takeover: every interface has one program per direction, ours in the position of Calico's.
    let mut driver = host.open()?;
    for (device, _) in BOTH {
        ensure!(programs(&host, device)? == [vec![theirs], vec![theirs]], "taken off too early");
    }
    host.attach(&mut driver, &BOTH)?;
    for (device, _) in BOTH {
        let all = programs(&host, device)?;
        ensure!(all.iter().all(|one| one.len() == 1 && one[0] != theirs), "{device}: {all:?}, not {theirs}");
    }
    ensure!(connections()?.id()? == id && connections()?.get(&key)? == Some(value.clone()), "connections");
    let left = names(&pin(&host, "tc/globals"));
    ensure!(!left.iter().any(|name| name.contains("jump") || name.contains("state")), "{left:?}");
    drop(driver);

    // And back: nothing of ours remains on an interface.
    for (device, _) in BOTH {
        start_calico(&host, device, &calico)?;
        ensure!(programs(&host, device)? == [vec![theirs], vec![theirs]], "{:?}", programs(&host, device)?);
    }
    ensure!(connections()?.id()? == id && connections()?.get(&key)? == Some(value), "connections");
    Ok(())
}

#[test]
fn links_change_hands_with_calico_in_place() -> Result<()> {
    there_and_back("tolink", Way::Links)
}

#[test]
fn filters_change_hands_with_calico_in_place() -> Result<()> {
    there_and_back("tofilt", Way::Filters)
}
