//! Decodes bytes to messages.

use crate::messages::{
    ClientHello, Compression, Message, NAME_PREFIX, Position, Revision, ServerHello, WireUpdate, status_of,
};
use crate::snappy::{self, Frames};
use crate::time::GoTime;
use gob::{Field, Reader, Segments, TypeId, Types};

/// Why a stream cannot be read any further.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The messages are malformed.
    #[error("the stream cannot be decoded: {0}")]
    Gob(#[from] gob::Error),
    /// The compressed stream is malformed.
    #[error("the stream cannot be decompressed: {0}")]
    Snappy(#[from] snappy::FrameError),
    /// An unknown message. Go refuses it, too: its sender should have checked first whether we know it.
    #[error("the message {0} is not known")]
    UnknownMessage(String),
    /// Entries from a client. Only servers send them, so they are refused without being decoded.
    #[error("entries came from a client")]
    FromClient,
    /// An envelope without a message.
    #[error("an envelope holds no message")]
    Empty,
    /// Bytes of the old stream after its last message.
    #[error("{0} bytes follow the end of a stream")]
    AfterEnd(usize),
}

/// How many names of compressions are kept from a hello. Further ones are skipped: a name may be one byte on the wire.
const MOST_COMPRESSIONS: usize = 16;
/// How many updates a message may have. Servers send at most a thousand, unless configured otherwise.
const MOST_UPDATES: usize = 1 << 20;

/// The sender of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Any,
    Client,
}

/// Decodes a stream.
#[derive(Debug)]
pub struct Incoming {
    sender: Sender,
    limit: usize,
    frames: Option<Frames>,
    segments: Segments,
    message: gob::Message,
    types: Types,
}

impl Incoming {
    /// Creates a decoder for a new stream, in which no message is longer than `limit`.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            sender: Sender::Any,
            limit,
            frames: None,
            segments: Segments::new(limit),
            message: gob::Message::default(),
            types: Types::new(),
        }
    }

    /// Creates a decoder for a stream sent by a client, in which entries are refused.
    #[must_use]
    pub fn from_client(limit: usize) -> Self {
        Self { sender: Sender::Client, ..Self::new(limit) }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.frames {
            Some(frames) => frames.push(bytes),
            None => self.segments.push(bytes),
        }
    }

    /// Whether a message has been received only partly.
    #[must_use]
    pub fn is_in_message(&self) -> bool {
        self.segments.waiting() > 0 || self.frames.as_ref().is_some_and(|frames| frames.waiting() > 0)
    }

    /// Passes the next message to `take`; returns `None` when it is incomplete.
    ///
    /// # Errors
    /// When the stream is malformed.
    pub fn next<T>(&mut self, take: impl FnOnce(Message<'_>) -> T) -> Result<Option<T>, WireError> {
        let mut take = Some(take);
        loop {
            let Some(segment) = self.segments.take()? else {
                let Some(frames) = &mut self.frames else { return Ok(None) };
                if !frames.next(self.segments.buffer())? {
                    return Ok(None);
                }
                continue;
            };
            let mut refusal = None;
            let sender = self.sender;
            let outcome = self.message.take(segment, self.limit, &mut self.types, |reader, id| {
                match envelope(reader, id, sender)? {
                    Ok(message) => Ok(take.take().map(|take| take(message))),
                    Err(error) => {
                        refusal = Some(error);
                        Ok(None)
                    }
                }
            })?;
            match (outcome, refusal) {
                (_, Some(error)) => return Err(error),
                (Some(value), None) => return Ok(value),
                (None, None) => {}
            }
        }
    }

    /// Begins a new stream, after the last message of the old one.
    ///
    /// # Errors
    /// When bytes have arrived after the end of the old stream: nothing may be sent before the ACK.
    pub fn restart(&mut self, compression: Compression) -> Result<(), WireError> {
        let left = self.segments.waiting() + self.frames.as_ref().map_or(0, Frames::waiting);
        if left > 0 {
            return Err(WireError::AfterEnd(left));
        }
        *self = Self { sender: self.sender, ..Self::new(self.limit) };
        if compression == Compression::Snappy {
            self.frames = Some(Frames::default());
        }
        Ok(())
    }
}

/// A message, or why it is refused although it was decoded.
type Judged<'a> = Result<Message<'a>, WireError>;

fn envelope<'a>(reader: &mut Reader<'a>, id: TypeId, sender: Sender) -> Result<Judged<'a>, gob::Error> {
    let mut held = None;
    reader.structure(id, |reader, field| {
        if field.name == "Message" && field.id == TypeId::INTERFACE {
            held = reader.interface(|reader, name, id| message(reader, name, id, sender))?;
            Ok(())
        } else {
            reader.skip(field.id)
        }
    })?;
    Ok(held.unwrap_or(Err(WireError::Empty)))
}

fn message<'a>(
    reader: &mut Reader<'a>,
    name: &'a str,
    id: TypeId,
    sender: Sender,
) -> Result<Judged<'a>, gob::Error> {
    let known = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
    Ok(Ok(match known {
        "MsgClientHello" => Message::ClientHello(client_hello(reader, id)?),
        "MsgServerHello" => Message::ServerHello(server_hello(reader, id)?),
        "MsgDecoderRestart" => {
            let (mut message, mut algorithm) = (String::new(), String::new());
            reader.structure(id, |reader, field| match field.name.as_str() {
                "Message" => text(reader, field, &mut message),
                "CompressionAlgorithm" => text(reader, field, &mut algorithm),
                _ => reader.skip(field.id),
            })?;
            Message::DecoderRestart {
                message,
                compression: Compression::from_name(&algorithm).ok_or(algorithm),
            }
        }
        "MsgACK" => {
            reader.structure(id, |reader, field| reader.skip(field.id))?;
            Message::Ack
        }
        "MsgSyncStatus" => {
            let mut status = 0;
            reader.structure(id, |reader, field| match field.name.as_str() {
                "SyncStatus" => uint(reader, field, &mut status),
                _ => reader.skip(field.id),
            })?;
            Message::SyncStatus(status_of(status))
        }
        "MsgPing" => {
            let mut ping = GoTime::default();
            reader.structure(id, |reader, field| match field.name.as_str() {
                "Timestamp" => time(reader, field, &mut ping),
                _ => reader.skip(field.id),
            })?;
            Message::Ping(ping)
        }
        "MsgPong" => {
            let (mut ping, mut pong) = (GoTime::default(), GoTime::default());
            reader.structure(id, |reader, field| match field.name.as_str() {
                "PingTimestamp" => time(reader, field, &mut ping),
                "PongTimestamp" => time(reader, field, &mut pong),
                _ => reader.skip(field.id),
            })?;
            Message::Pong { ping, pong }
        }
        "MsgKVs" if sender == Sender::Client => {
            reader.skip(id)?;
            return Ok(Err(WireError::FromClient));
        }
        "MsgKVs" => {
            let mut updates = Vec::new();
            reader.structure(id, |reader, field| match field.name.as_str() {
                "KVs" => kvs(reader, field.id, &mut updates),
                _ => reader.skip(field.id),
            })?;
            Message::Kvs(updates)
        }
        "MsgPosition" => {
            let mut position = Position::default();
            reader.structure(id, |reader, field| match field.name.as_str() {
                "Instance" => uint(reader, field, &mut position.instance),
                "Sequence" => uint(reader, field, &mut position.sequence),
                _ => reader.skip(field.id),
            })?;
            Message::Position(position)
        }
        _ => {
            if reader.types().fields(id).is_err() {
                reader.not_a_struct()?;
            }
            reader.skip(id)?;
            return Ok(Err(WireError::UnknownMessage(name.to_owned())));
        }
    }))
}

fn client_hello(reader: &mut Reader<'_>, id: TypeId) -> Result<ClientHello, gob::Error> {
    let mut hello = ClientHello::default();
    reader.structure(id, |reader, field| match field.name.as_str() {
        "Hostname" => text(reader, field, &mut hello.hostname),
        "Info" => text(reader, field, &mut hello.info),
        "Version" => text(reader, field, &mut hello.version),
        "SyncerType" => text(reader, field, &mut hello.syncer_type),
        "SupportsDecoderRestart" => truth(reader, field, &mut hello.supports_decoder_restart),
        "SupportedCompressionAlgorithms" => reader.slice(field.id, |reader, element| {
            expect(element, TypeId::STRING, "a string")?;
            let name = reader.bytes()?;
            if hello.compression.len() < MOST_COMPRESSIONS {
                hello.compression.push(lossy(name));
            }
            Ok(())
        }),
        "SupportsModernPolicyKeys" => truth(reader, field, &mut hello.supports_modern_policy_keys),
        "ClientConnID" => uint(reader, field, &mut hello.connection_id),
        "SupportsResume" => truth(reader, field, &mut hello.supports_resume),
        "ResumeInstance" => uint(reader, field, &mut hello.resume.instance),
        "ResumeSequence" => uint(reader, field, &mut hello.resume.sequence),
        _ => reader.skip(field.id),
    })?;
    Ok(hello)
}

fn server_hello(reader: &mut Reader<'_>, id: TypeId) -> Result<ServerHello, gob::Error> {
    let mut hello = ServerHello::default();
    reader.structure(id, |reader, field| match field.name.as_str() {
        "Version" => text(reader, field, &mut hello.version),
        "SyncerType" => text(reader, field, &mut hello.syncer_type),
        "SupportsNodeResourceUpdates" => truth(reader, field, &mut hello.supports_node_resource_updates),
        "ServerConnID" => uint(reader, field, &mut hello.connection_id),
        "Resumed" => truth(reader, field, &mut hello.resumed),
        _ => reader.skip(field.id),
    })?;
    Ok(hello)
}

/// A field of an update.
#[derive(Clone, Copy)]
enum Part {
    Key,
    Value,
    Revision,
    ResourceVersion,
    Ttl,
    UpdateType,
    Other(TypeId),
}

/// The positions of the fields: looked up once for all updates of a message.
fn parts(fields: &[Field]) -> Result<Vec<Part>, gob::Error> {
    fields
        .iter()
        .map(|field| {
            let (part, id, name) = match field.name.as_str() {
                "Key" => (Part::Key, TypeId::STRING, "a string"),
                "Value" => (Part::Value, TypeId::BYTES, "bytes"),
                "Revision" => (Part::Revision, TypeId::INTERFACE, "an interface"),
                "V3ResourceVersion" => (Part::ResourceVersion, TypeId::STRING, "a string"),
                "TTL" => (Part::Ttl, TypeId::INT, "an integer"),
                "UpdateType" => (Part::UpdateType, TypeId::UINT, "an unsigned integer"),
                _ => return Ok(Part::Other(field.id)),
            };
            expect(field.id, id, name).map(|()| part)
        })
        .collect()
}

fn kvs<'a>(reader: &mut Reader<'a>, id: TypeId, updates: &mut Vec<WireUpdate<'a>>) -> Result<(), gob::Error> {
    let element = reader.types().element(id)?;
    let parts = parts(reader.types().fields(element)?)?;
    reader.slice(id, |reader, _| {
        if updates.len() >= MOST_UPDATES {
            return Err(gob::Error::TooMany("updates in one message"));
        }
        let mut update = WireUpdate {
            key: &[],
            value: None,
            revision: Revision::None,
            v3_resource_version: &[],
            ttl: 0,
            update_type: 0,
        };
        reader.raw_struct(|reader, index| {
            let part = usize::try_from(index).ok().and_then(|index| parts.get(index));
            match part.ok_or(gob::Error::NoSuchField(index))? {
                Part::Key => update.key = reader.bytes()?,
                // An empty value counts as none, as in Go.
                Part::Value => update.value = Some(reader.bytes()?).filter(|value| !value.is_empty()),
                Part::Revision => update.revision = reader.interface(revision)?.unwrap_or(Revision::None),
                Part::ResourceVersion => update.v3_resource_version = reader.bytes()?,
                Part::Ttl => update.ttl = reader.int()?,
                Part::UpdateType => update.update_type = reader.uint()?,
                Part::Other(id) => reader.skip(*id)?,
            }
            Ok(())
        })?;
        updates.push(update);
        Ok(())
    })
}

fn revision<'a>(reader: &mut Reader<'a>, _: &'a str, id: TypeId) -> Result<Revision<'a>, gob::Error> {
    let is_struct = reader.types().fields(id).is_ok();
    if !is_struct {
        reader.not_a_struct()?;
    }
    Ok(match id {
        TypeId::STRING => Revision::Text(reader.bytes()?),
        TypeId::UINT => Revision::Number(reader.uint()?),
        TypeId::INT => Revision::Number(reader.int()?.unsigned_abs()),
        _ => {
            reader.skip(id)?;
            Revision::None
        }
    })
}

fn expect(found: TypeId, wanted: TypeId, expected: &'static str) -> Result<(), gob::Error> {
    if found == wanted { Ok(()) } else { Err(gob::Error::WrongType { expected, found: found.0 }) }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn text(reader: &mut Reader<'_>, field: &Field, into: &mut String) -> Result<(), gob::Error> {
    expect(field.id, TypeId::STRING, "a string")?;
    *into = lossy(reader.bytes()?);
    Ok(())
}

fn uint(reader: &mut Reader<'_>, field: &Field, into: &mut u64) -> Result<(), gob::Error> {
    expect(field.id, TypeId::UINT, "an unsigned integer")?;
    *into = reader.uint()?;
    Ok(())
}

fn truth(reader: &mut Reader<'_>, field: &Field, into: &mut bool) -> Result<(), gob::Error> {
    expect(field.id, TypeId::BOOL, "a bool")?;
    *into = reader.uint()? != 0;
    Ok(())
}

fn time(reader: &mut Reader<'_>, field: &Field, into: &mut GoTime) -> Result<(), gob::Error> {
    match reader.types().get(field.id).map(|one| &one.shape) {
        Some(gob::Shape::Gob) => {
            let found = GoTime::from_bytes(reader.bytes()?);
            *into = found.ok_or(gob::Error::WrongType { expected: "a time", found: field.id.0 })?;
            Ok(())
        }
        _ => Err(gob::Error::WrongType { expected: "a time", found: field.id.0 }),
    }
}
