//! A continuous stream of packets: numbered datagrams from one pod to another and back, and a count of the lost ones.

use crate::cluster::{Cluster, pod};
use anyhow::{Context as _, Result};
use std::collections::BTreeSet;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use testkit::network::Namespace;

/// The pause between two packets.
const PAUSE: Duration = Duration::from_millis(5);
/// How long the last answers may take.
const LAST: Duration = Duration::from_secs(2);

/// The losses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Losses {
    pub(crate) sent: u32,
    /// Packets that the kernel refused to send because there was no route.
    pub(crate) refused: u32,
    pub(crate) unanswered: u32,
}

/// A running stream of packets.
pub(crate) struct Traffic {
    end: Arc<AtomicBool>,
    /// The echo continues until the sender has received its last answers.
    has_answers: Arc<AtomicBool>,
    echo: JoinHandle<Result<()>>,
    sender: JoinHandle<Result<Losses>>,
}

impl Traffic {
    /// Starts a stream between the pods of two nodes that have routes to each other.
    pub(crate) fn start(cluster: &Cluster, from: usize, to: usize) -> Result<Self> {
        let (end, has_answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let open = |namespace: &Namespace, address: String| -> Result<UdpSocket> {
            let socket = namespace.run(|| UdpSocket::bind((address.as_str(), 7777)))??;
            Ok(socket)
        };
        let here = open(&cluster.nodes[from].namespace, pod(from))?;
        let there = open(&cluster.nodes[to].namespace, pod(to))?;
        there.set_read_timeout(Some(Duration::from_millis(100)))?;
        let (stop, target) = (Arc::clone(&has_answers), pod(to));
        let echo = std::thread::spawn(move || {
            let mut packet = [0; 4];
            while !stop.load(Ordering::Relaxed) {
                if let Ok((length, from)) = there.recv_from(&mut packet) {
                    // If the answer cannot be sent, the packet counts as unanswered.
                    let _ = there.send_to(&packet[..length], from);
                }
            }
            Ok(())
        });
        let stop = Arc::clone(&end);
        let sender = std::thread::spawn(move || send(&here, &target, &stop));
        Ok(Self { end, has_answers, echo, sender })
    }

    /// Ends the stream and returns the losses.
    pub(crate) fn finish(self) -> Result<Losses> {
        self.end.store(true, Ordering::Relaxed);
        let losses = self.sender.join().ok().context("the sender")?;
        self.has_answers.store(true, Ordering::Relaxed);
        self.echo.join().ok().context("the echo")??;
        losses
    }
}

fn send(socket: &UdpSocket, target: &str, end: &AtomicBool) -> Result<Losses> {
    let mut losses = Losses::default();
    let mut open = BTreeSet::new();
    socket.set_nonblocking(true)?;
    let collect = |open: &mut BTreeSet<u32>| {
        let mut packet = [0; 4];
        while socket.recv(&mut packet).is_ok() {
            open.remove(&u32::from_be_bytes(packet));
        }
    };
    while !end.load(Ordering::Relaxed) {
        losses.sent += 1;
        match socket.send_to(&losses.sent.to_be_bytes(), (target, 7777)) {
            Ok(_) => {
                open.insert(losses.sent);
            }
            Err(_) => losses.refused += 1,
        }
        collect(&mut open);
        std::thread::sleep(PAUSE);
    }
    let begin = std::time::Instant::now();
    while !open.is_empty() && begin.elapsed() < LAST {
        collect(&mut open);
        std::thread::sleep(PAUSE);
    }
    losses.unanswered = u32::try_from(open.len())?;
    Ok(losses)
}
