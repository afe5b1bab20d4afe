//! Tests with GoBGP, FRR and BIRD 1.6 at the other end: sessions, and routes in both directions and families.

use crate::harness::{BLOCKS, OURS, Running, THEIRS, Wire, intent, session, wait_for};
use anyhow::Result;
use bgp::IpVersion;
use bgp::intent::{Remote, Session, SessionKind, SessionName};
use rib::{Destination, Query};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use testkit::Process;

/// Starts a program on the other host, with its output next to its files.
fn start(wire: &Wire, name: &str, words: &[&str]) -> Result<Process> {
    let ip = testkit::program("ip", "install Debian's iproute2")?;
    let mut arguments: Vec<String> = ["netns", "exec", wire.theirs.name()].map(str::to_owned).into();
    arguments.extend(words.iter().map(|word| (*word).to_owned()));
    Process::start(&ip, &arguments, &wire.folder.path().join(format!("{name}.log")))
}

fn both_families() -> [Session; 2] {
    [IpVersion::V4, IpVersion::V6].map(session)
}

/// Sessions of both families, with the password of the other end.
fn with_password() -> [Session; 2] {
    both_families().map(|session| Session { password: Some(bgp::Password::new("sesame")), ..session })
}

/// Sessions of both families with the password and TTL security.
fn with_password_and_near() -> [Session; 2] {
    with_password().map(|session| Session { ttl_security: std::num::NonZeroU8::new(1), ..session })
}

/// Waits until the peer's routes are in our kernel.
fn wait_kernel(wire: &Wire) -> Result<()> {
    wait_for("the peer's routes in our kernel", || {
        let routes = wire.kernel_routes()?;
        Ok(routes.contains("172.31.0.0/24 via 10.99.0.2") && routes.contains("fd00:31::/64 via f"))
    })
}

#[test]
fn gobgp() -> Result<()> {
    let wire = Wire::new()?;
    let config = wire.folder.path().join("gobgpd.toml");
    let neighbours: String = OURS
        .iter()
        .zip(["ipv4-unicast", "ipv6-unicast"])
        .map(|(address, family)| {
            format!(
                "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{address}\"\npeer-as = 64512\nauth-password = \"sesame\"\n\
                 [neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n\
                 [[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{family}\"\n"
            )
        })
        .collect();
    let text = format!("[global.config]\nas = 64512\nrouter-id = \"{}\"\n{neighbours}", THEIRS[0]);
    std::fs::write(&config, text)?;
    let _peer = start(&wire, "gobgpd", &["gobgpd", "-t", "toml", "-f", &config.display().to_string()])?;
    let ask = |question: &str| wire.theirs.shell(&format!("gobgp {question} 2>&1 || true"));
    wait_for("GoBGP to answer", || Ok(ask("global")?.contains("64512")))?;
    ask(&format!("global rib add 172.31.0.0/24 nexthop {} community 65000:77", THEIRS[0]))?;
    ask(&format!("global rib -a ipv6 add fd00:31::/64 nexthop {}", THEIRS[1]))?;
    let running = Running::start(&wire, intent(with_password_and_near()))?;
    running.wait_established(2)?;
    wait_kernel(&wire)?;
    wait_for("our routes at the peer", || {
        Ok(ask("global rib -a ipv4")?.contains(BLOCKS[0]) && ask("global rib -a ipv6")?.contains(BLOCKS[1]))
    })?;
    let shown = running.handle.ask(|engine, _| {
        let destination = Some(Destination::Exact("172.31.0.0/24".parse().expect("a network")));
        engine.rib().routes(bgp_wire::Family::Ipv4, &Query { destination, ..Query::default() })
    });
    let shown = shown.expect("a speaker");
    let attributes = &shown[0].route.as_bgp().expect("a route of BGP").announcement.attributes;
    assert_eq!(attributes.communities.iter().map(ToString::to_string).collect::<Vec<_>>(), ["65000:77"]);
    // Routes that are requested again are sent again.
    ask(&format!("neighbor {} softresetin", OURS[0]))?;
    ask("global rib del 172.31.0.0/24")?;
    wait_for("the withdrawal", || Ok(!wire.kernel_routes()?.contains("172.31.0.0/24")))
}

/// FRR on the other host: zebra and bgpd.
struct Frr<'a> {
    wire: &'a Wire,
    _daemons: [Process; 2],
}

impl<'a> Frr<'a> {
    fn start(wire: &'a Wire, config: &str) -> Result<Self> {
        let folder = wire.folder.path();
        // FRR drops its privileges, and its user must be able to access these files.
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777))?;
        std::fs::write(folder.join("bgpd.conf"), format!("frr defaults traditional\nlog stdout\n{config}"))?;
        std::fs::write(folder.join("zebra.conf"), "")?;
        let file = |name: &str| folder.join(name).display().to_string();
        let daemon = |name: &str| -> Result<Process> {
            let program = format!("/usr/lib/frr/{name}");
            anyhow::ensure!(Path::new(&program).exists(), "this test needs {program}: install Debian's frr");
            let (config, pid, api) =
                (file(&format!("{name}.conf")), file(&format!("{name}.pid")), file("zserv.api"));
            let place = folder.display().to_string();
            start(wire, name, &[&program, "-f", &config, "-i", &pid, "-z", &api, "--vty_socket", &place])
        };
        let zebra = daemon("zebra")?;
        wait_for("zebra", || Ok(folder.join("zserv.api").exists()))?;
        let frr = Self { wire, _daemons: [daemon("bgpd")?, zebra] };
        wait_for("bgpd to answer", || Ok(frr.ask("show bgp ipv4 unicast")?.contains("172.31.0.0/24")))?;
        Ok(frr)
    }

    fn ask(&self, question: &str) -> Result<String> {
        let folder = self.wire.folder.path().display();
        self.wire.theirs.shell(&format!("vtysh --vty_socket {folder} -c '{question}' 2>&1 || true"))
    }
}

#[test]
fn frr() -> Result<()> {
    let wire = Wire::new()?;
    let [peer4, peer6] = OURS;
    let config = format!(
        "router bgp 64512\n bgp router-id {}\n no bgp network import-check\n \
         neighbor {peer4} remote-as 64512\n neighbor {peer6} remote-as 64512\n neighbor {peer4} password sesame\n \
         neighbor {peer4} ttl-security hops 1\n address-family ipv4 unicast\n  network 172.31.0.0/24\n  \
         neighbor {peer4} activate\n  no neighbor {peer6} activate\n exit-address-family\n address-family ipv6 unicast\n  \
         network fd00:31::/64\n  neighbor {peer6} activate\n exit-address-family\n",
        THEIRS[0]
    );
    let frr = Frr::start(&wire, &config)?;
    let mut sessions = both_families();
    sessions[0].password = Some(bgp::Password::new("sesame"));
    sessions[0].ttl_security = std::num::NonZeroU8::new(1);
    let running = Running::start(&wire, intent(sessions))?;
    running.wait_established(2)?;
    wait_kernel(&wire)?;
    wait_for("our routes at the peer", || {
        Ok(frr.ask("show bgp ipv4 unicast")?.contains(BLOCKS[0])
            && frr.ask("show bgp ipv6 unicast")?.contains(BLOCKS[1]))
    })?;
    // A request for our routes is answered, and the session stays up.
    frr.ask("clear bgp * soft in")?;
    frr.ask(
        "configure terminal' -c 'router bgp 64512' -c 'address-family ipv4 unicast' -c 'no network 172.31.0.0/24",
    )?;
    wait_for("the withdrawal", || Ok(!wire.kernel_routes()?.contains("172.31.0.0/24")))?;
    assert!(running.peers()?.iter().all(|peer| peer.tally.established == 1));
    Ok(())
}

/// Only link-local addresses: both ends find each other by advertisements, and IPv4 routes have IPv6 next hops (RFC
/// 8950).
#[test]
fn unnumbered_with_frr() -> Result<()> {
    let wire = Wire::new()?;
    for host in [&wire.ours, &wire.theirs] {
        // The link-local addresses remain.
        host.shell("ip -4 addr flush dev eth0; ip -6 addr flush dev eth0 scope global")?;
    }
    let config = format!(
        "router bgp 65001\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor eth0 interface remote-as 64512\n address-family ipv4 unicast\n  network 172.31.0.0/24\n \
         exit-address-family\n address-family ipv6 unicast\n  network fd00:31::/64\n  neighbor eth0 activate\n \
         exit-address-family\n",
        THEIRS[0]
    );
    let frr = Frr::start(&wire, &config)?;
    let remote = Remote::Unnumbered { interface: "eth0".to_owned() };
    let session = Session {
        name: SessionName::of(SessionKind::Node, &remote, None),
        kind: SessionKind::Node,
        remote,
        source: None,
        peer_as: bgp::AsNumber(65001),
        ..session(IpVersion::V6)
    };
    let running = Running::start(&wire, intent([session]))?;
    running.wait_established(1)?;
    wait_for("the peer's routes in our kernel", || {
        let routes = wire.kernel_routes()?;
        Ok(routes.contains("172.31.0.0/24 via inet6 fe80:") && routes.contains("fd00:31::/64 via fe80:"))
    })?;
    wait_for("our routes at the peer, with next hops of the link", || {
        let (v4, v6) = (frr.ask("show bgp ipv4 unicast")?, frr.ask("show bgp ipv6 unicast")?);
        Ok(v4.contains(BLOCKS[0]) && v6.contains(BLOCKS[1]))
    })?;
    wait_for("our routes in the peer's kernel", || {
        let routes = wire.theirs.shell("ip route; ip -6 route")?;
        let line =
            |block: &str| routes.lines().find(|line| line.contains(block)).unwrap_or_default().to_owned();
        Ok(BLOCKS.iter().all(|block| line(block).contains("fe80:")))
    })
}

/// Tests BIRD 1.6 with Calico's settings.
#[test]
fn bird_1_6() -> Result<()> {
    let wire = Wire::new()?;
    let folder = wire.folder.path();
    let programs = testkit::Bird::one()?;
    let mut peers = Vec::new();
    for (index, program) in [&programs.v4, &programs.v6].into_iter().enumerate() {
        let route = ["172.31.0.0/24", "fd00:31::/64"][index];
        let text = format!(
            "router id {};\nlog stderr all;\nprotocol device {{ }}\nprotocol static {{ route {route} blackhole; }}\n\
             protocol bgp one {{ local as 64512; neighbor {} as 64512; source address {}; multihop; gateway recursive; password \"sesame\";\n\
             import all; add paths on; graceful restart; connect delay time 2; connect retry time 5; error wait time 5,30; next hop self;\n\
             export filter {{ if source = RTS_STATIC then {{ bgp_community.add((65000,77)); accept; }} reject; }}; }}\n",
            THEIRS[0], OURS[index], THEIRS[index]
        );
        let (config, socket) = (folder.join(format!("{index}.conf")), folder.join(format!("{index}.ctl")));
        std::fs::write(&config, text)?;
        let words: [&Path; 6] =
            [program, Path::new("-f"), Path::new("-c"), &config, Path::new("-s"), &socket];
        let words = words.map(|word| word.display().to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        peers.push(start(&wire, &format!("bird{index}"), &words)?);
    }
    let ask = |index: usize| {
        let socket = folder.join(format!("{index}.ctl"));
        wire.theirs.shell(&format!("birdcl -s {} show route all 2>&1 || true", socket.display()))
    };
    let running = Running::start(&wire, intent(with_password()))?;
    running.wait_established(2)?;
    wait_kernel(&wire)?;
    wait_for("our routes at the peer", || Ok(ask(0)?.contains(BLOCKS[0]) && ask(1)?.contains(BLOCKS[1])))?;
    // It announced graceful restart, so its routes are kept when it is killed.
    for peer in &mut peers {
        peer.kill()?;
    }
    wait_for("kept routes", || Ok(running.peers()?.iter().all(|peer| peer.stale.contains(&true))))?;
    wait_kernel(&wire)
}
