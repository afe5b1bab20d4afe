//! The plugin's side: asks the agent if there is one, waits for a limited time if it is starting.
//!
//! Blocks and needs no runtime, so that a plugin whose agent answers is done after one exchange on a socket.

use super::protocol::{NEWEST, OLDEST, Question, Reply, body_length, frame};
use super::scope::only_for_the_plugin;
use crate::host::HostPaths;
use crate::request::{Command, Request, is_passed};
use crate::run::Program;
use cni_protocol::Outcome;
use daemon::Backoff;
use netlink::namespace::Namespace;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{self, IoSlice, Read as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long an ADD waits for an agent that is starting; other commands wait a tenth of it.
const PATIENCE: Duration = Duration::from_secs(10);
/// The environment variable that sets another limit, in seconds.
const PATIENCE_VARIABLE: &str = "TORTIE_CNI_AGENT_TIMEOUT";
/// How long a call may take in the agent: longer than every limit within the agent.
const CALL_PATIENCE: Duration = Duration::from_secs(300);
const PAUSES: Backoff = Backoff::new(Duration::from_millis(10), Duration::from_millis(500));

/// The outcome of asking the agent.
#[derive(Debug)]
pub(crate) enum Reached {
    /// The agent did the work.
    Answered(Outcome),
    /// The plugin must do the work: there is no agent, or (with a reason) there should be one but it did not answer.
    Missed(Option<String>),
}

/// Why one attempt failed.
enum Attempt {
    /// There is no agent on this node.
    NoAgent,
    /// There may be an agent soon.
    Waiting(String),
    /// There is an agent, but asking again makes no sense.
    Refused(String),
}

/// Asks the agent to carry out a call.
#[must_use]
pub(crate) fn ask(program: Program, request: &Request, stdin: &[u8], paths: &HostPaths) -> Reached {
    let socket = match request.conf.agent_socket.as_str() {
        "none" => return Reached::Missed(None),
        "" => paths.agent_socket.clone(),
        other => PathBuf::from(other),
    };
    if let Some(reason) = only_for_the_plugin(program, request) {
        tracing::info!(%reason, "not for the agent; the plugin does it");
        return Reached::Missed(None);
    }
    // A missing namespace does not prevent DEL, and the agent reports it for ADD. A namespace that cannot be opened
    // must be reported by the plugin: the agent works only with what it is handed.
    let Ok(namespace) = request.namespace() else { return Reached::Missed(None) };
    let question = match question(program, request, stdin, namespace.is_some()) {
        Ok(question) => question,
        Err(error) => {
            tracing::info!(%error, "this call cannot be passed to the agent; the plugin does it");
            return Reached::Missed(None);
        }
    };
    let deadline = Instant::now() + patience(request);
    let mut backoff = PAUSES;
    loop {
        let reason = match attempt(&question, namespace.as_ref(), &socket) {
            Ok(outcome) => return Reached::Answered(outcome),
            Err(Attempt::NoAgent) => return Reached::Missed(None),
            Err(Attempt::Refused(reason)) => {
                tracing::info!(%reason, "the agent does not do this; the plugin does");
                return Reached::Missed(None);
            }
            Err(Attempt::Waiting(reason)) => reason,
        };
        let pause = backoff.pause();
        if Instant::now() + pause > deadline {
            let waited = patience(request).as_secs_f32();
            let reason =
                format!("the agent at {} did not answer within {waited} s: {reason}", socket.display());
            tracing::warn!(%reason, "working without the agent");
            return Reached::Missed(Some(reason));
        }
        std::thread::sleep(pause);
    }
}

fn patience(request: &Request) -> Duration {
    let configured = request.environment.get(PATIENCE_VARIABLE).and_then(|text| text.parse::<u64>().ok());
    let limit = configured.map_or(PATIENCE, Duration::from_secs);
    if request.command == Command::Add { limit } else { limit / 10 }
}

/// The whole question as a frame: built before connecting, so that the agent never waits for the rest of it.
fn question(program: Program, request: &Request, stdin: &[u8], has_namespace: bool) -> io::Result<Vec<u8>> {
    frame(&Question {
        oldest: OLDEST,
        newest: NEWEST,
        program,
        environment: request
            .environment
            .iter()
            .filter(|(name, _)| is_passed(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        configuration: String::from_utf8_lossy(stdin).into_owned(),
        has_namespace,
    })
}

fn attempt(question: &[u8], namespace: Option<&Namespace>, socket: &Path) -> Result<Outcome, Attempt> {
    let stream = UnixStream::connect(socket).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Attempt::NoAgent,
        // The file exists but nothing listens: an agent that has ended, or one that is starting.
        io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => Attempt::Waiting(error.to_string()),
        _ => Attempt::Refused(error.to_string()),
    })?;
    let reply = exchange(stream, question, namespace).map_err(|error| {
        // The agent disappeared during the call. Whatever it did is found again: ADD and DEL can be repeated.
        Attempt::Waiting(format!("the connection broke: {error}"))
    })?;
    match reply {
        Reply::Done { stdout, exit } => {
            Ok(Outcome { stdout: stdout.into_bytes(), stderr: String::new(), exit })
        }
        Reply::NotReady { waiting_for } => Err(Attempt::Waiting(format!("it is waiting for {waiting_for}"))),
        Reply::NotMine { reason } => Err(Attempt::Refused(reason)),
        Reply::OtherVersion { oldest, newest } => {
            Err(Attempt::Refused(format!("it speaks versions {oldest} to {newest} of the agent protocol")))
        }
    }
}

fn exchange(mut stream: UnixStream, question: &[u8], namespace: Option<&Namespace>) -> io::Result<Reply> {
    stream.set_read_timeout(Some(CALL_PATIENCE))?;
    stream.set_write_timeout(Some(CALL_PATIENCE))?;
    let sent = match namespace {
        Some(namespace) => {
            let descriptors = [namespace.file().as_fd()];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
            sendmsg(&stream, &[IoSlice::new(question)], &mut control, SendFlags::NOSIGNAL)?
        }
        None => 0,
    };
    stream.write_all(question.get(sent..).unwrap_or_default())?;
    let mut header = [0; 4];
    stream.read_exact(&mut header)?;
    let mut body = vec![0; body_length(header)?];
    stream.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(io::Error::from)
}
