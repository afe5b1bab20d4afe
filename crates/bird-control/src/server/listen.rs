//! The socket: greets, reads a line, queries the speaker, writes the answer.
//!
//! Only root may connect, as with BIRD's own socket. A client that sends a long line or stays silent for long is
//! disconnected; excess clients are refused, so that they cannot exhaust the speaker's memory.

use super::{Facts, Question, Refusal, answer, greeting};
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

/// The maximum length of a client's line.
const LONGEST_LINE: u64 = 1024;

/// The maximum number of concurrent clients.
const CLIENTS: usize = 32;

/// How long a client may be silent, or take to read.
const PATIENCE: Duration = Duration::from_secs(600);

/// The provider of facts.
pub trait Speaker: Send + Sync + 'static {
    /// The version in the greeting, such as `v1.2.3+tortie`.
    fn version(&self) -> String;

    /// The facts for a question. [`Facts::Ending`] if the speaker has ended.
    fn facts(&self, question: &Question) -> impl Future<Output = Facts> + Send;
}

/// Why the socket cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen for BIRD's clients on {}: {reason}", path.display())]
pub struct ListenError {
    path: PathBuf,
    #[source]
    reason: io::Error,
}

/// Answers clients on this socket for as long as the future runs. A socket left by an earlier process is replaced.
///
/// # Errors
/// When the socket cannot be created.
pub async fn listen(path: &Path, speaker: impl Speaker) -> Result<(), ListenError> {
    let failed = |reason| ListenError { path: path.to_owned(), reason };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let listener = daemon::sockets::take_over(path, 0o660).map_err(failed)?;
    let speaker = Arc::new(speaker);
    let slots = Arc::new(Semaphore::new(CLIENTS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(slot) = slots.clone().try_acquire_owned() else { continue };
                let speaker = speaker.clone();
                tokio::spawn(async move {
                    // An error on a client's connection affects no other client.
                    let _ = serve(stream, &*speaker).await;
                    drop(slot);
                });
            }
            // Out of file descriptors: the next attempt may succeed.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn serve(stream: UnixStream, speaker: &impl Speaker) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    stream.write_all(greeting(&speaker.version()).as_bytes()).await?;
    loop {
        let mut line = Vec::new();
        let mut limited = (&mut stream).take(LONGEST_LINE);
        let read = limited.read_until(b'\n', &mut line);
        let count = tokio::time::timeout(PATIENCE, read).await.map_err(io::Error::from)??;
        if count == 0 {
            return Ok(());
        }
        if line.last() != Some(&b'\n') {
            let refusal = Refusal { code: 9000, message: "Command too long".to_owned() };
            stream.write_all(answer(&Err(refusal), &Facts::None).as_bytes()).await?;
            return Ok(());
        }
        let question = Question::parse(&String::from_utf8_lossy(&line));
        let facts = match &question {
            Ok(question) => speaker.facts(question).await,
            Err(_) => Facts::None,
        };
        let text = answer(&question, &facts);
        drop(facts);
        tokio::time::timeout(PATIENCE, stream.write_all(text.as_bytes()))
            .await
            .map_err(io::Error::from)??;
    }
}
