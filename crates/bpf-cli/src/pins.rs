//! `connect-time clean` and `cleanup`: removes programs and maps from the kernel.
//!
//! A program attached by a link is removed with its pin. Filters of `clsact` are removed one by one, so that those of
//! others remain; maps are removed with their pins, once no program uses them.

use crate::maps::Failure;
use netlink::{Kernel as _, Operation, first_failure};
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

/// Prefixes of the names of programs and pins.
const OURS: [&str; 4] = ["cali_", "calico_", "xdp_cali_", "bpfp_"];
/// Folders that contain only our links.
const LINKS: [&str; 3] = ["tcx", "netkit", "ctlb"];
/// One end of the device pair for the host's services; the other end is removed with it.
const DEVICE: &str = "bpfin.cali";

fn is_ours(name: &str) -> bool {
    OURS.iter().any(|prefix| name.starts_with(prefix))
}

pub(crate) fn detach(root: &Path, only_connect_time: bool) -> Result<(), Failure> {
    let mut failures = Vec::new();
    if only_connect_time {
        remove(&root.join("ctlb"), &|_| true, &mut failures);
        remove(&root.join("tc/globals"), &|name| name.starts_with("cali_ctlb_"), &mut failures);
    } else {
        for folder in LINKS {
            remove(&root.join(folder), &|_| true, &mut failures);
        }
        filters(&mut failures);
        remove(&root.join("tc/globals"), &is_ours, &mut failures);
        if let Err(error) = device() {
            failures.push(error.to_string());
        }
    }
    if failures.is_empty() { Ok(()) } else { Err(Failure::Wrong(failures.join("; "))) }
}

/// Removes pins in a folder and its subfolders.
fn remove(folder: &Path, is_chosen: &dyn Fn(&str) -> bool, failures: &mut Vec<String>) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return failures.push(format!("cannot read {}: {error}", folder.display())),
    };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&path, is_chosen, failures);
        } else if entry.file_name().to_str().is_some_and(is_chosen) {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    failures.push(format!("cannot remove {}: {error}", path.display()));
                }
                _ => {}
            }
        }
    }
}

/// Removes our programs from `clsact`.
fn filters(failures: &mut Vec<String>) {
    use bpf::clsact::{Direction, Filters};
    let outcome = (|| -> Result<(), Failure> {
        let (mut filters, devices) = (Filters::open()?, netlink::Handle::open()?.links()?);
        for device in devices {
            for direction in [Direction::Ingress, Direction::Egress] {
                // A device without the discipline has no filters.
                let all = filters.list(device.index, direction).unwrap_or_default();
                for filter in all.iter().filter(|filter| is_ours(&filter.name)) {
                    filters.detach(device.index, direction, filter.priority)?;
                }
            }
        }
        Ok(())
    })();
    if let Err(error) = outcome {
        failures.push(error.to_string());
    }
}

fn device() -> Result<(), Failure> {
    let mut kernel = netlink::Handle::open()?;
    match kernel.link(&DEVICE.into())? {
        Some(link) if link.kind == "veth" => {
            Ok(first_failure(kernel.apply(&[Operation::DeleteLink(link.index.into())]))?)
        }
        _ => Ok(()),
    }
}
