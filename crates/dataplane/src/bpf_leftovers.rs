//! Removes the leftovers of a BPF dataplane, ours or Calico's, after our own rules are in place: its programs judge
//! packets before netfilter does, so that pods would keep the policy of the last day it ran.
//!
//! As in Calico, we remove: filters with a program whose name begins with `cali_` or `calico_`, and their `clsact`
//! discipline if it has no other filters; pinned links of programs on interfaces and of the connect-time load balancer,
//! which the kernel detaches when their pins are gone; pinned maps; the devices `bpfin.cali` and `bpfout.cali`. The
//! names of XDP programs cannot be read without loading BPF: they are reported, and the operator has to remove them.
//! Nothing else in the BPF file system is touched.

use bpf_driver::files;
use netfilter::driver::ApplyError;
use netlink::tc::{Filter, Operation as Change, TrafficControl};
use netlink::{Kernel, Operation, first_failure};
use rules::SERVICES_DEVICE;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Directories in which Calico pins links of programs, and nothing else.
const LINK_FOLDERS: [&str; 3] = ["tcx", "netkit", "cali_xdp"];
/// Pins of another part of Calico.
const NOT_OURS: &str = "calico/sockmap";
/// The prefixes of program, map and pin names.
const PREFIXES: [&str; 4] = ["cali_", "calico_", "xdp_cali_", "bpfp_"];
/// The prefixes of directories that are ours alone: those of programs, and those of a network other than the machine's.
const OWN_FOLDERS: [&str; 2] = ["generation_", "netns-"];

fn is_ours(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Removes our filters from a device, and leaves foreign ones.
type RemoveFilters = Box<dyn FnMut(u32) -> Result<(), String> + Send>;

/// Removes the leftovers.
pub(crate) struct BpfLeftovers<K, T> {
    kernel: K,
    control: T,
    remove_filters: RemoveFilters,
    /// `None` where the pins belong to another network namespace than ours.
    pins: Option<PathBuf>,
}

impl<K: Kernel, T: TrafficControl> BpfLeftovers<K, T> {
    /// `pins` overrides the usual directory of pins.
    pub(crate) fn new(kernel: K, control: T, pins: Option<PathBuf>) -> Self {
        // The file system belongs to the machine: of another network it has only that network's own directory.
        let pins = pins.or_else(files::existing_root);
        let remove_filters = |index| bpf_driver::remove_filters(index).map_err(|error| error.to_string());
        Self { kernel, control, remove_filters: Box::new(remove_filters), pins }
    }

    /// Removes everything. Anything that cannot be removed is an error, which does not keep the rest from being
    /// removed. Returns false if links of programs were removed: the kernel detaches these from interfaces a little
    /// later, and until then they need their maps.
    pub(crate) fn remove(&mut self) -> Result<bool, ApplyError> {
        let mut failures = Vec::new();
        let mut found = self.remove_filters(&mut failures);
        if let Some(root) = &self.pins {
            for folder in LINK_FOLDERS {
                found |= remove_pins(&root.join(folder), Pins::All, &mut failures);
            }
            if found && failures.is_empty() {
                tracing::warn!("removed programs of a BPF dataplane that ran here before");
                return Ok(false);
            }
            found |= remove_pins(root, Pins::Ours, &mut failures);
            if is_own_folder(root) {
                for folder in ["tc/globals", "tc", "tcx", "netkit", "cali_xdp", "ctlb", ""] {
                    let _ = fs::remove_dir(root.join(folder));
                }
            }
        }
        found |= self.remove_device(&mut failures);
        if found {
            tracing::warn!("removed pins and devices of a BPF dataplane that ran here before");
            self.report_xdp();
        }
        match failures.as_slice() {
            [] => Ok(true),
            _ => Err(ApplyError::Refused {
                table: "leftovers of a BPF dataplane".to_owned(),
                reason: failures.join("; "),
            }),
        }
    }

    fn remove_filters(&mut self, failures: &mut Vec<String>) -> bool {
        let queues = match self.control.queues() {
            // A kernel without traffic control has none of our objects.
            Err(error) if error.is_unsupported() => return false,
            Err(error) => {
                failures.push(error.to_string());
                return false;
            }
            Ok(queues) => queues,
        };
        let mut found = false;
        for queue in queues.iter().filter(|queue| queue.kind == "clsact") {
            let outcome = self.control.clsact_filters(queue.index).and_then(|filters| {
                let ours = |filter: &Filter| filter.program.as_deref().is_some_and(is_ours);
                let Some(program) = filters.iter().find(|filter| ours(filter)) else { return Ok(false) };
                tracing::info!(device = queue.index, ?program, "removing a program of the BPF dataplane");
                if !filters.iter().all(ours) {
                    failures.extend((self.remove_filters)(queue.index).err());
                    return Ok(true);
                }
                self.control.apply(&Change::DeleteIngress(queue.index)).map(|()| true)
            });
            match outcome {
                Ok(removed) => found |= removed,
                // The device was removed in the meantime, and its programs with it.
                Err(error) if error.is_missing() => {}
                Err(error) => failures.push(error.to_string()),
            }
        }
        found
    }

    fn remove_device(&mut self, failures: &mut Vec<String>) -> bool {
        let outcome = self.kernel.link(&SERVICES_DEVICE.into()).and_then(|link| match link {
            Some(link) if link.kind == "veth" => {
                first_failure(self.kernel.apply(&[Operation::DeleteLink(link.index.into())])).map(|()| true)
            }
            _ => Ok(false),
        });
        match outcome {
            Ok(removed) => removed,
            Err(error) if error.is_missing() => false,
            Err(error) => {
                failures.push(error.to_string());
                false
            }
        }
    }

    /// The owner of an XDP program cannot be determined.
    fn report_xdp(&mut self) {
        for link in self.kernel.links().unwrap_or_default().into_iter().filter(|link| link.xdp) {
            tracing::error!(
                interface = link.name,
                "an XDP program may be a leftover of a BPF dataplane; if so, remove it with `ip link set dev NAME xdp off`"
            );
        }
    }
}

fn is_own_folder(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    OWN_FOLDERS.iter().any(|start| name.starts_with(start))
}

/// The pins to remove.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pins {
    /// All in the directory itself.
    All,
    /// Our own, in the directory and below it.
    Ours,
}

/// Removes pins; returns whether there were any.
fn remove_pins(folder: &Path, which: Pins, failures: &mut Vec<String>) -> bool {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return false,
        Err(error) => {
            failures.push(format!("cannot read {}: {error}", folder.display()));
            return false;
        }
    };
    let mut found = false;
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if which == Pins::Ours && !path.ends_with(NOT_OURS) {
                // Directories of other networks belong to them.
                if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(OWN_FOLDERS[1])) {
                    continue;
                }
                found |= remove_pins(&path, which, failures);
                if is_own_folder(&path) {
                    let _ = fs::remove_dir(&path);
                }
            }
            continue;
        }
        if which == Pins::Ours && !name.to_str().is_some_and(is_ours) {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => {
                tracing::debug!(pin = %path.display(), "removed a pin of the BPF dataplane");
                found = true;
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => failures.push(format!("cannot remove {}: {error}", path.display())),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::BpfLeftovers;
    use netlink::tc::{Filter, INGRESS, Operation, Queue, TrafficControl};
    use netlink::{Error, FakeKernel, Kernel};
    use std::path::Path;

    /// Devices with `clsact`, and the programs on each.
    #[derive(Default)]
    struct Fake {
        devices: Vec<(u32, Vec<Option<&'static str>>)>,
        removed: Vec<Operation>,
    }

    impl TrafficControl for Fake {
        fn queues(&mut self) -> Result<Vec<Queue>, Error> {
            let clsact = |index: u32| Queue { index, parent: INGRESS, kind: "clsact".into(), bucket: None };
            let other = Queue { index: 1, kind: "noqueue".into(), ..Queue::default() };
            Ok(self.devices.iter().map(|(index, _)| clsact(*index)).chain([other]).collect())
        }

        fn filters(&mut self, _: u32) -> Result<Vec<Filter>, Error> {
            Ok(Vec::new())
        }

        fn clsact_filters(&mut self, index: u32) -> Result<Vec<Filter>, Error> {
            let programs = self.devices.iter().find(|(one, _)| *one == index).map(|(_, all)| all.clone());
            let filter =
                |program: Option<&str>| Filter { program: program.map(str::to_owned), ..Filter::default() };
            Ok(programs.unwrap_or_default().into_iter().map(filter).collect())
        }

        fn apply(&mut self, operation: &Operation) -> Result<(), Error> {
            self.removed.push(operation.clone());
            Ok(())
        }
    }

    fn pins(root: &Path) -> Vec<String> {
        let mut all = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in std::fs::read_dir(&folder).expect("a folder").flatten() {
                match entry.path().is_dir() {
                    true => open.push(entry.path()),
                    false => {
                        let path = entry.path();
                        let path = path.strip_prefix(root).expect("below");
                        all.push(path.display().to_string());
                    }
                }
            }
        }
        all.sort();
        all
    }

    #[test]
    fn calicos_leftovers_are_removed_and_foreign_objects_stay() {
        let root = std::env::temp_dir().join(format!("bpf-leftovers-{}", std::process::id()));
        for pin in [
            "tc/globals/cali_v4_nat_fe3",
            "tc/globals/cilium_calls",
            "tcx/eth0_ingress",
            "netkit/cali123_egress",
            "ctlb/calico_connect_v4",
            "calico/sockmap/cali_sock",
            "calico/xdp/xdp_cali_progs",
            "tc/globals/bpfp_row",
            "tc/globals/generation_3/cali_programs_host_ingress_v4",
            "netns-4026531840/tc/globals/bpfp_row",
            "mine",
        ] {
            let path = root.join(pin);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, "").expect("written");
        }
        let mut kernel = FakeKernel::new();
        kernel.with_link("bpfin.cali", "veth");
        kernel.with_link("eth0", "");
        let control = Fake {
            devices: vec![
                (7, vec![Some("bandwidth"), Some("cali_tc_preambl:[12]")]),
                (8, vec![None, Some("cil_from_netdev")]),
                (9, vec![]),
                (10, vec![Some("cali_tc_main"), Some("cali_tc_main")]),
            ],
            ..Fake::default()
        };
        let mut leftovers = BpfLeftovers::new(kernel, control, Some(root.clone()));
        let (one_by_one, asked) = std::sync::mpsc::channel();
        leftovers.remove_filters =
            Box::new(move |index| one_by_one.send(index).map_err(|error| error.to_string()));
        assert!(!leftovers.remove().expect("programs are taken off first"));
        assert!(root.join("tc/globals/generation_3/cali_programs_host_ingress_v4").exists());
        leftovers.control.devices.clear();
        assert!(leftovers.remove().expect("removed"));
        assert_eq!(leftovers.control.removed, [Operation::DeleteIngress(10)]);
        assert_eq!(asked.try_iter().collect::<Vec<_>>(), [7], "beside a foreign filter");
        let left = [
            "calico/sockmap/cali_sock",
            "mine",
            "netns-4026531840/tc/globals/bpfp_row",
            "tc/globals/cilium_calls",
        ];
        assert_eq!(pins(&root), left);
        assert!(!root.join("tc/globals/generation_3").exists());
        let names: Vec<String> =
            leftovers.kernel.links().expect("links").into_iter().map(|link| link.name).collect();
        assert!(names.contains(&"eth0".to_owned()) && !names.contains(&"bpfin.cali".to_owned()), "{names:?}");
        std::fs::remove_dir_all(&root).expect("removed");
        leftovers.remove().expect("where there are no pins there is nothing to do");
    }
}
