//! Decodes messages. A malformed message becomes the NOTIFICATION that answers it.

mod attributes;
mod capabilities;
mod prefixes;
mod reader;
mod update;

use crate::{
    Cause, Family, HEADER_LENGTH, HeaderFault, MAX_LENGTH, Message, MessageKind, Notification, Open,
    OpenFault, RefreshFault, RefreshPhase, RouteRefresh, RouterId, SessionOptions,
};
use reader::Reader;

/// A complete message in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its type.
    pub kind: MessageKind,
    /// The bytes after the header.
    pub body: &'a [u8],
    /// The length of the whole message.
    pub length: usize,
}

/// Returns the first message of a buffer, if it is complete. The header is checked as soon as it has arrived, so that a
/// buffer never has to grow beyond the maximum message length.
///
/// # Errors
/// When the header is invalid; the error is the NOTIFICATION to send.
pub fn frame<'a>(buffer: &'a [u8], options: &SessionOptions) -> Result<Option<Frame<'a>>, Notification> {
    let seen = &buffer[..buffer.len().min(16)];
    if seen.iter().any(|byte| *byte != 0xff) {
        return Err(Cause::Header(HeaderFault::NotSynchronised).into());
    }
    let Some(&[high, low, kind]) = buffer.get(16..HEADER_LENGTH) else {
        return Ok(None);
    };
    let bad_length = || Notification::new(Cause::Header(HeaderFault::BadLength), [high, low]);
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length < HEADER_LENGTH || length > options.max_length() {
        return Err(bad_length());
    }
    let Some(kind) = MessageKind::from_number(kind) else {
        return Err(Notification::new(Cause::Header(HeaderFault::BadType), [kind]));
    };
    let fits = match kind {
        MessageKind::Open => (29..=MAX_LENGTH).contains(&length),
        MessageKind::Update | MessageKind::RouteRefresh => length >= 23,
        MessageKind::Notification => length >= 21,
        MessageKind::Keepalive => length == HEADER_LENGTH,
    };
    if !fits {
        return Err(bad_length());
    }
    Ok(buffer.get(HEADER_LENGTH..length).map(|body| Frame { kind, body, length }))
}

/// Decodes the body of a message.
///
/// # Errors
/// When the message is malformed; the error is the NOTIFICATION to send.
pub fn decode(frame: &Frame<'_>, options: &SessionOptions) -> Result<Message, Notification> {
    match frame.kind {
        MessageKind::Open => open(frame.body).map(Message::Open),
        MessageKind::Update => {
            update::decode(frame.body, options).map(|update| Message::Update(Box::new(update)))
        }
        MessageKind::Notification => Ok(notification(frame.body)),
        MessageKind::Keepalive => Ok(Message::Keepalive),
        MessageKind::RouteRefresh => refresh(frame),
    }
}

fn open(body: &[u8]) -> Result<Open, Notification> {
    let malformed = || Notification::from(Cause::Open(OpenFault::Unspecific));
    let mut reader = Reader::new(body);
    let version = reader.u8().ok_or_else(malformed)?;
    if version != 4 {
        return Err(Notification::new(Cause::Open(OpenFault::Version), [0, 4]));
    }
    let my_as = reader.u16().ok_or_else(malformed)?;
    let hold_time = reader.u16().ok_or_else(malformed)?;
    let router_id = RouterId(reader.u32().ok_or_else(malformed)?);
    let capabilities = capabilities::parameters(reader.rest())?;
    let open = Open { my_as, hold_time, router_id, capabilities };
    if matches!(hold_time, 1 | 2) {
        return Err(Cause::Open(OpenFault::HoldTime).into());
    }
    if router_id.0 == 0 {
        return Err(Notification::new(Cause::Open(OpenFault::Identifier), router_id.0.to_be_bytes()));
    }
    if open.system().0 == 0 {
        return Err(Cause::Open(OpenFault::PeerAs).into());
    }
    Ok(open)
}

fn notification(body: &[u8]) -> Message {
    let code = body.first().copied().unwrap_or_default();
    let subcode = body.get(1).copied().unwrap_or_default();
    // Kept whole: a NOTIFICATION is never too long to log.
    let data = body.get(2..).unwrap_or_default();
    Message::Notification(Notification::new(Cause::from_numbers(code, subcode), data))
}

fn refresh(frame: &Frame<'_>) -> Result<Message, Notification> {
    let &[high, low, subtype, safi, ref rest @ ..] = frame.body else {
        return Ok(Message::UnknownRefresh);
    };
    let phase = match subtype {
        0 => RefreshPhase::Request,
        1 => RefreshPhase::Begin,
        2 => RefreshPhase::End,
        _ => return Ok(Message::UnknownRefresh),
    };
    // A request may contain filters of RFC 5291, which are never agreed on here and are ignored.
    if phase != RefreshPhase::Request && !rest.is_empty() {
        let length = u16::try_from(frame.length).unwrap_or(u16::MAX).to_be_bytes();
        let mut message = vec![0xff; 16];
        message.extend_from_slice(&length);
        message.push(frame.kind.number());
        message.extend_from_slice(&frame.body[..frame.body.len().min(MAX_LENGTH - 2 * HEADER_LENGTH)]);
        return Err(Notification::new(Cause::Refresh(RefreshFault::Length), message));
    }
    Ok(match Family::from_numbers(u16::from_be_bytes([high, low]), safi) {
        Some(family) => Message::RouteRefresh(RouteRefresh { family, phase }),
        None => Message::UnknownRefresh,
    })
}
