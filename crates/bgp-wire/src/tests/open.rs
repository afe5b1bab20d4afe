//! OPEN, ROUTE-REFRESH, NOTIFICATION and headers.

use super::{internal, read_all};
use crate::{
    AddPathMode, Asn, Capability, Cause, Family, GracefulRestart, GracefulRestartFamily, HeaderFault,
    LongLivedFamily, Message, Notification, Open, OpenFault, RefreshFault, RefreshPhase, RouteRefresh,
    RouterId, SessionOptions, encode, frame,
};

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![0xff; 16];
    message.extend(u16::try_from(19 + body.len()).unwrap().to_be_bytes());
    message.push(kind);
    message.extend_from_slice(body);
    message
}

fn written(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out, message, &internal());
    out
}

#[test]
fn encoded_opens_are_decoded() {
    let families = vec![GracefulRestartFamily { family: Family::Ipv6, forwarding: true }];
    let restart = GracefulRestart { restarting: true, notification: false, restart_time: 120, families };
    let mut open = Open::new(Asn(4_200_000_000), 240, "192.0.2.1".parse().unwrap());
    open.capabilities.extend([
        Capability::Multiprotocol(Family::Ipv4),
        Capability::OtherFamily(25, 70),
        Capability::RouteRefresh,
        Capability::EnhancedRouteRefresh,
        Capability::ExtendedNextHop,
        Capability::ExtendedMessage,
        Capability::GracefulRestart(restart.clone()),
        Capability::AddPath(vec![(Family::Ipv4, AddPathMode::Receive), (Family::Ipv6, AddPathMode::Both)]),
        Capability::LongLivedGracefulRestart(vec![LongLivedFamily {
            family: Family::Ipv4,
            forwarding: false,
            stale_time: 86400,
        }]),
        Capability::Other { code: 73, value: b"\x04host\x00".to_vec() },
    ]);
    assert_eq!(open.my_as, 23456);
    assert_eq!(open.system(), Asn(4_200_000_000));
    assert_eq!(open.families(), [Family::Ipv4]);
    assert_eq!(open.graceful_restart(), Some(&restart));
    assert_eq!(open.add_path(Family::Ipv6), Some(AddPathMode::Both));
    for message in [
        Message::Open(open),
        Message::Keepalive,
        Message::RouteRefresh(RouteRefresh { family: Family::Ipv6, phase: RefreshPhase::End }),
        Message::Notification(Notification::new(Cause::Open(OpenFault::Version), [0, 4])),
    ] {
        assert_eq!(read_all(&written(&message), &internal()), Ok(vec![message]));
    }
}

#[test]
fn a_speaker_without_multiprotocol_exchanges_ipv4() {
    let open = Open::new(Asn(1), 90, RouterId(1));
    assert_eq!(open.families(), [Family::Ipv4]);
}

#[test]
fn two_byte_lengths_are_decoded() {
    let mut body = vec![4, 0, 1, 0, 90, 1, 1, 1, 1, 255, 255, 0, 9];
    body.extend([2, 0, 6, 65, 4, 0, 1, 0, 0]);
    let messages = read_all(&message(1, &body), &internal()).unwrap();
    let [Message::Open(open)] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!(open.system(), Asn(65536));
}

#[test]
fn malformed_opens_get_their_answer() {
    let base = [4, 0xfd, 0xe8, 0, 90, 1, 1, 1, 1];
    let with = |tail: &[u8]| [base.as_slice(), tail].concat();
    let mut version = with(&[0]);
    version[0] = 3;
    let mut hold = with(&[0]);
    hold[4] = 2;
    let mut identifier = with(&[0]);
    identifier[5..9].fill(0);
    let mut system = with(&[0]);
    system[1..3].fill(0);
    for (name, body, expected) in [
        ("another version", version, OpenFault::Version),
        ("two seconds", hold, OpenFault::HoldTime),
        ("no identifier", identifier, OpenFault::Identifier),
        ("system 0", system, OpenFault::PeerAs),
        ("four-byte system 0", with(&[8, 2, 6, 65, 4, 0, 0, 0, 0]), OpenFault::PeerAs),
        ("authentication", with(&[3, 1, 1, 0]), OpenFault::Parameter),
        ("parameters past the end", with(&[9, 2, 2, 2, 0]), OpenFault::Unspecific),
        ("bytes behind the parameters", with(&[0, 1]), OpenFault::Unspecific),
        ("a parameter past the end", with(&[4, 2, 9, 2, 0]), OpenFault::Unspecific),
        ("a capability past the end", with(&[4, 2, 2, 65, 4]), OpenFault::Unspecific),
    ] {
        let answer = read_all(&message(1, &body), &internal()).unwrap_err();
        assert_eq!(answer.cause, Cause::Open(expected), "{name}");
    }
}

#[test]
fn a_capability_of_a_wrong_length_is_kept_as_bytes() {
    let body = [4, 0, 1, 0, 90, 1, 1, 1, 1, 7, 2, 5, 64, 3, 1, 2, 3];
    let messages = read_all(&message(1, &body), &internal()).unwrap();
    let [Message::Open(open)] = messages.as_slice() else { panic!("{messages:?}") };
    assert_eq!(open.capabilities, [Capability::Other { code: 64, value: vec![1, 2, 3] }]);
}

#[test]
fn headers_are_checked_before_the_body_arrives() {
    let options = internal();
    let mut header = message(4, &[]);
    assert_eq!(frame(&header[..18], &options), Ok(None));
    header[3] = 0;
    assert_eq!(frame(&header[..4], &options).unwrap_err().cause, Cause::Header(HeaderFault::NotSynchronised));
    for (kind, length, fault) in [
        (4, 18, HeaderFault::BadLength),
        (4, 20, HeaderFault::BadLength),
        (2, 4097, HeaderFault::BadLength),
        (1, 28, HeaderFault::BadLength),
        (2, 22, HeaderFault::BadLength),
        (3, 20, HeaderFault::BadLength),
        (5, 22, HeaderFault::BadLength),
        (6, 19, HeaderFault::BadType),
        (0, 19, HeaderFault::BadType),
    ] {
        let mut header = vec![0xff; 16];
        header.extend(u16::to_be_bytes(length));
        header.push(kind);
        assert_eq!(frame(&header, &options).unwrap_err().cause, Cause::Header(fault), "{kind} {length}");
    }
    let long = SessionOptions { extended_messages: true, ..options };
    let mut header = vec![0xff; 16];
    header.extend(u16::to_be_bytes(65535));
    header.push(2);
    assert_eq!(frame(&header, &long), Ok(None));
    header[18] = 1;
    assert_eq!(frame(&header, &long).unwrap_err().cause, Cause::Header(HeaderFault::BadLength));
}

#[test]
fn unknown_refreshes_are_ignored_and_long_markers_refused() {
    let options = internal();
    for body in [[0, 1, 3, 1], [0, 25, 0, 70], [0, 1, 255, 1]] {
        assert_eq!(read_all(&message(5, &body), &options), Ok(vec![Message::UnknownRefresh]));
    }
    let request = Message::RouteRefresh(RouteRefresh { family: Family::Ipv4, phase: RefreshPhase::Request });
    assert_eq!(read_all(&message(5, &[0, 1, 0, 1, 9, 9]), &options), Ok(vec![request]));
    let mark = message(5, &[0, 1, 1, 1, 9]);
    let answer = read_all(&mark, &options).unwrap_err();
    assert_eq!(answer, Notification::new(Cause::Refresh(RefreshFault::Length), mark));
}
