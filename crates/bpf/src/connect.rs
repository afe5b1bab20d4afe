//! The programs for sockets: `connect`, and `sendmsg` and `recvmsg` of UDP, by which a socket of the host is connected
//! to a service's backend before its first packet.
//!
//! Attachments are pinned under Calico's names, so that either implementation can take over or remove what the other
//! left. The programs for IPv6 and for IPv4 addresses in IPv6 sockets are attached side by side. Does not decide where
//! the group and the pins are.

use crate::error::{Error, Result};
use crate::interface::Version;
use crate::link::{CgroupHook, Link};
use crate::map::Map;
use crate::object::{Loaded, Object};
use crate::packed::{self, packed};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// Programs, their hooks, and whether they are for UDP only.
const PROGRAMS: [(&str, CgroupHook, bool); 9] = [
    ("calico_connect_v4", CgroupHook::Connect4, false),
    ("calico_sendmsg_v4", CgroupHook::Send4, true),
    ("calico_recvmsg_v4", CgroupHook::Receive4, true),
    ("calico_connect_v46", CgroupHook::Connect6, false),
    ("calico_sendmsg_v46", CgroupHook::Send6, true),
    ("calico_recvmsg_v46", CgroupHook::Receive6, true),
    ("calico_connect_v6", CgroupHook::Connect6, false),
    ("calico_sendmsg_v6", CgroupHook::Send6, true),
    ("calico_recvmsg_v6", CgroupHook::Receive6, true),
];

/// The constants of the programs; `struct connecting` of `bpf/connect.c`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// UDP is left alone: its programs are not attached.
    pub excludes_udp: bool,
    /// For how many seconds after its last packet an unconnected UDP socket stays with its backend.
    pub udp_seconds: u32,
    /// The kernel lets a program choose the error: [`probe::Features::answers`](crate::probe::Features). Otherwise a
    /// service without backends is "not permitted" instead of "connection refused".
    pub can_answer: bool,
}

impl Connect {
    /// The object for an IP version, embedded in this program.
    ///
    /// # Errors
    /// When this program was built from a broken object.
    pub fn object(version: Version) -> Result<Object> {
        packed::object(match version {
            Version::V4 => packed!("connect_v4.o"),
            Version::V6 => packed!("connect_v6.o"),
        })
    }

    /// Loads the programs of an object.
    ///
    /// # Errors
    /// When the kernel refuses something. Then nothing remains loaded.
    pub fn load(&self, mut object: Object, shared: &BTreeMap<&str, &Map>) -> Result<Loaded> {
        let constants = [u32::from(self.excludes_udp), self.udp_seconds, u32::from(self.can_answer)];
        let constants: Vec<u8> = constants.iter().flat_map(crate::table::Layout::bytes).collect();
        object.set_constant("connecting", &constants)?;
        object.load(shared)
    }

    /// Attaches the programs to a control group and pins the attachments in a folder; a pinned attachment is atomically
    /// replaced.
    ///
    /// # Errors
    /// When the kernel refuses. Attachments made until then remain.
    pub fn attach(&self, loaded: &Loaded, group: BorrowedFd<'_>, pins: &Path) -> Result<()> {
        for (name, hook, is_udp) in PROGRAMS {
            let Some(program) = loaded.programs.get(name) else { continue };
            let pin = pins.join(name);
            if is_udp && self.excludes_udp {
                remove(&pin)?;
                continue;
            }
            // A link that cannot be opened or changed, such as another program's, is replaced by a new one.
            if Link::open(&pin).is_ok_and(|link| link.replace(program).is_ok()) {
                continue;
            }
            let link = Link::cgroup(program, group, hook)?;
            remove(&pin)?;
            link.pin(&pin)?;
        }
        Ok(())
    }
}

/// Removes all our attachments pinned in a folder; missing pins are not an error.
///
/// # Errors
/// When a pin cannot be removed.
pub fn detach(pins: &Path) -> Result<()> {
    PROGRAMS.iter().try_for_each(|(name, _, _)| remove(&pins.join(name)))
}

fn remove(pin: &Path) -> Result<()> {
    match std::fs::remove_file(pin) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(Error::refused(format!("remove the pin {}", pin.display()))(errno))
        }
        _ => Ok(()),
    }
}
