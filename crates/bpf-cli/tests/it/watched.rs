//! Dropped packets, as they are reported.

use crate::given::{Given, NOW, SECOND};
use bpf::Layout as _;
use bpf::layout::event::{Event, EventKind};

fn event(device: u32, rule: u64, reason: u32) -> Event {
    Event {
        time: NOW + 1,
        rule,
        device,
        reason,
        length: 60,
        hook: 0,
        kind: EventKind::Dropped,
        protocol: 6,
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        source_port: 4000,
        destination_port: 80,
        mark: 0,
    }
}

fn given() -> Given {
    let mut name = b"DPI|default".to_vec();
    name.resize(64, 0);
    let mut given = Given::default()
        .with("bpfp_names", [(255_u64.bytes(), name)])
        .with("bpfp_watched", [(0_u32.bytes(), 0_u64.bytes())]);
    given.devices = vec![(3, "cali1".to_owned())];
    let old = Event { time: NOW - SECOND, ..event(3, 255, 4) };
    let ping = Event { protocol: 1, destination_port: 0x0800, hook: 1, ..event(3, 7, 4) };
    let events = [old, event(3, 255, 4), event(4, 0, 11), ping];
    given.queues.insert("bpfp_events".to_owned(), events.iter().map(bpf::Layout::bytes).collect());
    given
}

#[test]
fn packets_have_interface_reason_and_rule() {
    let mut machine = given();
    assert_eq!(
        machine.prints("watch"),
        "cali1 ingress: TCP 10.0.0.1:4000 -> 10.0.0.2:80, 60 bytes: dropped by policy, rule DPI|default\n\
         4 ingress: TCP 10.0.0.1:4000 -> 10.0.0.2:80, 60 bytes: dropped packets with unknown source\n\
         cali1 egress: ICMP 10.0.0.1 -> 10.0.0.2 type 8 code 0, 60 bytes: dropped by policy, rule 0000000000000007\n"
    );
    // The command tells programs when it begins and when it ends.
    assert_eq!(machine.written, [(NOW + 5 * SECOND).bytes(), 0_u64.bytes()]);
    assert_eq!(given().prints("watch --iface 4").lines().count(), 1);
}

#[test]
fn each_packet_is_a_json_object() {
    let text = given().prints("watch --json --iface cali1");
    let first: serde_json::Value = serde_json::from_str(text.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&first["rule"], &first["reason"]), (&"DPI|default".into(), &"by policy".into()));
    assert_eq!((&first["src"], &first["dst_port"]), (&"10.0.0.1".into(), &80.into()));
}
