//! Makes concurrent requests share one write.
//!
//! Requests of one owner for the same pools are in one lane, and a lane has one writer at a time. A request that finds
//! the lane free serves all requests waiting there: one change of the block, one handle for each. The others find their
//! answer when it is their turn to write.
//!
//! A writer may vanish halfway (its caller lost patience). Then it is unknown whether its write happened: the requests
//! that it was serving check whether they were served before they take anything.

use crate::assign::{Assignment, Context};
use crate::error::{Error, Result};
use crate::store::{IpamStore, lock};
use ipam_core::assignment::Job;
use ipam_core::{HostReserved, Owner};
use model::IpVersion;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

/// How many requests one write serves: transactions of etcd have at most 128 operations.
const MOST_AT_ONCE: usize = 100;

/// Identifies requests that can be served together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    pub(crate) owner: Owner,
    pub(crate) version: IpVersion,
    pub(crate) pools: Vec<String>,
    pub(crate) max_blocks: u32,
    pub(crate) host_reserved: Option<HostReserved>,
}

/// All lanes in use.
#[derive(Default)]
pub(crate) struct Lanes(Mutex<BTreeMap<LaneKey, Arc<Lane>>>);

#[derive(Default)]
struct Lane {
    writer: tokio::sync::Mutex<()>,
    waiting: Mutex<VecDeque<Arc<Slot>>>,
}

/// One request and its state.
struct Slot(Mutex<State>);

enum State {
    Waiting(Box<(Job, Arc<Context>)>),
    /// A writer is serving it.
    Served,
    Answered(Box<(Job, Result<Vec<String>>)>),
    /// The caller no longer wants the answer.
    Gone,
}

impl Lanes {
    /// Serves a request, together with others that wait in the same lane. Returns what it got, and messages if that is
    /// less than it wanted.
    pub(crate) async fn serve(
        &self,
        store: &IpamStore,
        key: &LaneKey,
        job: Job,
        context: Arc<Context>,
    ) -> (Job, Result<Vec<String>>) {
        let lane = self.lane(key);
        let answer = lane.serve(store, job, context).await;
        self.leave(key, lane);
        answer
    }

    fn lane(&self, key: &LaneKey) -> Arc<Lane> {
        Arc::clone(lock(&self.0).entry(key.clone()).or_default())
    }

    /// Removes a lane that is no longer used.
    fn leave(&self, key: &LaneKey, lane: Arc<Lane>) {
        let mut lanes = lock(&self.0);
        drop(lane);
        if lanes.get(key).is_some_and(|lane| Arc::strong_count(lane) == 1) {
            lanes.remove(key);
        }
    }
}

impl Lane {
    async fn serve(&self, store: &IpamStore, job: Job, context: Arc<Context>) -> (Job, Result<Vec<String>>) {
        if job.limit > 0 {
            // First what its handle already decides, which does not concern other requests.
            let _writer = self.writer.lock().await;
            let mut jobs = [job];
            let outcome = Assignment { store, context: &context }.serve(&mut jobs).await;
            let [job] = jobs;
            return (job, outcome);
        }
        let slot = Arc::new(Slot(Mutex::new(State::Waiting(Box::new((job, context))))));
        let place = Place { lane: self, slot: Arc::clone(&slot) };
        lock(&self.waiting).push_back(Arc::clone(&slot));
        let _writer = self.writer.lock().await;
        if let Some(answer) = place.answer() {
            return answer;
        }
        let mut batch = Batch::gather(self, &slot);
        let outcome = match batch.context.take() {
            Some(context) => Assignment { store, context: &context }.serve(&mut batch.jobs).await,
            None => Ok(Vec::new()),
        };
        batch.answer(outcome);
        place.answer().unwrap_or_else(|| (Job::default(), Err(Error::NoBlock)))
    }
}

/// A request's place in the queue; dropping it early removes the request.
struct Place<'a> {
    lane: &'a Lane,
    slot: Arc<Slot>,
}

impl Place<'_> {
    fn answer(&self) -> Option<(Job, Result<Vec<String>>)> {
        let mut state = lock(&self.slot.0);
        match std::mem::replace(&mut *state, State::Gone) {
            State::Answered(answer) => Some(*answer),
            other => {
                *state = other;
                None
            }
        }
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *lock(&self.slot.0) = State::Gone;
        lock(&self.lane.waiting).retain(|slot| !Arc::ptr_eq(slot, &self.slot));
    }
}

/// Requests that are being served.
struct Batch {
    slots: Vec<Arc<Slot>>,
    jobs: Vec<Job>,
    contexts: Vec<Arc<Context>>,
    /// The facts of the newest request: no request is served by facts that are older than itself.
    context: Option<Arc<Context>>,
    is_answered: bool,
}

impl Batch {
    /// Collects all waiting requests, always including the writer's own.
    fn gather(lane: &Lane, own: &Arc<Slot>) -> Self {
        let mut waiting = lock(&lane.waiting);
        waiting.retain(|slot| !Arc::ptr_eq(slot, own));
        let others = waiting.len().min(MOST_AT_ONCE - 1);
        let mut batch = Self {
            slots: Vec::new(),
            jobs: Vec::new(),
            contexts: Vec::new(),
            context: None,
            is_answered: false,
        };
        for slot in std::iter::once(Arc::clone(own)).chain(waiting.drain(..others)) {
            let mut state = lock(&slot.0);
            match std::mem::replace(&mut *state, State::Served) {
                State::Waiting(request) => {
                    let (job, context) = *request;
                    batch.jobs.push(job);
                    batch.contexts.push(context);
                    drop(state);
                    batch.slots.push(slot);
                }
                other => *state = other,
            }
        }
        batch.context = batch.contexts.last().cloned();
        batch
    }

    fn answer(&mut self, outcome: Result<Vec<String>>) {
        self.is_answered = true;
        let mut outcome = outcome.map_err(Arc::new);
        let is_alone = self.slots.len() == 1;
        for (slot, job) in self.slots.drain(..).zip(self.jobs.drain(..)) {
            let answer = match &outcome {
                // This job has all it wanted; that others did not get theirs is not its failure.
                _ if job.missing() == 0 => Ok(Vec::new()),
                Ok(messages) => Ok(messages.clone()),
                Err(_) if is_alone => std::mem::replace(&mut outcome, Ok(Vec::new())).map_err(unshared),
                Err(error) => Err(Error::Shared(Arc::clone(error))),
            };
            let mut state = lock(&slot.0);
            if matches!(*state, State::Served) {
                *state = State::Answered(Box::new((job, answer)));
            }
        }
    }
}

/// The error itself, if it is not shared.
fn unshared(error: Arc<Error>) -> Error {
    Arc::try_unwrap(error).unwrap_or_else(Error::Shared)
}

impl Drop for Batch {
    /// The writer vanished: all requests return to the queue, but may have been served; jobs remember what was
    /// attempted.
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let requests = self.jobs.drain(..).zip(self.contexts.drain(..));
        for (slot, (job, context)) in self.slots.drain(..).zip(requests) {
            let mut state = lock(&slot.0);
            if matches!(*state, State::Served) {
                *state = State::Waiting(Box::new((job, context)));
            }
        }
    }
}
