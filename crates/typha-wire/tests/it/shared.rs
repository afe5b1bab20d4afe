//! Bytes shared by many clients: a stream that begins with all definitions.

use crate::captures::LIMIT;
use gob::{Segments, StructWriter, Type, TypeId, Types, Value};
use model::feed::Status;
use typha_wire::messages::{NAME_PREFIX, Revision};
use typha_wire::outgoing::{Outgoing, REST_OF_HEAD, STREAM_HEAD, kvs_segment, segment};
use typha_wire::snappy::{IDENTIFIER, compressed};
use typha_wire::{Change, Compression, EncodedUpdate, GoTime, Incoming, Message, ServerHello, WireError};

fn updates() -> Vec<EncodedUpdate> {
    vec![
        EncodedUpdate::new("/calico/v1/Ready", Some(b"true"), "5", ""),
        EncodedUpdate::new("/calico/v1/config/LogSeverityScreen", None, "", ""),
        EncodedUpdate::new("/calico/resources/v3/projectcalico.org/nodes/n1", Some(b"{}"), "7", "7"),
    ]
}

fn kvs() -> Vec<u8> {
    let mut out = Vec::new();
    for (update, change) in updates().iter().zip([Change::New, Change::Deleted, Change::Updated]) {
        update.put(change, &mut out);
    }
    kvs_segment(3, &out)
}

fn check_kvs(message: Message<'_>) {
    let Message::Kvs(updates) = message else { panic!("{message:?}") };
    let shown: Vec<_> = updates
        .iter()
        .map(|one| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            let value = one.value.map(text);
            (text(one.key), value, one.revision.to_string(), text(one.v3_resource_version), one.update_type)
        })
        .collect();
    let key = |text: &str| text.to_owned();
    let expected = [
        (key("/calico/v1/Ready"), Some(key("true")), key("5"), key(""), 1),
        (key("/calico/v1/config/LogSeverityScreen"), None, key(""), key(""), 3),
        (key("/calico/resources/v3/projectcalico.org/nodes/n1"), Some(key("{}")), key("7"), key("7"), 2),
    ];
    assert_eq!(shown, expected);
    assert_eq!(updates[1].revision, Revision::Text(b""), "text, as Calico sends it");
}

#[test]
fn a_plain_stream_after_the_hello() {
    let hello = ServerHello { version: "v".into(), syncer_type: "felix".into(), ..ServerHello::default() };
    let mut stream = Vec::new();
    Outgoing::calico().put(&Message::ServerHello(hello.clone()), &mut stream);
    stream.extend_from_slice(&REST_OF_HEAD);
    stream.extend(kvs());
    stream.extend(segment(&Message::SyncStatus(Some(Status::InSync))));
    stream.extend(segment(&Message::Ping(GoTime::at(std::time::SystemTime::UNIX_EPOCH))));
    let mut incoming = Incoming::new(LIMIT);
    incoming.push(&stream);
    assert!(incoming.next(|message| assert_eq!(message, Message::ServerHello(hello))).unwrap().is_some());
    incoming.next(check_kvs).unwrap().unwrap();
    let status = incoming.next(|message| format!("{message:?}")).unwrap().unwrap();
    assert_eq!(status, "SyncStatus(Some(InSync))");
    assert!(incoming.next(|message| assert!(matches!(message, Message::Ping(_)))).unwrap().is_some());
    assert!(incoming.next(|_| ()).unwrap().is_none());
    assert!(!incoming.is_in_message());
}

#[test]
fn a_compressed_stream_of_shared_chunks() {
    let mut incoming = Incoming::new(LIMIT);
    incoming.restart(Compression::Snappy).unwrap();
    incoming.push(IDENTIFIER);
    incoming.push(&compressed(&STREAM_HEAD));
    let chunk = compressed(&kvs());
    for _ in 0..2 {
        incoming.push(&chunk);
        incoming.next(check_kvs).unwrap().unwrap();
    }
    incoming.push(b"x");
    assert_eq!(incoming.restart(Compression::None), Err(WireError::AfterEnd(1)));
}

/// The same bytes, read by the decoder that knows nothing of Typha.
#[test]
fn the_naive_decoder_reads_shared_streams() {
    let mut stream = STREAM_HEAD.clone();
    stream.extend(kvs());
    let (mut segments, mut message, mut types) =
        (Segments::new(LIMIT), gob::Message::default(), Types::new());
    segments.push(&stream);
    let mut values = Vec::new();
    while let Some(segment) = segments.take().unwrap() {
        values.extend(message.take(segment, LIMIT, &mut types, Value::read_whole).unwrap());
    }
    let text = format!("{values:?}");
    assert_eq!(values.len(), 1);
    assert!(text.contains("MsgKVs"), "{text}");
}

#[test]
fn an_unknown_message_is_refused_like_in_go() {
    let (_, bytes) =
        crate::captures::streams().into_iter().find(|(name, _)| name.starts_with("19-")).unwrap();
    let error = crate::captures::messages(bytes, 1).unwrap_err();
    assert!(matches!(error, WireError::UnknownMessage(_)), "{error}");
}

#[test]
fn a_message_beyond_the_limit_is_refused_before_it_arrives() {
    let mut incoming = Incoming::new(1 << 20);
    let mut head = Vec::new();
    gob::number::put_uint(&mut head, (1 << 20) + 1);
    incoming.push(&head);
    let error = incoming.next(|_| ()).unwrap_err();
    assert!(matches!(error, WireError::Gob(gob::Error::TooLarge { .. })), "{error}");
}

/// A newer version adds fields to known messages, and to their envelope: Go skips them, whatever they contain, and so
/// do we.
#[test]
fn fields_of_a_newer_version_are_skipped() {
    const ENVELOPE: TypeId = TypeId(80);
    const STATUS: TypeId = TypeId(81);
    const DETAILS: TypeId = TypeId(82);
    const DETAIL: TypeId = TypeId(83);
    let mut types = Types::new();
    for (id, definition) in [
        (ENVELOPE, Type::structure("Envelope", &[("Message", TypeId::INTERFACE), ("Urgency", TypeId::UINT)])),
        (
            STATUS,
            Type::structure(
                "MsgSyncStatus",
                &[("Reason", TypeId::STRING), ("SyncStatus", TypeId::UINT), ("Details", DETAILS)],
            ),
        ),
        (DETAILS, Type::slice("[]syncproto.Detail", DETAIL)),
        (DETAIL, Type::structure("Detail", &[("Name", TypeId::STRING), ("Count", TypeId::INT)])),
    ] {
        types.define(id, definition).unwrap();
    }
    let mut value = Vec::new();
    let mut status = StructWriter::new(&mut value);
    status.text(0, "everything was read");
    status.uint(1, 2);
    let details = status.field(2);
    details.push(2);
    for count in [7, -1] {
        let mut detail = StructWriter::new(details);
        detail.text(0, "nodes");
        detail.int(1, count);
        detail.end();
    }
    status.end();
    let mut stream = Vec::new();
    let name = format!("{NAME_PREFIX}MsgSyncStatus");
    let mut writer = gob::Stream::new(&types);
    writer.message(ENVELOPE, &name, STATUS, &value, &mut stream);
    writer.message(ENVELOPE, &name, STATUS, &value, &mut stream);
    let mut incoming = Incoming::new(LIMIT);
    for byte in stream {
        incoming.push(&[byte]);
    }
    for _ in 0..2 {
        let taken = incoming.next(|message| assert_eq!(message, Message::SyncStatus(Some(Status::InSync))));
        assert!(taken.unwrap().is_some());
    }
    assert!(!incoming.is_in_message());
}
