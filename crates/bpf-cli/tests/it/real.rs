//! Maps of the kernel, in the test's own BPF file system.

use anyhow::{Context as _, Result};
use bpf_cli::{Arguments, Pinned, run};
use clap::Parser as _;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

struct FileSystem(tempfile::TempDir);

impl FileSystem {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        mount("bpf", folder.path(), "bpf", MountFlags::empty(), None).context("mounting needs root")?;
        Ok(Self(folder))
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        // Nothing can be done about a failure; the folder is left behind.
        let _ = unmount(self.0.path(), UnmountFlags::DETACH);
    }
}

#[test]
fn a_map_is_created_filled_shown_and_emptied() -> Result<()> {
    let place = FileSystem::new()?;
    let mut maps = Pinned::new(place.0.path());
    let mut command = |line: &str| -> Result<String> {
        let words = ["calico-bpf"].into_iter().chain(line.split_whitespace());
        let mut out = Vec::new();
        run(&Arguments::try_parse_from(words)?, "v1", &mut maps, &mut out)?;
        Ok(String::from_utf8(out)?)
    };
    let missing = command("conntrack stats").expect_err("no map yet").to_string();
    assert!(missing.contains("cali_v4_ct4"), "{missing}");
    command("conntrack create")?;
    command("conntrack create")?;
    let stats = command("conntrack stats")?;
    assert!(stats.starts_with("Conntrack map size: 512000\nTotal connections: 0\n"), "{stats}");
    // TCP, 10.0.0.1:1234 and 10.0.0.2:80, last seen at boot.
    let key = "BgAAAAoAAAEKAAAC0gRQAA==";
    let value = format!("{}AAAAAAAAAA==", "A".repeat(108));
    command(&format!("conntrack write {key} {value}"))?;
    let line = command("conntrack dump")?;
    assert!(line.starts_with("TCP 10.0.0.1:1234 -> 10.0.0.2:80  Active ago "), "{line}");
    assert!(line.ends_with(" SYN-SENT\n"), "{line}");
    command("conntrack remove tcp 10.0.0.2 10.0.0.1")?;
    assert_eq!(command("conntrack dump")?, "");
    bpf_cli::bootstrap("10.96.0.1:443", "172.16.0.1:6443", &mut Pinned::new(place.0.path()))?;
    let service = "10.96.0.1 port 443 proto 6 id 0 count 1 local 0\n\t0:0\t 172.16.0.1:6443\n";
    assert_eq!(command("nat dump")?, service);
    command("connect-time clean")?;
    assert!(place.0.path().join("tc/globals/cali_v4_ct4").exists());
    Ok(())
}
