//! Measures one size: Typha is filled, a node joins, time passes; the cost of each.

use anyhow::{Result, ensure};
use cost::{Cluster, Hub, Member};
use serde::{Deserialize, Serialize};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;
use testkit::heap;

/// How many seconds of the cluster's life are simulated.
const SECONDS: usize = 30;
/// How many updates arrive in one turn of the server's loop: at this rate, those of a hundredth of a second.
const AT_ONCE: usize = 2;

/// How many bytes a node reads at once.
const PIECE: usize = 64 << 10;
/// Files that pass from one part to the other.
const SNAPSHOT: &str = "snapshot";
const CHANGES: &str = "changes.json";

/// The cost of one size.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Figures {
    pub(crate) nodes: usize,
    pub(crate) pods: f64,
    pub(crate) policies: f64,
    /// The number of entries that Typha keeps.
    pub(crate) entries: f64,
    /// Bytes of the snapshot before and after compression.
    pub(crate) raw: f64,
    pub(crate) compressed: f64,
    /// Seconds of processor time to build the snapshot.
    pub(crate) snapshot_seconds: f64,
    /// Bytes on Typha's heap.
    pub(crate) hub_bytes: f64,
    /// Typha, per second of the cluster's life: seconds of processor time, bytes to each client, messages.
    pub(crate) hub_seconds: f64,
    pub(crate) client_bytes: f64,
    pub(crate) client_messages: f64,
    /// Seconds of processor time for each client, per second of the cluster's life.
    pub(crate) client_seconds: f64,
    /// A node: seconds from the first byte to the last message for the dataplane, bytes on its heap, messages.
    pub(crate) join_seconds: f64,
    pub(crate) join_messages: f64,
    pub(crate) node_bytes: f64,
    /// A node, per second of the cluster's life.
    pub(crate) node_seconds: f64,
    pub(crate) node_messages: f64,
}

/// The processor time of this thread so far, in seconds.
fn processor() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Typha's part. The node's input goes into files: the node must not share a heap with Typha.
pub(crate) fn hub(nodes: usize, folder: &Path) -> Result<Figures> {
    let cluster = Cluster::of(nodes);
    let now = Instant::now();
    let seconds = SECONDS as f64;
    let empty = heap::now();
    let mut hub = Hub::new(now);
    let mut batch = Vec::with_capacity(1000);
    for entry in cluster.start() {
        batch.push(entry);
        if batch.len() == 1000 {
            hub.publish(&batch, now);
            batch.clear();
        }
    }
    hub.publish(&batch, now);
    drop(batch);
    hub.in_sync(now);
    let hub_bytes = heap::now() - empty;

    let start = processor();
    let snapshot = hub.snapshot(now);
    let snapshot_seconds = processor() - start;
    std::fs::write(folder.join(SNAPSHOT), snapshot.pieces.concat())?;

    let mut hub_seconds = 0.0;
    let mut messages = Vec::new();
    for second in 0..SECONDS {
        let updates: Vec<_> = cluster.second(second).collect();
        for some in updates.chunks(AT_ONCE) {
            let start = processor();
            let made = hub.publish(some, now);
            hub_seconds += processor() - start;
            messages.extend(made);
        }
    }
    std::fs::write(folder.join(CHANGES), serde_json::to_vec(&messages)?)?;
    let client_bytes: usize = messages.iter().map(Vec::len).sum();
    Ok(Figures {
        nodes,
        pods: cluster.pods() as f64,
        policies: cluster.policies() as f64,
        entries: hub.len() as f64,
        raw: snapshot.raw_bytes as f64,
        compressed: snapshot.bytes() as f64,
        snapshot_seconds,
        hub_bytes: hub_bytes as f64,
        hub_seconds: hub_seconds / seconds,
        client_bytes: client_bytes as f64 / seconds,
        client_messages: messages.len() as f64 / seconds,
        client_seconds: writing(&messages)? / seconds,
        ..Figures::default()
    })
}

/// A node's part, with the files that Typha's part left in the folder.
pub(crate) fn member(nodes: usize, folder: &Path) -> Result<Figures> {
    // Like Felix.
    telemetry::memory::share_one_heap();
    telemetry::memory::join_small_pieces();
    let snapshot = std::fs::read(folder.join(SNAPSHOT))?;
    let messages: Vec<Vec<u8>> = serde_json::from_slice(&std::fs::read(folder.join(CHANGES))?)?;
    let before = heap::now();
    let mut member = Member::new(&Cluster::node_name(nodes / 2))?;
    let start = processor();
    for piece in snapshot.chunks(PIECE) {
        member.read(piece)?;
    }
    let mut join_messages = 0;
    member.in_sync(|_| join_messages += 1);
    let join_seconds = processor() - start;
    let node_bytes = heap::now() - before;
    let (mut node_seconds, mut node_messages) = (0.0, 0);
    for message in &messages {
        let start = processor();
        member.read(message)?;
        member.flush(|_| node_messages += 1);
        node_seconds += processor() - start;
    }
    let seconds = SECONDS as f64;
    Ok(Figures {
        nodes,
        entries: member.len() as f64,
        join_seconds,
        join_messages: f64::from(join_messages),
        node_bytes: node_bytes as f64,
        node_seconds: node_seconds / seconds,
        node_messages: f64::from(node_messages) / seconds,
        ..Figures::default()
    })
}

/// Merges both parts.
pub(crate) fn together(hub: Figures, member: Figures) -> Result<Figures> {
    ensure!(hub.entries == member.entries, "the node knows {} of {} entries", member.entries, hub.entries);
    Ok(Figures {
        join_seconds: member.join_seconds,
        join_messages: member.join_messages,
        node_bytes: member.node_bytes,
        node_seconds: member.node_seconds,
        node_messages: member.node_messages,
        ..hub
    })
}

/// Seconds of processor time to write the messages to one client, one at a time.
fn writing(messages: &[Vec<u8>]) -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    server.set_nodelay(true)?;
    let reader = std::thread::spawn(move || {
        let mut room = vec![0; 64 << 10];
        while client.read(&mut room).is_ok_and(|length| length > 0) {}
    });
    let start = processor();
    for message in messages {
        server.write_all(message)?;
    }
    let took = processor() - start;
    drop(server);
    ensure!(reader.join().is_ok(), "the reader failed");
    Ok(took)
}
