//! The programs of sockets: `connect`, and `sendmsg` and `recvmsg` of UDP, by which a socket of the host gets a service's backend
//! before its first packet.
//!
//! Attachments are pinned under Calico's names, so that either can take over or remove what the other left. The program for IPv6
//! and the one for addresses of IPv4 in sockets of IPv6 are attached beside each other. It refuses to decide where the group and
//! the pins are.

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

/// Programs, where they are attached, and whether that is for UDP only.
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
    /// UDP is left alone; its programs are not attached.
    pub excludes_udp: bool,
    /// Seconds that a UDP socket without a connection stays with its backend after it last sent.
    pub udp_seconds: u32,
    /// The kernel lets a program choose the error: [`probe::Features::answers`](crate::probe::Features). Without it a service
    /// that has no backend is "not permitted" in the place of "connection refused".
    pub can_answer: bool,
}

impl Connect {
    /// The object file for an IP version, as it is part of this program.
    ///
    /// # Errors
    /// When this program was built from a broken one.
    pub fn object(version: Version) -> Result<Object> {
        packed::object(match version {
            Version::V4 => packed!("connect_v4.o"),
            Version::V6 => packed!("connect_v6.o"),
        })
    }

    /// Loads the programs of an object.
    ///
    /// # Errors
    /// When the kernel refuses something. Then nothing stays.
    pub fn load(&self, mut object: Object, shared: &BTreeMap<&str, &Map>) -> Result<Loaded> {
        let constants = [u32::from(self.excludes_udp), self.udp_seconds, u32::from(self.can_answer)];
        let constants: Vec<u8> = constants.iter().flat_map(crate::table::Layout::bytes).collect();
        object.set_constant("connecting", &constants)?;
        object.load(shared)
    }

    /// Attaches the programs to a control group and pins the attachments in a folder, each in the place of the one that was
    /// pinned there before: no call passes between the two.
    ///
    /// # Errors
    /// When the kernel refuses. What was attached until then stays.
    pub fn attach(&self, loaded: &Loaded, group: BorrowedFd<'_>, pins: &Path) -> Result<()> {
        for (name, hook, is_udp) in PROGRAMS {
            let Some(program) = loaded.programs.get(name) else { continue };
            let pin = pins.join(name);
            if is_udp && self.excludes_udp {
                remove(&pin)?;
                continue;
            }
            // One that cannot be opened or changed, such as another program's, makes room for a new one.
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

/// Ends all attachments whose pins are in a folder; those that are not there are no error.
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
