//! Encodes messages to bytes.
//!
//! In two ways: as Go does, with definitions where a type is first used ([`Outgoing`]), for messages to a single peer;
//! and as one segment without definitions ([`segment`]), for streams that began with all of them ([`STREAM_HEAD`]). The
//! bytes of the second way are the same for every client, so they are created once.

use crate::messages::{ClientHello, Message, NAME_PREFIX, Position, Revision, ServerHello, WireUpdate};
use crate::schema::{self, CALICO, EXTENDED};
use gob::number::{put_bytes, put_int, put_uint};
use gob::{Stream, StructWriter, TypeId};
use std::sync::LazyLock;

/// The definitions that a stream of entries begins with.
pub static STREAM_HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut head = schema::definitions(&[schema::ENVELOPE]);
    head.extend_from_slice(&REST_OF_HEAD);
    head
});

/// The definitions for a stream in which the envelope has already been defined, because it began with the server's
/// hello.
pub static REST_OF_HEAD: LazyLock<Vec<u8>> = LazyLock::new(|| {
    use schema::{KVS, PING, SYNC_STATUS, TIME, UPDATE, UPDATES};
    schema::definitions(&[SYNC_STATUS, PING, TIME, KVS, UPDATES, UPDATE])
});

/// One direction of a connection as Go writes it.
pub struct Outgoing(Stream<'static>);

impl Outgoing {
    /// The messages as Calico's programs define them.
    #[must_use]
    pub fn calico() -> Self {
        Self(Stream::new(&CALICO))
    }

    /// The messages with our extensions, for peers that understand or skip them.
    #[must_use]
    pub fn extended() -> Self {
        Self(Stream::new(&EXTENDED))
    }

    /// Appends a message, preceded by any definitions that the peer still needs.
    pub fn put(&mut self, message: &Message<'_>, out: &mut Vec<u8>) {
        let (name, id, value) = value(message);
        self.0.message(schema::ENVELOPE, &format!("{NAME_PREFIX}{name}"), id, &value, out);
    }
}

/// Encodes a message for a stream that has all definitions.
#[must_use]
pub fn segment(message: &Message<'_>) -> Vec<u8> {
    let (name, id, value) = value(message);
    wrapped(name, id, &value)
}

/// Encodes a message of updates that are already encoded.
#[must_use]
pub fn kvs_segment(count: usize, updates: &[u8]) -> Vec<u8> {
    let mut value = Vec::with_capacity(updates.len() + 12);
    put_uint(&mut value, 1);
    put_uint(&mut value, count as u64);
    value.extend_from_slice(updates);
    value.push(0);
    wrapped("MsgKVs", schema::KVS, &value)
}

fn wrapped(name: &str, id: TypeId, value: &[u8]) -> Vec<u8> {
    let mut inner = Vec::with_capacity(value.len() + NAME_PREFIX.len() + name.len() + 24);
    put_int(&mut inner, schema::ENVELOPE.0);
    put_uint(&mut inner, 1);
    put_uint(&mut inner, (NAME_PREFIX.len() + name.len()) as u64);
    inner.extend_from_slice(NAME_PREFIX.as_bytes());
    inner.extend_from_slice(name.as_bytes());
    put_int(&mut inner, id.0);
    put_bytes(&mut inner, value);
    inner.push(0);
    let mut out = Vec::with_capacity(inner.len() + 9);
    put_bytes(&mut out, &inner);
    out
}

fn value(message: &Message<'_>) -> (&'static str, TypeId, Vec<u8>) {
    let mut out = Vec::new();
    let mut writer = StructWriter::new(&mut out);
    let (name, id) = match message {
        Message::ClientHello(hello) => {
            client_hello(hello, &mut writer);
            ("MsgClientHello", schema::CLIENT_HELLO)
        }
        Message::ServerHello(hello) => {
            server_hello(hello, &mut writer);
            ("MsgServerHello", schema::SERVER_HELLO)
        }
        Message::DecoderRestart { message, compression } => {
            writer.text(0, message);
            writer.text(1, compression.as_ref().map_or_else(String::as_str, |known| known.as_str()));
            ("MsgDecoderRestart", schema::DECODER_RESTART)
        }
        Message::Ack => ("MsgACK", schema::ACK),
        Message::SyncStatus(status) => {
            writer.uint(0, status.map_or(0, crate::messages::status_number));
            ("MsgSyncStatus", schema::SYNC_STATUS)
        }
        Message::Ping(time) => {
            put_bytes(writer.field(0), &time.to_bytes());
            ("MsgPing", schema::PING)
        }
        Message::Pong { ping, pong } => {
            put_bytes(writer.field(0), &ping.to_bytes());
            put_bytes(writer.field(1), &pong.to_bytes());
            ("MsgPong", schema::PONG)
        }
        Message::Kvs(updates) => {
            if !updates.is_empty() {
                let out = writer.field(0);
                put_uint(out, updates.len() as u64);
                updates.iter().for_each(|one| put_update(one, out));
            }
            ("MsgKVs", schema::KVS)
        }
        Message::Position(Position { instance, sequence }) => {
            writer.uint(0, *instance);
            writer.uint(1, *sequence);
            ("MsgPosition", schema::POSITION)
        }
    };
    writer.end();
    (name, id, out)
}

fn client_hello(hello: &ClientHello, writer: &mut StructWriter<'_>) {
    writer.text(0, &hello.hostname);
    writer.text(1, &hello.info);
    writer.text(2, &hello.version);
    writer.text(3, &hello.syncer_type);
    writer.bool(4, hello.supports_decoder_restart);
    if !hello.compression.is_empty() {
        let out = writer.field(5);
        put_uint(out, hello.compression.len() as u64);
        hello.compression.iter().for_each(|name| put_bytes(out, name.as_bytes()));
    }
    writer.bool(6, hello.supports_modern_policy_keys);
    writer.uint(7, hello.connection_id);
    writer.bool(8, hello.supports_resume);
    writer.uint(9, hello.resume.instance);
    writer.uint(10, hello.resume.sequence);
}

fn server_hello(hello: &ServerHello, writer: &mut StructWriter<'_>) {
    writer.text(0, &hello.version);
    writer.text(1, &hello.syncer_type);
    writer.bool(2, hello.supports_node_resource_updates);
    writer.uint(3, hello.connection_id);
    writer.bool(4, hello.resumed);
}

/// Appends one update.
pub(crate) fn put_update(update: &WireUpdate<'_>, out: &mut Vec<u8>) {
    let mut writer = StructWriter::new(out);
    writer.bytes(0, update.key);
    writer.bytes(1, update.value.unwrap_or_default());
    match update.revision {
        Revision::None => {}
        Revision::Text(text) => {
            put_held(writer.field(2), "string", TypeId::STRING, |out| put_bytes(out, text));
        }
        Revision::Number(number) => {
            put_held(writer.field(2), "uint64", TypeId::UINT, |out| put_uint(out, number));
        }
    }
    writer.bytes(3, update.v3_resource_version);
    writer.int(4, update.ttl);
    writer.uint(5, update.update_type);
    writer.end();
}

/// Appends a basic value in an interface.
fn put_held(out: &mut Vec<u8>, name: &str, id: TypeId, put: impl FnOnce(&mut Vec<u8>)) {
    put_bytes(out, name.as_bytes());
    put_int(out, id.0);
    let mut held = vec![0];
    put(&mut held);
    put_bytes(out, &held);
}
