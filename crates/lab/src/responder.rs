//! What runs in a pod: it answers on its ports, TCP and UDP, with the pod's name, so that a probe knows whom it reached.
//!
//! It refuses to read more than a datagram, and to remember anybody.

use anyhow::{Context as _, Result};
use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

/// What a probe sends in a datagram.
pub(crate) const QUESTION: &[u8] = b"who?";

/// Answers until the process ends.
///
/// # Errors
/// When a port cannot be listened on.
pub(crate) fn run(name: &str, ports: &[u16]) -> Result<()> {
    let greeting = format!("{name}\n");
    for port in ports {
        let (streams, datagrams) = listen(*port).with_context(|| format!("listening on port {port}"))?;
        for listener in streams {
            let greeting = greeting.clone();
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    // A peer that does not read must not stop the others.
                    let _ = stream.set_write_timeout(Some(Duration::from_secs(1)));
                    let _ = stream.write_all(greeting.as_bytes());
                }
            });
        }
        for socket in datagrams {
            let greeting = greeting.clone();
            std::thread::spawn(move || {
                let mut buffer = [0_u8; 64];
                while let Ok((_, peer)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(greeting.as_bytes(), peer);
                }
            });
        }
    }
    loop {
        std::thread::park();
    }
}

/// Listens on a port of both versions of IP; without IPv6 in the kernel, on that of IPv4.
fn listen(port: u16) -> std::io::Result<(Vec<TcpListener>, Vec<UdpSocket>)> {
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    match (TcpListener::bind(both), UdpSocket::bind(both)) {
        (Ok(stream), Ok(datagram)) => Ok((vec![stream], vec![datagram])),
        _ => {
            let old = SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
            Ok((vec![TcpListener::bind(old)?], vec![UdpSocket::bind(old)?]))
        }
    }
}
