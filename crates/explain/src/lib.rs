//! Who may talk to whom, and which rule decides: an evaluator that is as simple as possible.
//!
//! ```text
//! resources, manifests ─► Cluster ─► World (labels, owners of addresses, policies in order)
//!                                      │
//! "from" and "to" ─► party ─► Flow ─► route: which endpoints the packet meets, and where
//!                                      │
//!                               walk: tier by tier, rule by rule ─► clauses: does it match, and if not, why
//!                                      │
//!                                 Explanation ─► text, JSON, matrix, test report
//! ```
//!
//! It is the oracle for the calculation graph and the rendered rules, so it shares only types and the selector parser
//! with them: it reads the resources that users write, knows no IP sets, no chains and no marks, and has no state.
//!
//! It does no IO, has no clock, is not async and does not guess. Assumptions (an address for a pod that has none yet)
//! are listed in the explanation.

mod analyze;
mod clauses;
mod cluster;
mod counted;
mod junit;
mod kubernetes_policy;
mod manifest;
mod matrix;
mod page;
mod party;
mod report;
mod route;
mod selected;
mod selection;
mod settings;
mod test_file;
mod text;
mod walk;
mod world;

pub use analyze::{Addresses, Analysis, Finding, PoolRoom, Severity, analyze};
pub use cluster::Cluster;
pub use counted::counted;
pub use junit::to_junit;
pub use kubernetes_policy::strict_kubernetes_policy;
pub use manifest::ManifestError;
pub use matrix::{Cell, Matrix, MatrixOptions, matrices, matrix};
pub use page::{Page, PageCell, PageColumn, PageRow, Sign, escaped};
pub use party::{Protocol, Query, QueryError};
pub use report::{
    Direction, Explanation, FlowReport, Hook, Outcome, PolicyReport, RuleReport, Stage, TierReport, Verdict,
};
pub use selected::Applying;
pub use settings::{NodeSettings, ToHost};
pub use test_file::{CaseReport, Expectation, ExpectationError, Expectations, TestReport, test_file};
pub use world::World;

/// Explains what happens to the packets of a query.
///
/// # Errors
/// When the query names something that is not in the cluster.
pub fn evaluate(cluster: &Cluster, query: &Query) -> Result<Explanation, QueryError> {
    World::new(cluster).explain(query)
}
