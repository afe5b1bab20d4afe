//! Path attributes, with RFC 7606's handling of each malformed one.

mod values;

use super::reader::Reader;
use crate::{
    AttributeFault, Attributes, Cause, Family, FaultAction, FaultKind, NextHop, Notification, SessionOptions,
    UnknownAttribute, UpdateFault, attribute,
};

pub(super) type Fault = AttributeFault;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const PARTIAL: u8 = 0x20;
const EXTENDED_LENGTH: u8 = 0x10;

/// The undecoded prefixes of MP_REACH_NLRI or MP_UNREACH_NLRI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefixes<'a> {
    pub(super) family: Family,
    pub(super) with_path: bool,
    /// Only for MP_REACH_NLRI. `None` if it is not the address of a host.
    pub(super) next_hop: Option<NextHop>,
    pub(super) nlri: &'a [u8],
}

/// The decoded attributes of a message.
#[derive(Debug, Default)]
pub(super) struct Read<'a> {
    pub(super) attributes: Attributes,
    pub(super) next_hop: Option<NextHop>,
    pub(super) reach: Option<Prefixes<'a>>,
    pub(super) unreach: Option<Prefixes<'a>>,
    pub(super) faults: Vec<Fault>,
    pub(super) has_origin: bool,
    pub(super) has_as_path: bool,
    /// The number of attributes.
    pub(super) count: usize,
}

/// An undecoded attribute.
#[derive(Clone, Copy, Debug)]
struct Raw<'a> {
    flags: u8,
    code: u8,
    value: &'a [u8],
}

/// Why an attribute is rejected.
enum Refusal {
    Fault(FaultKind, FaultAction),
    Reset(UpdateFault),
}

fn withdraw(kind: FaultKind) -> Refusal {
    Refusal::Fault(kind, FaultAction::Withdraw)
}

fn discard(kind: FaultKind) -> Refusal {
    Refusal::Fault(kind, FaultAction::Discard)
}

/// Decodes the attributes of a message.
///
/// # Errors
/// When the session has to end.
pub(super) fn read<'a>(bytes: &'a [u8], options: &SessionOptions) -> Result<Read<'a>, Notification> {
    let mut reader = Reader::new(bytes);
    let mut read = Read::default();
    let mut seen = [0_u64; 4];
    let mut unknown = Vec::new();
    let mut four_bytes = values::FourBytes::default();
    while !reader.is_empty() {
        let Some(raw) = next(&mut reader) else {
            // The start of the next attribute is unknown. The reported code is read from where it should be, if there
            // are bytes left.
            let code = reader.rest().get(1).copied().unwrap_or_default();
            read.faults.push(Fault { code, kind: FaultKind::Overrun, action: FaultAction::Withdraw });
            break;
        };
        read.count += 1;
        let (word, bit) = (usize::from(raw.code >> 6), 1_u64 << (raw.code & 63));
        if seen[word] & bit != 0 {
            if matches!(raw.code, attribute::MP_REACH | attribute::MP_UNREACH) {
                return Err(Cause::Update(UpdateFault::MalformedAttributes).into());
            }
            read.faults.push(Fault {
                code: raw.code,
                kind: FaultKind::Repeated,
                action: FaultAction::Discard,
            });
            continue;
        }
        seen[word] |= bit;
        let taken = flags(raw).and_then(|()| match raw.code {
            attribute::MP_REACH => {
                read.reach = values::reach(raw.value, options)?;
                match read.reach {
                    Some(Prefixes { next_hop: None, .. }) => Err(withdraw(FaultKind::Value)),
                    _ => Ok(()),
                }
            }
            attribute::MP_UNREACH => {
                read.unreach = values::unreach(raw.value, options)?;
                Ok(())
            }
            _ => values::take(raw, options, &mut read, &mut four_bytes, &mut unknown),
        });
        match taken {
            Ok(()) => {}
            Err(Refusal::Fault(kind, action)) => {
                read.faults.push(Fault { code: raw.code, kind, action });
                // Even with wrong flags, the routes are decoded, so that they can be withdrawn.
                if kind == FaultKind::Flags {
                    match raw.code {
                        attribute::MP_REACH => read.reach = reset(values::reach(raw.value, options), raw)?,
                        attribute::MP_UNREACH => {
                            read.unreach = reset(values::unreach(raw.value, options), raw)?;
                        }
                        _ => {}
                    }
                }
            }
            Err(Refusal::Reset(fault)) => return Err(notification(fault, raw)),
        }
    }
    unknown.sort_by_key(|attribute: &UnknownAttribute| attribute.code);
    read.attributes.unknown = unknown.into();
    four_bytes.merge(&mut read.attributes, options);
    Ok(read)
}

fn reset<T>(result: Result<T, Refusal>, raw: Raw<'_>) -> Result<T, Notification> {
    result.map_err(|refusal| match refusal {
        Refusal::Reset(fault) => notification(fault, raw),
        Refusal::Fault(..) => notification(UpdateFault::OptionalAttribute, raw),
    })
}

/// The attribute as data of a NOTIFICATION, as RFC 4271 requires.
fn notification(fault: UpdateFault, raw: Raw<'_>) -> Notification {
    let mut data = vec![raw.flags | EXTENDED_LENGTH, raw.code];
    data.extend_from_slice(&u16::try_from(raw.value.len()).unwrap_or(u16::MAX).to_be_bytes());
    // A NOTIFICATION has to fit into the shortest maximum length that a peer may support.
    data.extend_from_slice(&raw.value[..raw.value.len().min(2048)]);
    Notification::new(Cause::Update(fault), data)
}

fn next<'a>(reader: &mut Reader<'a>) -> Option<Raw<'a>> {
    let mut ahead = *reader;
    let (flags, code) = (ahead.u8()?, ahead.u8()?);
    let length =
        if flags & EXTENDED_LENGTH != 0 { usize::from(ahead.u16()?) } else { usize::from(ahead.u8()?) };
    let value = ahead.take(length)?;
    *reader = ahead;
    Some(Raw { flags, code, value })
}

/// Checks that the flags fit the type.
fn flags(raw: Raw<'_>) -> Result<(), Refusal> {
    let expected = match raw.code {
        attribute::ORIGIN
        | attribute::AS_PATH
        | attribute::NEXT_HOP
        | attribute::LOCAL_PREF
        | attribute::ATOMIC_AGGREGATE => TRANSITIVE,
        attribute::MED
        | attribute::ORIGINATOR_ID
        | attribute::CLUSTER_LIST
        | attribute::MP_REACH
        | attribute::MP_UNREACH
        | attribute::AIGP => OPTIONAL,
        attribute::AGGREGATOR
        | attribute::COMMUNITIES
        | attribute::EXTENDED_COMMUNITIES
        | attribute::AS4_PATH
        | attribute::AS4_AGGREGATOR
        | attribute::LARGE_COMMUNITIES => OPTIONAL | TRANSITIVE,
        _ => return Ok(()),
    };
    if raw.flags & (OPTIONAL | TRANSITIVE) == expected {
        return Ok(());
    }
    // For AS4_PATH and the like, and AIGP, losing the attribute is preferred to losing the route.
    Err(match raw.code {
        attribute::AS4_PATH | attribute::AS4_AGGREGATOR | attribute::AIGP => discard(FaultKind::Flags),
        _ => withdraw(FaultKind::Flags),
    })
}
