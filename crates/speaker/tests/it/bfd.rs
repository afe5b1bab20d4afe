//! BFD with BIRD 2 at the other end: a peer that stops forwarding is given up long before its hold time.

use crate::harness::{Bird, Running, Wire, intent, session, wait_for};
use anyhow::Result;
use bgp::IpVersion;
use bgp::intent::Bfd;
use speaker::for_tests::StateName;
use std::num::NonZeroU8;
use std::time::Duration;

/// Sessions of both families, watched by BFD.
fn watched(multihop: Option<bool>) -> [bgp::intent::Session; 2] {
    let bfd =
        Bfd { interval: Duration::from_millis(200), multiplier: NonZeroU8::new(5).expect("five"), multihop };
    [IpVersion::V4, IpVersion::V6].map(|version| bgp::intent::Session { bfd: Some(bfd), ..session(version) })
}

fn seen(running: &Running) -> Result<Vec<Option<bool>>> {
    Ok(running.peers()?.iter().map(|peer| peer.seen).collect())
}

fn check(multihop: Option<bool>, lines: &str) -> Result<()> {
    let wire = Wire::new()?;
    let mut bird = Bird::start(&wire, lines, false)?;
    let running = Running::start(&wire, intent(watched(multihop)))?;
    running.wait_established(2)?;
    wait_for("BFD to see the peer", || Ok(seen(&running)? == [Some(true); 2]))?;
    let sessions = || bird.ask(&wire, "show bfd sessions");
    wait_for("the peer to see us", || Ok(sessions()?.matches(" Up ").count() == 2))?;
    // BIRD is paused: its connections remain open, its hold time is four minutes, and it sends nothing.
    bird.process.pause()?;
    wait_for("the sessions to end", || {
        let peers = running.peers()?;
        let lost = |reason: &Option<String>| reason.as_deref() == Some("BGP Error: BFD session down");
        Ok(peers.iter().all(|peer| peer.state != StateName::Established && lost(&peer.reason)))
    })?;
    wait_for("the routes to go", || Ok(!wire.kernel_routes()?.contains("via")))?;
    bird.process.resume()?;
    running.wait_established(2)?;
    wait_for("BFD to see the peer again", || Ok(seen(&running)? == [Some(true); 2]))?;
    // BFD that is turned off is shut down properly, and ends no session.
    let plain = intent([IpVersion::V4, IpVersion::V6].map(session));
    let before: Vec<u64> = running.peers()?.iter().map(|peer| peer.tally.established).collect();
    running.handle.apply(plain);
    wait_for("the peer to know", || Ok(bird.ask(&wire, "show bfd sessions")?.matches(" Up ").count() == 0))?;
    let after: Vec<u64> = running.peers()?.iter().map(|peer| peer.tally.established).collect();
    assert_eq!(before, after);
    bird.process.kill()
}

#[test]
fn one_hop() -> Result<()> {
    check(None, "direct; bfd { interval 200 ms; multiplier 5; };")
}

#[test]
fn several_hops() -> Result<()> {
    check(Some(true), "multihop; bfd { interval 200 ms; multiplier 5; };")
}
