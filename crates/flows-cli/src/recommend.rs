//! Recommends policies that allow what was recorded as allowed, and nothing else.
//!
//! - [`labels`]: selects workloads by labels. [`build`]: derives rules from flows. [`verify`]: checks with `explain`
//!   that every recorded flow is decided as it was. [`yaml`]: the file, with the flows that each rule is for.
//!
//! Only ends with labels get policies, and only for directions that were recorded. A connection that was recorded both
//! as allowed and as denied, at either end, is not allowed; the file notes that.

pub mod build;
pub mod labels;
pub mod verify;
pub mod yaml;

use crate::flow::Flow;
use build::Policy;
use labels::Detail;
use verify::Difference;

/// The settings of a recommendation.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only workloads of these namespaces get policies; all of them if empty.
    pub namespaces: Vec<String>,
    /// The tier of the policies.
    pub tier: String,
    /// Their order.
    pub order: u32,
}

/// The result.
#[derive(Clone, Debug)]
pub struct Recommendation {
    /// The policies, by namespace and name.
    pub policies: Vec<Policy>,
    /// Notes for the user about what could not be done.
    pub notes: Vec<String>,
    /// Flows that were recorded as allowed and stay so.
    pub allowed: usize,
    /// Flows that were recorded as denied and stay so.
    pub denied: usize,
    /// Flows that would be decided differently.
    pub differences: Vec<Difference>,
}

/// Recommends policies. First selects by few labels, then by all labels if few would allow something that was denied.
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
