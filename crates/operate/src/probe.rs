//! `tortie probe`: the two ends of a connection, for tests of a network from inside its pods. One end answers; the other tries
//! a list of targets over and over and prints what became of each, so that its log always has the newest answer.

use anyhow::Result;
use clap::Subcommand;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What is sent to whoever connects: a connection that something else answers does not count.
const GREETING: &[u8] = b"tortie\n";
/// How long a target may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(500);

/// Which end.
#[derive(Clone, Debug, Subcommand)]
pub enum ProbeCommand {
    /// Answer at a port.
    Serve {
        /// The port.
        #[arg(long, default_value_t = 8080)]
        port: u16,
    },
    /// Try targets over and over, and print a line for each: the round, the target, `reached` or `failed`.
    Watch {
        /// Hosts with ports.
        #[arg(required = true, value_name = "HOST:PORT")]
        targets: Vec<String>,
    },
}

/// Runs one end, for ever.
///
/// # Errors
/// When a port cannot be had, or nothing can be printed.
pub fn run(command: &ProbeCommand) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        // As the first process of a container it would not end by a signal that it does not ask for.
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
            // One socket for both versions where the machine has both.
            let listener = match TcpListener::bind(("::", *port)).await {
                Ok(listener) => listener,
                Err(_) => TcpListener::bind(("0.0.0.0", *port)).await?,
            };
            serve(&listener).await
        }
        ProbeCommand::Watch { targets } => {
            for round in 0_u64.. {
                for line in try_all(round, targets).await {
                    writeln!(std::io::stdout(), "{line}")?;
                }
                tokio::time::sleep(PAUSE).await;
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn serve(listener: &TcpListener) -> Result<ExitCode> {
    loop {
        // A client that went away before it was greeted is no concern of ours.
        if let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.write_all(GREETING).await;
        }
    }
}

/// Tries all targets at once; their lines come in the order in which they were given.
async fn try_all(round: u64, targets: &[String]) -> Vec<String> {
    let one = |target: &String| {
        let target = target.clone();
        async move {
            let word = if is_greeted(&target).await { "reached" } else { "failed" };
            format!("{round} {target} {word}")
        }
    };
    futures::future::join_all(targets.iter().map(one)).await
}

async fn is_greeted(target: &str) -> bool {
    let greeted = async {
        let mut stream = TcpStream::connect(target).await.ok()?;
        let mut answer = vec![0; GREETING.len()];
        stream.read_exact(&mut answer).await.ok()?;
        (answer == GREETING).then_some(())
    };
    matches!(tokio::time::timeout(PATIENCE, greeted).await, Ok(Some(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_greeting_is_what_counts() {
        let ours = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let at = |listener: &TcpListener| listener.local_addr().unwrap().to_string();
        let targets = [at(&ours), at(&other), at(&nobody)];
        drop(nobody);
        let server = tokio::spawn(async move { serve(&ours).await.map(drop) });
        let stranger = tokio::spawn(async move {
            while let Ok((mut stream, _)) = other.accept().await {
                let _ = stream.write_all(b"hello there\n").await;
            }
        });
        let lines = try_all(7, &targets).await;
        assert_eq!(
            lines,
            [
                format!("7 {} reached", targets[0]),
                format!("7 {} failed", targets[1]),
                format!("7 {} failed", targets[2]),
            ]
        );
        server.abort();
        stranger.abort();
    }
}
