//! Attachments: programs see a device's packets, are replaced in place, and are gone with their owner; others' remain.

use anyhow::{Context, Result};
use bpf::clsact::{Direction, Filters};
use bpf::{CgroupHook, Link, Map, Program, ProgramKind, Source, TestRun, XdpMode, probe};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use testkit::network::Namespace;

fn returning(name: &str, kind: ProgramKind, verdict: i32) -> Result<Program> {
    let instructions = probe::returning(verdict);
    Ok(Program::load(&Source { name, kind, instructions: &instructions, licence: c"GPL" })?)
}

/// Creates a namespace with both ends of a veth pair; returns the indexes of both.
fn wire(test: &str) -> Result<(Namespace, u32, u32)> {
    let namespace = Namespace::new(&format!("bpf-{test}-{}", std::process::id()))?;
    namespace.batch(
        "link add wire-a type veth peer name wire-b\nlink set wire-a up\nlink set wire-b up\naddr add 10.65.0.1/24 dev wire-a\n\
         neigh add 10.65.0.2 lladdr 02:00:00:00:00:02 dev wire-a nud permanent",
    )?;
    let (a, b) = (index(&namespace, "wire-a")?, index(&namespace, "wire-b")?);
    Ok((namespace, a, b))
}

pub(crate) fn index(namespace: &Namespace, device: &str) -> Result<u32> {
    let text = namespace.shell(&format!("ip -o link show dev {device}"))?;
    text.split(':').next().context("no number")?.trim().parse().context("not a number")
}

/// A file system mounted at its own folder, unmounted with the value.
pub(crate) struct Mounted(tempfile::TempDir);

impl Mounted {
    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub(crate) fn new(kind: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount("test", folder.path(), kind, MountFlags::empty(), None)
            .with_context(|| format!("mounting {kind}"))?;
        Ok(Self(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

/// A new control group, removed with the value.
pub(crate) struct Group {
    pub(crate) path: PathBuf,
    _mounted: Mounted,
}

impl Group {
    pub(crate) fn new(test: &str) -> Result<Self> {
        let mounted = Mounted::new("cgroup2")?;
        let path = mounted.0.path().join(format!("tortie-bpf-{test}-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self { path, _mounted: mounted })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.path);
    }
}

#[test]
fn this_kernel_has_what_the_dataplane_needs() -> Result<()> {
    // Only needed by kernels before 5.11, and not always permitted.
    let _ = probe::raise_memory_limit();
    let (namespace, a, _) = wire("probe")?;
    let features = namespace.run(|| probe::features(a))?;
    assert!(features.classifiers && features.xdp && features.addresses, "{features:?}");
    assert!(
        features.lru && features.prefixes && features.ring && features.batches && features.types,
        "{features:?}"
    );
    // Attaching to a missing device fails, which shows that the probe really tries.
    assert!(!namespace.run(|| probe::features(999_999))?.tcx);
    Ok(())
}

#[test]
fn links_filter_packets_are_replaced_and_end_with_their_owner() -> Result<()> {
    let (namespace, a, b) = wire("links")?;
    if !namespace.run(|| probe::features(a))?.tcx {
        return Ok(());
    }
    let (next, drops) =
        (returning("next", ProgramKind::Classifier, -1)?, returning("drops", ProgramKind::Classifier, 2)?);
    let link = namespace.run(|| Link::ingress(&next, b))??;
    assert_eq!(link.program_id()?, next.id()?);
    link.replace(&drops)?;
    assert_eq!(link.program_id()?, drops.id()?);
    // A second link of the same program is a separate attachment; each ends by itself.
    let out = namespace.run(|| Link::egress(&drops, a))??;
    let xdp = returning("xdp", ProgramKind::Xdp, 2)?;
    let driver = namespace.run(|| Link::xdp(&xdp, b, XdpMode::Native))??;
    let taken = namespace.run(|| Link::xdp(&xdp, b, XdpMode::Generic))?.unwrap_err().to_string();
    assert!(taken.starts_with("cannot create the attachment to the driver of device"), "{taken}");
    let id = drops.id()?;
    drop((link, out, driver, drops));
    testkit::eventually("the program to go", || Program::by_id(id).is_err())?;
    Ok(())
}

#[test]
fn filters_are_replaced_in_place_and_removed_without_touching_others() -> Result<()> {
    let (namespace, a, _) = wire("clsact")?;
    let (first, second) =
        (returning("first", ProgramKind::Classifier, -1)?, returning("second", ProgramKind::Classifier, -1)?);
    namespace.run(|| -> Result<()> {
        let mut filters = Filters::open()?;
        assert_eq!(filters.list(a, Direction::Ingress)?, []);
        assert!(!filters.detach(a, Direction::Ingress, 10)?);
        filters.attach(a, Direction::Ingress, 10, &first)?;
        filters.attach(a, Direction::Ingress, 20, &first)?;
        filters.attach(a, Direction::Egress, 10, &first)?;
        filters.attach(a, Direction::Ingress, 10, &second)?;
        let found: Vec<_> = filters
            .list(a, Direction::Ingress)?
            .into_iter()
            .map(|filter| (filter.priority, filter.handle, filter.name, filter.program))
            .collect();
        assert_eq!(
            found,
            [(10, 1, "second".to_owned(), second.id()?), (20, 1, "first".to_owned(), first.id()?)]
        );
        assert!(filters.detach(a, Direction::Ingress, 10)?);
        assert!(!filters.detach(a, Direction::Ingress, 10)?);
        assert_eq!(filters.list(a, Direction::Ingress)?.len(), 1);
        assert_eq!(filters.list(a, Direction::Egress)?.len(), 1);
        let missing = filters.attach(999_999, Direction::Ingress, 1, &first).unwrap_err().to_string();
        assert!(missing.contains("device 999999"), "{missing}");
        Ok(())
    })?
}

#[test]
fn programs_are_attached_to_the_calls_of_a_control_group() -> Result<()> {
    let group = Group::new("calls")?;
    let folder = std::fs::File::open(&group.path)?;
    let hooks = [
        CgroupHook::Connect4,
        CgroupHook::Connect6,
        CgroupHook::Send4,
        CgroupHook::Send6,
        CgroupHook::Receive4,
        CgroupHook::Receive6,
    ];
    for hook in hooks {
        let program = returning("allow", ProgramKind::Address(hook as u32), 1)?;
        let link = Link::cgroup(&program, folder.as_fd(), hook)?;
        assert_eq!(link.program_id()?, program.id()?);
    }
    let program = returning("allow", ProgramKind::Address(CgroupHook::Connect4 as u32), 1)?;
    assert!(Link::cgroup(&program, folder.as_fd(), CgroupHook::Connect6).is_err());
    Ok(())
}

#[test]
fn pins_outlive_their_values() -> Result<()> {
    let files = Mounted::new("bpf")?;
    let path = |name: &str| files.0.path().join(name);
    let definition = bpf::Definition {
        name: "pinned".to_owned(),
        kind: bpf::Kind::Hash,
        key: 4,
        value: 4,
        entries: 8,
        flags: 0,
    };
    let map = Map::create(definition)?;
    map.pin(&path("map"))?;
    map.set(&[1; 4], &[2; 4])?;
    drop(map);
    assert_eq!(Map::open(&path("map"))?.get(&[1; 4])?, Some(vec![2; 4]));
    let program = returning("pinned", ProgramKind::Classifier, -1)?;
    program.pin(&path("program"))?;
    let (namespace, a, _) = wire("pins")?;
    if namespace.run(|| probe::features(a))?.tcx {
        namespace.run(|| Link::ingress(&program, a))??.pin(&path("link"))?;
        assert_eq!(Link::open(&path("link"))?.program_id()?, program.id()?);
    }
    let missing = Map::open(&path("none")).unwrap_err().to_string();
    assert!(missing.starts_with("cannot open the map at ") && missing.contains("/none: "), "{missing}");
    Ok(())
}

#[test]
fn a_refused_program_reports_why() -> Result<()> {
    // r0 = *(u64 *)(r0 + 0); exit: r0 was never initialised.
    let instructions = [0x79, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let source = Source {
        name: "broken",
        kind: ProgramKind::Classifier,
        instructions: &instructions,
        licence: c"GPL",
    };
    let refused = Program::load(&source).unwrap_err().to_string();
    assert!(refused.starts_with("cannot load program broken: "), "{refused}");
    assert!(refused.contains("R0 !read_ok"), "{refused}");
    Ok(())
}

#[test]
fn programs_run_on_packets_without_being_attached() -> Result<()> {
    let packet = [0; 64];
    for (kind, verdict) in [(ProgramKind::Classifier, 2), (ProgramKind::Xdp, 1)] {
        let program = returning("runs", kind, verdict)?;
        let outcome = program.test_run(&TestRun { packet: &packet, context: &[], repeat: 10 })?;
        assert_eq!((outcome.verdict, outcome.packet), (verdict, packet.to_vec()));
        assert!(program.test_run(&TestRun { packet: &[0; 4], context: &[], repeat: 1 }).is_err());
    }
    Ok(())
}
