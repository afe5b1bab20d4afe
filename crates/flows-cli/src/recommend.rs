//! Policies that allow what was recorded as allowed, and nothing else.
//!
//! - [`labels`]: by which labels workloads are selected. [`build`]: rules from flows. [`verify`]: `explain` is asked whether
//!   every recorded flow is decided as it was. [`yaml`]: the file, with the flows that each rule is for.
//!
//! Only what is selected by labels gets policies, and only for directions that were recorded. A connection that was recorded as
//! allowed and as denied, at the same end or at the other one, is not allowed; the file says so.

pub mod build;
pub mod labels;
pub mod verify;
pub mod yaml;

use crate::flow::Flow;
use build::Policy;
use labels::Detail;
use verify::Difference;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only for workloads of these namespaces; all of them, if there are none.
    pub namespaces: Vec<String>,
    /// The tier of the policies.
    pub tier: String,
    /// Their order.
    pub order: u32,
}

/// What is recommended.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The policies, by namespace and name.
    pub policies: Vec<Policy>,
    /// What could not be done, for people.
    pub notes: Vec<String>,
    /// Flows that were recorded as allowed and stay so.
    pub allowed: usize,
    /// Flows that were recorded as denied and stay so.
    pub denied: usize,
    /// Flows that would be decided otherwise.
    pub differences: Vec<Difference>,
}

/// Recommends policies. Selects by few labels first, and by all of them where few would allow what was denied.
#[must_use]
pub fn recommend(flows: &[Flow], options: &Options) -> Recommendation {
    let mut made = attempt(flows, options, Detail::Usual);
    if !made.differences.is_empty() {
        let exact = attempt(flows, options, Detail::Every);
        if exact.differences.len() < made.differences.len() {
            made = exact;
        }
    }
    made
}

fn attempt(flows: &[Flow], options: &Options, detail: Detail) -> Recommendation {
    let labels = labels::Labelled::new(flows, detail);
    let (policies, notes) = build::policies(flows, &labels, options);
    let verified = verify::verify(flows, &policies, &labels, options);
    Recommendation {
        policies,
        notes,
        allowed: verified.allowed,
        denied: verified.denied,
        differences: verified.differences,
    }
}
