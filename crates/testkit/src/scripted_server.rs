//! A small HTTP server that sends the answers of a script, one per request, and records the requests.
//!
//! For tests of a client's reaction to errors. Supports only HTTP/1.1 without encryption, on loopback.

use anyhow::{Context as _, Result};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The maximum length of a request.
const LONGEST: usize = 1 << 20;

/// A server with a script. It ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedServer {
    /// Starts a server. An answer is a status line without the version, and headers, each with its line end: `429 Too
    /// Many Requests\r\nRetry-After: 1\r\n`; the body is `{}` unless one follows after an empty line. The last answer
    /// is repeated for all further requests.
    ///
    /// # Errors
    /// When no port can be opened.
    pub fn start(answers: &[&str]) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on loopback")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answers) =
            (Arc::clone(&requests), answers.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        let thread = std::thread::spawn(move || {
            let mut given = 0;
            for stream in listener.incoming().flatten() {
                let Some(request) = read_request(&stream) else { continue };
                // Sent when the value is dropped: the end.
                if request.starts_with("END ") {
                    return;
                }
                seen.lock().unwrap_or_else(PoisonError::into_inner).push(request);
                let answer =
                    answers.get(given.min(answers.len().saturating_sub(1))).cloned().unwrap_or_default();
                given += 1;
                let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer.trim_end(), "{}"));
                let text = format!(
                    "HTTP/1.1 {head}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
                // A client that went away gets no answer.
                let _ = (&stream).write_all(text.as_bytes());
            }
        });
        Ok(Self { address, requests, thread: Some(thread) })
    }

    /// The server's address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far: method, path and body of each.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        let told = TcpStream::connect(self.address)
            .and_then(|mut stream| stream.write_all(b"END / HTTP/1.1\r\n\r\n"));
        if let (Ok(()), Some(thread)) = (told, self.thread.take()) {
            let _ = thread.join();
        }
    }
}

/// Reads a request as `METHOD PATH BODY`, if it arrives completely.
fn read_request(mut stream: &TcpStream) -> Option<String> {
    stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
    let mut bytes = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
            let length = head
                .lines()
                .filter_map(|line| line.split_once(':'))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .and_then(|(_, value)| value.trim().parse::<usize>().ok())
                .unwrap_or(0);
            if let Some(body) = bytes.get(end + 4..(end + 4).checked_add(length)?) {
                let mut words = head.lines().next()?.split(' ');
                let (method, path) = (words.next()?, words.next()?);
                return Some(format!("{method} {path} {}", String::from_utf8_lossy(body)));
            }
        }
        let count = stream.read(&mut buffer).ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        if bytes.len() > LONGEST {
            return None;
        }
    }
}
