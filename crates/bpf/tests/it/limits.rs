//! Walks of a workload with limits: packets beyond the rate are dropped, connections beyond the limit refused.

use crate::bench::{BYPASS, Bench, DEVICE, DROP, Direction, NEXT, SEEN};
use crate::packets::{ACK, FIN, RST, SYN, tcp, udp};
use crate::world::{CLIENT, ELSEWHERE, POD, World};
use Direction::{In, Out};
use anyhow::{Context as _, Result};
use bpf::Table;
use bpf::interface::Options;
use bpf::layout::conntrack::flags;
use bpf::layout::limits::{Limit, LimitKey, Rate};
use bpf::layout::{V4, V6};

const TCP: u8 = 6;
const UDP: u8 = 17;
const REDIRECT: i32 = 7;
const TOO_MANY: usize = 23;

fn options() -> Options {
    Options { has_limits: true, ..Options::default() }
}

fn key<F: World>(is_to_workload: bool) -> LimitKey {
    LimitKey { device: DEVICE, is_to_workload, family: F::NUMBER.into() }
}

fn limit<F: World>(bench: &Bench, is_to_workload: bool) -> Result<Limit> {
    let table = Table::<LimitKey, Limit>::new(bench.map("bpfp_limit")?)?;
    table.get(&key::<F>(is_to_workload))?.context("no limit")
}

fn set_limit<F: World>(bench: &Bench, is_to_workload: bool, most: u32) -> Result<()> {
    let table = Table::<LimitKey, Limit>::new(bench.map("bpfp_limit")?)?;
    Ok(table.set(&key::<F>(is_to_workload), &Limit { most, count: 0 })?)
}

#[test]
fn packets_beyond_the_rate_are_dropped() -> Result<()> {
    rate::<V4>()?;
    rate::<V6>()
}

fn rate<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let workload = F::workload(&bench, &options())?;
    let table = Table::<LimitKey, Rate>::new(bench.map("bpfp_rate")?)?;
    // One per hour: the clock does not matter in this test.
    let hour = Rate { interval: 3_600_000_000_000, ahead: 2 * 3_600_000_000_000, next: 0 };
    for (direction, source, destination, mark) in [(In, POD, ELSEWHERE, 0), (Out, ELSEWHERE, POD, BYPASS)] {
        table.set(&key::<F>(direction == Out), &hour)?;
        let frame = F::frame(source, destination, UDP, &udp(1, 2));
        let mut fates = Vec::new();
        for _ in 0..5 {
            fates.push(workload.send(direction, &frame, mark)?.0.0);
        }
        assert_eq!(fates, [NEXT, NEXT, NEXT, DROP, DROP], "{direction:?}");
        assert_eq!(bench.counted(direction, TOO_MANY)?, 2);
        // Without limits nothing is checked.
        let free = F::workload(&bench, &Options::default())?;
        assert_eq!(free.send(direction, &frame, mark)?.0.0, NEXT);
    }
    Ok(())
}

#[test]
fn a_workload_opens_no_more_connections_than_it_may() -> Result<()> {
    from::<V4>()?;
    from::<V6>()
}

fn from<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let workload = F::workload(&bench, &options())?;
    set_limit::<F>(&bench, false, 2)?;
    let open = |port: u16| F::frame(POD, ELSEWHERE, TCP, &tcp(port, 80, SYN, 100, 0));
    // Repeating a connection does not count as another one.
    for port in [1, 2, 1] {
        assert_eq!(workload.send(In, &open(port), 0)?.0.0, NEXT);
    }
    assert_eq!(limit::<F>(&bench, false)?.count, 2);
    assert_eq!(
        F::entry(&bench, TCP, (POD, 1), (ELSEWHERE, 80))?.flags & flags::LIMIT_EGRESS,
        flags::LIMIT_EGRESS
    );
    let (fate, answer) = workload.send(In, &open(3), 0)?;
    assert_eq!(fate, (REDIRECT, BYPASS));
    let mut said = tcp(80, 3, RST | ACK, 0, 101);
    said[14..16].fill(0);
    let mut refusal = F::frame(ELSEWHERE, POD, TCP, &said);
    refusal[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    assert_eq!(answer, refusal);
    assert_eq!((bench.counted(In, TOO_MANY)?, bench.connections()?), (1, 2));
    // Datagrams do not count as connections.
    assert_eq!(workload.send(In, &F::frame(POD, ELSEWHERE, UDP, &udp(9, 9)), 0)?.0.0, NEXT);

    // A connection that is closed or reset makes room for one more, once.
    workload.send(In, &F::frame(POD, ELSEWHERE, TCP, &tcp(1, 80, FIN | ACK, 101, 501)), 0)?;
    assert_eq!(limit::<F>(&bench, false)?.count, 2);
    for _ in 0..2 {
        workload.send(Out, &F::frame(ELSEWHERE, POD, TCP, &tcp(80, 1, FIN | ACK, 501, 102)), SEEN)?;
        workload.send(In, &F::frame(POD, ELSEWHERE, TCP, &tcp(1, 80, ACK, 102, 502)), 0)?;
        assert_eq!(limit::<F>(&bench, false)?.count, 1);
    }
    assert_eq!(workload.send(In, &open(3), 0)?.0.0, NEXT);
    workload.send(Out, &F::frame(ELSEWHERE, POD, TCP, &tcp(80, 2, RST, 501, 0)), SEEN)?;
    assert_eq!(limit::<F>(&bench, false)?.count, 1);
    Ok(())
}

#[test]
fn a_workload_accepts_no_more_connections_than_it_may() -> Result<()> {
    to::<V4>()?;
    to::<V6>()
}

fn to<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let (workload, host) = (F::workload(&bench, &options())?, F::host(&bench, &Options::default())?);
    set_limit::<F>(&bench, true, 1)?;
    let open = |port: u16| F::frame(CLIENT, POD, TCP, &tcp(port, 80, SYN, 100, 0));
    for port in [1, 1] {
        assert_eq!(host.send(In, &open(port), 0)?.0.0, NEXT);
        assert_eq!(workload.send(Out, &open(port), SEEN)?.0.0, NEXT);
    }
    assert_eq!(limit::<F>(&bench, true)?.count, 1);
    assert_eq!(host.send(In, &open(2), 0)?.0.0, NEXT);
    let (fate, refusal) = workload.send(Out, &open(2), SEEN)?;
    assert_eq!(fate, (REDIRECT, 0));
    // The RST arrives on the workload's interface as if the workload had sent it, and is routed.
    let mut said = tcp(80, 2, RST | ACK, 0, 101);
    said[14..16].fill(0);
    let mut expected = F::frame(POD, CLIENT, TCP, &said);
    expected[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    assert_eq!(refusal, expected);
    assert_eq!(workload.send(In, &refusal, 0)?.0.0, NEXT);
    assert_eq!(host.send(Out, &refusal, SEEN)?.0.0, NEXT);
    assert_eq!(limit::<F>(&bench, true)?.count, 1, "it was never counted");
    // The workload closes its first connection.
    workload.send(In, &F::frame(POD, CLIENT, TCP, &tcp(80, 1, RST, 501, 0)), 0)?;
    assert_eq!(limit::<F>(&bench, true)?.count, 0);
    assert_eq!(host.send(In, &open(2), 0)?.0.0, NEXT);
    assert_eq!(workload.send(Out, &open(2), SEEN)?.0.0, NEXT);
    assert_eq!(limit::<F>(&bench, true)?.count, 1);
    Ok(())
}
