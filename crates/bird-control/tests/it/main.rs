//! Real clients on our socket: BIRD's own `birdc` and `birdcl`, and the client of this crate.

use bird_control::server::{
    BgpFacts, DaemonFacts, Distance, Facts, NextHop, PathFacts, ProtocolFacts, Question, RouteCounts,
    RouteFacts, RouteTarget, SessionFacts, Speaker, Timer, listen,
};
use jiff::Timestamp;
use model::IpVersion;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A speaker with one session that is up and one that is not.
struct Made;

impl Speaker for Made {
    fn version(&self) -> String {
        "v0.1.0+tortie".to_owned()
    }

    async fn facts(&self, question: &Question) -> Facts {
        let now = Timestamp::now();
        match question {
            Question::Status => Facts::Daemon(DaemonFacts {
                version: self.version(),
                router_id: Ipv4Addr::new(10, 99, 0, 1),
                now,
                booted: now,
                reconfigured: now,
                recovery: None,
            }),
            Question::Protocols { .. } => Facts::Protocols { now, protocols: vec![up(now), down(now)] },
            Question::Routes(_) => Facts::Routes { now, routes: routes(now), networks: (2, 2) },
            _ => Facts::None,
        }
    }
}

fn bgp(name: &str, now: Timestamp, bgp: BgpFacts) -> ProtocolFacts {
    ProtocolFacts {
        name: name.to_owned(),
        kind: "BGP",
        state: if bgp.session.is_some() { "up" } else { "start" },
        since: now,
        preference: 100,
        input_filter: "ACCEPT".to_owned(),
        output_filter: "(unnamed)".to_owned(),
        counts: RouteCounts::default(),
        bgp: Some(bgp),
    }
}

fn up(now: Timestamp) -> ProtocolFacts {
    let session = SessionFacts {
        neighbor_id: Ipv4Addr::new(10, 99, 0, 2),
        neighbor_capabilities: vec!["refresh", "AS4"],
        properties: vec!["internal", "AS4"],
        source: Ipv4Addr::new(10, 99, 0, 1).into(),
        limit: None,
        hold: Timer { left: 80, total: 90 },
        keepalive: Timer { left: 20, total: 30 },
    };
    let facts = BgpFacts {
        state: "Established",
        neighbor: Ipv4Addr::new(10, 99, 0, 2).into(),
        interface: None,
        neighbor_as: 64512,
        restarting: false,
        error_wait: None,
        connect_delay: None,
        session: Some(session),
        last_error: None,
    };
    bgp("Mesh_10_99_0_2", now, facts)
}

fn down(now: Timestamp) -> ProtocolFacts {
    let facts = BgpFacts {
        state: "Active",
        neighbor: Ipv4Addr::new(10, 99, 0, 3).into(),
        interface: None,
        neighbor_as: 65001,
        restarting: false,
        error_wait: None,
        connect_delay: None,
        session: None,
        last_error: Some("Received: Cease".to_owned()),
    };
    bgp("Node_10_99_0_3_port_1790", now, facts)
}

fn routes(now: Timestamp) -> Vec<RouteFacts> {
    let one = |destination: &str, target, protocol: &str, path: Option<PathFacts>| RouteFacts {
        destination: destination.parse().expect("a network"),
        target,
        protocol: protocol.to_owned(),
        source: if path.is_some() { "BGP" } else { "static" },
        since: now,
        from: None,
        primary: true,
        stale: false,
        preference: 100,
        path,
    };
    let hop = NextHop { gateway: Ipv4Addr::new(10, 99, 0, 2).into(), interface: "eth0".to_owned() };
    let path = PathFacts { distance: Distance::Metric(0), origin: 'i', ..PathFacts::default() };
    vec![
        one("10.10.1.0/26", RouteTarget::Blackhole, "static1", None),
        one("10.10.2.0/26", RouteTarget::Via(hop), "Mesh_10_99_0_2", Some(path)),
    ]
}

/// Serves on a socket in a new folder.
async fn served() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bird.ctl");
    // A socket left by a killed process is replaced.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("an old socket"));
    let socket = path.clone();
    tokio::spawn(async move { listen(&socket, Made).await });
    for _ in 0..600 {
        if tokio::net::UnixStream::connect(&path).await.is_ok() {
            return (folder, path);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("no socket at {}", path.display());
}

fn run(program: &str, socket: &Path, words: &[&str]) -> (bool, String) {
    let program = testkit::program(program, "run scripts/setup.sh").expect("a program of BIRD's");
    let output = Command::new(program).arg("-s").arg(socket).args(words).output().expect("an output");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn birds_own_clients_read_our_answers() {
    let (_folder, socket) = served().await;
    for program in ["birdc", "birdcl"] {
        let (_, status) = run(program, &socket, &["show", "status"]);
        assert!(status.starts_with("BIRD v0.1.0+tortie ready.\n"), "{program}: {status}");
        assert!(status.ends_with("Daemon is up and running\n"), "{program}: {status}");
        // The client expands abbreviations and sends complete words.
        let (_, protocols) = run(program, &socket, &["sh", "proto"]);
        assert!(protocols.contains("Mesh_10_99_0_2 BGP      master   up"), "{program}: {protocols}");
        let (_, details) = run(program, &socket, &["show", "protocols", "all", "Mesh_10_99_0_2"]);
        assert!(details.contains("    Neighbor AS:      64512\n"), "{program}: {details}");
        let (_, routes) = run(program, &socket, &["show", "route"]);
        assert!(routes.contains("10.10.2.0/26       via 10.99.0.2 on eth0"), "{program}: {routes}");
    }
    // `birdcl` in restricted mode sends `restrict` first, and a refusal does not end the connection.
    let (done, refused) = run("birdcl", &socket, &["-r", "show", "status"]);
    assert!(done && refused.contains("Access restricted\n") && refused.contains("Daemon is up"), "{refused}");
    let (done, configure) = run("birdcl", &socket, &["configure", "check"]);
    assert!(!done && configure.contains("configured by the datastore"), "{configure}");
}

#[tokio::test]
async fn our_own_client_reads_our_answers() {
    let (_folder, socket) = served().await;
    let sockets = [&socket];
    let status = bird_control::status(IpVersion::V4, &sockets).await.expect("a state");
    assert!(
        status.ready && status.version == "v0.1.0+tortie" && status.router_id == "10.99.0.1",
        "{status:?}"
    );
    let peers = bird_control::peers(IpVersion::V4, &sockets).await.expect("peers");
    let rows: Vec<(&str, &str)> =
        peers.peers.iter().map(|peer| (peer.address.as_str(), peer.info.as_str())).collect();
    assert_eq!(rows, [("10.99.0.2", "Established"), ("10.99.0.3.port.1790", "Active Received: Cease")]);
    assert!(!peers.both_families);
    let sessions = bird_control::sessions(IpVersion::V4, &sockets).await.expect("sessions");
    let rows: Vec<(&str, &str)> =
        sessions.iter().map(|session| (session.address.as_str(), session.bgp_state.as_str())).collect();
    assert_eq!(rows, [("10.99.0.2", "Established"), ("10.99.0.3", "Active")]);
    let routes = bird_control::routes(IpVersion::V4, &sockets).await.expect("routes");
    let rows: Vec<(&str, &str)> =
        routes.iter().map(|route| (route.destination.as_str(), route.interface.as_str())).collect();
    assert_eq!(rows, [("10.10.1.0/26", "blackhole"), ("10.10.2.0/26", "eth0")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endless_line_is_refused() {
    let (_folder, socket) = served().await;
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = std::os::unix::net::UnixStream::connect(&socket).expect("a connection");
        // The server may close the connection before everything is written.
        let _ = stream.write_all(&[b'x'; 4096]);
        let mut text = String::new();
        let _ = std::io::Read::read_to_string(&mut stream, &mut text);
        text
    });
    let answer = answer.await.expect("an answer");
    assert!(answer.contains("9000 Command too long"), "{answer}");
}
