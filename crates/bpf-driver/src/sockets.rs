//! The programs for sockets on a control group: connections of the host's processes get a service's backend before
//! their first packet. Their links are pinned under Calico's names, so they outlive this process.
//!
//! Does not use the machine's root control group in another network namespace: the programs of a group apply to sockets
//! of every network.

use crate::error::Error;
use crate::files;
use crate::maps::Maps;
use bpf::Object;
use bpf::connect::{Connect, detach};
use bpf::interface::Version;
use rustix::fs::statfs;
use rustix::mount::{MountFlags, mount};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

/// Where `node init` mounts the machine's control groups.
const USUAL: &str = "/run/calico/cgroup";
/// The kernel's magic number for this type of file system.
const MAGIC: u64 = 0x6367_7270;
const PINS: &str = "ctlb";

/// The sockets that get backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sockets {
    /// The control group.
    pub group: PathBuf,
    /// UDP is left to the programs on interfaces.
    pub excludes_udp: bool,
    /// For how many seconds an unconnected UDP socket stays with its backend.
    pub udp_seconds: u32,
}

/// The folder of the control group whose sockets are served; `None` in a network other than the machine's, unless a
/// group is named. `given` is the mount point of control groups, `below` a group in it; both are empty for the
/// machine's.
///
/// # Errors
/// When there are no control groups of version 2, and none can be mounted.
pub fn group(given: &str, below: &str) -> Result<Option<PathBuf>, Error> {
    if given.is_empty() && below.is_empty() && !files::is_machines_network() {
        return Ok(None);
    }
    let path = PathBuf::from(if given.is_empty() { USUAL } else { given });
    if !is_group(&path) {
        files::make_folder(&path)?;
        mount("none", &path, "cgroup2", MountFlags::empty(), None).map_err(|errno| Error::File {
            what: format!("cannot mount control groups at {}", path.display()),
            reason: errno.into(),
        })?;
    }
    let path = path.join(below.trim_start_matches('/'));
    files::make_folder(&path)?;
    Ok(Some(path))
}

/// Attaches the programs before there is an agent, using the maps' current contents; for TCP only, which the Kubernetes
/// API uses. `root` is the folder of pins.
///
/// # Errors
/// When the kernel refuses.
pub fn attach_early(root: &Path, group: PathBuf, with_v6: bool) -> Result<(), Error> {
    let sockets = Sockets { group, excludes_udp: true, udp_seconds: 0 };
    let versions: Vec<Version> = [Version::V4].into_iter().chain(with_v6.then_some(Version::V6)).collect();
    let (mut maps, sizes) = (Maps::default(), BTreeMap::new());
    SocketPrograms::new(root, Some(sockets), &versions, false, &mut maps, &sizes)?.attach(&maps)
}

fn is_group(path: &Path) -> bool {
    statfs(path).is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|kind| kind & 0xffff_ffff == MAGIC))
}

/// The programs for sockets, attached or not.
#[derive(Debug)]
pub(crate) struct SocketPrograms {
    sockets: Option<Sockets>,
    /// The kernel lets a program choose the error.
    can_answer: bool,
    objects: Vec<Object>,
    pins: PathBuf,
    is_done: bool,
}

impl SocketPrograms {
    /// Opens the maps that the programs share with others. Nothing is attached.
    pub(crate) fn new(
        root: &Path,
        sockets: Option<Sockets>,
        versions: &[Version],
        can_answer: bool,
        maps: &mut Maps,
        sizes: &BTreeMap<String, u32>,
    ) -> Result<Self, Error> {
        let mut objects = Vec::new();
        for version in versions.iter().filter(|_| sockets.is_some()) {
            let mut object = Connect::object(*version)?;
            maps.open(root, &mut object, sizes)?;
            objects.push(object);
        }
        Ok(Self { sockets, can_answer, objects, pins: root.join(PINS), is_done: false })
    }

    /// Attaches the programs, replacing those of an earlier process; or detaches those if none are wanted.
    pub(crate) fn attach(&mut self, maps: &Maps) -> Result<(), Error> {
        if self.is_done {
            return Ok(());
        }
        match &self.sockets {
            None => detach(&self.pins)?,
            Some(sockets) => {
                files::make_folder(&self.pins)?;
                let group = File::open(&sockets.group).map_err(|reason| Error::File {
                    what: format!("cannot open the control group {}", sockets.group.display()),
                    reason,
                })?;
                let connect = Connect {
                    excludes_udp: sockets.excludes_udp,
                    udp_seconds: sockets.udp_seconds,
                    can_answer: self.can_answer,
                };
                for object in &self.objects {
                    let loaded = connect.load(object.clone(), &maps.all())?;
                    connect.attach(&loaded, group.as_fd(), &self.pins)?;
                }
            }
        }
        self.objects.clear();
        self.is_done = true;
        Ok(())
    }
}
