//! The messages between the two sides.

use crate::time::GoTime;
use model::feed::Status;
use std::fmt;

/// The prefix of every message's name: the path that the package had when the protocol was created.
pub const NAME_PREFIX: &str = "github.com/projectcalico/typha/pkg/syncproto.";

/// The feed that a client requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncerType {
    /// The input of Felix's calculation.
    Felix,
    /// The input of confd and BGP.
    Bgp,
    /// The input for allocating tunnel addresses.
    TunnelIpAllocation,
    /// The input for reporting the state of nodes.
    NodeStatus,
}

impl SyncerType {
    /// All types.
    pub const ALL: [Self; 4] = [Self::Felix, Self::Bgp, Self::TunnelIpAllocation, Self::NodeStatus];

    /// The name on the wire and in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Felix => "felix",
            Self::Bgp => "bgp",
            Self::TunnelIpAllocation => "tunnel-ip-allocation",
            Self::NodeStatus => "node-status",
        }
    }

    /// The type with this name. Old clients did not send one: they are Felix.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        if name.is_empty() {
            return Some(Self::Felix);
        }
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for SyncerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How the stream after a restart is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// No compression.
    #[default]
    None,
    /// Snappy's framing format.
    Snappy,
}

impl Compression {
    /// The name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "",
            Self::Snappy => "snappy",
        }
    }

    /// The algorithm with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Snappy].into_iter().find(|one| one.as_str() == name)
    }
}

/// The position of a client in the stream of a server: our own extension, which is only sent to peers that offer it. A
/// client that reconnects with it gets what it missed instead of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The run of the server; never 0.
    pub instance: u64,
    /// The sequence number of the step.
    pub sequence: u64,
}

/// The first message of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The node.
    pub hostname: String,
    /// The name of the component.
    pub info: String,
    /// The component's version, for logs.
    pub version: String,
    /// The name of the requested feed.
    pub syncer_type: String,
    /// Whether the client can start a new stream in the middle of the connection.
    pub supports_decoder_restart: bool,
    /// The compressions it supports.
    pub compression: Vec<String>,
    /// Whether it knows the current form of policy keys.
    pub supports_modern_policy_keys: bool,
    /// A number for logs.
    pub connection_id: u64,
    /// Our extension: whether it wants to receive positions.
    pub supports_resume: bool,
    /// Our extension: its position.
    pub resume: Position,
}

/// The answer of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// The server's version, for logs.
    pub version: String,
    /// The feed that follows.
    pub syncer_type: String,
    /// Whether nodes are sent as whole resources. A client gives up if not.
    pub supports_node_resource_updates: bool,
    /// A number for logs.
    pub connection_id: u64,
    /// Our extension: the stream resumes at the client's position; there is no snapshot.
    pub resumed: bool,
}

/// A key and its change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireUpdate<'a> {
    /// The path; not necessarily valid text.
    pub key: &'a [u8],
    /// The serialised value; `None` when it is gone or was not valid.
    pub value: Option<&'a [u8]>,
    /// The store's version.
    pub revision: Revision<'a>,
    /// The version that was removed from a resource.
    pub v3_resource_version: &'a [u8],
    /// Nanoseconds until it expires; 0 for never.
    pub ttl: i64,
    /// 1 new, 2 updated, 3 deleted.
    pub update_type: u64,
}

/// A revision is an interface on the wire: our servers and today's Calico's send text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision<'a> {
    /// None was sent, or one of an unknown type.
    None,
    /// A text.
    Text(&'a [u8]),
    /// A number.
    Number(u64),
}

impl fmt::Display for Revision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Text(text) => f.write_str(&String::from_utf8_lossy(text)),
            Self::Number(number) => number.fmt(f),
        }
    }
}

/// A message of either side.
#[derive(Clone, Debug, PartialEq)]
pub enum Message<'a> {
    /// The client begins.
    ClientHello(ClientHello),
    /// The server answers.
    ServerHello(ServerHello),
    /// The last message of a stream: another stream follows after the ACK.
    DecoderRestart {
        /// The reason, for logs.
        message: String,
        /// The compression of the next stream; an unknown one stays text.
        compression: Result<Compression, String>,
    },
    /// The client is ready for the next stream.
    Ack,
    /// The status of the feed; `None` for an unknown number.
    SyncStatus(Option<Status>),
    /// The server checks whether the client is alive.
    Ping(GoTime),
    /// The client's answer to a ping.
    Pong {
        /// The time of the ping.
        ping: GoTime,
        /// The time of the answer; Calico's client leaves it out.
        pong: GoTime,
    },
    /// Entries.
    Kvs(Vec<WireUpdate<'a>>),
    /// Our extension: everything up to this position has been sent.
    Position(Position),
}

/// The number of a status on the wire.
#[must_use]
pub fn status_number(status: Status) -> u64 {
    match status {
        Status::WaitForDatastore => 0,
        Status::ResyncInProgress => 1,
        Status::InSync => 2,
    }
}

/// The status with this number.
#[must_use]
pub fn status_of(number: u64) -> Option<Status> {
    [Status::WaitForDatastore, Status::ResyncInProgress, Status::InSync]
        .into_iter()
        .find(|status| status_number(*status) == number)
}
