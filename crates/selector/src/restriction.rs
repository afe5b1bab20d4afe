//! Necessary conditions for a match, per label.
//!
//! An index over many selectors asks "could this object, which has these labels, be matched?" before it evaluates
//! anything. The answer here is conservative: every reported restriction holds for every selected object, but one that
//! is hard to derive (below a negation, say) is left out.

use std::collections::{BTreeMap, BTreeSet};

use crate::Node;

/// The conditions that the labels of any selected object satisfy, by label name. Labels without a known restriction are
/// absent.
pub type LabelRestrictions = BTreeMap<Box<str>, LabelRestriction>;

/// What is known about one label of every object that a selector matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelRestriction {
    /// The label must be present, as in `has(a)` or `a == 'b'`.
    pub must_be_present: bool,
    /// The label must be absent, as in `!has(a)`.
    pub must_be_absent: bool,
    /// The label must have one of these values. `None` means that nothing is known about the value; an empty set
    /// means that the selector matches nothing, as `a == 'b' && a == 'c'` does.
    pub must_have_one_of_values: Option<BTreeSet<Box<str>>>,
}

impl LabelRestriction {
    /// Whether any object could satisfy this restriction.
    pub fn possible_to_satisfy(&self) -> bool {
        !(self.must_be_present && self.must_be_absent)
            && self.must_have_one_of_values.as_ref().is_none_or(|values| !values.is_empty())
    }

    /// Whether an object whose label has this value (or that lacks the label) satisfies the restriction.
    pub fn admits(&self, value: Option<&str>) -> bool {
        match value {
            None => !self.must_be_present && self.must_have_one_of_values.is_none(),
            Some(value) => {
                !self.must_be_absent
                    && self.must_have_one_of_values.as_ref().is_none_or(|values| values.contains(value))
            }
        }
    }

    fn present() -> Self {
        Self { must_be_present: true, ..Self::default() }
    }

    fn one_of(values: BTreeSet<Box<str>>) -> Self {
        Self { must_be_present: true, must_have_one_of_values: Some(values), ..Self::default() }
    }
}

pub(crate) fn of(node: &Node) -> LabelRestrictions {
    match node {
        Node::Has { label }
        | Node::Contains { label, .. }
        | Node::StartsWith { label, .. }
        | Node::EndsWith { label, .. } => single(label, LabelRestriction::present()),
        Node::Equal { label, value } => {
            single(label, LabelRestriction::one_of(BTreeSet::from([value.clone()])))
        }
        Node::In { label, values } => {
            single(label, LabelRestriction::one_of(values.iter().cloned().collect()))
        }
        Node::Not(operand) => match &**operand {
            Node::Has { label } => {
                single(label, LabelRestriction { must_be_absent: true, ..Default::default() })
            }
            // `!(a == 'b')` does not forbid the label, and the other forms cannot be inverted either.
            _ => LabelRestrictions::new(),
        },
        Node::And(operands) => operands.iter().map(of).reduce(both).unwrap_or_default(),
        Node::Or(operands) => operands.iter().map(of).reduce(either).unwrap_or_default(),
        Node::All | Node::Global | Node::NotEqual { .. } | Node::NotIn { .. } => LabelRestrictions::new(),
    }
}

fn single(label: &str, restriction: LabelRestriction) -> LabelRestrictions {
    LabelRestrictions::from([(label.into(), restriction)])
}

/// Combines restrictions of which all hold. The smaller side is moved into the larger, which keeps a chain of merges
/// near linear however it is nested.
fn both(left: LabelRestrictions, right: LabelRestrictions) -> LabelRestrictions {
    let (mut merged, smaller) = if left.len() < right.len() { (right, left) } else { (left, right) };
    for (label, other) in smaller {
        let known = merged.entry(label).or_default();
        known.must_be_present |= other.must_be_present;
        known.must_be_absent |= other.must_be_absent;
        known.must_have_one_of_values =
            match (known.must_have_one_of_values.take(), other.must_have_one_of_values) {
                (Some(a), Some(b)) => Some(intersection(a, &b)),
                (a, b) => a.or(b),
            };
    }
    merged
}

/// Keeps only the restrictions that both sides require.
fn either(left: LabelRestrictions, right: LabelRestrictions) -> LabelRestrictions {
    let (smaller, mut larger) = if left.len() < right.len() { (left, right) } else { (right, left) };
    let mut common = LabelRestrictions::new();
    for (label, known) in smaller {
        let Some(other) = larger.remove(&label) else { continue };
        let must_be_present = known.must_be_present && other.must_be_present;
        let must_be_absent = known.must_be_absent && other.must_be_absent;
        let must_have_one_of_values = match (known.must_have_one_of_values, other.must_have_one_of_values) {
            (Some(a), Some(b)) if must_be_present => Some(union(a, b)),
            _ => None,
        };
        if must_be_present || must_be_absent {
            common
                .insert(label, LabelRestriction { must_be_present, must_be_absent, must_have_one_of_values });
        }
    }
    common
}

fn intersection(a: BTreeSet<Box<str>>, b: &BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
    a.into_iter().filter(|value| b.contains(value)).collect()
}

fn union(a: BTreeSet<Box<str>>, b: BTreeSet<Box<str>>) -> BTreeSet<Box<str>> {
    let (mut larger, smaller) = if a.len() < b.len() { (b, a) } else { (a, b) };
    larger.extend(smaller);
    larger
}
