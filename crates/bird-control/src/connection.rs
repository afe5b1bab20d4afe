//! A connection to a BIRD: lines out, lines in, with limits on time and size.

use crate::BirdError;
use model::IpVersion;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

/// How long BIRD may take for each line.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// The maximum size of an answer: enough for the full table of a large cluster, and a bound for an endless one.
const LONGEST_ANSWER: u64 = 64 << 20;

/// A connection.
pub(crate) struct Connection {
    reader: BufReader<tokio::io::Take<UnixStream>>,
}

impl Connection {
    /// Connects to the first socket that accepts a connection.
    pub(crate) async fn open(family: IpVersion, sockets: &[impl AsRef<Path>]) -> Result<Self, BirdError> {
        let mut reason = "no socket is known".to_owned();
        for socket in sockets {
            let path = socket.as_ref();
            match UnixStream::connect(path).await {
                Ok(stream) => return Ok(Self { reader: BufReader::new(stream.take(LONGEST_ANSWER)) }),
                Err(error) => {
                    reason = format!("dial unix {}: connect: {}", path.display(), go_reason(&error));
                }
            }
        }
        Err(BirdError::NotThere { family: family.number(), reason })
    }

    /// Sends a command.
    pub(crate) async fn send(&mut self, command: &str) -> Result<(), BirdError> {
        let line = format!("{command}\n");
        let stream = self.reader.get_mut().get_mut();
        match tokio::time::timeout(PATIENCE, stream.write_all(line.as_bytes())).await {
            Ok(outcome) => outcome.map_err(BirdError::Write),
            Err(_) => Err(BirdError::Late),
        }
    }

    /// Reads the next line; `None` at the end.
    pub(crate) async fn line(&mut self) -> Result<Option<String>, BirdError> {
        let mut line = Vec::new();
        let read = self.reader.read_until(b'\n', &mut line);
        let count = tokio::time::timeout(PATIENCE, read).await.map_err(|_| BirdError::Late)?;
        if count.map_err(BirdError::Read)? == 0 {
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// Sends a command and reads the whole answer, without BIRD's greeting. BIRD's refusals are errors.
    pub(crate) async fn ask(&mut self, command: &str) -> Result<Vec<String>, BirdError> {
        self.send(command).await?;
        let mut lines = Vec::new();
        while let Some(line) = self.line().await? {
            match line.as_bytes() {
                [b'8' | b'9', ..] => {
                    return Err(BirdError::Refused { command: command.to_owned(), line });
                }
                // The greeting is an answer without a command.
                [b'0', b'0', b'0', b'1', ..] => lines.push(line),
                // A code followed by a space (or nothing) ends an answer; one followed by a dash continues it.
                [a, b, c, d, rest @ ..]
                    if [a, b, c, d].iter().all(|byte| byte.is_ascii_digit())
                        && rest.first() != Some(&b'-') =>
                {
                    lines.push(line);
                    return Ok(lines);
                }
                _ => lines.push(line),
            }
        }
        Err(BirdError::Unknown(format!("BIRD ended its answer to '{command}' in the middle")))
    }
}

/// A line without its code, or without the space that repeats the previous code.
pub(crate) fn without_code(line: &str) -> &str {
    match line.strip_prefix(' ') {
        Some(rest) => rest,
        None => line.get(5..).unwrap_or_default(),
    }
}

/// Go's text for a system error: in lower case, without its number.
fn go_reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::UnixListener;

    /// A fake BIRD that answers successive lines with successive texts.
    async fn bird(answers: &'static [&'static str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("bird.ctl");
        let listener = UnixListener::bind(&path).expect("a socket");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            stream.write_all(b"0001 BIRD 1.6.8 ready.\n").await.expect("writing");
            for answer in answers {
                let mut command = [0; 256];
                let _ = stream.read(&mut command).await.expect("a command");
                stream.write_all(answer.as_bytes()).await.expect("writing");
            }
        });
        (folder, path)
    }

    #[tokio::test]
    async fn answers_end_where_bird_says() {
        let (_folder, path) = bird(&["1007-one\n two\n0000 \n", "1000-three\n0013 Daemon is up\n"]).await;
        let mut connection = Connection::open(IpVersion::V4, &[path]).await.expect("a connection");
        let lines = connection.ask("show route").await.expect("an answer");
        assert_eq!(lines, ["0001 BIRD 1.6.8 ready.", "1007-one", " two", "0000 "]);
        assert_eq!(
            connection.ask("show status").await.expect("an answer"),
            ["1000-three", "0013 Daemon is up"]
        );
    }

    #[tokio::test]
    async fn refusals_and_torn_answers_are_errors() {
        for (answer, expected) in [
            ("9001 syntax error\n", "BIRD refused 'show x': 9001 syntax error"),
            ("1007-one\n", "in the middle"),
        ] {
            let answers: &'static [&'static str] = Box::leak(Box::new([answer]));
            let (_folder, path) = bird(answers).await;
            let mut connection = Connection::open(IpVersion::V4, &[path]).await.expect("a connection");
            let error = connection.ask("show x").await.expect_err("no answer").to_string();
            assert!(error.contains(expected), "{error}");
        }
        let missing = Connection::open(IpVersion::V6, &["/nowhere/bird6.ctl"]).await.err().expect("no bird");
        assert_eq!(
            missing.to_string(),
            "unable to connect to BIRDv6 socket: dial unix /nowhere/bird6.ctl: connect: no such file or directory"
        );
    }
}
