//! Connections between two workloads of a node that Linux does not track: policy's decisions about them outlive their
//! entries, and nothing else does.

use crate::bench::{ALLOWS, Bench, DENIES, DEVICE, DROP, Direction, FALL_THROUGH, NEXT, SEEN};
use crate::packets::{ACK, FIN, RST, SYN, V4, tcp};
use Direction::{In, Out};
use anyhow::{Context as _, Result};
use bpf::interface::{Options, Version};
use bpf::layout::conntrack::{Direct, Entry, Key, Tracking, Value, flags};
use bpf::layout::network::{Route, RouteKey, flags as route_flags};
use bpf::{Layout as _, Table, layout};

const ONE: [u8; 4] = [10, 65, 0, 2];
const OTHER: [u8; 4] = [10, 65, 0, 3];
const INGRESS: usize = 0;
const EGRESS: usize = 1;
const NO_TRACKING: u32 = 0x0140_0000;

fn there(flags: u8) -> Vec<u8> {
    frame(ONE, OTHER, &tcp(4000, 80, flags, 100, 0))
}

fn back(flags: u8) -> Vec<u8> {
    frame(OTHER, ONE, &tcp(80, 4000, flags, 500, 101))
}

fn frame(source: [u8; 4], destination: [u8; 4], payload: &[u8]) -> Vec<u8> {
    V4 { source, destination, protocol: 6, id: 0, fragment: 0, options: &[], payload }.frame()
}

/// Two workloads of this node that may talk to each other.
fn bench() -> Result<Bench> {
    let options = Options { redirects_to_peer: true, ..Options::default() };
    let bench = Bench::with_options(Version::V4, true, false, false, &options)?;
    let routes = Table::<RouteKey<layout::V4>, Route<layout::V4>>::new(bench.map("cali_v4_routes")?)?;
    for address in [ONE, OTHER] {
        let route =
            Route { flags: route_flags::WORKLOAD | route_flags::LOCAL, next_hop: DEVICE.to_ne_bytes() };
        routes.set(&RouteKey { bits: 32, address }, &route)?;
    }
    bench.lists(&[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    Ok(bench)
}

fn forget(bench: &Bench) -> Result<()> {
    let map = bench.map("cali_v4_ct4")?;
    map.remove_many(&map.keys()?)?;
    Ok(())
}

fn kept(bench: &Bench) -> Result<Vec<Direct>> {
    let all = Table::<Key<layout::V4>, Direct>::new(bench.map("bpfp_v4_direct")?)?.entries()?;
    Ok(all.into_iter().map(|(_, kept)| kept).collect())
}

fn tracking(bench: &Bench) -> Result<(u32, Tracking<layout::V4>)> {
    let value = Value::<layout::V4>::read(&bench.connection()?.1);
    match value.entry {
        Entry::Normal(tracking) => Ok((value.flags, tracking)),
        other => anyhow::bail!("{other:?}"),
    }
}

#[test]
fn only_connections_that_both_ends_allowed_are_recalled() -> Result<()> {
    let bench = bench()?;
    // The other end denies it: the first end's approval is not enough, whichever end sends.
    bench.lists(&[(EGRESS, ALLOWS), (INGRESS, DENIES)])?;
    assert_eq!(bench.send(In, &there(SYN))?, (NEXT, NO_TRACKING));
    assert_eq!(bench.send_marked(Out, &there(SYN), NO_TRACKING)?.0, DROP);
    assert_eq!(bench.send(In, &back(ACK))?.0, DROP);
    assert_eq!(bench.send_marked(Out, &there(ACK), NO_TRACKING)?.0, DROP);
    forget(&bench)?;
    for frame in [there(ACK), back(ACK)] {
        assert_eq!(bench.send(In, &frame)?, (NEXT, FALL_THROUGH));
        for mark in [SEEN, NO_TRACKING, FALL_THROUGH] {
            assert_eq!(bench.send_marked(Out, &frame, mark)?.0, DROP, "{mark:#x}");
        }
    }
    // The other end allows it: either an answer or a request suffices to resume.
    bench.lists(&[(EGRESS, ALLOWS), (INGRESS, ALLOWS)])?;
    assert_eq!(bench.send(In, &there(SYN))?, (NEXT, NO_TRACKING));
    assert_eq!(bench.send_marked(Out, &there(SYN), NO_TRACKING)?.0, NEXT);
    let before = tracking(&bench)?.1;
    bench.lists(&[(EGRESS, DENIES), (INGRESS, DENIES)])?;
    for frame in [back(ACK), there(ACK)] {
        forget(&bench)?;
        assert_eq!(bench.send(In, &frame)?, (NEXT, NO_TRACKING));
        assert_eq!(bench.send_marked(Out, &frame, NO_TRACKING)?.0, NEXT);
        let (found, now) = tracking(&bench)?;
        assert_ne!(found & flags::DIRECT, 0);
        for (now, before) in [(now.a_to_b, before.a_to_b), (now.b_to_a, before.b_to_a)] {
            assert!(now.approved && now.workload && now.opener == before.opener, "{now:?}");
        }
    }
    // A policy change in the meantime applies to new connections.
    assert_eq!(bench.send(In, &there(SYN))?.0, DROP);
    Ok(())
}

#[test]
fn ended_connections_are_not_recalled() -> Result<()> {
    for end in [&[(true, RST)][..], &[(false, RST)], &[(true, FIN | ACK), (false, FIN | ACK)]] {
        let bench = bench()?;
        bench.send(In, &there(SYN))?;
        bench.send_marked(Out, &there(SYN), NO_TRACKING)?;
        assert!(!kept(&bench)?[0].established);
        bench.send(In, &frame(OTHER, ONE, &tcp(80, 4000, SYN | ACK, 500, 101)))?;
        bench.send(In, &frame(ONE, OTHER, &tcp(4000, 80, ACK, 101, 501)))?;
        assert!(kept(&bench)?[0].established);
        for (number, (is_there, flags)) in end.iter().enumerate() {
            assert_eq!(kept(&bench)?.len(), 1, "{number}");
            bench.send(In, &if *is_there { there(*flags) } else { back(*flags) })?;
        }
        assert_eq!(kept(&bench)?, []);
        forget(&bench)?;
        for frame in [there(ACK), back(ACK)] {
            assert_eq!(bench.send(In, &frame)?, (NEXT, FALL_THROUGH));
            assert_eq!(bench.send_marked(Out, &frame, SEEN)?.0, DROP);
        }
    }
    Ok(())
}

/// Without room to keep it, Linux tracks a connection from its SYN on; another SYN is decided anew.
#[test]
fn a_connection_without_room_is_left_to_linux() -> Result<()> {
    let bench = bench()?;
    let map = bench.map("bpfp_v4_direct")?;
    let other =
        |number: u32| Key::<layout::V4>::new(6, (number.to_be_bytes(), 1), ([1, 1, 1, 1], 2)).0.bytes();
    let full = map.definition().entries;
    let fill: Vec<_> = (0..full).map(|number| (other(number), Direct::default().bytes())).collect();
    let syn = there(SYN);
    bench.send(In, &syn)?;
    assert_ne!(tracking(&bench)?.0 & flags::DIRECT, 0);
    map.remove_many(&map.keys()?)?;
    map.set_many(&fill)?;
    for is_known in [true, false] {
        assert_eq!(bench.send(In, &syn)?, (NEXT, SEEN), "{is_known}");
        assert_eq!(bench.send_marked(Out, &syn, SEEN)?.0, NEXT);
        assert_eq!(tracking(&bench)?.0 & flags::DIRECT, 0, "{is_known}");
        forget(&bench)?;
    }
    map.remove_many(&[fill.first().context("one")?.0.clone()])?;
    assert_eq!(bench.send(In, &syn)?, (NEXT, NO_TRACKING));
    Ok(())
}
