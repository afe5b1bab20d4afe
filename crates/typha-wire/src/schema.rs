//! The types of the messages.
//!
//! Go numbers types in the order in which a process first uses them, so numbers mean nothing to the other side. Ours
//! are fixed: every stream that we write defines the same numbers, so a message has the same bytes in all of them.

use gob::{Shape, Type, TypeId, Types};
use std::sync::LazyLock;

/// The type that every message is wrapped in.
pub const ENVELOPE: TypeId = TypeId(64);
/// `MsgClientHello`
pub const CLIENT_HELLO: TypeId = TypeId(65);
/// The list of algorithms in `MsgClientHello`.
pub const ALGORITHMS: TypeId = TypeId(66);
/// `MsgServerHello`
pub const SERVER_HELLO: TypeId = TypeId(67);
/// `MsgDecoderRestart`
pub const DECODER_RESTART: TypeId = TypeId(68);
/// `MsgACK`
pub const ACK: TypeId = TypeId(69);
/// `MsgSyncStatus`
pub const SYNC_STATUS: TypeId = TypeId(70);
/// `MsgPing`
pub const PING: TypeId = TypeId(71);
/// `time.Time`
pub const TIME: TypeId = TypeId(72);
/// `MsgPong`
pub const PONG: TypeId = TypeId(73);
/// `MsgKVs`
pub const KVS: TypeId = TypeId(74);
/// The list in `MsgKVs`.
pub const UPDATES: TypeId = TypeId(75);
/// An element of the list in `MsgKVs`.
pub const UPDATE: TypeId = TypeId(76);
/// Our extension: see [`crate::Position`].
pub const POSITION: TypeId = TypeId(77);

const CLIENT_HELLO_FIELDS: [(&str, TypeId); 11] = [
    ("Hostname", TypeId::STRING),
    ("Info", TypeId::STRING),
    ("Version", TypeId::STRING),
    ("SyncerType", TypeId::STRING),
    ("SupportsDecoderRestart", TypeId::BOOL),
    ("SupportedCompressionAlgorithms", ALGORITHMS),
    ("SupportsModernPolicyKeys", TypeId::BOOL),
    ("ClientConnID", TypeId::UINT),
    // Our extensions from here on.
    ("SupportsResume", TypeId::BOOL),
    ("ResumeInstance", TypeId::UINT),
    ("ResumeSequence", TypeId::UINT),
];

const SERVER_HELLO_FIELDS: [(&str, TypeId); 5] = [
    ("Version", TypeId::STRING),
    ("SyncerType", TypeId::STRING),
    ("SupportsNodeResourceUpdates", TypeId::BOOL),
    ("ServerConnID", TypeId::UINT),
    // Our extension.
    ("Resumed", TypeId::BOOL),
];

/// The types as Calico's programs define them.
pub static CALICO: LazyLock<Types> = LazyLock::new(|| table(false));

/// The types with our extensions. Calico's programs skip unknown fields.
pub static EXTENDED: LazyLock<Types> = LazyLock::new(|| table(true));

fn table(extended: bool) -> Types {
    let client = if extended { &CLIENT_HELLO_FIELDS[..] } else { &CLIENT_HELLO_FIELDS[..8] };
    let server = if extended { &SERVER_HELLO_FIELDS[..] } else { &SERVER_HELLO_FIELDS[..4] };
    let restart = [("Message", TypeId::STRING), ("CompressionAlgorithm", TypeId::STRING)];
    let update = [
        ("Key", TypeId::STRING),
        ("Value", TypeId::BYTES),
        ("Revision", TypeId::INTERFACE),
        ("V3ResourceVersion", TypeId::STRING),
        ("TTL", TypeId::INT),
        ("UpdateType", TypeId::UINT),
    ];
    let all = [
        (ENVELOPE, Type::structure("Envelope", &[("Message", TypeId::INTERFACE)])),
        (CLIENT_HELLO, Type::structure("MsgClientHello", client)),
        (ALGORITHMS, Type::slice("[]syncproto.CompressionAlgorithm", TypeId::STRING)),
        (SERVER_HELLO, Type::structure("MsgServerHello", server)),
        (DECODER_RESTART, Type::structure("MsgDecoderRestart", &restart)),
        (ACK, Type::structure("MsgACK", &[])),
        (SYNC_STATUS, Type::structure("MsgSyncStatus", &[("SyncStatus", TypeId::UINT)])),
        (PING, Type::structure("MsgPing", &[("Timestamp", TIME)])),
        (TIME, Type { name: "Time".to_owned(), shape: Shape::Gob }),
        (PONG, Type::structure("MsgPong", &[("PingTimestamp", TIME), ("PongTimestamp", TIME)])),
        (KVS, Type::structure("MsgKVs", &[("KVs", UPDATES)])),
        (UPDATES, Type::slice("[]syncproto.SerializedUpdate", UPDATE)),
        (UPDATE, Type::structure("SerializedUpdate", &update)),
        (POSITION, Type::structure("MsgPosition", &[("Instance", TypeId::UINT), ("Sequence", TypeId::UINT)])),
    ];
    let mut types = Types::new();
    for (id, definition) in all {
        // The table is a constant, and a test defines it: no number occurs twice.
        let _ = types.define(id, definition);
    }
    types
}

/// Definitions of these types, each a segment of its own, for the beginning of a stream.
#[must_use]
pub fn definitions(ids: &[TypeId]) -> Vec<u8> {
    let mut out = Vec::new();
    for id in ids {
        if let Some(definition) = EXTENDED.get(*id) {
            definition.put_definition_segment(*id, &mut out);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_defined_once() {
        let numbers: Vec<i64> = EXTENDED.iter().map(|(id, _)| id.0).collect();
        assert_eq!(numbers, (64..=77).collect::<Vec<i64>>());
        assert_eq!(CALICO.fields(CLIENT_HELLO).unwrap().len(), 8);
        assert_eq!(CALICO.fields(SERVER_HELLO).unwrap().len(), 4);
    }
}
