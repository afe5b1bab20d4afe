//! The one session that serves all requests, and how another one takes its place.
//!
//! A session is a connection to one member, logged in where there is a user. When it fails it is given up and the next
//! request makes a new one: with whichever member answers first, beginning after the one that failed, and with the
//! certificates that the files hold by then. Where there are several members, one counts as answering only when it has
//! read something with the consent of the others: a frozen member, or one that is cut off, does not win.

use super::config::{EtcdConfig, Member};
use super::dial::{self, Address, STAGGER};
use super::status::{Failure, connect_cause, failure, is_auth_not_enabled, needs_login};
use super::transport::TransportError;
use crate::error::Result as StoreResult;
use crate::secret::Secret;
use etcd_api::Client;
use etcd_api::etcdserverpb::RangeRequest;
use std::error::Error as _;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tonic::Status;

/// How long a member may take for everything until it counts as answering.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to one member.
pub(super) struct Session {
    client: Client,
    user: Option<(String, Secret)>,
    /// Which member.
    member: usize,
}

/// All members, and the session with one of them, once there is one.
pub(super) struct Sessions {
    config: EtcdConfig,
    members: Vec<Member>,
    /// Which members ever answered anything.
    answered: Vec<AtomicBool>,
    slot: Mutex<Slot>,
    /// The member that is tried first.
    first: AtomicUsize,
    /// How often dialling has begun.
    dialled: AtomicU64,
}

/// The session, or why the last attempt to make one failed.
#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    failure: Option<TransportError>,
}

impl Sessions {
    /// Checks the settings.
    pub(super) async fn new(config: &EtcdConfig) -> StoreResult<Self> {
        let members = config.members().await?;
        // All programs have the same list. Each begins somewhere else, so that the first member does not serve everybody.
        let random = RandomState::new().hash_one(std::process::id());
        let first = usize::try_from(random % members.len().max(1) as u64).unwrap_or_default();
        Ok(Self {
            config: config.clone(),
            answered: members.iter().map(|_| AtomicBool::new(false)).collect(),
            members,
            slot: Mutex::default(),
            first: AtomicUsize::new(first),
            dialled: AtomicU64::new(0),
        })
    }

    /// How many members there are.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// The session; a new one if there is none.
    pub(super) async fn current(&self) -> Result<Arc<Session>, TransportError> {
        let seen = self.dialled.load(Ordering::Acquire);
        let mut slot = self.slot.lock().await;
        if let Some(session) = &slot.session {
            return Ok(Arc::clone(session));
        }
        // Somebody else began after us and failed: the same again would make everybody wait for everybody.
        if let Some(failure) = &slot.failure
            && self.dialled.load(Ordering::Acquire) != seen
        {
            return Err(failure.clone());
        }
        self.dialled.fetch_add(1, Ordering::Release);
        // An attempt that its caller gives up is nobody else's failure.
        slot.failure = None;
        match self.dial().await {
            Ok(session) => {
                let session = Arc::new(session);
                self.first.store(session.member, Ordering::Relaxed);
                *slot = Slot { session: Some(Arc::clone(&session)), failure: None };
                Ok(session)
            }
            Err(failure) => {
                slot.failure = Some(failure.clone());
                Err(failure)
            }
        }
    }

    /// This session's member answered.
    pub(super) fn answered(&self, session: &Session) {
        self.answered[session.member].store(true, Ordering::Relaxed);
    }

    /// This session is of no use any more.
    pub(super) async fn lost(&self, session: &Arc<Session>) {
        let mut slot = self.slot.lock().await;
        if slot.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            slot.session = None;
            self.first.store((session.member + 1) % self.members.len(), Ordering::Relaxed);
        }
    }

    /// A request failed in a way that leaves open what became of it.
    pub(super) async fn failed(&self, session: &Arc<Session>, status: &Status) {
        // What the member itself said is not a fault of the connection. Another member may be better off, if there is one.
        if status.source().is_some() || self.members.len() > 1 {
            self.lost(session).await;
        }
    }

    /// What went wrong, with a guess where the member hangs up without ever having said a word.
    pub(super) fn explain(&self, session: &Session, text: &str) -> String {
        self.explain_member(session.member, text)
    }

    fn explain_member(&self, member: usize, text: &str) -> String {
        let Member { url, hint, .. } = &self.members[member];
        if hint.is_empty() || self.answered[member].load(Ordering::Relaxed) {
            return format!("{url}: {text}");
        }
        format!("{url}: {text} ({hint})")
    }

    /// A session with the first member that answers.
    async fn dial(&self) -> Result<Session, TransportError> {
        let count = self.members.len();
        let first = self.first.load(Ordering::Relaxed);
        let attempts = (0..count).map(|step| (first + step) % count).map(|member| async move {
            match tokio::time::timeout(DIAL_TIMEOUT, self.dial_member(member)).await {
                // A refusal is an answer, too.
                Ok(Err(Failure::Refused(error))) => Ok(Err(error)),
                Ok(Err(Failure::NotSent(text) | Failure::Unknown(text))) => Err((member, text)),
                Ok(Ok(session)) => Ok(Ok(session)),
                Err(_) => {
                    let text = format!("no answer within {} s", DIAL_TIMEOUT.as_secs());
                    Err((member, self.explain_member(member, &text)))
                }
            }
        });
        match dial::race(attempts, STAGGER).await {
            Ok(outcome) => outcome,
            Err(mut failures) => {
                failures.sort_unstable();
                let texts: Vec<String> = failures.into_iter().map(|(_, text)| text).collect();
                let text = format!("no etcd endpoint can be reached: {}", texts.join("; "));
                Err(TransportError::Unavailable(text))
            }
        }
    }

    async fn dial_member(&self, index: usize) -> Result<Session, Failure> {
        let member = &self.members[index];
        // A file that cannot be used now may be about to be replaced.
        let endpoint = self
            .config
            .endpoint(member)
            .map_err(|error| Failure::NotSent(daemon::causes(&error).to_string()))?;
        let channel = dial::connect(&endpoint, &member.address).await.map_err(|error| {
            let text = connect_cause(&error).unwrap_or_else(|| daemon::causes(&error).to_string());
            let hint = match member.address {
                Address::Unix(_) => " (is `tortie datastore` running?)",
                Address::Tcp { .. } => "",
            };
            Failure::NotSent(format!("{}: {text}{hint}", member.url))
        })?;
        let session = Session { client: Client::new(channel), user: self.config.user(), member: index };
        let answer = session.greet(self.members.len() > 1).await;
        answer.map_err(|status| match failure(&status) {
            Failure::Unknown(text) => Failure::Unknown(self.explain_member(index, &text)),
            Failure::NotSent(text) => Failure::NotSent(format!("{}: {text}", member.url)),
            refused => refused,
        })?;
        Ok(session)
    }
}

impl Session {
    /// Logs in, or (with `probe`) makes sure that the member can serve.
    async fn greet(&self, probe: bool) -> Result<(), Status> {
        if let Some((name, password)) = &self.user {
            match self.client.log_in(name, password.expose(), 0).await {
                Err(status) if is_auth_not_enabled(&status) => {}
                outcome => return outcome,
            }
        }
        if probe {
            let read = RangeRequest { key: "/calico/".into(), keys_only: true, ..RangeRequest::default() };
            if let Err(status) = self.client.kv.clone().range(read).await
                && !matches!(failure(&status), Failure::Refused(_))
            {
                return Err(status);
            }
        }
        Ok(())
    }

    /// Asks once; and once more as the user when the server does not, or no longer, know who asks.
    pub(super) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let seen = self.client.logins();
        match (request(self.client.clone()).await, &self.user) {
            // It was refused, so asking again does nothing twice.
            (Err(status), Some((name, password))) if needs_login(&status) => {
                self.client.log_in(name, password.expose(), seen).await?;
                request(self.client.clone()).await
            }
            (outcome, _) => outcome,
        }
    }
}
