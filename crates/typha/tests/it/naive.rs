//! Our output, read by a second decoder that shares nothing with ours: slow, obvious, and strict.
//!
//! It implements gob and snappy as described, takes whole streams only, and fails at the first deviation from the form
//! of our streams.

use crate::world::{Got, Raw, World, hello, input, quick};
use std::collections::BTreeMap;
use typha_wire::{Compression, Message};

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Bytes(Vec<u8>),
    Text(String),
    Struct(BTreeMap<String, Value>),
    List(Vec<Value>),
    Named(String, Box<Value>),
}

#[derive(Clone)]
enum Type {
    Struct(Vec<(String, i64)>),
    List(i64),
    Opaque,
}

/// The rest of a segment, and the segments after it.
struct Cursor<'a>(&'a [u8], &'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }

    fn uint(&mut self) -> u64 {
        let first = self.take(1)[0];
        if first < 128 {
            return u64::from(first);
        }
        let bytes = self.take(256 - usize::from(first));
        assert!(bytes[0] != 0, "a number is not as short as it can be");
        bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }

    fn int(&mut self) -> i64 {
        let raw = self.uint();
        let half = i64::try_from(raw >> 1).unwrap();
        if raw & 1 == 1 { !half } else { half }
    }

    fn count(&mut self) -> usize {
        usize::try_from(self.uint()).unwrap()
    }

    /// Moves to the next segment; the current one must be used up.
    fn next_segment(&mut self) {
        assert!(self.0.is_empty(), "{} bytes are left in a segment", self.0.len());
        let mut rest = Cursor(self.1, &[]);
        let length = rest.count();
        self.0 = rest.take(length);
        self.1 = rest.0;
    }

    fn text(&mut self) -> String {
        let count = self.count();
        String::from_utf8(self.take(count).to_vec()).unwrap()
    }
}

/// Reads all messages of a gob stream.
fn messages(stream: &[u8]) -> Vec<Value> {
    let mut types: BTreeMap<i64, Type> = BTreeMap::new();
    let mut found = Vec::new();
    let mut cursor = Cursor(&[], stream);
    while !cursor.1.is_empty() {
        cursor.next_segment();
        match cursor.int() {
            id if id < 0 => define(&mut cursor, id, &mut types),
            id => found.push(value(&mut cursor, id, &mut types)),
        }
        assert!(cursor.0.is_empty(), "{} bytes are left in a segment", cursor.0.len());
    }
    found
}

fn define(cursor: &mut Cursor<'_>, id: i64, types: &mut BTreeMap<i64, Type>) {
    let defined = definition(cursor);
    assert!(types.insert(-id, defined).is_none(), "{id} is defined twice");
}

/// A `wireType`: one of its fields, which all begin with a `CommonType`.
fn definition(cursor: &mut Cursor<'_>) -> Type {
    let kind = cursor.uint();
    assert_eq!(cursor.uint(), 1, "a definition begins with what all have");
    let mut field = 0;
    loop {
        // The name and the id of the type, both of which are ignored here.
        match cursor.uint() {
            0 => break,
            distance => field += distance,
        }
        match field {
            1 => drop(cursor.text()),
            2 => assert!(cursor.int() >= 64),
            other => panic!("field {other} of a common type"),
        }
    }
    let defined = match kind {
        2 => {
            assert_eq!(cursor.uint(), 1, "a list has elements");
            Type::List(cursor.int())
        }
        3 => match cursor.uint() {
            0 => {
                assert_eq!(cursor.uint(), 0);
                return Type::Struct(Vec::new());
            }
            _ => Type::Struct((0..cursor.count()).map(|_| field_type(cursor)).collect()),
        },
        5 => {
            assert_eq!(cursor.take(2), [0, 0]);
            return Type::Opaque;
        }
        other => panic!("a type of kind {other}"),
    };
    assert_eq!(cursor.take(2), [0, 0], "two ends");
    defined
}

fn field_type(cursor: &mut Cursor<'_>) -> (String, i64) {
    assert_eq!(cursor.uint(), 1);
    let name = cursor.text();
    assert_eq!(cursor.uint(), 1);
    let id = cursor.int();
    assert_eq!(cursor.uint(), 0);
    (name, id)
}

fn value(cursor: &mut Cursor<'_>, id: i64, types: &mut BTreeMap<i64, Type>) -> Value {
    match id {
        1 => Value::Bool(cursor.uint() == 1),
        2 => Value::Int(cursor.int()),
        3 => Value::Uint(cursor.uint()),
        5 => {
            let count = cursor.count();
            Value::Bytes(cursor.take(count).to_vec())
        }
        6 => Value::Text(cursor.text()),
        8 => {
            let name = cursor.text();
            // The definition of a new type is in the middle of the message that needs it, and the message continues
            // after it.
            let id = loop {
                match cursor.int() {
                    id if id < 0 => define(cursor, id, types),
                    id => break id,
                }
                cursor.next_segment();
            };
            let length = cursor.count();
            let mut inner = Cursor(cursor.take(length), &[]);
            if !matches!(types.get(&id), Some(Type::Struct(_))) {
                assert_eq!(inner.uint(), 0, "a value that is not a structure follows a zero");
            }
            let read = value(&mut inner, id, types);
            assert!(inner.0.is_empty());
            Value::Named(name, Box::new(read))
        }
        _ => match types.get(&id).cloned().unwrap_or_else(|| panic!("type {id} was never defined")) {
            Type::Opaque => {
                let count = cursor.count();
                Value::Bytes(cursor.take(count).to_vec())
            }
            Type::List(element) => {
                let count = cursor.count();
                Value::List((0..count).map(|_| value(cursor, element, types)).collect())
            }
            Type::Struct(fields) => {
                let mut read = BTreeMap::new();
                let mut place = 0;
                loop {
                    match cursor.count() {
                        0 => break Value::Struct(read),
                        distance => place += distance,
                    }
                    let (name, id) = &fields[place - 1];
                    read.insert(name.clone(), value(cursor, *id, types));
                }
            }
        },
    }
}

/// Unpacks a compressed stream, chunk by chunk; the checksums are compared, too.
fn decompressed(stream: &[u8]) -> Vec<u8> {
    let mut rest = Cursor(stream, &[]);
    let mut out = Vec::new();
    while !rest.0.is_empty() {
        let head = rest.take(4);
        let length = usize::from(head[1]) | usize::from(head[2]) << 8 | usize::from(head[3]) << 16;
        let mut body = Cursor(rest.take(length), &[]);
        if head[0] == 0xff {
            assert_eq!(body.0, b"sNaPpY");
            continue;
        }
        let sum = u32::from_le_bytes(body.take(4).try_into().unwrap());
        let block = match head[0] {
            0 => block(&mut body),
            1 => body.0.to_vec(),
            other => panic!("a chunk of type {other}"),
        };
        assert!(block.len() <= 65_536);
        assert_eq!(masked_checksum(&block), sum);
        out.extend(block);
    }
    out
}

/// One block of snappy's own format.
fn block(cursor: &mut Cursor<'_>) -> Vec<u8> {
    let (mut length, mut shift) = (0, 0);
    loop {
        let byte = cursor.take(1)[0];
        length |= usize::from(byte & 127) << shift;
        shift += 7;
        if byte < 128 {
            break;
        }
    }
    let little = |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, byte| sum << 8 | usize::from(*byte));
    let mut out: Vec<u8> = Vec::new();
    while !cursor.0.is_empty() {
        let tag = usize::from(cursor.take(1)[0]);
        let (count, offset) = match tag & 3 {
            0 => {
                let count = match tag >> 2 {
                    short @ 0..60 => short + 1,
                    long => little(cursor.take(long - 59)) + 1,
                };
                out.extend_from_slice(cursor.take(count));
                continue;
            }
            1 => ((tag >> 2 & 7) + 4, (tag >> 5) << 8 | usize::from(cursor.take(1)[0])),
            2 => ((tag >> 2) + 1, little(cursor.take(2))),
            _ => ((tag >> 2) + 1, little(cursor.take(4))),
        };
        for _ in 0..count {
            out.push(out[out.len() - offset]);
        }
    }
    assert_eq!(out.len(), length);
    out
}

/// CRC-32C, bit by bit, masked as the framing requires.
fn masked_checksum(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82f6_3b78 } else { sum >> 1 };
        }
    }
    (!sum).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// The updates in these messages, and the names of all messages.
fn content(messages: &[Value]) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut entries, mut names) = (BTreeMap::new(), Vec::new());
    for message in messages {
        let Value::Struct(envelope) = message else { panic!("{message:?}") };
        let Value::Named(name, body) = &envelope["Message"] else { panic!("{envelope:?}") };
        names.push(name.rsplit('.').next().unwrap().to_owned());
        let Value::Struct(body) = &**body else { panic!("{body:?}") };
        let Some(Value::List(updates)) = body.get("KVs") else { continue };
        for update in updates {
            let Value::Struct(update) = update else { panic!("{update:?}") };
            let Value::Text(key) = &update["Key"] else { panic!("{update:?}") };
            match update.get("Value") {
                Some(Value::Bytes(value)) => {
                    entries.insert(key.clone(), String::from_utf8(value.clone()).unwrap());
                }
                _ => drop(entries.remove(key)),
            }
        }
    }
    (entries, names)
}

/// Reads until this message has arrived; returns all bytes up to there.
async fn bytes_until(client: &mut Raw, last: &Got) -> Vec<u8> {
    while client.get().await != *last {}
    std::mem::take(&mut client.seen)
}

#[tokio::test]
async fn an_independent_decoder_reads_the_same() {
    // No pings: only the expected messages arrive, and nothing after them.
    let hour = std::time::Duration::from_secs(3600);
    let world = World::start(
        typha::for_tests::ServerSettings { ping_interval: hour, pong_timeout: hour * 6, ..quick() },
        None,
    )
    .await;
    let many = (0..2345).map(|number| {
        let value = format!("{{\"value\":{number},\"text\":\"{}\"}}", "ab".repeat(number % 97));
        input(&format!("/k{number:05}"), &value)
    });
    world.felix().publish(many);
    world.felix().set_status(model::feed::Status::InSync);
    let in_sync = Got::Message("status in-sync".to_owned());

    let mut plain = Raw::connect(world.address).await;
    plain.say(&Message::ClientHello(hello("felix", false, &[]))).await;
    let mut stream = bytes_until(&mut plain, &in_sync).await;
    world.felix().publish([input("/k00000", ""), input("/new", "1")]);
    stream.extend(bytes_until(&mut plain, &Got::Message("/k00000=:3 /new=1:1".to_owned())).await);
    let (entries, names) = content(&messages(&stream));
    assert_eq!(entries, world.contents());
    assert_eq!(names.first().map(String::as_str), Some("MsgServerHello"));
    assert!(names.contains(&"MsgSyncStatus".to_owned()));

    // Compressed: three streams, with an ACK between them.
    let restart = Got::Restart(Compression::Snappy);
    let mut snappy = Raw::connect(world.address).await;
    snappy.say(&Message::ClientHello(hello("felix", true, &["snappy"]))).await;
    let first = messages(&bytes_until(&mut snappy, &restart).await);
    assert_eq!(content(&first).1, ["MsgServerHello", "MsgDecoderRestart"]);
    snappy.incoming.restart(Compression::Snappy).unwrap();
    snappy.say(&Message::Ack).await;
    let snapshot = content(&messages(&decompressed(&bytes_until(&mut snappy, &restart).await)));
    assert_eq!(snapshot.0, world.contents());
    assert_eq!(snapshot.1.last().map(String::as_str), Some("MsgDecoderRestart"));
    snappy.incoming.restart(Compression::Snappy).unwrap();
    snappy.say(&Message::Ack).await;
    let mut last = bytes_until(&mut snappy, &in_sync).await;
    world.felix().publish([input("/k00001", ""), input("/newer", "2")]);
    last.extend(bytes_until(&mut snappy, &Got::Message("/k00001=:3 /newer=2:1".to_owned())).await);
    let (changes, names) = content(&messages(&decompressed(&last)));
    assert_eq!(changes, BTreeMap::from([("/newer".to_owned(), "2".to_owned())]));
    assert_eq!(names, ["MsgSyncStatus", "MsgKVs"]);
}
