//! The program in a pod: it answers on its ports, TCP and UDP, with the pod's name, so that a probe knows which pod it
//! reached. HTTP requests (`curl`, a browser, a kubelet's probe) are answered in HTTP.
//!
//! It reads no more than a short request, and keeps no state about its peers.

use anyhow::{Context as _, Result};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The question that a probe sends.
pub(crate) const QUESTION: &[u8] = b"who?";
/// How long a silent peer waits for its answer: long enough for a question that is on its way, short for a person.
const LISTENING: Duration = Duration::from_millis(300);
/// How long receiving a request or sending an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum length of a request.
const LONGEST: usize = 8 * 1024;
/// The maximum number of conversations; further peers are answered without reading their request.
const MOST_AT_ONCE: usize = 256;

/// Answers until the process ends.
///
/// # Errors
/// When a port cannot be opened.
pub(crate) fn run(name: &str, ports: &[u16]) -> Result<()> {
    let greeting: Arc<str> = format!("{name}\n").into();
    let busy = Arc::new(AtomicUsize::new(0));
    for port in ports {
        let (streams, datagrams) = listen(*port).with_context(|| format!("listening on port {port}"))?;
        for listener in streams {
            let (greeting, busy) = (Arc::clone(&greeting), Arc::clone(&busy));
            std::thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    receive(stream, &greeting, &busy);
                }
            });
        }
        for socket in datagrams {
            let greeting = Arc::clone(&greeting);
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

/// Answers a peer in a thread: a peer that does not read or write must not block the others.
fn receive(mut stream: TcpStream, greeting: &Arc<str>, busy: &Arc<AtomicUsize>) {
    let _ = stream.set_write_timeout(Some(PATIENCE));
    if busy.fetch_add(1, Ordering::Relaxed) >= MOST_AT_ONCE {
        busy.fetch_sub(1, Ordering::Relaxed);
        let _ = stream.write_all(greeting.as_bytes());
        return;
    }
    let (greeting, busy) = (Arc::clone(greeting), Arc::clone(busy));
    std::thread::spawn(move || {
        let question = hear(&mut stream);
        let _ = stream.write_all(&answer(&question, &greeting));
        busy.fetch_sub(1, Ordering::Relaxed);
    });
}

/// The peer's input: the head of a request, or whatever arrives first.
fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    let mut buffer = [0_u8; 1024];
    let _ = stream.set_read_timeout(Some(LISTENING));
    let deadline = Instant::now() + PATIENCE;
    while heard.len() < LONGEST && Instant::now() < deadline {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => heard.extend_from_slice(&buffer[..count]),
            // The peer has closed the connection or is silent.
            _ => break,
        }
        // Answering before everything is read would make the kernel discard the answer.
        if !is_http(&heard) || heard.windows(4).any(|end| end == b"\r\n\r\n") {
            break;
        }
    }
    heard
}

fn is_http(question: &[u8]) -> bool {
    question.starts_with(b"GET ") || question.starts_with(b"HEAD ")
}

/// The answer to a peer's question.
fn answer(question: &[u8], greeting: &str) -> Vec<u8> {
    if !is_http(question) {
        return greeting.as_bytes().to_vec();
    }
    let body = if question.starts_with(b"HEAD ") { "" } else { greeting };
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        greeting.len()
    )
    .into_bytes()
}

/// Listens on a port for both IP versions; if the kernel has no IPv6, only for IPv4.
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

#[cfg(test)]
mod tests {
    use super::{QUESTION, answer, receive};
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn http_requests_get_http_responses() {
        let text = |question: &[u8]| String::from_utf8(answer(question, "shop/cart\n")).unwrap();
        assert_eq!(text(QUESTION), "shop/cart\n");
        assert_eq!(text(b""), "shop/cart\n");
        let got = text(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(got.starts_with("HTTP/1.1 200 OK\r\n") && got.ends_with("\r\n\r\nshop/cart\n"), "{got}");
        let got = text(b"HEAD / HTTP/1.1\r\n\r\n");
        assert!(got.contains("Content-Length: 10\r\n") && got.ends_with("\r\n\r\n"), "{got}");
    }

    #[test]
    fn a_silent_peer_is_answered_too() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                receive(stream, &"shop/cart\n".into(), &std::sync::Arc::default());
            }
        });
        for (question, expected) in [
            (b"".as_slice(), "shop/cart\n"),
            (QUESTION, "shop/cart\n"),
            (b"GET / HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
        ] {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(question).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.starts_with(expected), "{text}");
        }
    }
}
