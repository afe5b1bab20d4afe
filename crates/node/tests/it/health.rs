//! Probes against a fake Felix and a fake BIRD.

use crate::support::TestNode;
use node::for_tests::health::{Checks, check};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};

const THRESHOLD: Duration = Duration::from_secs(30);

/// A Felix that gives this answer to every request; returns its port.
async fn felix(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    port.to_string()
}

/// A BIRD with one table of peers.
pub(crate) fn bird(node: &TestNode, peers: &'static str) {
    let path = node.context.path("/var/run/calico/bird.ctl");
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let listener = UnixListener::bind(&path).expect("a socket");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.write_all(b"0001 BIRD v0.3.3+birdv1.6.8 ready.\n").await;
                let mut command = vec![0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut command).await {
                    let text = String::from_utf8_lossy(&command[..count]).into_owned();
                    let answer = match text.trim() {
                        "show status" => {
                            "1000-BIRD v0.3.3+birdv1.6.8\n1011-Router ID is 10.0.0.1\n Current server time is \
                             2026-11-15 20:00:00\n Last reboot on 2026-11-15 19:00:00\n Last reconfiguration on \
                             2026-11-15 19:30:00\n0013 Daemon is up and running\n"
                                .to_owned()
                        }
                        "show protocols" => {
                            format!("2002-name     proto    table    state  since       info\n{peers}0000 \n")
                        }
                        "show route" => "1007-10.1.0.0/26 via 10.0.0.2 on eth0 [Mesh_10_0_0_2 19:30:00] * (100/0) [i]\n\
                                         0000 \n"
                            .to_owned(),
                        _ => "1002-Mesh_10_0_0_2 BGP master up 19:30:00 Established\n1006-  BGP state:          \
                              Established\n     Neighbor address: 10.0.0.2\n0000 \n"
                            .to_owned(),
                    };
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
}

#[tokio::test]
async fn felix_is_queried_over_http() {
    let checks = Checks { felix_live: true, felix_ready: true, ..Checks::default() };
    let port = felix("HTTP/1.1 204 No Content\r\n\r\n").await;
    let node = TestNode::new(&[("FELIX_HEALTHPORT", &port), ("FELIX_HEALTHHOST", "127.0.0.1")]);
    assert_eq!(check(&node.context, checks, THRESHOLD).await, Ok(()));
    let port = felix("HTTP/1.1 503 Service Unavailable\r\n\r\nno").await;
    let node = node.with(&[("FELIX_HEALTHPORT", &port), ("FELIX_HEALTHHOST", "127.0.0.1")]);
    assert_eq!(
        check(&node.context, checks, THRESHOLD).await,
        Err(vec![
            "calico/node is not ready: Felix is not live: liveness probe reporting 503".to_owned(),
            "calico/node is not ready: felix is not ready: readiness probe reporting 503".to_owned(),
        ])
    );
    let free = testkit::free_port().expect("a port").to_string();
    let node = node.with(&[("FELIX_HEALTHPORT", &free), ("FELIX_HEALTHHOST", "127.0.0.1")]);
    let wrong = check(&node.context, checks, THRESHOLD).await.expect_err("nothing listens");
    assert!(wrong[0].contains(&format!("Get \"http://127.0.0.1:{free}/liveness\"")), "{wrong:?}");
    let nothing = check(&node.context, Checks::default(), THRESHOLD).await.expect_err("nothing asked");
    assert!(nothing[0].contains("must specify at least one"), "{nothing:?}");
}

#[tokio::test]
async fn bird_is_queried_over_its_socket() {
    let node = TestNode::new(&[]);
    let ready = Checks { bird_ready: true, ..Checks::default() };
    let wrong = check(&node.context, ready, THRESHOLD).await.expect_err("no start yet");
    assert!(wrong[0].contains("failed to stat() nodename file"), "{wrong:?}");
    let file = node.context.path("/var/lib/calico/nodename");
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder");
    std::fs::write(&file, "node-a").expect("writing");
    let wrong = check(&node.context, ready, THRESHOLD).await.expect_err("no BIRD");
    assert!(wrong[0].contains("unable to connect to BIRDv4 socket"), "{wrong:?}");
    bird(
        &node,
        "1002-Mesh_10_0_0_2 BGP      master   up     19:30:00  Established\n Mesh_10_0_0_3 BGP      master   start  \
         19:30:00  Active\n",
    );
    // Young: all sessions must be up. Later: one is enough.
    assert_eq!(
        check(&node.context, ready, THRESHOLD).await,
        Err(vec![
            "calico/node is not ready: BIRD is not ready: BGP not established with 10.0.0.3".to_owned()
        ])
    );
    assert_eq!(check(&node.context, ready, Duration::ZERO).await, Ok(()));

    // Live also requires that the services run, under runit or under our own supervision.
    let live = Checks { bird_live: true, ..Checks::default() };
    let wrong = check(&node.context, live, THRESHOLD).await.expect_err("no services");
    assert!(wrong[0].contains("bird/confd is not live"), "{wrong:?}");
    for service in ["confd", "bird"] {
        let folder = node.context.path(format!("/etc/service/enabled/{service}/supervise"));
        std::fs::create_dir_all(&folder).expect("a folder");
        let mut status = [0; 20];
        status[19] = 1;
        std::fs::write(folder.join("status"), status).expect("writing");
    }
    assert_eq!(check(&node.context, live, THRESHOLD).await, Ok(()));
    let services = node.context.path("/var/run/calico/services");
    std::fs::create_dir_all(&services).expect("a folder");
    std::fs::write(services.join("confd"), "").expect("writing");
    let wrong = check(&node.context, live, THRESHOLD).await.expect_err("confd is down");
    assert!(wrong[0].contains("service confd is not running"), "{wrong:?}");
    // The native speaker is one process for both families, and confd is not needed with it.
    std::fs::write(services.join("bgp"), "").expect("writing");
    let wrong = check(&node.context, live, THRESHOLD).await.expect_err("the speaker is down");
    assert!(wrong[0].contains("service bgp is not running"), "{wrong:?}");
    let process = node.context.path("/proc/7");
    std::fs::create_dir_all(process).expect("a folder");
    std::fs::write(services.join("bgp"), "7").expect("writing");
    assert_eq!(check(&node.context, live, THRESHOLD).await, Ok(()));
}
