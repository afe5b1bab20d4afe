//! Entries as text and as JSON.

use super::Entries;
use crate::maps::Failure;
use crate::text;
use bpf::layout::Family;
use bpf::layout::conntrack::{Entry, Key, Leg, Tracking, Value, flags, flags::SOURCE_IS_B};
use bpf_conntrack::{TcpState, tcp_state};
use serde_json::{Value as Json, json};
use std::io::Write;

const FLAGS: [(u32, &str); 20] = [
    (0x1, "nat-out"),
    (0x2, "fwd-dsr"),
    (0x4, "np-fwd"),
    (0x8, "skip-fib"),
    (0x40, "ext-local"),
    (0x80, "via-nat-iface"),
    (0x100, "B-A"),
    (0x200, "host-psnat"),
    (0x400, "svc-self"),
    (0x800, "np-loop"),
    (0x1000, "np-remote"),
    (0x2000, "no-dsr"),
    (0x4000, "no-redir-peer"),
    (0x8000, "dscp"),
    (0x1_0000, "maglev"),
    (0x2_0000, "send-rst"),
    (0x4_0000, "connlimit-in"),
    (0x8_0000, "connlimit-in-rej"),
    (0x10_0000, "connlimit-out"),
    (0x20_0000, "connlimit-dec"),
];

fn protocol(number: u32) -> String {
    match number {
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        1 => "ICMP".to_owned(),
        58 => "ICMP6".to_owned(),
        other => format!("Proto-{other}"),
    }
}

/// The state of a TCP connection; `None` for other protocols and for stubs, which have no state.
fn state<F: Family>(key: &Key<F>, value: &Value<F>) -> Option<&'static str> {
    let (Entry::Normal(tracking) | Entry::Reverse(tracking)) = &value.entry else { return None };
    (key.protocol == 6).then(|| match tcp_state(tracking, value.flags) {
        TcpState::Closed => "CLOSED",
        TcpState::Reset => "RESET",
        TcpState::Established => "ESTABLISHED",
        TcpState::SynSent => "SYN-SENT",
    })
}

type End<F> = (<F as Family>::Address, u16);

/// The source and destination of a connection.
fn ends<F: Family>(key: &Key<F>, value: &Value<F>) -> (End<F>, End<F>) {
    let (a, b) = ((key.address_a, key.port_a), (key.address_b, key.port_b));
    if value.flags & SOURCE_IS_B == 0 { (a, b) } else { (b, a) }
}

/// The node at the other end of a tunnel.
fn tunnel<F: Family>(tracking: &Tracking<F>) -> Option<String> {
    (tracking.tunnel != F::Address::default()).then(|| text::ip::<F>(&tracking.tunnel).to_string())
}

fn changed_port<F: Family>(value: &Value<F>, tracking: &Tracking<F>) -> Option<u16> {
    (value.flags & flags::HOST_PORT_CHANGED != 0).then_some(tracking.original_source_port)
}

/// Prints a line per connection; stubs are shown with the entry that they refer to.
pub(super) fn pretty<F: Family>(now: u64, entries: &Entries<F>, out: &mut dyn Write) -> Result<(), Failure> {
    // Calico joins address and port with a colon here, even for IPv6.
    let end = |(address, port): End<F>| format!("{}:{port}", text::ip::<F>(&address));
    for (key, value) in entries {
        let (tracking, is_nat) = match &value.entry {
            Entry::Normal(tracking) => (tracking, false),
            Entry::Reverse(tracking) => (tracking, true),
            Entry::Forward(..) | Entry::Unknown(_) => continue,
        };
        let (source, destination) = ends(key, value);
        let mut line = format!("{} {} -> ", protocol(key.protocol), end(source));
        if is_nat {
            line += &format!("{} -> ", end((tracking.original_address, tracking.original_port)));
        }
        line += &format!("{} ", end(destination));
        if let Some(node) = tunnel(tracking).filter(|_| is_nat) {
            line += &format!("external client, service forwarded to/from {node} ");
        }
        if let Some(port) = changed_port(value, tracking) {
            line += &format!("source port changed from {port} ");
        }
        line += &format!(" Active ago {}", text::ago(now, value.last_seen));
        if let Some(state) = state(key, value) {
            line += &format!(" {state}");
        }
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints connections as JSON: those without NAT first.
pub(super) fn pretty_json<F: Family>(
    now: u64,
    entries: &Entries<F>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let (mut plain, mut translated) = (Vec::new(), Vec::new());
    for (key, value) in entries {
        let (tracking, is_nat) = match &value.entry {
            Entry::Normal(tracking) => (tracking, false),
            Entry::Reverse(tracking) => (tracking, true),
            Entry::Forward(..) | Entry::Unknown(_) => continue,
        };
        let place = |(address, port): End<F>| text::place::<F>(&address, port);
        let (source, destination) = ends(key, value);
        let mut object = json!({
            "type": if is_nat { "nat" } else { "normal" },
            "proto": protocol(key.protocol),
            "src": place(source),
            "dst": place(destination),
            "flags": text::names(value.flags, &FLAGS),
            "active_ago": text::ago(now, value.last_seen),
        });
        add(&mut object, "tcp_state", state(key, value).map(Into::into));
        if is_nat {
            object["orig_dst"] = place((tracking.original_address, tracking.original_port)).into();
            add(&mut object, "tunnel_ip", tunnel(tracking).map(Into::into));
            add(&mut object, "orig_src_port", changed_port(value, tracking).map(Into::into));
        }
        if is_nat { &mut translated } else { &mut plain }.push(object);
    }
    plain.append(&mut translated);
    text::json(out, &Json::Array(plain))
}

fn add(object: &mut Json, name: &str, value: Option<Json>) {
    if let Some(value) = value {
        object[name] = value;
    }
}

fn raw_key<F: Family>(key: &Key<F>) -> String {
    format!(
        "ConntrackKey{{proto={} {}:{} <-> {}:{}}}",
        key.protocol,
        text::ip::<F>(&key.address_a),
        key.port_a,
        text::ip::<F>(&key.address_b),
        key.port_b
    )
}

fn raw_leg(leg: &Leg) -> String {
    format!(
        "{{Bytes:{} Packets:{} Seqno:{} SynSeen:{} AckSeen:{} FinSeen:{} RstSeen:{} Approved:{} Opener:{} Workload:{} Ifindex:{}}}",
        leg.bytes,
        leg.packets,
        u32::from_be(leg.sequence),
        leg.syn,
        leg.ack,
        leg.fin,
        leg.rst,
        leg.approved,
        leg.opener,
        leg.workload,
        leg.device
    )
}

fn kind<F: Family>(entry: &Entry<F>) -> (u8, String) {
    match entry {
        Entry::Normal(_) => (0, "normal".to_owned()),
        Entry::Forward(..) => (1, "nat-forward".to_owned()),
        Entry::Reverse(_) => (2, "nat-reverse".to_owned()),
        Entry::Unknown(kind) => (*kind, format!("unknown({kind})")),
    }
}

/// Prints every entry unprocessed.
pub(super) fn raw<F: Family>(now: u64, entries: &Entries<F>, out: &mut dyn Write) -> Result<(), Failure> {
    for (key, value) in entries {
        let flags = match value.flags {
            0 => "<none>".to_owned(),
            bits => format!("{bits:#x} {}", text::names(bits, &FLAGS).join(" ")).trim_end().to_owned(),
        };
        let content = match &value.entry {
            Entry::Forward(reverse, port) => format!("REVKey: {} NATSPort: {port}", raw_key(reverse)),
            Entry::Normal(tracking) | Entry::Reverse(tracking) => format!(
                "Data: {{A2B:{} B2A:{} OrigDst:{} OrigSrc:{} OrigPort:{} OrigSPort:{} TunIP:{}}}",
                raw_leg(&tracking.a_to_b),
                raw_leg(&tracking.b_to_a),
                text::ip::<F>(&tracking.original_address),
                text::ip::<F>(&tracking.original_source),
                tracking.original_port,
                tracking.original_source_port,
                text::ip::<F>(&tracking.tunnel)
            ),
            Entry::Unknown(_) => "TYPE INVALID".to_owned(),
        };
        let state = state(key, value).map_or(String::new(), |state| format!(" {state}"));
        writeln!(
            out,
            "{} -> Entry{{Type:{}, LastSeen:{}, Flags: {flags} {content}}} Active ago {}{state}",
            raw_key(key),
            kind(&value.entry).0,
            value.last_seen,
            text::ago(now, value.last_seen)
        )?;
    }
    Ok(())
}

/// Prints every entry unprocessed, as JSON.
pub(super) fn raw_json<F: Family>(
    now: u64,
    entries: &Entries<F>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let objects = entries.iter().map(|(key, value)| {
        let mut object = json!({
            "proto": protocol(key.protocol),
            "addr_a": text::ip::<F>(&key.address_a).to_string(),
            "port_a": key.port_a,
            "addr_b": text::ip::<F>(&key.address_b).to_string(),
            "port_b": key.port_b,
            "type": kind(&value.entry).1,
            "flags": text::names(value.flags, &FLAGS),
            "active_ago": text::ago(now, value.last_seen),
        });
        add(&mut object, "tcp_state", state(key, value).map(Into::into));
        if let Entry::Forward(reverse, _) = &value.entry {
            object["rev_proto"] = protocol(reverse.protocol).into();
            object["rev_addr_a"] = text::ip::<F>(&reverse.address_a).to_string().into();
            object["rev_port_a"] = reverse.port_a.into();
            object["rev_addr_b"] = text::ip::<F>(&reverse.address_b).to_string().into();
            object["rev_port_b"] = reverse.port_b.into();
        }
        object
    });
    text::json(out, &Json::Array(objects.collect()))
}
