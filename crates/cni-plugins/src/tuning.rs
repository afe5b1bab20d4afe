//! `tuning`: sysctls, hardware address, MTU, queue length and flags of a container's interface.
//!
//! ADD first stores the interface's settings that it changes in a file, and DEL restores them: the interface may
//! outlive the container. Sysctls disappear with the namespace.

mod settings;

use crate::frame::{failure, in_container, in_container_if_there, previous_result};
use cni_protocol::error::Result;
use cni_protocol::result::CniResult;
use cni_protocol::{Call, CniError};
use netlink::{Handle, Kernel as _, Link, LinkChange, LinkRef, Operation, first_failure, sysctl};
use settings::{Settings, Wanted, sysctl_path};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// Patterns of the allowed sysctls, one per line; if the file is missing all are allowed.
const ALLOW_LIST: &str = "/etc/cni/tuning/allowlist.conf";

pub(crate) fn add(call: &Call, input: &[u8]) -> Result<CniResult> {
    let settings = Settings::read(call, input)?;
    let allowed = match std::fs::read_to_string(ALLOW_LIST) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(failure(format!("read {ALLOW_LIST}: {error}"))),
    };
    if let Some(text) = allowed {
        settings.check_allowed(&text)?;
    }
    let Some(mut result) = previous_result(call)? else {
        return Err(failure("Required prevResult missing"));
    };
    in_container(call, || {
        for (key, value) in &settings.sysctls {
            let path = sysctl_path(key, &call.ifname)?;
            sysctl::write(&path, value).map_err(|error| failure(error.to_string()))?;
        }
        if settings.link.is_empty() {
            return Ok(());
        }
        let mut kernel = open()?;
        let link = read(&mut kernel, &call.ifname)?;
        keep(&settings.backup_file(call), &settings.link.before(&link))?;
        change(&mut kernel, &link, &settings.link)
    })?;
    if let Some(mac) = &settings.link.mac {
        for interface in result.interfaces.iter_mut().filter(|interface| interface.name == call.ifname) {
            mac.clone_into(&mut interface.mac);
        }
    }
    Ok(result)
}

/// Restores the interface. As in the reference plugin, a failure here does not fail DEL: usually the interface
/// disappears with its namespace.
pub(crate) fn delete(call: &Call) -> Result<()> {
    let settings = Settings::read(call, &[])?;
    let path = settings.backup_file(call);
    let Ok(text) = std::fs::read(&path) else { return Ok(()) };
    let restored = in_container_if_there(call, || {
        let Ok(before) = serde_json::from_slice::<Wanted>(&text) else { return Ok(()) };
        let mut kernel = open()?;
        let Ok(link) = read(&mut kernel, &call.ifname) else { return Ok(()) };
        change(&mut kernel, &link, &before)
    });
    match restored {
        Ok(()) => drop(std::fs::remove_file(&path)),
        Err(error) => eprintln!("tuning: {} could not be restored: {error}", call.ifname),
    }
    Ok(())
}

pub(crate) fn check(call: &Call, input: &[u8]) -> Result<()> {
    let settings = Settings::read(call, input)?;
    if previous_result(call)?.is_none() {
        return Err(failure("Required prevResult missing"));
    }
    in_container(call, || {
        for (key, wanted) in &settings.sysctls {
            let path = sysctl_path(key, &call.ifname)?;
            let found = sysctl::read(&path).map_err(|error| failure(error.to_string()))?;
            let found = found.trim_end_matches('\n');
            if wanted != found {
                return Err(failure(format!(
                    "Error: Tuning configured value of /proc/sys/{path} is {wanted}, current value is {found}"
                )));
            }
        }
        let link = read(&mut open()?, &call.ifname)?;
        settings.link.compare(&link).map_err(failure)
    })
}

fn open() -> Result<Handle> {
    Handle::open().map_err(|error| failure(error.to_string()))
}

fn read(kernel: &mut Handle, name: &str) -> Result<Link> {
    let found = kernel.link(&LinkRef::from(name)).map_err(|error| failure(error.to_string()))?;
    found.ok_or_else(|| failure(format!("Cannot find container link {name}")))
}

fn change(kernel: &mut Handle, link: &Link, wanted: &Wanted) -> Result<()> {
    let mac = wanted.mac.as_deref().map(str::parse).transpose();
    let change = LinkChange {
        mac: mac.map_err(|_| {
            failure(format!("invalid args {} for MAC addr", wanted.mac.as_deref().unwrap_or_default()))
        })?,
        mtu: wanted.mtu,
        promiscuous: wanted.promisc,
        all_multicast: wanted.allmulti,
        tx_queue_length: wanted.tx_queue_length,
        ..LinkChange::default()
    };
    first_failure(kernel.apply(&[Operation::ChangeLink(link.index.into(), change)]))
        .map_err(|error| failure(error.to_string()))
}

/// Stores the settings of an interface. An existing file contains the settings before an earlier ADD, and stays.
fn keep(path: &Path, before: &Wanted) -> Result<()> {
    let failed = |error: std::io::Error| failure(format!("failed to save file {}: {error}", path.display()));
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
    }
    let text = serde_json::to_vec_pretty(before).map_err(|error| failed(error.into()))?;
    let created = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match created {
        Ok(mut file) => file.write_all(&text).map_err(failed),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

impl Settings {
    fn backup_file(&self, call: &Call) -> PathBuf {
        self.data_dir.join(format!("{}_{}.json", call.container_id, call.ifname))
    }

    /// Refuses a sysctl that no pattern of the allow list matches.
    fn check_allowed(&self, text: &str) -> Result<(), CniError> {
        let patterns: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        for key in self.sysctls.keys() {
            let mut allowed = false;
            for pattern in &patterns {
                let compiled = regex::Regex::new(pattern).map_err(|error| {
                    failure(format!("the pattern {pattern:?} of {ALLOW_LIST} cannot be read: {error}"))
                })?;
                allowed |= compiled.is_match(key);
            }
            if !allowed {
                return Err(failure(format!(
                    "Sysctl {key} is not allowed. Only the following sysctls are allowed: [{}]",
                    patterns.join(" ")
                )));
            }
        }
        Ok(())
    }
}
