//! Where flows come from: a trait with two implementations, a ring in this process and a Goldmane elsewhere.
//!
//! Times are as in Goldmane's requests: above zero seconds since 1970, below zero so long before now, zero for the beginning
//! of history (or now, where an end is meant).

mod goldmane;
mod local;

pub use goldmane::Goldmane;
pub use local::{Local, SharedRing};

use flows::query::{Filter, HintType, Page};
use flows::{Action, Counters, FlowKey, Labels, Trace};
use futures::stream::BoxStream;
use std::sync::Arc;

/// A flow over some time.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The number of its key.
    pub id: u64,
    /// What it is.
    pub key: Arc<FlowKey>,
    /// The labels that all sources had.
    pub source_labels: Labels,
    /// The labels that all destinations had.
    pub dest_labels: Labels,
    /// When it began.
    pub start: i64,
    /// When it ended.
    pub end: i64,
    /// The figures.
    pub counters: Counters,
}

impl Flow {
    /// What the packets' fate would be with staged policies, where that is known.
    #[must_use]
    pub fn would(&self) -> Option<Action> {
        would(&self.key.trace)
    }
}

/// The last decision of the pending trace that ends it.
fn would(trace: &Trace) -> Option<Action> {
    let decides = |action: &Action| matches!(action, Action::Allow | Action::Deny);
    trace.pending.iter().rev().map(|hit| hit.action).find(decides)
}

/// The order of a list, by Goldmane's names. Types are names that it knows and refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// The newest first.
    #[default]
    Time,
    /// By the destination's name.
    DestName,
    /// By its namespace.
    DestNamespace,
    /// By its type.
    DestType,
    /// By the source's name.
    SourceName,
    /// By its namespace.
    SourceNamespace,
    /// By its type.
    SourceType,
}

/// Which flows are wanted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListQuery {
    /// At or after this time.
    pub gte: i64,
    /// Before this time.
    pub lt: i64,
    /// The order; only the first counts.
    pub sort: Vec<SortBy>,
    /// Which of them.
    pub filter: Filter,
}

/// Which values of a field are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct HintsQuery {
    /// Of which field.
    pub of: HintType,
    /// Of which flows.
    pub filter: Filter,
    /// Which page.
    pub page: Page,
}

/// From where a stream begins.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamQuery {
    /// At or after this time; zero for no history.
    pub gte: i64,
    /// What the last stream of this reader got to, to go on from there. A place of another process counts as none.
    pub resume: Option<String>,
    /// Which flows.
    pub filter: Filter,
}

/// Some results, and how many pages there are of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<T> {
    /// How many pages.
    pub total_pages: u64,
    /// Those of this page.
    pub items: Vec<T>,
}

/// Flows that came at once. A flow with the same id and the same start replaces what came before.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The flows.
    pub flows: Vec<Flow>,
    /// The place to go on from after a broken connection, once all of these have arrived.
    pub place: String,
    /// Whether it does not go on from what the reader has: that is to be forgotten first, as numbers may mean other flows.
    pub is_fresh: bool,
}

/// Batches, until the source breaks off.
pub(crate) type Batches = BoxStream<'static, Result<Batch, SourceError>>;

/// Something that was not counted, or not shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// On which node; empty for the source itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// What, in words.
    pub what: &'static str,
    /// How often: in the last hour, where nodes tell it.
    pub count: u64,
}

/// A node that says nothing any more: its flows may be missing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SilentNode {
    /// The node, by its name in Calico.
    pub node: String,
    /// For how many seconds.
    pub age: i64,
}

/// How the source is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Which source, in words.
    pub name: String,
    /// Why it does not answer.
    pub problem: Option<String>,
    /// The newest time that data is there for.
    pub newest: Option<i64>,
    /// Flows that came in so far, where that is known.
    pub received: Option<u64>,
    /// Distinct flows, where that is known.
    pub keys: Option<u64>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// How many nodes tell what they lost, where that is known.
    pub nodes: Option<u64>,
    /// Those of them that say nothing any more.
    pub silent: Vec<SilentNode>,
}

/// Why a source does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// What was asked for cannot be.
    #[error("{0}")]
    Refused(String),
    /// It cannot be reached, or broke off.
    #[error("{0}")]
    Away(String),
}

/// Where flows come from.
#[async_trait::async_trait]
pub trait Source: Send + Sync + 'static {
    /// Flows of a time, one per key.
    async fn list(&self, query: ListQuery) -> Result<Found<Flow>, SourceError>;

    /// Values of a field.
    async fn hints(&self, query: HintsQuery) -> Result<Found<String>, SourceError>;

    /// Flows bucket by bucket, each when its time is over, as Goldmane sends them.
    async fn buckets(&self, query: StreamQuery) -> Result<Batches, SourceError>;

    /// Flows as soon as they are known.
    async fn live(&self, query: StreamQuery) -> Result<Batches, SourceError>;

    /// How it is.
    async fn state(&self) -> SourceState;
}
