//! Walks through untracked policy, which is evaluated before connection tracking.

use crate::bench::{ALLOWS, DENIES, DROP, Direction, FALL_THROUGH, NEXT, NO_OPINION, SEEN};
use crate::packets::{ACK, SYN, tcp, udp};
use crate::world::{CLIENT, NODE, POD, World};
use Direction::{In, Out};
use anyhow::Result;
use bpf::Layout as _;
use bpf::interface::Options;
use bpf::layout::network::FailsafeKey;
use bpf::layout::{V4, V6};

const INGRESS: usize = 0;
const EGRESS: usize = 1;
const FORWARD: usize = 2;
const UNTRACKED_IN: usize = 5;
const UNTRACKED_OUT: usize = 6;
const TCP: u8 = 6;
const UDP: u8 = 17;

#[test]
fn untracked_policy_comes_before_everything_else() -> Result<()> {
    comes_first::<V4>()?;
    comes_first::<V6>()
}

fn comes_first<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let asks = Options { asks_untracked: true, ..Options::default() };
    let (host, other) = (F::host(&bench, &asks)?, F::host(&bench, &Options::default())?);
    let to_host = |port, flags| F::frame(CLIENT, NODE, TCP, &tcp(4000, port, flags, 1, 1));
    let from_host = |port| F::frame(NODE, CLIENT, UDP, &udp(port, 53));

    // Packets that it allows are not tracked, even in the middle of a connection, and no other list is evaluated.
    bench.lists(&[(INGRESS, DENIES), (EGRESS, DENIES), (UNTRACKED_IN, ALLOWS), (UNTRACKED_OUT, ALLOWS)])?;
    assert_eq!(host.send(In, &to_host(80, SYN), 0)?.0, (NEXT, SEEN));
    assert_eq!(host.send(In, &to_host(80, ACK), 0)?.0, (NEXT, SEEN));
    assert_eq!(host.send(Out, &from_host(1), 0)?.0.0, NEXT);
    assert_eq!(bench.connections()?, 0);
    // Programs without this option do not evaluate it.
    assert_eq!(other.send(In, &to_host(80, SYN), 0)?.0.0, DROP);

    // Without an opinion it is as if it did not exist.
    bench.lists(&[
        (INGRESS, ALLOWS),
        (EGRESS, DENIES),
        (UNTRACKED_IN, NO_OPINION),
        (UNTRACKED_OUT, NO_OPINION),
    ])?;
    assert_eq!(host.send(In, &to_host(81, ACK), 0)?.0, (NEXT, FALL_THROUGH));
    assert_eq!(host.send(In, &to_host(81, SYN), 0)?.0.0, NEXT);
    assert_eq!(bench.connections()?, 1);
    let answer = F::frame(NODE, CLIENT, TCP, &tcp(81, 4000, SYN | ACK, 1, 2));
    assert_eq!(host.send(Out, &answer, 0)?.0.0, NEXT, "an answer");
    assert_eq!(host.send(Out, &from_host(2), 0)?.0.0, DROP);

    // Packets that it denies are dropped, whatever is known about the flow.
    bench.lists(&[(INGRESS, ALLOWS), (EGRESS, ALLOWS), (UNTRACKED_IN, DENIES), (UNTRACKED_OUT, DENIES)])?;
    assert_eq!(host.send(In, &to_host(81, ACK), 0)?.0.0, DROP);
    assert_eq!(host.send(Out, &answer, 0)?.0.0, DROP);
    // Forwarded packets were checked on ingress.
    let forwarded = F::frame(POD, CLIENT, UDP, &udp(9, 53));
    assert_eq!(host.send(Out, &forwarded, SEEN)?.0.0, NEXT);
    // Failsafe ports still work, and so do answers from them.
    let port = FailsafeKey::<F> { port: 22, protocol: TCP, ..FailsafeKey::default() };
    bench.map(&F::map("fsafes2"))?.set(&port.bytes(), &[0; 4])?;
    assert_eq!(host.send(In, &to_host(22, SYN), 0)?.0.0, NEXT);
    let answer = F::frame(NODE, CLIENT, TCP, &tcp(22, 4000, SYN | ACK, 1, 2));
    assert_eq!(host.send(Out, &answer, 0)?.0.0, NEXT);
    Ok(())
}

/// A connection that came in untracked and was forwarded to a workload: its answers are judged like forwarded packets.
#[test]
fn answers_of_forwarded_untracked_packets_leave() -> Result<()> {
    let bench = V4::bench()?;
    let host = V4::host(&bench, &Options { asks_untracked: true, ..Options::default() })?;
    let workload = V4::workload(&bench, &Options::default())?;
    bench.lists(&[(INGRESS, ALLOWS), (EGRESS, ALLOWS), (UNTRACKED_IN, ALLOWS), (FORWARD + 1, ALLOWS)])?;
    let request = V4::frame(CLIENT, POD, TCP, &tcp(4000, 80, SYN, 1, 0));
    assert_eq!(host.send(In, &request, 0)?.0, (NEXT, SEEN));
    assert_eq!(workload.send(Out, &request, SEEN)?.0.0, NEXT);
    let answer = V4::frame(POD, CLIENT, TCP, &tcp(80, 4000, SYN | ACK, 1, 2));
    assert_eq!(workload.send(In, &answer, 0)?.0.0, NEXT);
    assert_eq!(host.send(Out, &answer, SEEN)?.0.0, NEXT);
    bench.lists(&[(INGRESS, ALLOWS), (EGRESS, ALLOWS), (UNTRACKED_IN, ALLOWS), (FORWARD + 1, DENIES)])?;
    assert_eq!(host.send(Out, &answer, SEEN)?.0.0, DROP);
    Ok(())
}
