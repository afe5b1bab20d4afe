//! Removes what Calico's own eBPF dataplane left on a node, once our programs have replaced its programs: arrays of
//! programs for its tail calls, maps of its policy, links on netkit devices.
//!
//! Maps that both use remain: connections, services and affinities continue. Does not remove anything while an
//! interface may still have a program of Calico, or a packet may be in one.

use crate::error::Error;
use crate::files;
use crate::maps::folder;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Prefixes of the names of Calico's maps.
const MAPS: [&str; 2] = ["cali_", "xdp_cali_"];
/// The prefix of the names of its arrays of policy programs.
const ARRAYS: &str = "cali_jump_";
/// Where it keeps arrays of its previous process.
const OLD_ARRAYS: &str = "old_jumps";
/// Where it pins links of programs on netkit devices.
const NETKIT: &str = "netkit";
/// Longer than judging a packet takes, which is microseconds.
const GRACE: Duration = Duration::from_millis(100);

/// Pins of Calico that are no longer needed.
#[derive(Debug)]
pub(crate) struct Predecessor {
    root: PathBuf,
    /// When no interface had Calico's programs any more; `None` once nothing is left.
    replaced_at: Option<Instant>,
    is_done: bool,
    /// Whether Calico's own arrays existed at the start.
    was_there: bool,
}

impl Predecessor {
    pub(crate) fn new(root: &Path) -> Self {
        let was_there = files::names(&folder(root)).iter().any(|name| name.starts_with(ARRAYS));
        Self { root: root.to_owned(), replaced_at: None, is_done: false, was_there }
    }

    /// Whether Calico's own programs ran here before.
    pub(crate) fn was_there(&self) -> bool {
        self.was_there
    }

    /// When to call [`Self::forget`] again.
    pub(crate) fn forgets_at(&self) -> Option<Instant> {
        self.replaced_at.filter(|_| !self.is_done).map(|at| at + GRACE)
    }

    /// Removes Calico's pins a while after every interface got our programs. `kept` returns whether we use a map ourselves.
    pub(crate) fn forget(&mut self, kept: impl Fn(&str) -> bool, now: Instant) -> Result<(), Error> {
        if self.is_done {
            return Ok(());
        }
        let maps = folder(&self.root);
        let is_calicos = |name: &String| MAPS.iter().any(|start| name.starts_with(start)) && !kept(name);
        let names: Vec<String> = files::names(&maps).into_iter().filter(is_calicos).collect();
        let (old, netkit) = (maps.join(OLD_ARRAYS), self.root.join(NETKIT));
        self.is_done = names.is_empty() && !old.exists() && files::names(&netkit).is_empty();
        let at = *self.replaced_at.get_or_insert(now);
        if self.is_done || now < at + GRACE {
            return Ok(());
        }
        tracing::info!(maps = names.len(), "removing what Calico's own eBPF programs left");
        for link in files::names(&netkit) {
            files::unpin(&netkit.join(link))?;
        }
        for name in names {
            files::unpin(&maps.join(name))?;
        }
        remove(&old)?;
        self.is_done = true;
        Ok(())
    }
}

/// Removes a folder of pins recursively.
fn remove(folder: &Path) -> Result<(), Error> {
    if !folder.exists() {
        return Ok(());
    }
    for name in files::names(folder) {
        let path = folder.join(name);
        if path.is_dir() { remove(&path)? } else { files::unpin(&path)? }
    }
    std::fs::remove_dir(folder)
        .map_err(|reason| Error::File { what: format!("cannot remove {}", folder.display()), reason })
}

#[cfg(test)]
mod tests {
    use super::Predecessor;
    use std::time::{Duration, Instant};

    #[test]
    fn pins_that_only_calico_used_are_removed_after_a_while() {
        let root = std::env::temp_dir().join(format!("bpf-predecessor-{}", std::process::id()));
        for pin in [
            "tc/globals/cali_v4_ct4",
            "tc/globals/cali_jump_ing2",
            "tc/globals/xdp_cali_progs3",
            "tc/globals/old_jumps/123/cali_jump_ing2",
            "tc/globals/bpfp_row",
            "tc/globals/cilium_calls",
            "netkit/cali1_ingress",
        ] {
            let path = root.join(pin);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let mut predecessor = Predecessor::new(&root);
        assert!(predecessor.was_there());
        let (kept, now) = (|name: &str| name == "cali_v4_ct4", Instant::now());
        predecessor.forget(kept, now).expect("not yet");
        assert!(root.join("tc/globals/cali_jump_ing2").exists());
        let later = predecessor.forgets_at().expect("it is not done");
        predecessor.forget(kept, later).expect("removed");
        assert!(predecessor.forgets_at().is_none());
        let mut left: Vec<String> = crate::files::names(&root.join("tc/globals"));
        left.sort();
        assert_eq!(left, ["bpfp_row", "cali_v4_ct4", "cilium_calls"]);
        assert!(!root.join("netkit/cali1_ingress").exists());
        std::fs::remove_dir_all(&root).expect("removed");
        Predecessor::new(&root).forget(kept, now + Duration::from_secs(1)).expect("nothing is there");
    }
}
