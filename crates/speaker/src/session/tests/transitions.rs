//! RFC 4271, 8.2.2: the effect of each event in each state.

use super::{Bench, LOWER, notification, open, settings, update};
use crate::session::StateName::{self, Active, Connect, Established, Idle, OpenConfirm, OpenSent};
use crate::session::{Direction, Event};
use bgp_wire::{
    Asn, Cause, CeaseReason, Family, HeaderFault, Message, RefreshPhase, RouteRefresh, UpdateFault,
};

/// A machine in a state, reached by its own connection.
fn in_state(state: StateName) -> Bench {
    let mut bench = Bench::new(settings());
    if state >= Connect {
        bench.connect();
    }
    match state {
        Idle | Connect => {}
        Active => drop(bench.tell(Event::ConnectFailed("refused".into()))),
        OpenSent | OpenConfirm | Established => {
            bench.tell(Event::Connected);
        }
    }
    if state >= OpenConfirm {
        bench.hear(Direction::Outgoing, Message::Open(open(LOWER)));
    }
    if state == Established {
        bench.hear(Direction::Outgoing, Message::Keepalive);
    }
    assert_eq!(bench.session.state(), state);
    bench
}

enum Do {
    Start,
    Stop,
    Wait,
    Connected,
    Refused,
    Closed,
    Accept,
    Open,
    OpenOfOther,
    OpenOfOurId,
    OpenWithoutFamily,
    Keepalive,
    Update,
    Refresh,
    Notification,
    Garbage,
    MalformedUpdate,
}

fn perform(bench: &mut Bench, what: &Do) -> Vec<String> {
    let out = Direction::Outgoing;
    match what {
        Do::Start => bench.tell(Event::Start),
        Do::Stop => bench.tell(Event::Stop(notification(Cause::Cease(CeaseReason::AdministrativeShutdown)))),
        Do::Wait => bench.wait(),
        Do::Connected => bench.tell(Event::Connected),
        Do::Refused => bench.tell(Event::ConnectFailed("Connection refused".into())),
        Do::Closed => bench.tell(Event::Closed(out, None)),
        Do::Accept => match bench.admit() {
            (crate::session::Admission::Take, mut words) => {
                words.extend(bench.tell(Event::Accepted));
                words
            }
            (crate::session::Admission::Drop, _) => vec!["drop".to_owned()],
            (crate::session::Admission::Refuse(answer), words) => {
                assert_eq!(words, Vec::<String>::new());
                vec![format!("refuse: {answer}")]
            }
        },
        Do::Open => bench.hear(out, Message::Open(open(LOWER))),
        Do::OpenOfOther => {
            let mut open = open(LOWER);
            open.capabilities.retain(|capability| !matches!(capability, bgp_wire::Capability::FourByteAs(_)));
            open.my_as = Asn(65001).two_bytes();
            bench.hear(out, Message::Open(open))
        }
        Do::OpenOfOurId => bench.hear(out, Message::Open(open(super::LOCAL))),
        Do::OpenWithoutFamily => {
            let mut open = open(LOWER);
            open.capabilities
                .retain(|capability| !matches!(capability, bgp_wire::Capability::Multiprotocol(_)));
            open.capabilities.push(bgp_wire::Capability::OtherFamily(25, 70));
            bench.hear(out, Message::Open(open))
        }
        Do::Keepalive => bench.hear(out, Message::Keepalive),
        Do::Update => bench.hear(out, update()),
        Do::Refresh => {
            let refresh = RouteRefresh { family: Family::Ipv6, phase: RefreshPhase::Request };
            bench.hear(out, Message::RouteRefresh(refresh))
        }
        Do::Notification => bench
            .hear(out, Message::Notification(notification(Cause::Cease(CeaseReason::AdministrativeReset)))),
        Do::Garbage => {
            bench.tell(Event::Received(out, Err(notification(Cause::Header(HeaderFault::NotSynchronised)))))
        }
        Do::MalformedUpdate => {
            bench.tell(Event::Received(out, Err(notification(Cause::Update(UpdateFault::NetworkField)))))
        }
    }
}

#[test]
fn every_event_in_every_state() {
    const OPEN_SENT: &str = "out: Unexpected message in OpenSent state";
    const OPEN_CONFIRM: &str = "out: Unexpected message in OpenConfirm state";
    let rows: &[(StateName, Do, &[&str], StateName)] = &[
        // Idle: only a start has an effect; connections of the peer are refused.
        (Idle, Do::Start, &[], Active),
        (Idle, Do::Stop, &[], Idle),
        (Idle, Do::Accept, &["drop"], Idle),
        (Idle, Do::Closed, &[], Idle),
        (Idle, Do::Open, &[], Idle),
        (Idle, Do::Keepalive, &[], Idle),
        (Idle, Do::Update, &[], Idle),
        (Idle, Do::Notification, &[], Idle),
        (Idle, Do::Connected, &["close out"], Idle),
        // Connect: our connection is in progress.
        (Connect, Do::Start, &[], Connect),
        (Connect, Do::Stop, &["close out"], Idle),
        (Connect, Do::Connected, &["out: OPEN"], OpenSent),
        (Connect, Do::Refused, &[], Active),
        (Connect, Do::Accept, &["in: OPEN"], OpenSent),
        (Connect, Do::Wait, &["close out", "connect"], Connect),
        (Connect, Do::Keepalive, &[], Connect),
        // Active: waiting for the peer, or for the next attempt.
        (Active, Do::Start, &[], Active),
        (Active, Do::Stop, &[], Idle),
        (Active, Do::Wait, &["connect"], Connect),
        (Active, Do::Accept, &["in: OPEN"], OpenSent),
        (Active, Do::Refused, &[], Active),
        // OpenSent: only an OPEN is expected.
        (OpenSent, Do::Stop, &["out: Administrative shutdown", "close out"], Idle),
        (OpenSent, Do::Wait, &["out: Hold timer expired", "close out"], Idle),
        (OpenSent, Do::Closed, &[], Active),
        (OpenSent, Do::Open, &["out: KEEPALIVE"], OpenConfirm),
        (OpenSent, Do::OpenOfOther, &["out: Bad peer AS", "close out"], Idle),
        (OpenSent, Do::OpenOfOurId, &["out: Bad BGP identifier", "close out"], Idle),
        (OpenSent, Do::OpenWithoutFamily, &["out: Required capability missing", "close out"], Idle),
        (OpenSent, Do::Keepalive, &[OPEN_SENT, "close out"], Idle),
        (OpenSent, Do::Update, &[OPEN_SENT, "close out"], Idle),
        (OpenSent, Do::Refresh, &[OPEN_SENT, "close out"], Idle),
        (OpenSent, Do::Notification, &["close out"], Idle),
        (OpenSent, Do::Garbage, &["out: Connection not synchronized", "close out"], Idle),
        (OpenSent, Do::Accept, &["in: OPEN"], OpenSent),
        // OpenConfirm: only a keepalive is expected.
        (OpenConfirm, Do::Stop, &["out: Administrative shutdown", "close out"], Idle),
        (OpenConfirm, Do::Wait, &["out: KEEPALIVE"], OpenConfirm),
        (OpenConfirm, Do::Closed, &[], Active),
        (OpenConfirm, Do::Open, &[OPEN_CONFIRM, "close out"], Idle),
        (OpenConfirm, Do::Keepalive, &["up out"], Established),
        (OpenConfirm, Do::Update, &[OPEN_CONFIRM, "close out"], Idle),
        (OpenConfirm, Do::Refresh, &[OPEN_CONFIRM, "close out"], Idle),
        (OpenConfirm, Do::Notification, &["close out"], Idle),
        (OpenConfirm, Do::Garbage, &["out: Connection not synchronized", "close out"], Idle),
        (OpenConfirm, Do::Accept, &["in: OPEN"], OpenConfirm),
        // Established: routes are exchanged.
        (Established, Do::Start, &[], Established),
        (Established, Do::Stop, &["out: Administrative shutdown", "close out", "down"], Idle),
        (Established, Do::Wait, &["out: KEEPALIVE"], Established),
        (Established, Do::Closed, &["down"], Active),
        (Established, Do::Open, &["out: Unexpected message in Established state", "close out", "down"], Idle),
        (Established, Do::Keepalive, &[], Established),
        (Established, Do::Update, &["routes"], Established),
        (Established, Do::Refresh, &["again IPv6 true"], Established),
        (Established, Do::Notification, &["close out", "down"], Idle),
        (Established, Do::Garbage, &["out: Connection not synchronized", "close out", "down"], Idle),
        (Established, Do::MalformedUpdate, &["out: Invalid network field", "close out", "down"], Idle),
        (Established, Do::Accept, &["refuse: Connection collision resolution"], Established),
    ];
    for (index, (from, what, actions, to)) in rows.iter().enumerate() {
        let mut bench = in_state(*from);
        assert_eq!(perform(&mut bench, what), *actions, "row {index}, from {from}");
        assert_eq!(bench.session.state(), *to, "row {index}, from {from}");
    }
}

#[test]
fn hold_timers_run_out() {
    for (state, words) in [
        (OpenConfirm, &["out: Hold timer expired", "close out"][..]),
        (Established, &["out: Hold timer expired", "close out", "down"]),
    ] {
        let mut bench = in_state(state);
        assert_eq!(bench.later(90), words, "{state}");
        assert_eq!(bench.session.state(), Idle);
    }
}
