//! The output of `conntrack`.

use crate::given::{Given, NOW, SECOND, entry};
use bpf::layout::V4;
use bpf::layout::conntrack::{Entry, Key, Leg, Tracking, Value, flags::SOURCE_IS_B};
use serde_json::json;

fn connections() -> Given {
    let value = |age: u64, flags, entry| Value { rst_seen: 0, last_seen: NOW - age, flags, entry };
    let leg = Leg {
        syn: true,
        ack: true,
        bytes: 9,
        packets: 1,
        sequence: 7_u32.to_be(),
        device: 3,
        ..Leg::default()
    };
    let open = Tracking { a_to_b: leg, b_to_a: leg, ..Tracking::default() };
    let flow = |protocol,
                source: ([u8; 4], u16),
                destination: ([u8; 4], u16),
                age,
                flags,
                make: fn(Tracking<V4>) -> Entry<V4>,
                tracking| {
        let (key, is_b) = Key::<V4>::new(protocol, source, destination);
        let flags = flags | if is_b { SOURCE_IS_B } else { 0 };
        entry(key, value(age, flags, make(tracking)))
    };
    let pod = ([10, 65, 0, 2], 40_000);
    let backend = ([10, 65, 0, 3], 8055);
    let nat = Tracking { original_address: [10, 96, 0, 1], original_port: 80, ..open };
    let forwarded = Tracking { tunnel: [172, 17, 0, 7], original_source_port: 5555, ..nat };
    let closed = Leg { fin: true, ..leg };
    let stub = Key::<V4>::new(6, pod, ([10, 96, 0, 1], 80)).0;
    let state = Key::<V4>::new(6, pod, backend).0;
    Given::default().with(
        "cali_v4_ct4",
        [
            flow(6, ([10, 65, 0, 2], 1), ([10, 65, 0, 9], 80), 1_500_000_000, 0, Entry::Normal, open),
            flow(
                6,
                ([10, 65, 0, 2], 2),
                ([10, 65, 0, 9], 80),
                SECOND,
                0,
                Entry::Normal,
                Tracking { a_to_b: closed, b_to_a: closed, ..open },
            ),
            flow(
                6,
                ([10, 65, 0, 2], 3),
                ([10, 65, 0, 9], 80),
                SECOND,
                0,
                Entry::Normal,
                Tracking { a_to_b: Leg { rst: true, ..leg }, ..open },
            ),
            flow(6, ([10, 65, 0, 2], 4), ([10, 65, 0, 9], 80), SECOND, 0, Entry::Normal, Tracking::default()),
            flow(
                17,
                ([10, 65, 0, 2], 5),
                ([10, 65, 0, 9], 53),
                90 * SECOND,
                0x1,
                Entry::Normal,
                Tracking::default(),
            ),
            flow(1, ([10, 65, 0, 2], 6), ([10, 65, 0, 9], 0), 15_000, 0, Entry::Normal, Tracking::default()),
            flow(132, ([10, 65, 0, 2], 7), ([10, 65, 0, 9], 9), 0, 0, Entry::Normal, Tracking::default()),
            flow(6, pod, backend, SECOND, 0, Entry::Reverse, nat),
            flow(17, pod, backend, SECOND, 0x200, Entry::Reverse, forwarded),
            entry(stub, value(SECOND, 0, Entry::Forward(state, 0))),
        ],
    )
}

#[test]
fn conntrack_dump() {
    let expected = "\
ICMP 10.65.0.2:6 -> 10.65.0.9:0  Active ago 15µs
TCP 10.65.0.2:40000 -> 10.96.0.1:80 -> 10.65.0.3:8055  Active ago 1s ESTABLISHED
TCP 10.65.0.2:1 -> 10.65.0.9:80  Active ago 1.5s ESTABLISHED
TCP 10.65.0.2:2 -> 10.65.0.9:80  Active ago 1s CLOSED
TCP 10.65.0.2:3 -> 10.65.0.9:80  Active ago 1s RESET
TCP 10.65.0.2:4 -> 10.65.0.9:80  Active ago 1s SYN-SENT
UDP 10.65.0.2:40000 -> 10.96.0.1:80 -> 10.65.0.3:8055 external client, service forwarded to/from 172.17.0.7 source port changed from 5555  Active ago 1s
UDP 10.65.0.2:5 -> 10.65.0.9:53  Active ago 1m30s
Proto-132 10.65.0.2:7 -> 10.65.0.9:9  Active ago 0s
";
    assert_eq!(connections().prints("conntrack dump"), expected);
}

#[test]
fn conntrack_dump_as_json_and_raw() {
    let pretty = connections().json("conntrack dump -j");
    assert_eq!(pretty.as_array().map(Vec::len), Some(9), "the stub is part of its flow");
    assert_eq!(
        pretty[8],
        json!({
            "type": "nat", "proto": "UDP", "src": "10.65.0.2:40000", "orig_dst": "10.96.0.1:80", "dst": "10.65.0.3:8055",
            "tunnel_ip": "172.17.0.7", "orig_src_port": 5555, "flags": ["host-psnat"], "active_ago": "1s",
        })
    );
    let raw = connections().json("--json conntrack dump --raw");
    assert_eq!(raw.as_array().map(Vec::len), Some(10));
    let stub = raw.as_array().and_then(|all| all.iter().find(|one| one["type"] == "nat-forward"));
    assert_eq!(
        stub,
        Some(&json!({
            "type": "nat-forward", "proto": "TCP", "addr_a": "10.96.0.1", "port_a": 80, "addr_b": "10.65.0.2", "port_b": 40000,
            "flags": [], "active_ago": "1s",
            "rev_proto": "TCP", "rev_addr_a": "10.65.0.2", "rev_port_a": 40000, "rev_addr_b": "10.65.0.3", "rev_port_b": 8055,
        }))
    );
    let raw = connections().prints("conntrack dump --raw");
    let line = |start: &str| raw.lines().find(|line| line.starts_with(start)).unwrap_or_default().to_owned();
    assert_eq!(
        line("ConntrackKey{proto=6 10.96"),
        "ConntrackKey{proto=6 10.96.0.1:80 <-> 10.65.0.2:40000} -> Entry{Type:1, LastSeen:999000000000, Flags: <none> REVKey: ConntrackKey{proto=6 10.65.0.2:40000 <-> 10.65.0.3:8055} NATSPort: 0} Active ago 1s"
    );
    let leg = "{Bytes:0 Packets:0 Seqno:0 SynSeen:false AckSeen:false FinSeen:false RstSeen:false Approved:false Opener:false Workload:false Ifindex:0}";
    let udp = format!(
        "ConntrackKey{{proto=17 10.65.0.2:5 <-> 10.65.0.9:53}} -> Entry{{Type:0, LastSeen:910000000000, Flags: 0x1 nat-out Data: {{A2B:{leg} B2A:{leg} OrigDst:0.0.0.0 OrigSrc:0.0.0.0 OrigPort:0 OrigSPort:0 TunIP:0.0.0.0}}}} Active ago 1m30s"
    );
    assert_eq!(line("ConntrackKey{proto=17 10.65.0.2:5"), udp);
    assert!(raw.contains("{Bytes:9 Packets:1 Seqno:7 SynSeen:true AckSeen:true"), "{raw}");
}

#[test]
fn conntrack_stats() {
    let expected = "\
Conntrack map size: 512000
Total connections: 9
Total entries: 10
NAT connections: 1

TCP : 5
UDP : 2
Others : 2

TCP Established: 2
TCP Closed: 1
TCP Reset: 1
TCP Syn-sent: 1
";
    assert_eq!(connections().prints("conntrack stats"), expected);
    let json = connections().json("conntrack stats -j");
    assert_eq!(
        (&json["map_size"], &json["total_entries"], &json["tcp_syn_sent"]),
        (&json!(512_000), &json!(10), &json!(1))
    );
}
