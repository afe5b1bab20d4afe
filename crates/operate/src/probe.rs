//! `tortie probe`: both ends of a connection, for testing a network from inside its pods. One end answers; the other
//! tries a list of targets repeatedly and prints the outcome of each, so that its log always has the newest results.
//!
//! A target counts as reached when a greeting and then more than fits into one packet has arrived: a network that drops
//! full packets still lets connections begin.

use anyhow::Result;
use clap::{Args, Subcommand};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Sent to every client: a connection that another program answers does not count.
const GREETING: &[u8] = b"tortie\n";
/// The number of bytes that follow: dozens of full packets, even at an MTU of 9,000 bytes.
const REST: usize = 256 * 1024;
/// How long an attempt may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// The pause between two rounds.
const PAUSE: Duration = Duration::from_millis(500);

/// The end to run.
#[derive(Clone, Debug, Subcommand)]
pub enum ProbeCommand {
    /// Answer at a port.
    Serve {
        /// The port.
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Try targets repeatedly, and print a line for each: the round, the target, and `reached`, `failed`, or `stuck` if
    /// a connection begins but full packets do not arrive.
    Watch(Targets),
}

/// The targets.
#[derive(Clone, Debug, Args)]
pub struct Targets {
    /// Hosts with ports at which `probe serve` answers.
    #[arg(required = true, value_name = "HOST:PORT")]
    targets: Vec<String>,
    /// A host and port that only has to accept the connection; may be repeated.
    #[arg(long, value_name = "HOST:PORT")]
    connect: Vec<String>,
    /// An interface of this machine; it is reached if packets have left through it since the last round. May be
    /// repeated.
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
}

/// The name of an interface in the log.
#[must_use]
pub fn interface_target(name: &str) -> String {
    format!("interface={name}")
}

/// Runs one end until it is stopped.
///
/// # Errors
/// When a port cannot be bound, or nothing can be printed.
pub fn run(command: &ProbeCommand) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // The first process of a container does not end by signals that it does not handle.
        let shutdown = daemon::signals::shutdown()?;
        tokio::select! {
            outcome = one_end(command) => outcome,
            () = shutdown.requested() => Ok(ExitCode::SUCCESS),
        }
    })
}

async fn one_end(command: &ProbeCommand) -> Result<ExitCode> {
    match command {
        ProbeCommand::Serve { port } => {
            // One socket for both IP versions, if the machine has both.
            let listener = match TcpListener::bind(("::", *port)).await {
                Ok(listener) => listener,
                Err(_) => TcpListener::bind(("0.0.0.0", *port)).await?,
            };
            serve(&listener).await
        }
        ProbeCommand::Watch(targets) => {
            let mut counters = BTreeMap::new();
            for round in 0_u64.. {
                for line in try_all(round, targets).await {
                    writeln!(std::io::stdout(), "{line}")?;
                }
                for name in &targets.interface {
                    let word = if has_sent(name, &mut counters) { "reached" } else { "failed" };
                    writeln!(std::io::stdout(), "{round} {} {word}", interface_target(name))?;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Whether packets left through an interface since the last call.
fn has_sent(name: &str, counters: &mut BTreeMap<String, u64>) -> bool {
    let path = Path::new("/sys/class/net").join(name).join("statistics/tx_packets");
    let count = std::fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let Some(count) = count else { return false };
    counters.insert(name.to_owned(), count).is_some_and(|before| count > before)
}

async fn serve(listener: &TcpListener) -> Result<ExitCode> {
    loop {
        // A client that left before it was greeted needs no handling.
        if let Ok((mut stream, _)) = listener.accept().await {
            // Each in its own task: a client that does not read delays no other.
            tokio::spawn(async move {
                let sent = async {
                    stream.write_all(GREETING).await?;
                    stream.write_all(&vec![0; REST]).await
                };
                let _ = tokio::time::timeout(PATIENCE * 2, sent).await;
            });
        }
    }
}

/// Tries all targets at once; the lines are in the order in which the targets were given.
async fn try_all(round: u64, targets: &Targets) -> Vec<String> {
    let greeted = futures::future::join_all(targets.targets.iter().map(|target| greeting(target)));
    let connected = futures::future::join_all(targets.connect.iter().map(|target| connection(target)));
    let (greeted, connected) = futures::future::join(greeted, connected).await;
    let all = targets.targets.iter().zip(greeted).chain(targets.connect.iter().zip(connected));
    all.map(|(target, word)| format!("{round} {target} {word}")).collect()
}

/// The outcome of a connection that must deliver a greeting and the rest.
async fn greeting(target: &str) -> &'static str {
    let mut is_greeted = false;
    let whole = async {
        let mut stream = TcpStream::connect(target).await.ok()?;
        let mut answer = vec![0; GREETING.len()];
        stream.read_exact(&mut answer).await.ok()?;
        is_greeted = answer == GREETING;
        let mut rest = vec![0; if is_greeted { REST } else { return None }];
        stream.read_exact(&mut rest).await.ok()
    };
    let whole = tokio::time::timeout(PATIENCE, whole).await;
    match (whole, is_greeted) {
        (Ok(Some(_)), _) => "reached",
        (_, true) => "stuck",
        _ => "failed",
    }
}

async fn connection(target: &str) -> &'static str {
    match tokio::time::timeout(PATIENCE, TcpStream::connect(target)).await {
        Ok(Ok(_)) => "reached",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_greeting_and_all_the_rest_counts() {
        let ours = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let short = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let targets = Targets {
            targets: vec![at(&ours), at(&other), at(&short), at(&nobody)],
            connect: vec![at(&other), at(&nobody)],
            interface: vec![],
        };
        drop(nobody);
        let server = tokio::spawn(async move { serve(&ours).await.map(drop) });
        let stranger = tokio::spawn(async move {
            while let Ok((mut stream, _)) = other.accept().await {
                let _ = stream.write_all(b"hello there\n").await;
            }
        });
        // Like a network that drops full packets: the beginning arrives, and then nothing.
        let narrow = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = short.accept().await {
                let _ = stream.write_all(GREETING).await;
                kept.push(stream);
            }
        });
        let lines = try_all(7, &targets).await;
        let words: Vec<&str> = lines.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!(words, ["reached", "failed", "stuck", "failed", "reached", "failed"], "{lines:?}");
        assert_eq!(lines[0], format!("7 {} reached", targets.targets[0]));
        server.abort();
        stranger.abort();
        narrow.abort();
    }

    #[tokio::test]
    async fn an_interface_counts_when_packets_leave_through_it() {
        let mut counters = BTreeMap::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        assert!(!has_sent("lo", &mut counters), "nothing is known before the first round");
        TcpStream::connect(address).await.unwrap();
        assert!(has_sent("lo", &mut counters));
        assert!(!has_sent("no-such-interface", &mut counters));
    }
}
