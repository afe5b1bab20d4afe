//! Both decoders against the captured streams, and our encoder against their bytes.

use gob::{Segments, Stream, TypeId, Types, Value};
use std::collections::BTreeMap;
use typha_wire::messages::{NAME_PREFIX, status_number};
use typha_wire::outgoing::Outgoing;
use typha_wire::schema::CALICO;
use typha_wire::snappy::Frames;
use typha_wire::{Compression, Incoming, Message};

pub(crate) const LIMIT: usize = 16 << 20;

/// The captured streams: name and direction, and the bytes.
pub(crate) fn streams() -> Vec<(&'static str, &'static [u8])> {
    let all: &'static [u8] = include_bytes!("../data/streams.bin");
    include_str!("../data/streams.txt")
        .lines()
        .map(|line| {
            let mut words = line.split(' ');
            let name = words.next().unwrap();
            let [start, length] =
                [words.next(), words.next()].map(|word| word.unwrap().parse::<usize>().unwrap());
            (name, &all[start..start + length])
        })
        .collect()
}

/// The messages that Calico's decoder found in each stream. The not-gob and broken ones have none.
fn expected() -> BTreeMap<&'static str, Vec<&'static str>> {
    let mut expected: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in include_str!("../data/messages.txt").lines() {
        let (stream, message) = line.split_once(' ').unwrap();
        expected.entry(stream).or_default().push(message);
    }
    expected
}

fn shown(message: &Message<'_>) -> String {
    match message {
        Message::ClientHello(hello) => {
            let kind = if hello.syncer_type.is_empty() { "-" } else { &hello.syncer_type };
            format!("MsgClientHello {kind} {}", hello.connection_id)
        }
        Message::ServerHello(hello) => {
            format!("MsgServerHello {} {}", hello.syncer_type, hello.connection_id)
        }
        Message::DecoderRestart { compression, .. } => {
            format!("MsgDecoderRestart {}", compression.as_ref().unwrap().as_str())
        }
        Message::Ack => "MsgACK".to_owned(),
        Message::SyncStatus(status) => format!("MsgSyncStatus {}", status.map_or(9, status_number)),
        Message::Ping(_) => "MsgPing".to_owned(),
        Message::Pong { .. } => "MsgPong".to_owned(),
        Message::Kvs(updates) => format!("MsgKVs {}", updates.len()),
        Message::Position(_) => "MsgPosition".to_owned(),
    }
}

/// Reads a stream in steps of this many bytes.
pub(crate) fn messages(bytes: &[u8], step: usize) -> Result<Vec<String>, typha_wire::WireError> {
    let mut incoming = Incoming::new(LIMIT);
    let mut found = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(step.min(rest.len()));
        rest = later;
        // A recording has no pause for the ACK: the bytes of the next stream are held back here.
        let mut now = now;
        while !now.is_empty() {
            incoming.push(&now[..1]);
            now = &now[1..];
            loop {
                let next = incoming.next(|message| {
                    let restart = match &message {
                        Message::DecoderRestart { compression, .. } => compression.clone().ok(),
                        _ => None,
                    };
                    (shown(&message), restart)
                })?;
                let Some((text, restart)) = next else { break };
                found.push(text);
                if let Some(compression) = restart {
                    incoming.restart(compression)?;
                }
            }
        }
    }
    Ok(found)
}

#[test]
fn every_captured_message_is_found() {
    let expected = expected();
    let mut read = 0;
    for (name, bytes) in streams() {
        match (messages(bytes, 4096), expected.get(name)) {
            (Ok(found), Some(wanted)) => {
                assert_eq!(found, *wanted, "{name}");
                read += 1;
            }
            (Ok(found), None) => assert!(found.is_empty(), "{name}: {found:?}"),
            // Go refuses a name that is not registered, too.
            (Err(error), _) => assert!(name.starts_with("19-") || name.starts_with("20-"), "{name}: {error}"),
        }
    }
    assert!(read > 55, "{read}");
}

/// The naive decoder: whole values as trees, one stream after another; what was read is encoded again.
#[test]
fn captured_streams_round_trip_byte_for_byte() {
    for (name, bytes) in streams() {
        if name.starts_with("20-") {
            continue;
        }
        for (number, part) in parts(bytes).into_iter().enumerate() {
            let (mut segments, mut message, mut types) =
                (Segments::new(LIMIT), gob::Message::default(), Types::new());
            segments.push(&part);
            let mut values = Vec::new();
            while let Some(segment) = segments.take().unwrap() {
                let read =
                    |reader: &mut gob::Reader<'_>, id| Value::read_whole(reader, id).map(|value| (id, value));
                values.extend(message.take(segment, LIMIT, &mut types, read).unwrap());
            }
            let cut = segments.waiting();
            let mut stream = Stream::new(&types);
            let mut again = Vec::new();
            for (envelope, value) in &values {
                let Value::Struct(fields) = value else { panic!("{name}: {value:?}") };
                let [(0, Value::Interface(held, id, inner))] = &fields[..] else {
                    panic!("{name}: {fields:?}")
                };
                let mut encoded = Vec::new();
                inner.put_whole(&types, *id, &mut encoded);
                stream.message(*envelope, held, *id, &encoded, &mut again);
            }
            assert_eq!(again, part[..part.len() - cut], "{name}, stream {number}");
        }
    }
}

/// The gob streams of one direction, decompressed.
fn parts(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut parts = vec![Vec::new()];
    let mut incoming = Incoming::new(LIMIT);
    let mut frames: Option<Frames> = None;
    for byte in bytes {
        incoming.push(&[*byte]);
        match &mut frames {
            Some(frames) => {
                let mut plain = bytes::BytesMut::new();
                frames.push(&[*byte]);
                while frames.next(&mut plain).unwrap() {}
                parts.last_mut().unwrap().extend_from_slice(&plain);
            }
            None => parts.last_mut().unwrap().push(*byte),
        }
        while let Ok(Some(restart)) = incoming.next(|message| match message {
            Message::DecoderRestart { compression, .. } => compression.ok(),
            _ => None,
        }) {
            if let Some(compression) = restart {
                incoming.restart(compression).unwrap();
                frames = (compression == Compression::Snappy).then(Frames::default);
                parts.push(Vec::new());
            }
        }
    }
    parts
}

/// Our encoding of a message from Calico's client equals that client's bytes, except for the numbers of types, which Go
/// assigns dynamically.
#[test]
fn our_hello_equals_gos() {
    let (_, bytes) = streams().into_iter().find(|(name, _)| *name == "01-felix-snappy.c2s").unwrap();
    let mut incoming = Incoming::new(LIMIT);
    incoming.push(bytes);
    let hello = incoming
        .next(|message| match message {
            Message::ClientHello(hello) => hello,
            other => panic!("{other:?}"),
        })
        .unwrap()
        .unwrap();
    let mut out = Vec::new();
    Outgoing::calico().put(&Message::ClientHello(hello), &mut out);
    let decode = |bytes: &[u8]| {
        let (mut segments, mut message, mut types) =
            (Segments::new(LIMIT), gob::Message::default(), Types::new());
        segments.push(bytes);
        loop {
            let segment = segments.take().unwrap().unwrap();
            let read = |reader: &mut gob::Reader<'_>, id: TypeId| Value::read_whole(reader, id);
            if let Some(value) = message.take(segment, LIMIT, &mut types, read).unwrap() {
                return (value, types);
            }
        }
    };
    let ((theirs, their_types), (ours, our_types)) = (decode(&bytes[..425]), decode(&out));
    assert_eq!(out.len(), 425);
    let names = |types: &Types| types.iter().map(|(_, one)| one.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&their_types), names(&our_types));
    let (Value::Struct(theirs), Value::Struct(ours)) = (theirs, ours) else { panic!() };
    let (Value::Interface(their_name, _, their_value), Value::Interface(name, _, value)) =
        (&theirs[0].1, &ours[0].1)
    else {
        panic!()
    };
    assert_eq!((their_name, their_value), (name, value));
    assert!(name.starts_with(NAME_PREFIX));
    assert!(CALICO.iter().count() > 10);
}
