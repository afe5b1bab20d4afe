//! In any order of events: sessions begin and end alternately, ticks never spin, and nothing is sent on a closed
//! connection.

use super::{LOWER, end_of, notification, open, restarting_open, settings, update};
use crate::session::{Action, Admission, Direction, Event, Random, Session, Settings};
use bgp_wire::{Cause, CeaseReason, Family, HeaderFault, Message, RefreshPhase, RouteRefresh};
use proptest::collection::vec;
use proptest::prelude::*;
use std::time::Duration;

const WAYS: [Direction; 2] = [Direction::Outgoing, Direction::Incoming];

/// An event by its number, on one of the two connections.
fn event(kind: u8, way: Direction) -> Option<Event> {
    let hear = |message| Event::Received(way, Ok(message));
    let refresh = |phase| Message::RouteRefresh(RouteRefresh { family: Family::Ipv4, phase });
    Some(match kind {
        0 => Event::Start,
        1 => Event::Stop(notification(Cause::Cease(CeaseReason::AdministrativeShutdown))),
        2 => Event::Connected,
        3 => Event::ConnectFailed("refused".into()),
        4 => Event::Closed(way, None),
        5 | 6 => hear(Message::Open(open(LOWER))),
        7 => hear(Message::Open(restarting_open(true, true))),
        8..=10 => hear(Message::Keepalive),
        11 => hear(update()),
        12 => hear(end_of(Family::Ipv4)),
        13 => hear(refresh(RefreshPhase::Begin)),
        14 => hear(refresh(RefreshPhase::End)),
        15 => hear(Message::Notification(notification(Cause::Cease(CeaseReason::CollisionResolution)))),
        16 => Event::Received(way, Err(notification(Cause::Header(HeaderFault::BadType)))),
        17 => Event::Prefixes(1000),
        18 => Event::AskAgain(Family::Ipv4),
        19 => Event::BfdDown,
        _ => return None,
    })
}

proptest! {
    #[test]
    fn sessions_begin_and_end_alternately(
        history in vec((0..26_u8, 0..2_usize, 0..100_u64), 1..200),
        passive in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let wanted = Settings { passive, prefix_limit: Some(100), ..settings() };
        let mut session = Session::new(wanted, false);
        let mut random = Random::new(seed);
        let (mut now, mut up) = (Duration::from_secs(1), false);
        let mut actions = Vec::new();
        for (kind, way, seconds) in history {
            let direction = WAYS[way];
            match event(kind, direction) {
                // A shell would not report a connection that was not requested.
                Some(Event::Connected) if passive => {}
                Some(event) => session.handle(event, now, &mut random, &mut actions),
                None if kind < 23 => {
                    if session.admit(now, &mut random, &mut actions) == Admission::Take {
                        session.handle(Event::Accepted, now, &mut random, &mut actions);
                    }
                }
                None => {
                    now += Duration::from_secs(seconds);
                    session.handle(Event::Tick, now, &mut random, &mut actions);
                    prop_assert!(session.deadline().is_none_or(|deadline| deadline > now));
                }
            }
            for action in actions.drain(..) {
                match action {
                    Action::Up(..) => {
                        prop_assert!(!up);
                        up = true;
                    }
                    Action::Down { .. } => {
                        prop_assert!(up);
                        up = false;
                    }
                    Action::Routes(_) | Action::EndOfRib(_) | Action::MarkStale(_) | Action::SendAgain(..) => {
                        prop_assert!(up);
                    }
                    Action::Connect => prop_assert!(!passive),
                    _ => {}
                }
            }
            prop_assert_eq!(session.agreed().is_some(), up);
        }
    }
}
