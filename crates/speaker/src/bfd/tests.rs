//! Tests of BFD: every transition of RFC 5880 as a row, packets byte by byte, and two ends over a lossy network.

use super::packet::Diagnostic;
use super::packet::LENGTH;
use super::{Bfd, News, Packet, Settings, State};
use crate::session::{Moment, Random};
use proptest::prelude::*;
use std::time::Duration;

const FAST: Settings = Settings { interval: Duration::from_millis(300), multiplier: 3 };

fn packet(state: State) -> Packet {
    Packet {
        diagnostic: Diagnostic::None,
        state,
        poll: false,
        last: false,
        multiplier: 5,
        mine: 7,
        yours: 9,
        desired_transmit: Duration::from_millis(100),
        required_receive: Duration::from_millis(100),
    }
}

/// A session in a state, reached by packets.
fn in_state(state: State) -> Bfd {
    let mut bfd = Bfd::new(FAST, 9, Duration::ZERO);
    let heard: &[State] = match state {
        State::Down => &[],
        State::Init => &[State::Down],
        State::Up => &[State::Down, State::Init],
        State::AdminDown => {
            let _ = bfd.end();
            &[]
        }
    };
    for state in heard {
        bfd.received(&packet(*state), Duration::ZERO);
    }
    assert_eq!(bfd.state(), state);
    bfd
}

#[test]
fn every_packet_in_every_state() {
    use State::{AdminDown, Down, Init, Up};
    let down = Some(News::Down(Diagnostic::NeighbourDown));
    for (state, heard, then, news) in [
        (Down, AdminDown, Down, None),
        (Down, Down, Init, None),
        (Down, Init, Up, Some(News::Up)),
        (Down, Up, Down, None),
        (Init, AdminDown, Down, None),
        (Init, Down, Init, None),
        (Init, Init, Up, Some(News::Up)),
        (Init, Up, Up, Some(News::Up)),
        (Up, AdminDown, Down, Some(News::Ended)),
        (Up, Down, Down, down),
        (Up, Init, Up, None),
        (Up, Up, Up, None),
        (AdminDown, Down, AdminDown, None),
        (AdminDown, Up, AdminDown, None),
    ] {
        let mut bfd = in_state(state);
        let (answer, said) = bfd.received(&packet(heard), Duration::from_secs(1));
        assert_eq!((bfd.state(), said, answer), (then, news, None), "{heard:?} in {state:?}");
    }
}

#[test]
fn silence_is_detected_by_the_peers_own_intervals() {
    let mut random = Random::new(1);
    let mut bfd = in_state(State::Up);
    // Five packets of the peer at our 300 ms each, the longer of both intervals.
    let late = Duration::from_millis(1500);
    assert_eq!(bfd.tick(late - Duration::from_millis(1), &mut random).1, None);
    assert_eq!(bfd.tick(late, &mut random).1, Some(News::Down(Diagnostic::TimeExpired)));
    assert_eq!(bfd.state(), State::Down);
    // Neither up nor down: a session that was never up cannot be lost.
    let mut bfd = in_state(State::Init);
    assert_eq!((bfd.tick(late, &mut random).1, bfd.state()), (None, State::Down));
}

#[test]
fn intervals_are_agreed_on_by_polling() {
    let mut random = Random::new(1);
    let mut bfd = Bfd::new(FAST, 9, Duration::ZERO);
    let first = bfd.tick(Duration::ZERO, &mut random).0.expect("a packet");
    assert_eq!((first.state, first.yours, first.poll), (State::Down, 0, false));
    assert_eq!(first.desired_transmit, Duration::from_secs(1), "slow until it is up");
    bfd.received(&packet(State::Down), Duration::ZERO);
    bfd.received(&packet(State::Init), Duration::ZERO);
    let fast = bfd.tick(Duration::ZERO, &mut random).0.expect("a packet");
    assert_eq!((fast.poll, fast.yours, fast.desired_transmit), (true, 7, FAST.interval));
    bfd.received(&Packet { last: true, ..packet(State::Up) }, Duration::ZERO);
    let next = bfd.deadline().expect("a deadline");
    assert!(next >= FAST.interval * 3 / 4 && next <= FAST.interval, "{next:?}");
    assert!(!bfd.tick(next, &mut random).0.expect("a packet").poll);
    // The peer polls and gets an immediate answer.
    let (answer, _) = bfd.received(&Packet { poll: true, ..packet(State::Up) }, next);
    assert!(answer.is_some_and(|answer| answer.last && !answer.poll));
    // A peer that accepts packets slowly gets them slowly; one that requests none gets none.
    let slow = Duration::from_secs(5);
    bfd.received(&Packet { required_receive: slow, ..packet(State::Up) }, next);
    let at = bfd.deadline().expect("a deadline").max(next);
    bfd.tick(at, &mut random);
    bfd.received(&Packet { required_receive: slow, ..packet(State::Up) }, at);
    assert!(bfd.tick(at + slow / 2, &mut random).0.is_none());
    bfd.received(&Packet { required_receive: Duration::ZERO, ..packet(State::Up) }, at + slow / 2);
    assert_eq!(bfd.tick(at + slow / 2 + Duration::from_millis(100), &mut random).0, None);
}

#[test]
fn packets_are_the_bytes_of_the_rfc() {
    let packet = Packet { poll: true, diagnostic: Diagnostic::TimeExpired, ..packet(State::Up) };
    let bytes = packet.encode();
    let expected =
        [0x21, 0xe0, 5, 24, 0, 0, 0, 7, 0, 0, 0, 9, 0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0, 0, 0, 0, 0];
    assert_eq!(bytes, expected);
    assert_eq!(Packet::decode(&bytes), Some(packet));
    // Packets that must be discarded.
    for (place, value, why) in [
        (0, 0x41, "another version"),
        (1, 0xe4, "authentication that we have not agreed on"),
        (1, 0xe1, "multipoint"),
        (2, 0, "no multiplier"),
        (3, 23, "too short"),
        (3, 25, "longer than what came"),
        (7, 0, "no number of the sender"),
        (11, 0, "no number of ours in a session that is up"),
    ] {
        let mut bad = bytes;
        bad[place] = value;
        assert_eq!(Packet::decode(&bad), None, "{why}");
    }
    assert_eq!(Packet::decode(&bytes[..LENGTH - 1]), None);
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        if let Some(packet) = Packet::decode(&bytes) {
            prop_assert_eq!(Packet::decode(&packet.encode()), Some(packet));
        }
    }

    /// Two ends over a lossy network: up when it carries packets, down when it does not, and never a busy loop.
    #[test]
    fn two_ends_find_each_other(seed in any::<u64>(), other in 50_u64..2000, multiplier in 2_u8..6) {
        let mut random = Random::new(seed);
        let theirs = Settings { interval: Duration::from_millis(other), multiplier };
        let mut ends = [Bfd::new(FAST, 1, Duration::ZERO), Bfd::new(theirs, 2, Duration::ZERO)];
        let mut run = |ends: &mut [Bfd; 2], from: Moment, time: Duration, carries: bool| {
            let (mut now, mut news, mut rounds) = (from, Vec::new(), 0);
            while now < from + time {
                rounds += 1;
                for index in 0..2 {
                    let (sent, said) = ends[index].tick(now, &mut random);
                    news.extend(said.map(|said| (index, said)));
                    if let Some(sent) = sent.filter(|_| carries) {
                        let (answer, said) = ends[1 - index].received(&sent, now);
                        news.extend(said.map(|said| (1 - index, said)));
                        if let Some(answer) = answer {
                            ends[index].received(&answer, now);
                        }
                    }
                }
                let next = ends.iter().filter_map(Bfd::deadline).min().expect("a deadline");
                now = next.max(now);
            }
            // Both send at most every 37 ms.
            assert!(rounds < 2000, "a busy loop: {rounds} rounds");
            (now, news)
        };
        let (now, news) = run(&mut ends, Duration::ZERO, Duration::from_secs(20), true);
        prop_assert_eq!(ends.each_ref().map(Bfd::state), [State::Up; 2]);
        prop_assert_eq!(news.len(), 2, "{:?}", news);
        let (now, news) = run(&mut ends, now, Duration::from_secs(20), false);
        prop_assert_eq!(ends.each_ref().map(Bfd::state), [State::Down; 2]);
        prop_assert_eq!(news.len(), 2, "{:?}", news);
        run(&mut ends, now, Duration::from_secs(20), true);
        prop_assert_eq!(ends.each_ref().map(Bfd::state), [State::Up; 2]);
    }
}
