//! The sources of flows: a trait with two implementations, a ring in this process and a remote Goldmane.
//!
//! Times are as in Goldmane's requests: positive values are seconds since 1970, negative ones are relative to now, and
//! zero is the beginning of history (or now, for an end).

mod goldmane;
mod local;

pub use goldmane::Goldmane;
pub use local::{Local, SharedRing};

use flows::query::{Filter, HintType, Page};
use flows::{Action, Counters, FlowKey, Labels, Trace};
use futures::stream::BoxStream;
use std::sync::Arc;

/// A flow over some period.
#[derive(Clone, Debug, PartialEq)]
pub struct Flow {
    /// The number of its key.
    pub id: u64,
    /// The flow's identity.
    pub key: Arc<FlowKey>,
    /// The labels that all sources have in common.
    pub source_labels: Labels,
    /// The labels that all destinations have in common.
    pub dest_labels: Labels,
    /// When it began, in seconds since 1970.
    pub start: i64,
    /// When it ended, in seconds since 1970.
    pub end: i64,
    /// Packets, bytes and connections.
    pub counters: Counters,
}

impl Flow {
    /// The packets' fate if staged policies were enforced, if known.
    #[must_use]
    pub fn would(&self) -> Option<Action> {
        would(&self.key.trace)
    }
}

/// The last final decision of the pending trace.
fn would(trace: &Trace) -> Option<Action> {
    let decides = |action: &Action| matches!(action, Action::Allow | Action::Deny);
    trace.pending.iter().rev().map(|hit| hit.action).find(decides)
}

/// The order of a list, by Goldmane's names. Goldmane knows sorting by type, but refuses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// The newest first.
    #[default]
    Time,
    /// By the destination's name.
    DestName,
    /// By the destination's namespace.
    DestNamespace,
    /// By the destination's type.
    DestType,
    /// By the source's name.
    SourceName,
    /// By the source's namespace.
    SourceNamespace,
    /// By the source's type.
    SourceType,
}

/// A query for flows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListQuery {
    /// From this time on.
    pub gte: i64,
    /// Before this time.
    pub lt: i64,
    /// The order; only the first one is used.
    pub sort: Vec<SortBy>,
    /// The conditions on flows.
    pub filter: Filter,
}

/// A query for the values of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct HintsQuery {
    /// The field.
    pub of: HintType,
    /// The flows to search.
    pub filter: Filter,
    /// The page of the results.
    pub page: Page,
}

/// A query for a stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamQuery {
    /// From this time on; zero for no history.
    pub gte: i64,
    /// The place that the reader's last stream reached, to resume there. A place of another process is ignored.
    pub resume: Option<String>,
    /// The conditions on flows.
    pub filter: Filter,
}

/// Results of one page, with the number of pages.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<T> {
    /// The number of pages.
    pub total_pages: u64,
    /// The results of this page.
    pub items: Vec<T>,
}

/// Flows that arrived together. A flow with the same id and start replaces the earlier one.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// The flows.
    pub flows: Vec<Flow>,
    /// The place to resume from after a broken connection, once all flows of the batch have arrived.
    pub place: String,
    /// Whether this does not continue what the reader has: it must discard that first, as ids may mean other flows.
    pub is_fresh: bool,
}

/// Batches, until the source fails.
pub(crate) type Batches = BoxStream<'static, Result<Batch, SourceError>>;

/// Something that was not counted or not shown.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Loss {
    /// The node; empty for the source itself.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node: String,
    /// A description.
    pub what: &'static str,
    /// The count: of the last hour, for losses reported by nodes.
    pub count: u64,
}

/// A node that no longer reports: its flows may be missing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct SilentNode {
    /// The node, by its name in Calico.
    pub node: String,
    /// How many seconds ago it last reported.
    pub age: i64,
}

/// The state of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// A description of the source.
    pub name: String,
    /// Why it is not available, if so.
    pub problem: Option<String>,
    /// The newest time for which there is data.
    pub newest: Option<i64>,
    /// The number of flows received so far, if known.
    pub received: Option<u64>,
    /// The number of distinct flows, if known.
    pub keys: Option<u64>,
    /// What was lost.
    pub losses: Vec<Loss>,
    /// The number of nodes that report losses, if known.
    pub nodes: Option<u64>,
    /// Nodes that no longer report.
    pub silent: Vec<SilentNode>,
}

/// Why a source failed to answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The request is invalid.
    #[error("{0}")]
    Refused(String),
    /// The source cannot be reached, or the connection broke.
    #[error("{0}")]
    Away(String),
}

/// A source of flows.
#[async_trait::async_trait]
pub trait Source: Send + Sync + 'static {
    /// Flows of a period, one per key.
    async fn list(&self, query: ListQuery) -> Result<Found<Flow>, SourceError>;

    /// The values of a field.
    async fn hints(&self, query: HintsQuery) -> Result<Found<String>, SourceError>;

    /// Flows bucket by bucket, each once it is complete, as Goldmane sends them.
    async fn buckets(&self, query: StreamQuery) -> Result<Batches, SourceError>;

    /// Flows as soon as they are known.
    async fn live(&self, query: StreamQuery) -> Result<Batches, SourceError>;

    /// The source's state.
    async fn state(&self) -> SourceState;
}
