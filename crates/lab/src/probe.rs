//! Real packets: from inside a pod, to all targets at once.
//!
//! One thread per sender enters the sender's namespace and ends there; its probes run concurrently. A target counts as
//! reached if the intended pod answers. Expectations are compared elsewhere.

use crate::responder::QUESTION;
use anyhow::{Context as _, Result};
use netlink::namespace::Namespace;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};

/// More at once would keep a machine busy with nothing but handshakes.
const MOST_AT_ONCE: usize = 2000;

/// The protocol of a probe.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Protocol {
    /// A TCP connection.
    #[default]
    Tcp,
    /// A datagram and its answer.
    Udp,
}

impl Protocol {
    /// Its number in IP packets.
    #[must_use]
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// The address to connect to.
    pub(crate) address: IpAddr,
    pub(crate) port: u16,
    /// The protocol that the probe speaks.
    pub(crate) protocol: Protocol,
    /// The name of the pod that must answer.
    pub(crate) name: String,
}

/// All probes of one sender.
#[derive(Clone, Debug)]
pub(crate) struct Errand {
    /// The sender's namespace.
    pub(crate) netns: PathBuf,
    /// The targets of the probes.
    pub(crate) targets: Vec<Target>,
}

/// The number of sockets that this process may have open at once, minus a reserve for the rest of it.
fn most_at_once() -> usize {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // With the lower limit it only takes longer.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(200).clamp(50, MOST_AT_ONCE)
}

/// Carries out all errands, with as many sockets at once as allowed; returns for each target whether the intended pod
/// answered.
///
/// # Errors
/// When a namespace cannot be entered.
pub(crate) fn run(errands: &[Errand], patience: Duration) -> Result<Vec<Vec<bool>>> {
    let most = most_at_once();
    // Parts of errands: the index of the errand, and some of its targets.
    let mut parts: Vec<(usize, &[Target])> = Vec::new();
    for (number, errand) in errands.iter().enumerate() {
        parts.extend(errand.targets.chunks(most).map(|targets| (number, targets)));
    }
    let mut outcomes: Vec<Vec<bool>> = vec![Vec::new(); errands.len()];
    let mut rest = parts.as_slice();
    while !rest.is_empty() {
        let mut sum = 0;
        let count = rest
            .iter()
            .take_while(|(_, targets)| {
                sum += targets.len();
                sum <= most
            })
            .count();
        let (now, later) = rest.split_at(count.max(1));
        rest = later;
        let answers = run_together(errands, now, patience)?;
        for ((number, _), answer) in now.iter().zip(answers) {
            outcomes[*number].extend(answer);
        }
    }
    Ok(outcomes)
}

fn run_together(
    errands: &[Errand],
    parts: &[(usize, &[Target])],
    patience: Duration,
) -> Result<Vec<Vec<bool>>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts
            .iter()
            .map(|(number, targets)| scope.spawn(move || run_one(&errands[*number].netns, targets, patience)))
            .collect();
        threads
            .into_iter()
            .map(|thread| match thread.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
            .collect()
    })
}

fn run_one(netns: &Path, targets: &[Target], patience: Duration) -> Result<Vec<bool>> {
    let namespace = Namespace::open(netns)?;
    namespace.run(|| -> Result<Vec<bool>> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().context("preparing probes")?;
        let local = tokio::task::LocalSet::new();
        Ok(local.block_on(&runtime, async {
            let tasks: Vec<_> = targets
                .iter()
                .cloned()
                .map(|target| {
                    tokio::task::spawn_local(async move {
                        tokio::time::timeout(patience, ask(&target)).await.unwrap_or(false)
                    })
                })
                .collect();
            let mut outcomes = Vec::with_capacity(tasks.len());
            for task in tasks {
                outcomes.push(task.await.unwrap_or(false));
            }
            outcomes
        }))
    })?
}

async fn ask(target: &Target) -> bool {
    let answer = match target.protocol {
        Protocol::Tcp => ask_by_tcp(target).await,
        Protocol::Udp => ask_by_udp(target).await,
    };
    answer.is_ok_and(|answer| answer == format!("{}\n", target.name).as_bytes())
}

async fn ask_by_tcp(target: &Target) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(SocketAddr::new(target.address, target.port)).await?;
    // A responder answers a question at once.
    stream.write_all(QUESTION).await?;
    let mut answer = Vec::new();
    // A name is never this long; a longer answer comes from something else.
    let read = stream.take(256).read_to_end(&mut answer).await;
    // A responder that answered before it got the question resets the connection.
    if answer.is_empty() {
        read?;
    }
    Ok(answer)
}

async fn ask_by_udp(target: &Target) -> std::io::Result<Vec<u8>> {
    let any: IpAddr = match target.address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).await?;
    socket.connect(SocketAddr::new(target.address, target.port)).await?;
    let mut buffer = [0_u8; 256];
    loop {
        socket.send(QUESTION).await?;
        // The first datagram may be lost while the neighbour is being resolved.
        match tokio::time::timeout(Duration::from_millis(200), socket.recv(&mut buffer)).await {
            Ok(received) => return Ok(buffer[..received?].to_vec()),
            Err(_) => continue,
        }
    }
}
