//! Programs for sockets before there is an agent: they are attached, and the agent's replace them.

use anyhow::{Context, Result, ensure};
use bpf::Link;
use bpf_driver::sockets::attach_early;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::path::PathBuf;

struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new(kind: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount("test", folder.path(), kind, MountFlags::empty(), None).context("mounting")?;
        Ok(Self(folder))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

struct Group(PathBuf);

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn programs_are_attached_before_the_agent_starts_and_can_be_replaced() -> Result<()> {
    let (files, groups) = (Mounted::new("bpf")?, Mounted::new("cgroup2")?);
    let group = Group(groups.0.path().join(format!("tortie-early-{}", std::process::id())));
    std::fs::create_dir(&group.0)?;
    let attached = |name: &str| -> Result<u32> {
        Ok(Link::open(&files.0.path().join("ctlb").join(name))?.program_id()?)
    };
    attach_early(files.0.path(), group.0.clone(), false)?;
    let first = attached("calico_connect_v4")?;
    ensure!(attached("calico_sendmsg_v4").is_err(), "UDP is left alone");
    ensure!(attached("calico_connect_v6").is_err(), "and so is IPv6");
    ensure!(files.0.path().join("tc/globals/cali_v4_nat_fe3").exists());
    attach_early(files.0.path(), group.0.clone(), true)?;
    ensure!(attached("calico_connect_v4")? != first && attached("calico_connect_v6").is_ok());
    Ok(())
}
