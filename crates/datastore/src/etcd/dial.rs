//! Connections to members: several are tried concurrently with a small stagger, so that one that does not answer costs
//! a moment instead of the caller's whole time.
//!
//! A connection is only established once. tonic would re-establish a lost one itself, to the same member and with the
//! old certificates; here that fails at once, and the owner of the session dials again: all members, with the current
//! files.

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hyper_util::rt::TokioIo;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tonic::transport::{Channel, Endpoint};

/// The delay between attempts, unless the earlier one has succeeded or failed.
pub(super) const STAGGER: Duration = Duration::from_millis(150);
/// The limit for a TCP connect: enough for one lost packet, but less than the shortest deadline of a caller (the CNI
/// plugin's 2 s), so that the caller learns which member does not answer.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(1800);
/// How long sent data may stay unacknowledged by the peer before the connection counts as lost.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(5);

/// The address on which a member listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A TCP port.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port.
        port: u16,
        /// Whether it uses TLS.
        is_tls: bool,
    },
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Connects once. After the connection is lost, requests fail as "not sent".
pub(super) async fn connect(
    endpoint: &Endpoint,
    address: &Address,
) -> Result<Channel, tonic::transport::Error> {
    let address = Arc::new(address.clone());
    let is_used = AtomicBool::new(false);
    let connector = tower::service_fn(move |_| {
        let address = Arc::clone(&address);
        let is_again = is_used.swap(true, Ordering::Relaxed);
        async move {
            if is_again {
                return Err(io::Error::new(io::ErrorKind::NotConnected, "the connection was lost"));
            }
            open(&address).await.map(TokioIo::new)
        }
    });
    endpoint.connect_with_connector(connector).await
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

async fn open(address: &Address) -> io::Result<Box<dyn Stream>> {
    match address {
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        Address::Tcp { host, port, .. } => {
            let addresses = tokio::net::lookup_host((host.as_str(), *port)).await?;
            let attempts = addresses.map(|address| async move {
                match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
                    Ok(outcome) => outcome,
                    Err(_) => Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        format!("no answer within {} s", CONNECT_TIMEOUT.as_secs_f32()),
                    )),
                }
            });
            let stream = race(attempts, STAGGER).await.map_err(|failures| {
                failures.into_iter().next().unwrap_or_else(|| io::Error::other("the name has no address"))
            })?;
            stream.set_nodelay(true)?;
            let limit = u32::try_from(UNACKNOWLEDGED_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
            rustix::net::sockopt::set_tcp_user_timeout(&stream, limit)?;
            Ok(Box::new(stream))
        }
    }
}

/// Starts these attempts in turn, a pause apart or as soon as one has failed, and returns the first success. The others
/// are dropped. Without any success: all failures, in the order in which they occurred.
pub(super) async fn race<T, E, F>(attempts: impl IntoIterator<Item = F>, pause: Duration) -> Result<T, Vec<E>>
where
    F: Future<Output = Result<T, E>>,
{
    let mut waiting = attempts.into_iter().fuse();
    let mut running = FuturesUnordered::new();
    let mut failures = Vec::new();
    loop {
        let is_last = match waiting.next() {
            Some(attempt) => {
                running.push(attempt);
                false
            }
            None => true,
        };
        tokio::select! {
            biased;
            Some(outcome) = running.next() => match outcome {
                Ok(value) => return Ok(value),
                Err(error) => failures.push(error),
            },
            () = tokio::time::sleep(pause), if !is_last => {}
            else => return Err(failures),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::{BoxFuture, FutureExt as _, pending};

    type Attempt = BoxFuture<'static, Result<u8, &'static str>>;
    type Outcome = Result<u8, Vec<&'static str>>;

    fn after(milliseconds: u64, outcome: Result<u8, &'static str>) -> Attempt {
        async move {
            tokio::time::sleep(Duration::from_millis(milliseconds)).await;
            outcome
        }
        .boxed()
    }

    #[tokio::test]
    async fn the_first_answer_wins_and_silence_only_costs_a_pause() {
        let cases: Vec<(Vec<Attempt>, Outcome)> = vec![
            (vec![after(0, Ok(1)), after(0, Ok(2))], Ok(1)),
            (vec![pending().boxed(), after(1, Ok(2))], Ok(2)),
            (vec![pending().boxed(), pending().boxed(), after(1, Ok(3))], Ok(3)),
            (vec![after(1, Err("a")), after(1, Ok(2))], Ok(2)),
            (vec![after(60_000, Ok(1)), after(1, Err("b")), after(1, Ok(3))], Ok(3)),
            (vec![after(1, Err("a")), after(1, Err("b"))], Err(vec!["a", "b"])),
            (vec![], Err(vec![])),
        ];
        for (number, (attempts, expected)) in cases.into_iter().enumerate() {
            assert_eq!(race(attempts, Duration::from_millis(20)).await, expected, "case {number}");
        }
    }

    /// A failure does not wait for the pause.
    #[tokio::test]
    async fn after_a_failure_the_next_attempt_starts_at_once() {
        let attempts = vec![after(0, Err("a")), after(0, Ok(2))];
        let raced = race(attempts, Duration::from_secs(3600));
        assert_eq!(tokio::time::timeout(Duration::from_secs(60), raced).await, Ok(Ok(2)));
    }
}
