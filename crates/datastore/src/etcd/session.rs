//! The session that serves all requests, and its replacement.
//!
//! A session is a connection to one member, logged in if there is a user. When it fails it is discarded and the next
//! request opens a new one: with whichever member answers first, starting after the one that failed, and with the
//! current certificate files. If there are several members, one counts as answering only when it has completed a read
//! confirmed by the others: a frozen or isolated member does not win.

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

/// How long a member may take in total until it counts as answering.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection to one member.
pub(super) struct Session {
    client: Client,
    user: Option<(String, Secret)>,
    /// The index of the member.
    member: usize,
}

/// All members, and the current session, if any.
pub(super) struct Sessions {
    config: EtcdConfig,
    members: Vec<Member>,
    /// Which members have ever answered anything.
    answered: Vec<AtomicBool>,
    slot: Mutex<Slot>,
    /// The member that is tried first.
    first: AtomicUsize,
    /// How many times dialling has started.
    dialled: AtomicU64,
}

/// The session, or why the last attempt to open one failed.
#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    failure: Option<TransportError>,
}

impl Sessions {
    /// Checks the settings.
    pub(super) async fn new(config: &EtcdConfig) -> StoreResult<Self> {
        let members = config.members().await?;
        // All programs have the same list. Each starts somewhere else, so that the first member does not serve them
        // all.
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

    /// The number of members.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// The current session; opens one if there is none.
    pub(super) async fn current(&self) -> Result<Arc<Session>, TransportError> {
        let seen = self.dialled.load(Ordering::Acquire);
        let mut slot = self.slot.lock().await;
        if let Some(session) = &slot.session {
            return Ok(Arc::clone(session));
        }
        // Another caller started after us and failed: retrying would make every caller wait for all the others.
        if let Some(failure) = &slot.failure
            && self.dialled.load(Ordering::Acquire) != seen
        {
            return Err(failure.clone());
        }
        self.dialled.fetch_add(1, Ordering::Release);
        // An attempt that its caller abandons is not a failure for others.
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

    /// Records that this session's member answered.
    pub(super) fn answered(&self, session: &Session) {
        self.answered[session.member].store(true, Ordering::Relaxed);
    }

    /// Discards this session, which is no longer usable.
    pub(super) async fn lost(&self, session: &Arc<Session>) {
        let mut slot = self.slot.lock().await;
        if slot.session.as_ref().is_some_and(|current| Arc::ptr_eq(current, session)) {
            slot.session = None;
            self.first.store((session.member + 1) % self.members.len(), Ordering::Relaxed);
        }
    }

    /// Handles a request that failed with an unknown outcome.
    pub(super) async fn failed(&self, session: &Arc<Session>, status: &Status) {
        // An error reported by the member itself is not a fault of the connection. Another member, if any, may be
        // better off.
        if status.source().is_some() || self.members.len() > 1 {
            self.lost(session).await;
        }
    }

    /// The error text, with a hint if the member closes connections without ever having answered.
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

    /// Opens a session with the first member that answers.
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
    /// Logs in, or (with `probe`) checks that the member can serve.
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

    /// Sends a request; and once more after logging in if the server does not, or no longer, recognise the user.
    pub(super) async fn ask<T, F>(&self, request: impl Fn(Client) -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let seen = self.client.logins();
        match (request(self.client.clone()).await, &self.user) {
            // It was refused, so repeating it does nothing twice.
            (Err(status), Some((name, password))) if needs_login(&status) => {
                self.client.log_in(name, password.expose(), seen).await?;
                request(self.client.clone()).await
            }
            (outcome, _) => outcome,
        }
    }
}
