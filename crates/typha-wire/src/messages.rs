//! What the two sides say to each other.

use crate::time::GoTime;
use model::feed::Status;
use std::fmt;

/// What stands in front of every message's name: the path that the package had when the protocol was made.
pub const NAME_PREFIX: &str = "github.com/projectcalico/typha/pkg/syncproto.";

/// Which feed a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SyncerType {
    /// What Felix calculates with.
    Felix,
    /// What confd and BGP need.
    Bgp,
    /// What gives tunnels their addresses.
    TunnelIpAllocation,
    /// What reports the state of nodes.
    NodeStatus,
}

impl SyncerType {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Felix, Self::Bgp, Self::TunnelIpAllocation, Self::NodeStatus];

    /// The name on the wire and in figures.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Felix => "felix",
            Self::Bgp => "bgp",
            Self::TunnelIpAllocation => "tunnel-ip-allocation",
            Self::NodeStatus => "node-status",
        }
    }

    /// The type of this name. Clients of old did not name one: they are Felix.
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
    /// Not at all.
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

    /// The algorithm of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None, Self::Snappy].into_iter().find(|one| one.as_str() == name)
    }
}

/// Where a client stands in the stream of a server: our own addition, which is only sent to those who offer it. A client
/// that comes back with it gets what it missed instead of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Which run of which server; never 0.
    pub instance: u64,
    /// How far.
    pub sequence: u64,
}

/// The first message of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// The node.
    pub hostname: String,
    /// Who asks.
    pub info: String,
    /// Its version, for logs.
    pub version: String,
    /// The feed, as it was named.
    pub syncer_type: String,
    /// Whether the client can begin a new stream in the middle.
    pub supports_decoder_restart: bool,
    /// What it can decompress.
    pub compression: Vec<String>,
    /// Whether it knows the policy keys of today.
    pub supports_modern_policy_keys: bool,
    /// A number for logs.
    pub connection_id: u64,
    /// Ours: whether it wants to hear about positions.
    pub supports_resume: bool,
    /// Ours: where it stands.
    pub resume: Position,
}

/// The answer of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerHello {
    /// Its version, for logs.
    pub version: String,
    /// The feed that follows.
    pub syncer_type: String,
    /// Whether nodes come as whole resources. A client gives up if not.
    pub supports_node_resource_updates: bool,
    /// A number for logs.
    pub connection_id: u64,
    /// Ours: the stream goes on where the client stands; no snapshot comes.
    pub resumed: bool,
}

/// A key, and what happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WireUpdate<'a> {
    /// The path; not always text that we know.
    pub key: &'a [u8],
    /// The serialised value; none when it is gone or was not valid.
    pub value: Option<&'a [u8]>,
    /// The store's version.
    pub revision: Revision<'a>,
    /// The version that was taken out of a resource.
    pub v3_resource_version: &'a [u8],
    /// Nanoseconds until it expires; 0 for never.
    pub ttl: i64,
    /// 1 new, 2 updated, 3 deleted.
    pub update_type: u64,
}

/// A revision is an interface on the wire: servers of ours and Calico's today send text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision<'a> {
    /// None was sent, or one of a type that we do not know.
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
    /// The last message of a stream: another one follows after the ACK.
    DecoderRestart {
        /// Why, for logs.
        message: String,
        /// How the next stream is compressed; what we do not know stays text.
        compression: Result<Compression, String>,
    },
    /// The client is ready for the next stream.
    Ack,
    /// How far the feed has come; none for a number that we do not know.
    SyncStatus(Option<Status>),
    /// The server wants to know whether the client is there.
    Ping(GoTime),
    /// It is.
    Pong {
        /// The time of the ping.
        ping: GoTime,
        /// The time of the answer; Calico's client leaves it out.
        pong: GoTime,
    },
    /// Entries.
    Kvs(Vec<WireUpdate<'a>>),
    /// Ours: everything up to here has been sent.
    Position(Position),
}

/// The number of a status.
#[must_use]
pub fn status_number(status: Status) -> u64 {
    match status {
        Status::WaitForDatastore => 0,
        Status::ResyncInProgress => 1,
        Status::InSync => 2,
    }
}

/// The status of a number.
#[must_use]
pub fn status_of(number: u64) -> Option<Status> {
    [Status::WaitForDatastore, Status::ResyncInProgress, Status::InSync]
        .into_iter()
        .find(|status| status_number(*status) == number)
}
