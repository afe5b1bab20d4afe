//! Tests with BIRD 2 at the other end.

use crate::harness::{BLOCKS, Bird, Running, Wire, intent, session, states, wait_for};
use anyhow::Result;
use bgp::intent::{Remote, Session, SessionName};
use bgp::{IpVersion, Password};
use rib::{Destination, Query};
use speaker::for_tests::StateName;

fn both(change: impl Fn(&mut Session)) -> [Session; 2] {
    [IpVersion::V4, IpVersion::V6].map(|version| {
        let mut session = session(version);
        change(&mut session);
        session
    })
}

/// Waits until both sides have the other's routes, in both families.
fn wait_routes(wire: &Wire, bird: &Bird) -> Result<()> {
    wait_for("the peer's routes in our kernel", || {
        let routes = wire.kernel_routes()?;
        Ok(routes.contains("172.31.0.0/24 via 10.99.0.2") && routes.contains("fd00:31::/64 via f"))
    })?;
    wait_for("our routes at the peer", || {
        let routes = bird.ask(wire, "show route")?;
        Ok(BLOCKS.iter().all(|block| routes.contains(block)))
    })
}

#[test]
fn routes_are_exchanged_in_both_families() -> Result<()> {
    let wire = Wire::new()?;
    let bird = Bird::start(&wire, "", false)?;
    let running = Running::start(&wire, intent(both(|_| {})))?;
    running.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    // Communities arrive, and the offer of several paths is tolerated.
    let shown = running.handle.ask(|engine, _| {
        let destination = Some(Destination::Exact("172.31.0.0/24".parse().expect("a network")));
        engine.rib().routes(bgp_wire::Family::Ipv4, &Query { destination, ..Query::default() })
    });
    let shown = shown.expect("a speaker");
    let attributes = &shown[0].route.as_bgp().expect("a route of BGP").announcement.attributes;
    assert_eq!(attributes.communities.iter().map(ToString::to_string).collect::<Vec<_>>(), ["65000:77"]);
    assert_eq!(
        attributes.large_communities.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["65000:7:8"]
    );
    // A route that another program deletes is restored; one of another program is left alone.
    wire.ours.shell("ip route add 172.30.0.0/24 via 10.99.0.2; ip route del 172.31.0.0/24 proto bird")?;
    wait_routes(&wire, &bird)?;
    // Without our blocks; then without the sessions.
    let mut less = intent(both(|_| {}));
    less.v4.export.blocks.clear();
    running.handle.apply(less);
    wait_for("the withdrawal of our block", || Ok(!bird.ask(&wire, "show route")?.contains(BLOCKS[0])))?;
    running.handle.apply(intent([]));
    wait_for("an empty kernel", || Ok(!wire.kernel_routes()?.contains("via")))?;
    assert!(wire.ours.shell("ip route")?.contains("172.30.0.0/24"));
    wait_for("the reason at the peer", || {
        Ok(bird.ask(&wire, "show protocols all one")?.contains("Received: Peer de-configured"))
    })
}

#[test]
fn passwords_and_near_peers() -> Result<()> {
    let wire = Wire::new()?;
    let bird = Bird::start(&wire, "password \"sesame\"; ttl security on;", false)?;
    let sessions = both(|session| {
        session.password = Some(Password::new("sesame"));
        session.ttl_security = std::num::NonZeroU8::new(1);
    });
    let running = Running::start(&wire, intent(sessions))?;
    running.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    // A different password needs a new session, which cannot come up.
    let others = both(|session| {
        session.password = Some(Password::new("open"));
        session.ttl_security = std::num::NonZeroU8::new(1);
    });
    running.handle.apply(intent(others));
    wait_for("the sessions to end", || {
        Ok(running.peers()?.iter().all(|peer| peer.state != StateName::Established))
    })
}

#[test]
fn the_peer_restarts_and_packets_flow() -> Result<()> {
    let wire = Wire::new()?;
    let mut bird = Bird::start(&wire, "graceful restart on;", false)?;
    let running = Running::start(&wire, intent(both(|_| {})))?;
    running.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    bird.process.kill()?;
    let mut losses = 0;
    let mut check = || -> Result<()> {
        losses += usize::from(!wire.kernel_routes()?.contains("172.31.0.0/24 via 10.99.0.2"));
        Ok(())
    };
    wait_for("the sessions to end", || {
        check()?;
        Ok(running.peers()?.iter().all(|peer| peer.state != StateName::Established))
    })?;
    let bird = Bird::start(&wire, "graceful restart on;", true)?;
    wait_for("the sessions to be up again, with the routes confirmed", || {
        check()?;
        Ok(running.peers()?.iter().all(|peer| {
            peer.state == StateName::Established && peer.tally.established == 2 && peer.stale == [false; 2]
        }))
    })?;
    wait_routes(&wire, &bird)?;
    assert_eq!(losses, 0);
    Ok(())
}

#[test]
fn the_speaker_restarts_and_packets_flow() -> Result<()> {
    let wire = Wire::new()?;
    let bird = Bird::start(&wire, "graceful restart on;", false)?;
    let first = Running::start(&wire, intent(both(|_| {})))?;
    first.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    // A route from before the restart that no peer will confirm.
    wire.ours.shell("ip route add 172.29.0.0/24 via 10.99.0.2 proto bird metric 77")?;
    first.end(true);
    assert!(wire.kernel_routes()?.contains("172.31.0.0/24"));
    let second = Running::start(&wire, intent(both(|_| {})))?;
    let mut losses = 0;
    wait_for("the restart to be over", || {
        losses += usize::from(!wire.kernel_routes()?.contains("172.31.0.0/24 via 10.99.0.2"));
        losses += usize::from(!bird.ask(&wire, "show route")?.contains(BLOCKS[0]));
        Ok(second.handle.ask(|engine, _| !engine.is_restarting()).unwrap_or_default())
    })?;
    second.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    assert_eq!(losses, 0);
    wait_for("the old route to go", || Ok(!wire.kernel_routes()?.contains("172.29.0.0/24")))
}

#[test]
fn a_silent_peer_is_given_up() -> Result<()> {
    let wire = Wire::new()?;
    let bird = Bird::start(&wire, "hold time 3;", false)?;
    let running = Running::start(&wire, intent(both(|_| {})))?;
    running.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    bird.process.pause()?;
    wait_for("the hold timers", || {
        let peers = running.peers()?;
        let expired = |reason: &Option<String>| reason.as_deref() == Some("BGP Error: Hold timer expired");
        Ok(peers.iter().all(|peer| peer.state != StateName::Established)
            && peers.iter().any(|peer| expired(&peer.reason)))
    })?;
    wait_for("the routes to go", || Ok(!wire.kernel_routes()?.contains("via")))?;
    bird.process.resume()?;
    running.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    assert_eq!(states(&running.peers()?).len(), 2);
    Ok(())
}

#[test]
fn any_peer_within_a_range_is_accepted() -> Result<()> {
    let wire = Wire::new()?;
    let sessions = both(|session| {
        let range = if session.version == IpVersion::V4 { "10.99.0.0/24" } else { "fd99::/64" };
        session.remote = Remote::Dynamic { range: range.parse().expect("a network") };
        session.name = SessionName::of(session.kind, &session.remote, None);
    });
    let running = Running::start(&wire, intent(sessions))?;
    // No peer has connected, so none is shown.
    assert_eq!(running.peers()?.len(), 0);
    let mut bird = Bird::start(&wire, "", false)?;
    running.wait_established(2)?;
    wait_routes(&wire, &bird)?;
    let mut remotes: Vec<String> = running.peers()?.into_iter().map(|peer| peer.remote).collect();
    remotes.sort();
    assert_eq!(remotes, crate::harness::THEIRS);
    bird.process.terminate()?;
    wait_for("the peers to be forgotten", || Ok(running.peers()?.is_empty()))?;
    wait_for("their routes to go", || Ok(!wire.kernel_routes()?.contains("via")))
}
