//! Events about packets that are dropped, or that match a rule that logs.

use crate::bench::{ALLOWS, Bench, DENIES, Direction, NEXT};
use crate::packets::{SYN, tcp, udp};
use crate::world::{BACKEND, POD, SERVICE, Who, World};
use Direction::{In, Out};
use anyhow::Result;
use bpf::interface::Options;
use bpf::layout::event::{Event, EventKind};
use bpf::layout::judged::Judged;
use bpf::layout::nat::Frontend;
use bpf::layout::{V4, V6};
use bpf::{Layout, Queue};

const DENIED: u32 = 4;
const SHORT: u32 = 5;
const SOURCE: u32 = 11;
const TCP: u8 = 6;

fn events(bench: &Bench) -> Result<Vec<Event>> {
    all(bench, "bpfp_events")
}

/// Drains a queue.
fn all<V: Layout>(bench: &Bench, queue: &str) -> Result<Vec<V>> {
    let queue = Queue::<V>::new(bench.map(queue)?)?;
    let mut all = Vec::new();
    while let Some(event) = queue.pop()? {
        all.push(event);
    }
    Ok(all)
}

/// Dropped packets are reported while a command watches, and no longer.
#[test]
fn dropped_packets_are_reported_to_a_watcher() -> Result<()> {
    let bench = V4::bench()?;
    bench.lists(&[(1, DENIES)])?;
    let workload = V4::workload(&bench, &Options::default())?;
    let packet = V4::frame(POD, BACKEND, 17, &udp(1, 2));
    for (until, told) in [(0, 0), (u64::MAX, 1), (1, 0)] {
        bench.map("bpfp_watched")?.set(&0_u32.bytes(), &until.bytes())?;
        workload.send(In, &packet, 0)?;
        assert_eq!(events(&bench)?.len(), told, "until {until}");
    }
    Ok(())
}

#[test]
fn policy_decisions_are_reported_for_flow_logs() -> Result<()> {
    judges::<V4>()?;
    judges::<V6>()
}

fn judges<F: World>() -> Result<()> {
    let bench = F::bench()?;
    let options = Options { tells_flows: true, ..Options::default() };
    let (quiet, workload) = (F::workload(&bench, &Options::default())?, F::workload(&bench, &options)?);
    F::frontend(&bench, (SERVICE, 80, TCP), None, Frontend { id: 1, count: 1, ..Frontend::default() })?;
    F::backend(&bench, 1, 0, BACKEND, 8080)?;
    let request = F::frame(POD, SERVICE, TCP, &tcp(4000, 80, SYN, 1, 0));
    quiet.send(In, &F::frame(POD, BACKEND, 17, &udp(1, 2)), 0)?;
    assert_eq!(all::<Judged>(&bench, "bpfp_flows")?, []);
    workload.send(In, &request, 0)?;
    // The flow is known now: policy is not evaluated again.
    workload.send(In, &F::frame(POD, BACKEND, 17, &udp(1, 2)), 0)?;
    bench.lists(&[(1, DENIES)])?;
    let echo = [if F::NUMBER == 4 { 8 } else { 128 }, 0, 0, 0, 0x12, 0x34, 0, 1];
    workload.send(In, &F::frame(POD, BACKEND, F::ICMP, &echo), 0)?;
    let found = all::<Judged>(&bench, "bpfp_flows")?;
    let facts: Vec<_> = found.iter().map(|one| (one.protocol, one.hits.clone(), one.hook)).collect();
    assert_eq!(facts, [(TCP, vec![ALLOWS + 100], 0), (F::ICMP, vec![DENIES + 100], 0)]);
    let (first, second) = (&found[0], &found[1]);
    assert_eq!((first.source_port, first.destination_port, first.original_port), (4000, 8080, 80));
    assert_ne!(first.destination, first.original);
    assert_eq!(first.length as usize, request.len() - 14);
    assert_eq!((second.source_port, second.destination_port >> 8), (0x1234, u16::from(echo[0])));
    Ok(())
}

#[test]
fn drops_are_reported_with_reason_rule_and_interface() -> Result<()> {
    tells::<V4>()?;
    tells::<V6>()
}

fn tells<F: World>() -> Result<()> {
    let bench = F::bench()?;
    bench.lists(&[(0, DENIES), (1, DENIES)])?;
    let options = Options { tells_drops: true, ..Options::default() };
    let (quiet, workload) = (F::workload(&bench, &Options::default())?, F::workload(&bench, &options)?);
    F::frontend(&bench, (SERVICE, 80, TCP), None, Frontend { id: 1, count: 1, ..Frontend::default() })?;
    F::backend(&bench, 1, 0, BACKEND, 8080)?;
    let request = F::frame(POD, SERVICE, TCP, &tcp(4000, 80, SYN, 1, 0));
    quiet.send(In, &request, 0)?;
    assert_eq!(events(&bench)?, []);

    let spoofed = F::frame(Who(99, 9), BACKEND, 17, &udp(1, 2));
    let short = &request[..request.len() - 8];
    workload.send(In, &request, 0)?;
    workload.send(In, &spoofed, 0)?;
    workload.send(In, short, 0)?;
    workload.send(Out, &spoofed, 0x0100_0000)?;
    let all = events(&bench)?;
    let facts: Vec<_> =
        all.iter().map(|event| (event.reason, event.hook, event.rule, event.protocol)).collect();
    assert_eq!(
        facts,
        [(DENIED, 0, DENIES + 100, TCP), (SOURCE, 0, 0, 17), (SHORT, 0, 0, 0), (DENIED, 1, DENIES + 100, 17)]
    );
    let first = all[0];
    let address = |bytes: F::Address| bytes.as_ref().to_vec();
    let told = |address: std::net::IpAddr| match address {
        std::net::IpAddr::V4(four) => four.octets().to_vec(),
        std::net::IpAddr::V6(six) => six.octets().to_vec(),
    };
    // The destination it would have had.
    assert_eq!((told(first.source), first.source_port), (address(F::address(POD)), 4000));
    assert_eq!((told(first.destination), first.destination_port), (address(F::address(BACKEND)), 8080));
    assert_eq!((first.device, first.length as usize, first.kind), (1, request.len(), EventKind::Dropped));
    assert!(all.is_sorted_by_key(|event| event.time) && first.time > 0);
    // An event about an unreadable packet contains nothing of another packet.
    assert!(told(all[2].source).iter().all(|byte| *byte == 0));
    Ok(())
}

#[test]
fn rules_that_log_are_reported_whatever_follows() -> Result<()> {
    let bench = V4::bench()?;
    let workload = V4::workload(&bench, &Options::default())?;
    // A list of two: the first rule logs, the second is the first rule of another list.
    for (list, action) in [(50_u64, 1_u8), (51, 2)] {
        let mut segment = vec![0; 904];
        (segment[0], segment[4], segment[8]) = (2, 1, 1);
        let key = |rule: u32| [list.bytes(), rule.bytes(), vec![0; 4]].concat();
        bench.map("bpfp_segment")?.set(&key(0), &segment)?;
        let rule = [(list + 100).bytes(), vec![0; 4], vec![action, 0, 0, 0]].concat();
        bench.map("bpfp_rule")?.set(&key(1), &rule)?;
        bench.lists(&[(1, list)])?;
        let port = u16::try_from(list).unwrap();
        workload.send(In, &V4::frame(POD, BACKEND, 17, &udp(port, 2)), 0)?;
    }
    let all = all::<Event>(&bench, "bpfp_logs")?;
    let facts: Vec<_> = all.iter().map(|event| (event.kind, event.rule, event.source_port)).collect();
    assert_eq!(facts, [(EventKind::LoggedAllowed, 150, 50), (EventKind::LoggedDenied, 151, 51)]);
    // Rules that do not log are not reported.
    bench.lists(&[(1, ALLOWS)])?;
    assert_eq!(workload.send(In, &V4::frame(POD, BACKEND, 17, &udp(9, 2)), 0)?.0.0, NEXT);
    assert_eq!(events(&bench)?, []);
    Ok(())
}
