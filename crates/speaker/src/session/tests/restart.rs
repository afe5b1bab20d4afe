//! Graceful restart of the peer (RFC 4724, 4.2).

use super::{Bench, LOWER, end_of, notification, open, restarting_open, settings, update};
use crate::session::{Admission, Direction, Event, StateName};
use bgp_wire::{Cause, CeaseReason, Family, Message};

const OUT: Direction = Direction::Outgoing;
const IN: Direction = Direction::Incoming;

/// A session with a peer with graceful restart, whose connection has just broken.
fn broken() -> Bench {
    let mut bench = Bench::new(settings());
    bench.establish(restarting_open(false, false));
    assert_eq!(bench.tell(Event::Closed(OUT, None)), ["down, routes kept"]);
    assert_eq!(bench.session.state(), StateName::Active);
    bench
}

fn back(bench: &mut Bench, open: bgp_wire::Open) -> Vec<String> {
    assert_eq!(bench.admit().0, Admission::Take);
    bench.tell(Event::Accepted);
    bench.hear(IN, Message::Open(open));
    bench.hear(IN, Message::Keepalive)
}

#[test]
fn routes_are_kept_until_the_peer_has_sent_all_again() {
    let mut bench = broken();
    assert_eq!(back(&mut bench, restarting_open(true, true)), ["up in"]);
    assert_eq!(bench.hear(IN, update()), ["routes"]);
    assert_eq!(bench.hear(IN, end_of(Family::Ipv4)), ["sweep IPv4", "end IPv4"]);
    assert!(bench.session.keeps_stale(Family::Ipv6));
    assert_eq!(bench.hear(IN, end_of(Family::Ipv6)), ["sweep IPv6", "end IPv6"]);
    assert_eq!(bench.hear(IN, end_of(Family::Ipv6)), ["end IPv6"]);
}

#[test]
fn a_peer_that_stays_away_loses_its_routes() {
    let mut bench = broken();
    // The peer's own restart time is shorter than ours.
    let swept: Vec<String> = bench.later(60);
    assert!(swept.starts_with(&["sweep IPv4".to_owned(), "sweep IPv6".to_owned()]), "{swept:?}");
}

#[test]
fn a_peer_that_did_not_forward_loses_its_routes_when_it_is_back() {
    let mut bench = broken();
    assert_eq!(back(&mut bench, restarting_open(true, false)), ["sweep IPv4", "sweep IPv6", "up in"]);
    let mut bench = broken();
    assert_eq!(back(&mut bench, open(LOWER)), ["sweep IPv4", "sweep IPv6", "up in"]);
}

#[test]
fn a_peer_without_end_marker_does_not_keep_dead_routes_alive() {
    let mut bench = broken();
    back(&mut bench, restarting_open(true, true));
    bench.later(80);
    bench.hear(IN, Message::Keepalive);
    bench.later(39);
    assert!(bench.session.keeps_stale(Family::Ipv4));
    bench.later(2);
    assert!(!bench.session.keeps_stale(Family::Ipv4));
}

#[test]
fn a_peer_that_connects_again_has_restarted() {
    let mut bench = Bench::new(settings());
    bench.establish(restarting_open(false, false));
    assert_eq!(
        bench.admit(),
        (Admission::Take, vec!["close out".to_owned(), "down, routes kept".to_owned()])
    );
    bench.tell(Event::Accepted);
    bench.hear(IN, Message::Open(restarting_open(true, true)));
    assert_eq!(bench.hear(IN, Message::Keepalive), ["up in"]);
}

#[test]
fn a_notification_is_not_a_restart() {
    for event in [
        Event::Received(
            OUT,
            Ok(Message::Notification(notification(Cause::Cease(CeaseReason::AdministrativeShutdown)))),
        ),
        Event::Received(OUT, Err(notification(Cause::Header(bgp_wire::HeaderFault::BadType)))),
    ] {
        let mut bench = Bench::new(settings());
        bench.establish(restarting_open(false, false));
        assert_eq!(bench.tell(event).last().map(String::as_str), Some("down"));
    }
    let mut bench = Bench::new(super::Settings { graceful_restart: None, ..settings() });
    bench.establish(restarting_open(false, false));
    assert_eq!(bench.tell(Event::Closed(OUT, None)), ["down"]);
}

#[test]
fn a_removed_session_keeps_no_routes() {
    let mut bench = broken();
    let words = bench.tell(Event::Stop(notification(Cause::Cease(CeaseReason::PeerDeconfigured))));
    assert_eq!(words, ["sweep IPv4", "sweep IPv6"]);
}
