//! The agent's side: a socket that only root may use, one task per call, and the upkeep of the journal.

use super::protocol::{NEWEST, OLDEST, Question, Reply, body_length, frame};
use super::scope::only_for_the_plugin;
use crate::context::Context;
use crate::error::{CniError, code};
use crate::host;
use crate::journal::Journal;
use crate::pending;
use crate::request::Request;
use crate::run::{execute, outcome_of};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::{UnixListener, UnixStream};

/// How long a plugin may take to send its question.
const QUESTION_PATIENCE: Duration = Duration::from_secs(10);
/// How often a journal that is not empty is checked.
const UPKEEP: Duration = Duration::from_secs(30);
/// How many releases are carried out in one batch.
const MANY: usize = 1000;

/// The agent's state, shared by all calls. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AgentState {
    work: Arc<RwLock<Work>>,
}

#[derive(Debug)]
enum Work {
    /// The agent cannot work yet, for this reason.
    Starting(String),
    /// The agent can work with these connections.
    Ready(Box<Context>),
}

impl AgentState {
    /// An agent that is still waiting for something.
    pub fn starting(waiting_for: impl Into<String>) -> Self {
        Self::new(Work::Starting(waiting_for.into()))
    }

    /// An agent that can work.
    #[must_use]
    pub fn ready(context: Context) -> Self {
        Self::new(Work::Ready(Box::new(context)))
    }

    fn new(work: Work) -> Self {
        Self { work: Arc::new(RwLock::new(work)) }
    }

    /// Lets the agent work from now on.
    pub fn set_ready(&self, context: Context) {
        *self.work.write().unwrap_or_else(PoisonError::into_inner) = Work::Ready(Box::new(context));
    }

    fn context(&self) -> Result<Context, String> {
        match &*self.work.read().unwrap_or_else(PoisonError::into_inner) {
            Work::Starting(waiting_for) => Err(waiting_for.clone()),
            Work::Ready(context) => Ok(Context::clone(context)),
        }
    }
}

/// Listens on a socket that only root can open. A stale socket file is replaced.
///
/// # Errors
/// When another process listens there, or the file cannot be created.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    daemon::sockets::listen(path, 0o600).map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen at {}: {error}", path.display()))
    })
}

/// Serves calls until the future is dropped, and carries out releases that are due.
///
/// # Errors
/// When the socket fails.
pub async fn serve(listener: UnixListener, state: AgentState) -> io::Result<()> {
    let upkeep = tokio::spawn(keep_up(state.clone()));
    let outcome = loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let state = state.clone();
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, &state).await {
                        tracing::warn!(%error, "could not answer a plugin's call");
                    }
                });
            }
            Err(error) if is_passing(&error) => {
                tracing::warn!(%error, "cannot accept a plugin's connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Err(error) => break Err(error),
        }
    };
    upkeep.abort();
    outcome
}

/// Whether accepting may succeed again: too many descriptors, or a plugin that went away while it waited.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::CONNABORTED | Errno::INTR | Errno::NOMEM)
    )
}

/// Carries out releases that are due. An empty journal is not checked again before something is written to it, so that
/// an idle node sleeps; entries that failed, or are not ours, are checked again and again.
async fn keep_up(state: AgentState) {
    loop {
        let Ok(context) = state.context() else {
            tokio::time::sleep(Duration::from_secs(1)).await;
            continue;
        };
        let journal = Journal::new(&context.paths.journal);
        // Watched before it is read, so that no write goes unseen in between.
        let watch = journal.watch();
        pending::carry_out(&context, MANY).await;
        match watch {
            Ok(mut watch) if journal.files().is_empty() => {
                if let Err(error) = watch.changed().await {
                    tracing::warn!(%error, "cannot watch the journal of releases; checking it periodically");
                    tokio::time::sleep(UPKEEP).await;
                }
            }
            _ => tokio::time::sleep(UPKEEP).await,
        }
    }
}

async fn answer(mut stream: UnixStream, state: &AgentState) -> io::Result<()> {
    // The kernel reports no process id for a plugin outside this container, which is not an error here.
    let uid = stream.peer_cred()?.uid();
    if uid != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("user {uid} may not use the agent"),
        ));
    }
    let asked = tokio::time::timeout(QUESTION_PATIENCE, read_question(&stream)).await;
    let (body, namespace) = asked.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    let reply = reply_to(&body, namespace, state).await;
    stream.write_all(&frame(&reply)?).await
}

async fn reply_to(body: &[u8], namespace: Option<OwnedFd>, state: &AgentState) -> Reply {
    let question: Question = match serde_json::from_slice(body) {
        Ok(question) => question,
        // A newer plugin may ask in a form that we cannot read, but the numbers stay where they are.
        Err(error) => match read_versions(body) {
            Some((oldest, _)) if oldest > NEWEST => {
                return Reply::OtherVersion { oldest: OLDEST, newest: NEWEST };
            }
            _ => return Reply::NotMine { reason: format!("the question cannot be read: {error}") },
        },
    };
    if !question.is_understood() {
        return Reply::OtherVersion { oldest: OLDEST, newest: NEWEST };
    }
    let context = match state.context() {
        Ok(context) => context,
        Err(waiting_for) => return Reply::NotReady { waiting_for },
    };
    let mut request = match Request::read(&question.environment, question.configuration.as_bytes()) {
        Ok(request) => request,
        Err(error) => return Reply::NotMine { reason: error.to_string() },
    };
    if !context.store.serves(&request.conf, &request.environment) {
        return Reply::NotMine { reason: "the configuration names another datastore".to_owned() };
    }
    if let Some(reason) = only_for_the_plugin(question.program, &request) {
        return Reply::NotMine { reason };
    }
    if !host::knows_its_node(&request.conf, &context.paths) {
        return Reply::NotMine {
            reason: "the node's name is not known here; it may be the host's own".to_owned(),
        };
    }
    if question.has_namespace && namespace.is_none() {
        return Reply::NotMine { reason: "the network namespace was not passed along".to_owned() };
    }
    request.netns_file = namespace;
    request.opens_path = false;
    let version = request.conf.cni_version.clone();
    // In a task of its own: a plugin that goes away during the call must not leave half an ADD behind.
    let program = question.program;
    let work = tokio::spawn(async move { execute(program, &context, &request).await });
    let result = match work.await {
        Ok(result) => result,
        Err(error) => Err(CniError::new(code::INTERNAL, format!("the agent failed: {error}"))),
    };
    Reply::from(outcome_of(result, &version))
}

/// The version numbers of a question, whatever its form.
fn read_versions(body: &[u8]) -> Option<(u32, u32)> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let number = |name: &str| value.get(name)?.as_u64().and_then(|number| u32::try_from(number).ok());
    Some((number("oldest")?, number("newest")?))
}

/// Reads one frame and the descriptor that comes with it.
async fn read_question(stream: &UnixStream) -> io::Result<(Vec<u8>, Option<OwnedFd>)> {
    let mut namespace = None;
    let mut bytes: Vec<u8> = Vec::new();
    let mut wanted = None;
    while wanted.is_none_or(|wanted| bytes.len() < wanted) {
        let mut part = [0; 16 * 1024];
        let count = stream
            .async_io(Interest::READABLE, || {
                let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
                let mut control = RecvAncillaryBuffer::new(&mut space);
                let received = recvmsg(
                    stream,
                    &mut [IoSliceMut::new(&mut part)],
                    &mut control,
                    RecvFlags::CMSG_CLOEXEC,
                )?;
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                        namespace = descriptors.last().or(namespace.take());
                    }
                }
                Ok(received.bytes)
            })
            .await?;
        if count == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
        }
        bytes.extend_from_slice(&part[..count]);
        if wanted.is_none()
            && let Some(header) = bytes.first_chunk::<4>()
        {
            wanted = Some(4 + body_length(*header)?);
        }
    }
    bytes.drain(..4);
    Ok((bytes, namespace))
}
