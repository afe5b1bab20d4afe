//! Generic netlink: message families that the kernel numbers at run time, found by their names.

use crate::connection::Connection;
use crate::datagram::Request;
use crate::error::{Error, Result};
use crate::wire::{Writer, attributes, split_header};
use netlink_sys::protocols::NETLINK_GENERIC;
use rustix::io::Errno;

/// The family that resolves all others.
const CONTROL: u16 = 16;
const GET_FAMILY: u8 = 3;
const CONTROL_VERSION: u8 = 1;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// A connection to one generic family.
#[derive(Debug)]
pub(crate) struct Generic {
    pub(crate) connection: Connection,
    family: u16,
    version: u8,
}

impl Generic {
    /// Opens a socket in the network namespace of this thread and requests the family's number, which also makes the
    /// kernel load the module that the family belongs to.
    pub(crate) fn open(name: &str, version: u8) -> Result<Self> {
        let mut connection = Connection::open(NETLINK_GENERIC)?;
        let mut writer = Writer::new(&header(GET_FAMILY, CONTROL_VERSION));
        writer.text(FAMILY_NAME, name);
        let request = Request { message_type: CONTROL, flags: 0, payload: writer.finish() };
        let what = || format!("find the netlink family {name}");
        let answer = connection.exchange(&[request])?.pop().unwrap_or_default();
        let messages = answer.into_result(what).map_err(|error| match error {
            // The control family reports a missing family this way.
            Error::Refused { what, errno: Errno::NOENT, message } => {
                Error::Refused { what, errno: Errno::OPNOTSUPP, message }
            }
            error => error,
        })?;
        let family = messages.iter().find_map(|(_, payload)| read_family(payload));
        let family = family.ok_or_else(|| Error::Unreadable {
            what: what(),
            reason: "it has no family number".to_owned(),
        })?;
        Ok(Self { connection, family, version })
    }

    /// Starts the payload of a message.
    pub(crate) fn writer(&self, command: u8) -> Writer {
        Writer::new(&header(command, self.version))
    }

    /// A message of the family.
    pub(crate) fn request(&self, writer: Writer) -> Request {
        Request { message_type: self.family, flags: 0, payload: writer.finish() }
    }
}

/// `struct genlmsghdr`.
fn header(command: u8, version: u8) -> [u8; 4] {
    [command, version, 0, 0]
}

/// The payload without the family's header.
pub(crate) fn body(payload: &[u8]) -> &[u8] {
    split_header::<4>(payload).map_or(&[], |(_, rest)| rest)
}

fn read_family(payload: &[u8]) -> Option<u16> {
    attributes(body(payload)).find(|attribute| attribute.number == FAMILY_ID)?.u16()
}

#[cfg(test)]
mod tests {
    use super::{FAMILY_ID, Generic, header, read_family};
    use crate::wire::Writer;

    #[test]
    fn a_family_has_a_number() {
        let mut writer = Writer::new(&header(1, 2));
        writer.text(2, "wireguard").u16(FAMILY_ID, 31);
        let bytes = writer.finish();
        assert_eq!(read_family(&bytes), Some(31));
        for end in 0..bytes.len() {
            assert!(matches!(read_family(&bytes[..end]), None | Some(31)));
        }
    }

    #[test]
    fn the_kernel_resolves_its_own_families_only() {
        // Every kernel with generic netlink has the control family, under its own name.
        assert_eq!(Generic::open("nlctrl", 1).expect("the control family").family, 16);
        let error = Generic::open("no-such-family", 1).expect_err("no such family");
        assert!(error.is_unsupported(), "{error}");
    }
}
