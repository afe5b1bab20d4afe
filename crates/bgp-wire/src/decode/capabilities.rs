//! The optional parameters of OPEN. A malformed capability is kept as bytes: the sender loses the capability, not the
//! session.

use super::Reader;
use crate::{
    AddPathMode, Asn, Capability, Cause, Family, GracefulRestart, GracefulRestartFamily, LongLivedFamily,
    Notification, OpenFault,
};

const PARAMETER_CAPABILITIES: u8 = 2;
/// The parameter type, and length, that indicate two-byte lengths (RFC 9072).
const EXTENDED: u8 = 255;

/// Decodes the length and the parameters, in both formats.
pub(super) fn parameters(bytes: &[u8]) -> Result<Vec<Capability>, Notification> {
    let malformed = || Notification::from(Cause::Open(OpenFault::Unspecific));
    let mut reader = Reader::new(bytes);
    let short = reader.u8().ok_or_else(malformed)?;
    let extended = short != 0 && reader.rest().first() == Some(&EXTENDED);
    let length = if extended {
        reader.u8();
        usize::from(reader.u16().ok_or_else(malformed)?)
    } else {
        usize::from(short)
    };
    if reader.rest().len() != length {
        return Err(malformed());
    }
    let mut capabilities = Vec::new();
    while !reader.is_empty() {
        let kind = reader.u8().ok_or_else(malformed)?;
        let length = if extended { reader.u16().map(usize::from) } else { reader.u8().map(usize::from) };
        let value = length.and_then(|length| reader.take(length)).ok_or_else(malformed)?;
        if kind != PARAMETER_CAPABILITIES {
            return Err(Cause::Open(OpenFault::Parameter).into());
        }
        let mut value = Reader::new(value);
        while !value.is_empty() {
            let code = value.u8().ok_or_else(malformed)?;
            let length = value.u8().ok_or_else(malformed)?;
            let content = value.take(usize::from(length)).ok_or_else(malformed)?;
            let capability = capability(code, content)
                .unwrap_or_else(|| Capability::Other { code, value: content.to_vec() });
            capabilities.push(capability);
        }
    }
    Ok(capabilities)
}

fn capability(code: u8, value: &[u8]) -> Option<Capability> {
    let mut reader = Reader::new(value);
    let capability = match code {
        1 => {
            let (afi, _, safi) = (reader.u16()?, reader.u8()?, reader.u8()?);
            match Family::from_numbers(afi, safi) {
                Some(family) => Capability::Multiprotocol(family),
                None => Capability::OtherFamily(afi, safi),
            }
        }
        2 => Capability::RouteRefresh,
        5 => {
            let mut found = false;
            while !reader.is_empty() {
                let (afi, safi, next_hop) = (reader.u16()?, reader.u16()?, reader.u16()?);
                found |= (afi, safi, next_hop) == (1, 1, 2);
            }
            if !found {
                return None;
            }
            Capability::ExtendedNextHop
        }
        6 => Capability::ExtendedMessage,
        64 => {
            let head = reader.u16()?;
            let mut families = Vec::new();
            while !reader.is_empty() {
                let (afi, safi, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
                if let Some(family) = Family::from_numbers(afi, safi) {
                    families.push(GracefulRestartFamily { family, forwarding: flags & 0x80 != 0 });
                }
            }
            Capability::GracefulRestart(GracefulRestart {
                restarting: head & 0x8000 != 0,
                notification: head & 0x4000 != 0,
                restart_time: head & 0x0fff,
                families,
            })
        }
        65 => Capability::FourByteAs(Asn(reader.u32()?)),
        69 => {
            let mut modes = Vec::new();
            while !reader.is_empty() {
                let (afi, safi, mode) = (reader.u16()?, reader.u8()?, reader.u8()?);
                let mode = match mode {
                    1 => AddPathMode::Receive,
                    2 => AddPathMode::Send,
                    3 => AddPathMode::Both,
                    _ => continue,
                };
                if let Some(family) = Family::from_numbers(afi, safi) {
                    modes.push((family, mode));
                }
            }
            Capability::AddPath(modes)
        }
        70 => Capability::EnhancedRouteRefresh,
        71 => {
            let mut families = Vec::new();
            while !reader.is_empty() {
                let (afi, safi, flags) = (reader.u16()?, reader.u8()?, reader.u8()?);
                let [a, b, c] = reader.array()?;
                if let Some(family) = Family::from_numbers(afi, safi) {
                    let stale_time = u32::from_be_bytes([0, a, b, c]);
                    families.push(LongLivedFamily { family, forwarding: flags & 0x80 != 0, stale_time });
                }
            }
            Capability::LongLivedGracefulRestart(families)
        }
        _ => return None,
    };
    reader.is_empty().then_some(capability)
}
