//! Collisions, pauses, limits, refreshes, and negotiated parameters.

use super::{Bench, HIGHER, LOWER, notification, open, restarting_open, settings, update};
use crate::session::{Action, Admission, Direction, Event, Random, Session, StateName};
use bgp_wire::{
    AddPathMode, Asn, Capability, Cause, CeaseReason, Family, Message, Open, RefreshPhase, RouteRefresh,
};
use std::time::Duration;

const OUT: Direction = Direction::Outgoing;
const IN: Direction = Direction::Incoming;

/// Both connections are established, and neither end has identified itself.
fn two_connections() -> Bench {
    let mut bench = Bench::new(settings());
    bench.connect();
    bench.tell(Event::Connected);
    assert_eq!(bench.admit().0, Admission::Take);
    assert_eq!(bench.tell(Event::Accepted), ["in: OPEN"]);
    bench
}

#[test]
fn the_speaker_with_the_greater_identifier_keeps_its_connection() {
    const GONE_IN: [&str; 3] = ["in: Connection collision resolution", "close in", "out: KEEPALIVE"];
    const GONE_OUT: [&str; 2] = ["out: Connection collision resolution", "close out"];
    for (id, first, second, words) in [
        // We are greater: our connection is kept, whichever OPEN arrives first.
        (LOWER, IN, OUT, &GONE_IN[..]),
        (LOWER, OUT, IN, &["in: Connection collision resolution", "close in"]),
        // The peer is greater: its connection is kept.
        (HIGHER, IN, OUT, &GONE_OUT),
        (HIGHER, OUT, IN, &["out: Connection collision resolution", "close out", "in: KEEPALIVE"]),
    ] {
        let mut bench = two_connections();
        bench.hear(first, Message::Open(open(id)));
        assert_eq!(bench.hear(second, Message::Open(open(id))), words);
        let kept = if id < settings().router_id { OUT } else { IN };
        let up = if kept == OUT { "up out" } else { "up in" };
        assert_eq!(bench.hear(kept, Message::Keepalive), [up]);
        assert_eq!(bench.session.state(), StateName::Established);
    }
}

#[test]
fn a_connection_that_is_not_preferred_waits_for_the_other() {
    // We are greater: the peer's own connection waits, even if the peer has confirmed it.
    let mut bench = two_connections();
    assert_eq!(bench.hear(IN, Message::Open(open(LOWER))), Vec::<String>::new());
    assert_eq!(bench.hear(IN, Message::Keepalive), Vec::<String>::new());
    assert_eq!(bench.session.state(), StateName::OpenSent);
    // Ours breaks: the peer's continues where it was.
    assert_eq!(bench.tell(Event::Closed(OUT, None)), ["in: KEEPALIVE", "up in"]);
    // Ours is refused: the peer's continues, too, although the peer has not confirmed it yet.
    let mut bench = two_connections();
    bench.hear(IN, Message::Open(open(LOWER)));
    let busy = notification(Cause::Cease(CeaseReason::OutOfResources));
    assert_eq!(bench.hear(OUT, Message::Notification(busy)), ["close out", "in: KEEPALIVE"]);
    assert_eq!(bench.hear(IN, Message::Keepalive), ["up in"]);
}

#[test]
fn a_session_ends_the_other_connection() {
    let mut bench = two_connections();
    bench.hear(OUT, Message::Open(open(LOWER)));
    let words = bench.hear(OUT, Message::Keepalive);
    assert_eq!(words, ["in: Connection collision resolution", "close in", "up out"]);
    // Further messages on it do not matter.
    assert_eq!(bench.hear(IN, Message::Open(open(LOWER))), Vec::<String>::new());
    assert_eq!(bench.tell(Event::Closed(IN, None)), Vec::<String>::new());
    assert_eq!(bench.session.state(), StateName::Established);
}

#[test]
fn one_broken_connection_leaves_the_other() {
    let mut bench = two_connections();
    let collision = notification(Cause::Cease(CeaseReason::CollisionResolution));
    assert_eq!(bench.hear(OUT, Message::Notification(collision)), ["close out"]);
    assert_eq!(bench.session.state(), StateName::OpenSent);
    bench.hear(IN, Message::Open(open(HIGHER)));
    assert_eq!(bench.hear(IN, Message::Keepalive), ["up in"]);
}

#[test]
fn a_silent_connection_of_the_peer_is_replaced() {
    let mut bench = Bench::new(settings());
    bench.tell(Event::Start);
    bench.admit();
    bench.tell(Event::Accepted);
    assert_eq!(bench.admit(), (Admission::Take, vec!["close in".to_owned()]));
    assert_eq!(bench.tell(Event::Accepted), ["in: OPEN"]);
    bench.hear(IN, Message::Open(open(LOWER)));
    assert!(matches!(bench.admit().0, Admission::Refuse(_)));
}

#[test]
fn a_passive_session_never_connects() {
    let mut bench = Bench::new(super::Settings { passive: true, ..settings() });
    bench.tell(Event::Start);
    assert_eq!(bench.session.deadline(), None);
    assert_eq!(bench.session.state(), StateName::Active);
    bench.admit();
    bench.tell(Event::Accepted);
    bench.hear(IN, Message::Open(open(LOWER)));
    assert_eq!(bench.hear(IN, Message::Keepalive), ["up in"]);
    bench.tell(Event::Closed(IN, Some("reset".into())));
    assert_eq!((bench.session.state(), bench.session.deadline()), (StateName::Active, None));
}

#[test]
fn pauses_grow_and_are_forgotten() {
    let mut bench = Bench::new(settings());
    bench.connect();
    let mut pauses = Vec::new();
    for _ in 0..5 {
        bench.tell(Event::Connected);
        bench.hear(OUT, Message::Notification(notification(Cause::Cease(CeaseReason::OutOfResources))));
        let until = bench.session.deadline().expect("a pause");
        pauses.push((until - bench.now).as_secs());
        assert_eq!(bench.wait(), ["connect"]);
    }
    assert_eq!(pauses, [5, 10, 20, 30, 30]);
    // A long time without an error.
    bench.tell(Event::Connected);
    bench.now += Duration::from_secs(200);
    bench.hear(OUT, Message::Open(open(LOWER)));
    bench.hear(OUT, Message::Keepalive);
    bench.now += Duration::from_secs(80);
    bench.hear(OUT, Message::Keepalive);
    bench.now += Duration::from_secs(80);
    bench.hear(OUT, Message::Notification(notification(Cause::Cease(CeaseReason::AdministrativeReset))));
    assert_eq!(bench.session.deadline().map(|until| (until - bench.now).as_secs()), Some(5));
}

#[test]
fn jitter_is_between_three_quarters_and_all() {
    let mut random = Random::new(3);
    let times: Vec<Duration> = (0..1000).map(|_| random.jittered(Duration::from_secs(100))).collect();
    assert!(times.iter().all(|time| (75..100).contains(&time.as_secs())));
    assert!(times.iter().any(|time| time.as_secs() < 80) && times.iter().any(|time| time.as_secs() > 95));
}

#[test]
fn prefix_limits_warn_first() {
    let mut bench = Bench::new(super::Settings { prefix_limit: Some(100), ..settings() });
    bench.establish(open(LOWER));
    assert_eq!(bench.tell(Event::Prefixes(75)), Vec::<String>::new());
    assert_eq!(
        bench.tell(Event::Prefixes(76)),
        ["warn: 76 prefixes are more than three quarters of the limit of 100"]
    );
    assert_eq!(bench.tell(Event::Prefixes(100)), Vec::<String>::new());
    let words = bench.tell(Event::Prefixes(101));
    assert_eq!(words[1..], ["out: Maximum number of prefixes reached", "close out", "down"]);
    // The same would happen again.
    assert_eq!(bench.later(60), Vec::<String>::new());
    assert_eq!(bench.later(300), ["connect"]);
}

#[test]
fn times_are_agreed_on() {
    for (ours, keepalive, theirs, expected) in [
        (240, None, 90, (90, 30)),
        (90, None, 240, (90, 30)),
        (240, Some(50), 90, (90, 50)),
        (240, Some(500), 90, (90, 90)),
        (240, None, 0, (0, 0)),
        (0, Some(10), 90, (0, 0)),
        (4, None, 3, (3, 1)),
    ] {
        let wanted = super::Settings { hold_time: ours, keepalive_time: keepalive, ..settings() };
        let mut bench = Bench::new(wanted);
        bench.establish(Open { hold_time: theirs, ..open(LOWER) });
        let agreed = bench.session.agreed().expect("a session");
        assert_eq!((agreed.hold_time, agreed.keepalive_time), expected);
        if expected.0 == 0 {
            assert_eq!(bench.session.deadline(), None);
        }
    }
}

#[test]
fn capabilities_are_agreed_on() {
    let mut bench = Bench::new(super::Settings { extended_next_hop: true, ..settings() });
    let mut theirs = open(LOWER);
    theirs.capabilities.extend([
        Capability::ExtendedMessage,
        Capability::ExtendedNextHop,
        Capability::AddPath(vec![(Family::Ipv4, AddPathMode::Both), (Family::Ipv6, AddPathMode::Receive)]),
    ]);
    bench.establish(theirs);
    let options = bench.session.options(OUT);
    assert!(
        options.four_byte_as && options.extended_messages && options.extended_next_hop && !options.external
    );
    assert_eq!(options.add_path_receive, [true, false]);
    assert_eq!(options.add_path_send, [false, false]);
    // An ancient speaker: IPv4 only, two-byte AS numbers.
    let mut bench = Bench::new(settings());
    bench.establish(Open { capabilities: Vec::new(), ..open(LOWER) });
    let options = bench.session.options(OUT);
    assert!(!options.four_byte_as && !options.extended_messages);
    assert_eq!(options.families, [true, false]);
    assert!(bench.tell(Event::AskAgain(Family::Ipv4)).is_empty());
}

#[test]
fn our_offer_has_what_bird_offers() {
    let mut session = Session::new(settings(), true);
    let (mut actions, mut random) = (Vec::new(), Random::new(1));
    let now = Duration::from_secs(9);
    session.handle(Event::Start, Duration::ZERO, &mut random, &mut actions);
    session.handle(Event::Tick, now, &mut random, &mut actions);
    session.handle(Event::Connected, now, &mut random, &mut actions);
    let open = actions.iter().find_map(|action| match action {
        Action::Send(OUT, Message::Open(open)) => Some(open.clone()),
        _ => None,
    });
    let open = open.expect("an OPEN");
    let restart = open.graceful_restart().expect("graceful restart");
    assert!(restart.restarting && restart.families.iter().all(|entry| entry.forwarding));
    assert_eq!(
        (open.system(), open.hold_time, open.families()),
        (Asn(65000), 90, vec![Family::Ipv4, Family::Ipv6])
    );
    assert_eq!(open.add_path(Family::Ipv4), Some(AddPathMode::Receive));
    for capability in
        [Capability::RouteRefresh, Capability::EnhancedRouteRefresh, Capability::ExtendedMessage]
    {
        assert!(open.has(&capability), "{capability:?}");
    }
}

#[test]
fn another_system_may_have_our_identifier() {
    let mut bench = Bench::new(super::Settings { peer_as: Asn(65001), ..settings() });
    let mut theirs = open(super::LOCAL);
    theirs.my_as = 65001;
    theirs.capabilities[0] = Capability::FourByteAs(Asn(65001));
    assert_eq!(bench.establish(theirs), ["up out"]);
    assert!(bench.session.options(OUT).external);
}

#[test]
fn refreshes_with_and_without_markers() {
    let refresh = |phase| Message::RouteRefresh(RouteRefresh { family: Family::Ipv4, phase });
    let mut bench = Bench::new(settings());
    bench.establish(open(LOWER));
    assert_eq!(bench.tell(Event::AskAgain(Family::Ipv4)), ["out: REFRESH IPv4 Request"]);
    assert_eq!(bench.hear(OUT, refresh(RefreshPhase::Begin)), ["mark IPv4"]);
    assert_eq!(bench.hear(OUT, update()), ["routes"]);
    assert_eq!(bench.hear(OUT, refresh(RefreshPhase::End)), ["sweep IPv4"]);
    assert_eq!(bench.hear(OUT, refresh(RefreshPhase::End)), Vec::<String>::new());
    // A refresh that never ends does not keep routes that it has not mentioned.
    bench.hear(OUT, refresh(RefreshPhase::Begin));
    for _ in 0..4 {
        bench.later(80);
        bench.hear(OUT, Message::Keepalive);
    }
    assert!(!bench.session.keeps_stale(Family::Ipv4));
    // A peer without markers.
    let mut bench = Bench::new(settings());
    let mut theirs = open(LOWER);
    theirs.capabilities.retain(|capability| *capability != Capability::EnhancedRouteRefresh);
    bench.establish(theirs);
    assert_eq!(bench.hear(OUT, refresh(RefreshPhase::Request)), ["again IPv4 false"]);
    assert_eq!(bench.hear(OUT, refresh(RefreshPhase::Begin)), Vec::<String>::new());
}

#[test]
fn bfd_ends_a_session() {
    let mut bench = Bench::new(settings());
    assert_eq!(bench.tell(Event::BfdDown), Vec::<String>::new());
    bench.establish(restarting_open(false, true));
    assert_eq!(bench.tell(Event::BfdDown), ["out: BFD session down", "close out", "down"]);
}

#[test]
fn changes_state_the_reason() {
    let mut session = Session::new(settings(), false);
    let (mut actions, mut random) = (Vec::new(), Random::new(1));
    session.handle(Event::Start, Duration::ZERO, &mut random, &mut actions);
    session.handle(Event::Tick, Duration::from_secs(9), &mut random, &mut actions);
    let refused = Event::ConnectFailed("Connection refused".into());
    session.handle(refused, Duration::from_secs(9), &mut random, &mut actions);
    let changes: Vec<String> = actions
        .iter()
        .filter_map(|action| match action {
            Action::Changed { from, to, reason } => {
                Some(format!("{from} {to} {}", reason.as_ref().map(ToString::to_string).unwrap_or_default()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(changes, ["Idle Active ", "Active Connect ", "Connect Active Socket: Connection refused"]);
}

#[test]
fn a_peer_that_accepts_no_data_is_given_up() {
    let mut bench = Bench::new(settings());
    bench.establish(open(LOWER));
    // It is alive, and accepts data occasionally.
    let alive = |bench: &mut Bench, minutes: u64| {
        let mut ended = Vec::new();
        for _ in 0..minutes {
            ended.extend(bench.later(60).into_iter().filter(|words| words != "out: KEEPALIVE"));
            bench.hear(OUT, Message::Keepalive);
        }
        ended
    };
    bench.session.blocked(bench.now);
    assert_eq!(alive(&mut bench, 7), Vec::<String>::new());
    bench.session.progressed();
    assert_eq!(alive(&mut bench, 9), Vec::<String>::new());
    // It accepts nothing: eight minutes from the first time, however often it is reported (RFC 9687).
    bench.session.blocked(bench.now);
    assert_eq!(alive(&mut bench, 4), Vec::<String>::new());
    bench.session.blocked(bench.now);
    assert_eq!(alive(&mut bench, 4), ["out: Send hold timer expired", "close out", "down"]);
    // Without a hold time there is no send hold time either.
    let mut bench = Bench::new(super::Settings { hold_time: 0, ..settings() });
    bench.establish(open(LOWER));
    bench.session.blocked(bench.now);
    assert_eq!(bench.session.deadline(), None);
}
