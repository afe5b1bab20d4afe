//! A name server that knows one name: enough to check whether a program in an empty root uses DNS at all.

use anyhow::{Context, Result};
use std::net::{IpAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::network::Namespace;

/// Queries for an IPv4 and for an IPv6 address.
const TYPE_A: u16 = 1;
const TYPE_AAAA: u16 = 28;
/// The offset of the queries in a message.
const HEADER: usize = 12;

/// The server; it stops when this is dropped.
#[derive(Debug)]
pub(crate) struct NameServer {
    questions: Arc<AtomicUsize>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    /// Serves `name`, with the server's own address as the answer, at this address of the namespace.
    pub(crate) fn start(namespace: &Namespace, address: IpAddr, name: &str) -> Result<Self> {
        let socket = namespace.run(|| UdpSocket::bind((address, 53)))?.context("opening port 53")?;
        socket.set_read_timeout(Some(Duration::from_millis(200)))?;
        let (questions, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let (counted, over, name) = (Arc::clone(&questions), Arc::clone(&is_over), name.to_owned());
        let thread = std::thread::spawn(move || {
            let mut buffer = [0; 512];
            while !over.load(Ordering::Relaxed) {
                let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
                if let Some(answer) = answer(&buffer[..length], &name, address) {
                    counted.fetch_add(1, Ordering::Relaxed);
                    // The client may be gone.
                    let _ = socket.send_to(&answer, peer);
                }
            }
        });
        Ok(Self { questions, is_over, thread: Some(thread) })
    }

    /// How many queries were answered.
    pub(crate) fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The answer to a message with one query: the address, nothing for another type, or that there is no such name.
fn answer(message: &[u8], name: &str, address: IpAddr) -> Option<Vec<u8>> {
    let mut at = HEADER;
    let mut asked = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        asked.push(String::from_utf8_lossy(message.get(at..at + length)?).into_owned());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    let question = message.get(HEADER..at + 4)?;
    let is_known = asked.join(".").eq_ignore_ascii_case(name);
    let (wanted, bytes) = match address {
        IpAddr::V4(address) => (TYPE_A, address.octets().to_vec()),
        IpAddr::V6(address) => (TYPE_AAAA, address.octets().to_vec()),
    };
    let count = u16::from(is_known && kind == wanted);
    let mut reply = message.get(..2)?.to_vec();
    // An authoritative answer; code 3 for an unknown name.
    reply.extend([0x85, if is_known { 0x80 } else { 0x83 }, 0, 1]);
    reply.extend(count.to_be_bytes());
    reply.extend([0, 0, 0, 0]);
    reply.extend(question);
    if count == 1 {
        // The name of the query, and an address, valid for a minute.
        reply.extend([0xc0, 0x0c]);
        reply.extend(wanted.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 60]);
        reply.extend(u16::try_from(bytes.len()).ok()?.to_be_bytes());
        reply.extend(bytes);
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::answer;
    use std::net::{IpAddr, Ipv6Addr};

    fn question(name: &str, kind: u8) -> Vec<u8> {
        let mut message = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            message.push(u8::try_from(label.len()).unwrap());
            message.extend(label.as_bytes());
        }
        message.extend([0, 0, kind, 0, 1]);
        message
    }

    #[test]
    fn one_name_is_known() {
        let address: IpAddr = [10, 0, 0, 9].into();
        let reply = answer(&question("Api.Test", 1), "api.test", address).unwrap();
        assert_eq!((&reply[..2], reply[7], reply[3] & 0xf), (&[7, 7][..], 1, 0));
        assert!(reply.ends_with(&[0, 4, 10, 0, 0, 9]));
        let reply = answer(&question("api.test", 28), "api.test", address).unwrap();
        assert_eq!((reply[7], reply[3] & 0xf), (0, 0));
        let reply = answer(&question("other.test", 1), "api.test", address).unwrap();
        assert_eq!((reply[7], reply[3] & 0xf), (0, 3));
        let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
        let reply = answer(&question("api.test", 28), "api.test", six).unwrap();
        assert!(reply[7] == 1 && reply.ends_with(&[0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
        assert_eq!(answer(&[0; 13], "api.test", address), None);
        assert_eq!(answer(&[1; 20], "api.test", address), None);
    }
}
