//! Features of network devices, through the kernel's generic netlink family "ethtool" (Linux 5.6 and newer).
//!
//! Features are named as in the kernel (`rx-gro`); `ethtool --show-features` lists them under the same or an older
//! name. Only the named feature is ever read or changed.

use crate::error::{Error, Result};
use crate::generic::{Generic, body};
use crate::wire::{Writer, attributes};
use rustix::io::Errno;

/// Generic receive offload: packets of one flow are merged before the host's stack sees them.
pub const GENERIC_RECEIVE_OFFLOAD: &str = "rx-gro";

const VERSION: u8 = 1;
const GET: u8 = 11;
const SET: u8 = 12;

const HEADER: u16 = 1;
const HEADER_INDEX: u16 = 1;
const HEADER_FLAGS: u16 = 3;
/// Suppresses the reply to a change; only the acknowledgement is sent.
const NO_REPLY: u32 = 1 << 1;

/// The wanted and the active features of the device.
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;

const SET_BITS: u16 = 3;
const SET_BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// A socket to the features of devices of the network namespace in which it was opened.
#[derive(Debug)]
pub struct Features {
    generic: Generic,
}

impl Features {
    /// Opens the socket.
    ///
    /// # Errors
    /// When the kernel does not provide one; `is_unsupported` where the kernel lacks the family.
    pub fn open() -> Result<Self> {
        Ok(Self { generic: Generic::open("ethtool", VERSION)? })
    }

    /// Whether a feature of a device is switched on. `None` if the device does not exist.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_on(&mut self, device: u32, feature: &str) -> Result<Option<bool>> {
        let mut writer = self.generic.writer(GET);
        header(&mut writer, device, 0);
        let request = self.generic.request(writer);
        let what = || format!("read the features of device {device}");
        let answer = self.generic.connection.exchange(&[request])?.pop().unwrap_or_default();
        match answer.into_result(what) {
            Ok(messages) => Ok(Some(messages.iter().any(|(_, payload)| lists(body(payload), feature)))),
            Err(Error::Refused { errno: Errno::NODEV, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Switches a feature of a device on or off, and leaves the others as they are.
    ///
    /// # Errors
    /// When the kernel refuses: no such device or feature, or one that cannot be changed.
    pub fn switch(&mut self, device: u32, feature: &str, on: bool) -> Result<()> {
        let mut writer = self.generic.writer(SET);
        header(&mut writer, device, NO_REPLY);
        writer.nested(WANTED, |wanted| {
            wanted.nested(SET_BITS, |bits| {
                bits.nested(SET_BIT, |bit| {
                    bit.text(BIT_NAME, feature);
                    if on {
                        bit.bytes(BIT_VALUE, &[]);
                    }
                });
            });
        });
        let request = self.generic.request(writer);
        let state = if on { "on" } else { "off" };
        let what = || format!("switch {feature} of device {device} {state}");
        let answer = self.generic.connection.exchange(&[request])?.pop().unwrap_or_default();
        answer.into_result(what).map(drop)
    }
}

fn header(writer: &mut Writer, device: u32, flags: u32) {
    writer.nested(HEADER, |header| {
        header.u32(HEADER_INDEX, device);
        if flags != 0 {
            header.u32(HEADER_FLAGS, flags);
        }
    });
}

/// Whether a feature is among the active ones of an answer, which lists only those that are on.
fn lists(answer: &[u8], feature: &str) -> bool {
    attributes(answer)
        .filter(|attribute| attribute.number == ACTIVE)
        .flat_map(|active| attributes(active.value))
        .filter(|attribute| attribute.number == SET_BITS)
        .flat_map(|bits| attributes(bits.value))
        .flat_map(|bit| attributes(bit.value))
        .any(|part| part.number == BIT_NAME && part.str() == Some(feature))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_is_on_if_it_is_listed_as_active() {
        let mut writer = Writer::new(&[]);
        for (set, names) in [(WANTED, ["rx-gro", "tx-lockless"]), (ACTIVE, ["tx-lockless", "highdma"])] {
            writer.nested(set, |set| {
                set.nested(SET_BITS, |bits| {
                    for name in names {
                        bits.nested(SET_BIT, |bit| _ = bit.u32(1, 7).text(BIT_NAME, name));
                    }
                });
            });
        }
        let answer = writer.finish();
        assert!(lists(&answer, "highdma"));
        assert!(!lists(&answer, "rx-gro"));
        for end in 0..answer.len() {
            lists(&answer[..end], "highdma");
        }
    }
}
