//! Reports of eBPF programs about packets that policy judged, which replace the reports of rules, and their counters of
//! connections that Linux does not track. Two threads. The maps exist once the dataplane has opened them, and the
//! oldest entries of the queue are overwritten by new ones.

use super::directory::Directory;
use super::readers::{CountedConnection, DUMP_INTERVAL, Input, PART, Reported, Shared, send, spawn};
use bpf::layout::conntrack::{Entry, Key, Leg, Value, flags};
use bpf::layout::judged::Judged;
use bpf::layout::{Family, V4, V6};
use bpf::{Layout as _, Map, Queue};
use flows::collector::{CountedTraffic, Traffic, Tuple};
use netlink::{Handle, Kernel as _};
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

const QUEUE: &str = "bpfp_flows";
/// How long the thread sleeps when the queue is empty, at first and after a while without packets; and how often it
/// looks for a missing queue. The queue holds thousands of flows, enough for a second's worth.
const PAUSE: Duration = Duration::from_millis(50);
const LONG_PAUSE: Duration = Duration::from_secs(1);
const SEARCH: Duration = Duration::from_millis(500);

/// The connections that Linux does not track, so that programs alone count their packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Untracked {
    /// None.
    Nothing,
    /// Connections that go straight from one workload of this node to another.
    Direct,
    /// All that pass through this node and do not need Linux (`BPFHostConntrackBypass`).
    PassingThrough,
}

impl Untracked {
    /// Whether this connection is one of them: by its flags, and by whether one end is this host, all of whose
    /// connections Linux knows.
    fn has(self, flags: u32, is_hosts: bool) -> bool {
        const LED_ON_BY_LINUX: u32 = flags::NAT_OUTGOING | flags::MASQUERADE | flags::SKIP_FIB;
        match self {
            Self::Nothing => false,
            _ if flags & flags::DIRECT != 0 => true,
            Self::Direct => false,
            Self::PassingThrough => flags & LED_ON_BY_LINUX == 0 && !is_hosts,
        }
    }
}

/// Starts the threads.
pub(super) fn start(shared: &Shared, untracked: Untracked) -> io::Result<()> {
    let owned = shared.clone();
    spawn("bpf-flows", move || read(&owned))?;
    // Linux counts the connections that it tracks.
    if untracked == Untracked::Nothing {
        return Ok(());
    }
    let owned = shared.clone();
    spawn("bpf-connections", move || count(&owned, untracked))
}

fn count(shared: &Shared, untracked: Untracked) {
    while !shared.is_over() {
        std::thread::sleep(DUMP_INTERVAL);
        let host = match untracked {
            Untracked::PassingThrough => addresses().unwrap_or_else(|error| {
                tracing::warn!(%error, "connections of this host itself may be counted twice");
                BTreeSet::new()
            }),
            _ => BTreeSet::new(),
        };
        // The maps do not exist before the dataplane does, which the other thread reports.
        let _ = count_map::<V4>("cali_v4_ct4", shared, untracked, &host);
        let _ = count_map::<V6>("cali_v6_ct4", shared, untracked, &host);
    }
}

/// This host's own addresses.
fn addresses() -> Result<BTreeSet<IpAddr>, netlink::Error> {
    let all = Handle::open()?.addresses(None, None)?;
    Ok(all.into_iter().map(|address| address.address.addr()).collect())
}

fn count_map<F: Family>(
    name: &str,
    shared: &Shared,
    untracked: Untracked,
    host: &BTreeSet<IpAddr>,
) -> Result<(), bpf_driver::Error> {
    let map = Map::open(&bpf_driver::files::map(name)?)?;
    let mut part = Vec::new();
    map.visit_batches(|keys, values| {
        let (keys, values) = (keys.chunks_exact(Key::<F>::SIZE), values.chunks_exact(Value::<F>::SIZE));
        part.extend(
            keys.zip(values).filter_map(|(key, value)| {
                counted::<F>(&Key::read(key), &Value::read(value), untracked, host)
            }),
        );
        if part.len() >= PART {
            send(Input::Counted(std::mem::take(&mut part), false), shared);
        }
    })?;
    send(Input::Counted(part, false), shared);
    Ok(())
}

/// The programs' counts of a connection, if only they counted it.
fn counted<F: Family>(
    key: &Key<F>,
    value: &Value<F>,
    untracked: Untracked,
    host: &BTreeSet<IpAddr>,
) -> Option<CountedConnection> {
    let (Entry::Normal(tracking) | Entry::Reverse(tracking)) = value.entry else { return None };
    let address = |address: F::Address| -> IpAddr {
        match <[u8; 4]>::try_from(address.as_ref()) {
            Ok(four) => four.into(),
            Err(_) => <[u8; 16]>::try_from(address.as_ref()).unwrap_or_default().into(),
        }
    };
    let a = (address(key.address_a), key.port_a, tracking.a_to_b);
    let b = (address(key.address_b), key.port_b, tracking.b_to_a);
    if !untracked.has(value.flags, host.contains(&a.0) || host.contains(&b.0)) {
        return None;
    }
    let (from, to) = if tracking.b_to_a.opener { (b, a) } else { (a, b) };
    let traffic = |leg: Leg| Traffic { packets: leg.packets.into(), bytes: leg.bytes };
    let has_ended = |leg: Leg| leg.fin || leg.rst;
    Some(CountedConnection {
        tuple: Tuple {
            source: from.0,
            dest: to.0,
            protocol: u8::try_from(key.protocol).ok()?,
            source_port: from.1,
            dest_port: to.1,
        },
        before: None,
        totals: Some(CountedTraffic { original: traffic(from.2), reply: traffic(to.2) }),
        is_over: has_ended(from.2) && has_ended(to.2),
    })
}

fn read(shared: &Shared) {
    let mut last_error = String::new();
    while !shared.is_over() {
        if let Err(error) = read_queue(shared) {
            let error = error.to_string();
            // The queue does not exist before the dataplane does, which is logged once.
            if error != last_error {
                tracing::info!(%error, "cannot read the packet events of eBPF programs yet");
                last_error = error;
            }
            std::thread::sleep(SEARCH);
        }
    }
}

fn read_queue(shared: &Shared) -> Result<(), bpf_driver::Error> {
    let map = Map::open(&bpf_driver::files::map(QUEUE)?)?;
    let queue = Queue::<Judged>::new(&map)?;
    let mut pause = PAUSE;
    while !shared.is_over() {
        let mut packets = Vec::new();
        while packets.len() < PART {
            match queue.pop()? {
                Some(packet) => packets.push(packet),
                None => break,
            }
        }
        let (count, is_all) = (packets.len(), packets.len() < PART);
        if count > 0 && !shared.offer(Input::Judged(packets)) {
            shared.counts.readers[0]
                .shed
                .fetch_add(u64::try_from(count).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
        pause = if count > 0 { PAUSE } else { (pause * 2).min(LONG_PAUSE) };
        if is_all {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

/// The packet as rules would have reported it; `None` if no rule that it hit is known.
pub(super) fn reported(packet: &Judged, directory: &Directory) -> Option<Reported> {
    let traffic = Traffic { packets: 1, bytes: packet.length.into() };
    let text = |id: &u64| Some((directory.rule(*id)?.to_string(), traffic));
    let prefixes: Vec<(String, Traffic)> = packet.hits.iter().filter_map(text).collect();
    let (made_to, goes_to) =
        ((packet.original, packet.original_port), (packet.destination, packet.destination_port));
    (!prefixes.is_empty()).then(|| Reported {
        tuple: Tuple {
            source: packet.source,
            dest: packet.destination,
            protocol: packet.protocol,
            source_port: packet.source_port,
            dest_port: packet.destination_port,
        },
        before: (made_to != goes_to).then_some(made_to),
        prefixes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bpf::layout::conntrack::Tracking;
    use bpf_policy::rule_id;

    #[test]
    fn connections_that_linux_does_not_track_are_counted() {
        let (key, is_b) = Key::<V4>::new(6, ([10, 0, 0, 9], 4000), ([10, 0, 0, 2], 80));
        let opener = Leg { packets: 3, bytes: 300, opener: true, fin: true, ..Leg::default() };
        let answers = Leg { packets: 2, bytes: 200, ..Leg::default() };
        let (a_to_b, b_to_a) = if is_b { (answers, opener) } else { (opener, answers) };
        let tracking = Tracking { a_to_b, b_to_a, ..Tracking::default() };
        let value = |flags| Value { rst_seen: 0, last_seen: 0, flags, entry: Entry::Normal(tracking) };
        let nobody = BTreeSet::new();
        let found = counted(&key, &value(flags::DIRECT), Untracked::Direct, &nobody).expect("it is counted");
        assert_eq!((found.tuple.source, found.tuple.dest_port), ([10, 0, 0, 9].into(), 80));
        let totals = CountedTraffic {
            original: Traffic { packets: 3, bytes: 300 },
            reply: Traffic { packets: 2, bytes: 200 },
        };
        assert_eq!((found.totals, found.is_over), (Some(totals), false));
        // Linux counts the other connections.
        assert_eq!(counted(&key, &value(0), Untracked::Direct, &nobody), None);
        // With the bypass Linux leaves more connections to programs.
        let host: BTreeSet<IpAddr> = [[10, 0, 0, 2].into()].into();
        let translated = Value { entry: Entry::Reverse(tracking), ..value(0) };
        for (value, host, is_counted) in [
            (value(0), &nobody, true),
            (translated, &nobody, true),
            (value(flags::DIRECT), &nobody, true),
            (value(0), &host, false),
            (value(flags::NAT_OUTGOING), &nobody, false),
            (value(flags::SKIP_FIB), &nobody, false),
        ] {
            let found = counted(&key, &value, Untracked::PassingThrough, host);
            assert_eq!(found.is_some(), is_counted, "{value:?}");
        }
    }

    #[test]
    fn a_packet_is_reported_as_by_rules() {
        let directory = Directory::new("node", false);
        let packet = Judged {
            time: 1,
            length: 60,
            hook: 1,
            protocol: 6,
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 0, 2].into(),
            original: [10, 96, 0, 1].into(),
            source_port: 4000,
            destination_port: 8080,
            original_port: 80,
            hits: vec![5, rule_id("DRI")],
        };
        let found = reported(&packet, &directory).expect("one rule is known");
        assert_eq!(found.prefixes, [("DRI".to_owned(), Traffic { packets: 1, bytes: 60 })]);
        assert_eq!(found.before, Some(([10, 96, 0, 1].into(), 80)));
        assert_eq!((found.tuple.dest_port, found.tuple.source_port), (8080, 4000));
        let plain = Judged { original: packet.destination, original_port: 8080, ..packet.clone() };
        assert_eq!(reported(&plain, &directory).and_then(|found| found.before), None);
        assert_eq!(reported(&Judged { hits: vec![5], ..packet }, &directory), None);
    }
}
