//! The driver on this kernel: programs on interfaces of a namespace, pins in the test's own BPF file system.

use anyhow::{Context, Result, ensure};
use bpf::clsact::{Direction, Filters};
use bpf::{Link, Map, Program, ProgramKind, Source, probe};
use bpf_driver::{Driver, Interface, Kind, Settings, Way};
use bpf_policy::Policies;
use messages::InterfaceName;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use testkit::network::Namespace;

/// A BPF file system, and a host with a workload's interface, one to the network and an unmanaged one.
pub(crate) struct Host {
    pub(crate) namespace: Namespace,
    pub(crate) files: tempfile::TempDir,
    pub(crate) way: Way,
}

impl Host {
    pub(crate) fn new(test: &str, way: Way) -> Result<Self> {
        let namespace = Namespace::new(&format!("bpfd-{test}-{}", std::process::id()))?;
        namespace.batch(
            "link add cali1 type veth peer name pod1\nlink add eth.0 type veth peer name wire0\n\
             link add other type veth peer name other1\nlink set cali1 up\nlink set eth.0 up\nlink set other up",
        )?;
        let files = tempfile::tempdir()?;
        mount("test", files.path(), "bpf", MountFlags::empty(), None)
            .context("mounting a BPF file system")?;
        Ok(Self { namespace, files, way })
    }

    pub(crate) fn index(&self, device: &str) -> Result<u32> {
        let text = self.namespace.shell(&format!("ip -o link show dev {device}"))?;
        text.split(':').next().context("no number")?.trim().parse().context("not a number")
    }

    pub(crate) fn open(&self) -> Result<Driver> {
        let settings = Settings {
            pins: Some(self.files.path().to_owned()),
            with_v6: true,
            way: Some(self.way),
            sizes: ["cali_v4_ct4", "cali_v6_ct4"].map(|map| (map.to_owned(), 1024)).into(),
            scratch_device: self.index("lo")?,
            ..Settings::default()
        };
        let driver = self.namespace.run(|| Driver::open(&settings))??;
        ensure!(driver.way() == self.way, "this kernel cannot attach by {:?}", self.way);
        Ok(driver)
    }

    fn wanted(&self, names: &[(&str, Kind)]) -> Result<BTreeMap<InterfaceName, Interface>> {
        let one = |(name, kind): &(&str, Kind)| -> Result<_> {
            Ok((InterfaceName::from(*name), Interface { index: self.index(name)?, kind: *kind }))
        };
        names.iter().map(one).collect()
    }

    pub(crate) fn attach(&self, driver: &mut Driver, names: &[(&str, Kind)]) -> Result<()> {
        let wanted = self.wanted(names)?;
        let there: BTreeSet<u32> = ["lo", "cali1", "eth.0", "other"]
            .map(|name| self.index(name))
            .into_iter()
            .collect::<Result<_>>()?;
        // Again after a second, when the remains of an earlier process can be removed.
        for seconds in [0, 1] {
            let now = Instant::now() + Duration::from_secs(seconds);
            let failures = self.namespace.run(|| driver.attach(&wanted, &there, now))?;
            ensure!(failures.is_empty(), "{failures:?}");
        }
        Ok(())
    }

    /// The ids of our programs on an interface.
    fn programs(&self, device: &str) -> Result<Vec<u32>> {
        let index = self.index(device)?;
        if self.way == Way::Links {
            let plain: String = device.chars().filter(|letter| *letter != '.').collect();
            let start = format!("{plain}_");
            let pins =
                names(&self.files.path().join("tcx")).into_iter().filter(|pin| pin.starts_with(&start));
            let links = pins.map(|pin| Ok(Link::open(&self.files.path().join("tcx").join(pin))?));
            let links: Vec<Link> = links.collect::<Result<_>>()?;
            // The pin of a vanished interface still has a program.
            return links
                .iter()
                .filter(|link| link.device().is_ok_and(|device| device == index))
                .map(|link| Ok(link.program_id()?))
                .collect();
        }
        self.namespace.run(|| -> Result<Vec<u32>> {
            let mut filters = Filters::open()?;
            let mut found = Vec::new();
            for direction in [Direction::Ingress, Direction::Egress] {
                found.extend(
                    filters.list(index, direction)?.into_iter().filter(|one| one.name == "cali_tc_preambl"),
                );
            }
            Ok(found.into_iter().map(|one| one.program).collect())
        })?
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = unmount(self.files.path(), UnmountFlags::DETACH);
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// One per direction; each serves both IP versions.
const EACH: usize = 2;

fn comes_and_goes(test: &str, way: Way) -> Result<()> {
    let host = Host::new(test, way)?;
    let both = [("cali1", Kind::Workload), ("eth.0", Kind::Host)];
    let foreign = foreign_program(&host)?;
    let mut driver = host.open()?;
    host.attach(&mut driver, &both)?;
    let first = (host.programs("cali1")?, host.programs("eth.0")?);
    ensure!((first.0.len(), first.1.len()) == (EACH, EACH), "{first:?}");
    driver.write_policy(&mut Policies::default(), Instant::now())?;

    // The process ends: everything remains, including the arrays of programs.
    drop(driver);
    ensure!(host.programs("cali1")? == first.0, "an interface lost its programs with the process");
    let generation = host.files.path().join("tc/globals/generation_1");
    ensure!(names(&generation).len() == 4 * EACH, "{:?}", names(&generation));
    ensure!(Map::open(&generation.join("cali_programs_workload_ingress_v4"))?.get(&[0; 4])?.is_some());

    // Another process replaces it, on one interface fewer.
    let mut driver = host.open()?;
    host.attach(&mut driver, &both[..1])?;
    let second = host.programs("cali1")?;
    ensure!(second.len() == EACH && second != first.0, "{second:?} after {first:?}");
    ensure!(host.programs("eth.0")?.is_empty(), "an interface that matches no pattern has programs");
    ensure!(!generation.exists(), "what the old programs found each other by is left");
    ensure!(Program::by_id(foreign).is_ok(), "another tool's program is gone");

    // The interface is recreated under its name: it is a different interface.
    host.namespace.batch("link del cali1\nlink add cali1 type veth peer name pod1")?;
    ensure!(host.programs("cali1")?.is_empty());
    host.attach(&mut driver, &both[..1])?;
    ensure!(host.programs("cali1")?.len() == EACH);
    let pins = names(&host.files.path().join("tcx"));
    ensure!(pins.len() == if way == Way::Links { EACH } else { 0 }, "{pins:?}");
    Ok(())
}

/// Attaches another process's program to the workload's interface.
fn foreign_program(host: &Host) -> Result<u32> {
    let instructions = probe::returning(-1);
    let source =
        Source { name: "mine", kind: ProgramKind::Classifier, instructions: &instructions, licence: c"GPL" };
    let program = Program::load(&source)?;
    let (id, index) = (program.id()?, host.index("other")?);
    host.namespace.run(|| -> Result<()> {
        Filters::open()?.attach(index, Direction::Ingress, 1, &program)?;
        Ok(())
    })??;
    Ok(id)
}

#[test]
fn links_outlive_processes_and_follow_interfaces() -> Result<()> {
    comes_and_goes("link", Way::Links)
}

#[test]
fn filters_outlive_processes_and_follow_interfaces() -> Result<()> {
    comes_and_goes("filt", Way::Filters)
}

/// A map whose size differs is replaced; one of the same size is reused with its contents.
#[test]
fn maps_are_reused_if_they_fit() -> Result<()> {
    let host = Host::new("maps", Way::Filters)?;
    drop(host.open()?);
    let pin = |name: &str| -> PathBuf { host.files.path().join("tc/globals").join(name) };
    let key = vec![7; 16];
    Map::open(&pin("cali_v4_ct4"))?.set(&key, &[1; 88])?;
    drop(host.open()?);
    ensure!(Map::open(&pin("cali_v4_ct4"))?.get(&key)?.is_some(), "connections are lost");
    let settings = Settings {
        pins: Some(host.files.path().to_owned()),
        sizes: [("cali_v4_ct4".to_owned(), 2048)].into(),
        scratch_device: host.index("lo")?,
        ..Settings::default()
    };
    drop(host.namespace.run(|| Driver::open(&settings))??);
    let map = Map::open(&pin("cali_v4_ct4"))?;
    ensure!(
        map.definition().entries == 2048 && map.get(&key)?.is_some(),
        "connections are lost with the size"
    );
    Ok(())
}
