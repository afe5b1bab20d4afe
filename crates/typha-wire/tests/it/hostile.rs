//! Streams designed to use up memory. What is allocated for a message is bounded by what it can legitimately contain,
//! and nothing is allocated for what the receiver does not need.

use bytes::BytesMut;
use gob::number::{put_bytes, put_int, put_uint};
use gob::{Type, TypeId};
use typha_wire::messages::NAME_PREFIX;
use typha_wire::outgoing::{Outgoing, STREAM_HEAD, kvs_segment};
use typha_wire::snappy::{Compressor, Frames, IDENTIFIER, LARGEST_CHUNK};
use typha_wire::{ClientHello, Incoming, Message, WireError};

/// The longest message of a client.
const LIMIT: usize = 1 << 20;

fn stream_of_updates(count: usize) -> Vec<u8> {
    let mut stream = STREAM_HEAD.clone();
    // An update without any field is one byte.
    stream.extend(kvs_segment(count, &vec![0; count]));
    stream
}

/// An update is one byte on the wire and a hundred in memory: a client that may send a megabyte would make the server
/// allocate a hundred.
#[test]
fn entries_from_a_client_are_refused_unread() {
    let stream = stream_of_updates(1_000_000);
    let mut incoming = Incoming::from_client(LIMIT);
    incoming.push(&stream);
    assert_eq!(incoming.next(|_| ()), Err(WireError::FromClient));
    // A client of the server does read them.
    let mut incoming = Incoming::new(LIMIT);
    incoming.push(&stream);
    let count = incoming.next(|message| match message {
        Message::Kvs(updates) => updates.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(count, Ok(Some(1_000_000)));
}

/// A server that sends more updates than any real one does.
#[test]
fn more_updates_than_any_server_sends_are_refused() {
    let mut incoming = Incoming::new(64 << 20);
    incoming.push(&stream_of_updates(2_000_000));
    assert_eq!(incoming.next(|_| ()), Err(gob::Error::TooMany("updates in one message").into()));
}

/// A hello is kept while its client is served, and so would be a million empty names.
#[test]
fn few_compressions_of_a_hello_are_kept() {
    let mut stream = Vec::new();
    let hello = ClientHello { compression: vec![String::new(); 500_000], ..ClientHello::default() };
    Outgoing::calico().put(&Message::ClientHello(hello), &mut stream);
    let mut incoming = Incoming::from_client(LIMIT);
    incoming.push(&stream);
    let kept = incoming.next(|message| match message {
        Message::ClientHello(hello) => hello.compression.len(),
        other => panic!("{other:?}"),
    });
    assert_eq!(kept, Ok(Some(16)));
}

/// Definitions that precede any message are kept, too.
#[test]
fn definitions_without_end_are_refused() {
    let many = Type::structure("", &[("", TypeId::BOOL); 2000]);
    let mut incoming = Incoming::from_client(LIMIT);
    let mut outcome = Ok(None);
    for number in 64..100 {
        let mut segment = Vec::new();
        many.put_definition_segment(TypeId(number), &mut segment);
        incoming.push(&segment);
        outcome = incoming.next(|_| ());
        if outcome.is_err() {
            break;
        }
    }
    assert_eq!(outcome, Err(gob::Error::TooMany("fields").into()));
}

/// CVE-2022-30635 and CVE-2024-34156 of Go's decoder, as an unknown message, which is therefore skipped.
#[test]
fn an_unknown_message_nested_without_end_is_refused() {
    let nested = TypeId(200);
    let mut stream = STREAM_HEAD.clone();
    Type::slice("", nested).put_definition_segment(nested, &mut stream);
    let name = format!("{NAME_PREFIX}MsgNobodyKnows");
    let mut message = Vec::new();
    put_int(&mut message, typha_wire::schema::ENVELOPE.0);
    message.push(1);
    put_bytes(&mut message, name.as_bytes());
    put_int(&mut message, nested.0);
    let mut value = vec![0];
    value.extend(std::iter::repeat_n(1, 500_000));
    put_bytes(&mut message, &value);
    message.push(0);
    put_bytes(&mut stream, &message);
    let mut incoming = Incoming::from_client(LIMIT);
    incoming.push(&stream);
    assert_eq!(incoming.next(|_| ()), Err(gob::Error::TooMany("levels").into()));
}

/// A chunk decompresses to at most 64 KiB, whatever it claims, so a stream of zeros only grows on request; empty chunks
/// are dropped as they arrive.
#[test]
fn compressed_streams_take_no_more_memory_than_a_chunk_at_a_time() {
    let mut stream = IDENTIFIER.to_vec();
    Compressor::new().put(&vec![0; 16 << 20], &mut stream);
    assert!(stream.len() < 1 << 20, "a sixteenth of what it stands for");
    let (mut frames, mut out) = (Frames::default(), BytesMut::new());
    frames.push(&stream);
    assert_eq!(frames.next(&mut out), Ok(true));
    assert_eq!(out.len(), LARGEST_CHUNK, "the others wait until they are asked for");

    let mut frames = Frames::default();
    let mut out = BytesMut::new();
    frames.push(IDENTIFIER);
    for _ in 0..4 {
        // Padding of 16 MiB.
        frames.push(&[0xfe, 0xff, 0xff, 0xff]);
        for piece in vec![0; (16 << 20) - 1].chunks(64 << 10) {
            frames.push(piece);
            assert_eq!(frames.next(&mut out), Ok(false));
            assert_eq!(frames.waiting(), 0, "padding is not kept");
        }
    }
    // Empty chunks, and the beginning of the stream repeatedly.
    let empty = [1, 4, 0, 0, 0xd8, 0xea, 0x82, 0xa2];
    for _ in 0..10_000 {
        frames.push(IDENTIFIER);
        frames.push(&empty);
        while frames.next(&mut out).unwrap() {}
        assert_eq!((frames.waiting(), out.len()), (0, 0));
    }
}

/// A segment longer than the limit is refused without waiting for it, and nothing is reserved for one within the limit.
#[test]
fn a_length_is_checked_before_its_bytes_arrive() {
    for (length, refused) in [(LIMIT as u64, false), (LIMIT as u64 + 1, true), (u64::MAX, true)] {
        let mut head = Vec::new();
        put_uint(&mut head, length);
        let mut incoming = Incoming::from_client(LIMIT);
        incoming.push(&head);
        assert_eq!(incoming.next(|_| ()).is_err(), refused, "{length}");
    }
}
