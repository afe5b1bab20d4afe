//! The expression tree: its shape, its canonical text and its evaluation.
//!
//! Only the parser builds trees, and bounds their depth, so the recursion here (evaluation, writing, dropping) is
//! bounded by [`crate::MAX_NESTING`]. Nothing here simplifies an expression: the canonical form is Calico's, and Calico
//! keeps the structure as it was written.

use std::fmt::{self, Write as _};

use crate::Labels;

/// One node of a selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// `all()`, or an empty selector: always true.
    All,
    /// `global()`: always true; callers give it meaning where a namespace is selected.
    Global,
    /// `has(label)`: the label is present, whatever its value.
    Has {
        /// Name of the label.
        label: Box<str>,
    },
    /// `label == "value"`: present and equal.
    Equal {
        /// Name of the label.
        label: Box<str>,
        /// The value to equal.
        value: Box<str>,
    },
    /// `label != "value"`: absent, or present and different.
    NotEqual {
        /// Name of the label.
        label: Box<str>,
        /// The value to differ from.
        value: Box<str>,
    },
    /// `label contains "value"`: present, with this text somewhere in it.
    Contains {
        /// Name of the label.
        label: Box<str>,
        /// The text looked for.
        value: Box<str>,
    },
    /// `label starts with "value"`: present, with this prefix.
    StartsWith {
        /// Name of the label.
        label: Box<str>,
        /// The prefix.
        value: Box<str>,
    },
    /// `label ends with "value"`: present, with this suffix.
    EndsWith {
        /// Name of the label.
        label: Box<str>,
        /// The suffix.
        value: Box<str>,
    },
    /// `label in {"a", "b"}`: present, with one of these values.
    In {
        /// Name of the label.
        label: Box<str>,
        /// The values, sorted and without duplicates.
        values: Box<[Box<str>]>,
    },
    /// `label not in {"a", "b"}`: absent, or present with none of these values.
    NotIn {
        /// Name of the label.
        label: Box<str>,
        /// The values, sorted and without duplicates.
        values: Box<[Box<str>]>,
    },
    /// `!operand`.
    Not(Box<Node>),
    /// `(a && b && ...)`, at least two operands.
    And(Box<[Node]>),
    /// `(a || b || ...)`, at least two operands.
    Or(Box<[Node]>),
}

impl Node {
    /// Whether an object with these labels satisfies this node.
    pub fn evaluate(&self, labels: &(impl Labels + ?Sized)) -> bool {
        match self {
            Self::All | Self::Global => true,
            Self::Has { label } => labels.get(label).is_some(),
            Self::Equal { label, value } => labels.get(label) == Some(value),
            Self::NotEqual { label, value } => labels.get(label) != Some(value),
            Self::Contains { label, value } => labels.get(label).is_some_and(|have| have.contains(&**value)),
            Self::StartsWith { label, value } => {
                labels.get(label).is_some_and(|have| have.starts_with(&**value))
            }
            Self::EndsWith { label, value } => labels.get(label).is_some_and(|have| have.ends_with(&**value)),
            Self::In { label, values } => labels.get(label).is_some_and(|have| is_member(values, have)),
            Self::NotIn { label, values } => !labels.get(label).is_some_and(|have| is_member(values, have)),
            Self::Not(operand) => !operand.evaluate(labels),
            Self::And(operands) => operands.iter().all(|operand| operand.evaluate(labels)),
            Self::Or(operands) => operands.iter().any(|operand| operand.evaluate(labels)),
        }
    }

    /// The label that this node itself examines, if any.
    pub fn label(&self) -> Option<&str> {
        match self {
            Self::Has { label }
            | Self::Equal { label, .. }
            | Self::NotEqual { label, .. }
            | Self::Contains { label, .. }
            | Self::StartsWith { label, .. }
            | Self::EndsWith { label, .. }
            | Self::In { label, .. }
            | Self::NotIn { label, .. } => Some(label),
            Self::All | Self::Global | Self::Not(_) | Self::And(_) | Self::Or(_) => None,
        }
    }

    /// The nodes directly below this one, from left to right.
    pub fn operands(&self) -> &[Node] {
        match self {
            Self::Not(operand) => std::slice::from_ref(operand),
            Self::And(operands) | Self::Or(operands) => operands,
            _ => &[],
        }
    }

    /// This node and all below it, parents first, operands from left to right.
    pub fn nodes(&self) -> Nodes<'_> {
        Nodes { pending: vec![self] }
    }

    pub(crate) fn with_key_prefix(&self, prefix: &str) -> Self {
        let mut copy = self.clone();
        copy.add_key_prefix(prefix);
        copy
    }

    fn add_key_prefix(&mut self, prefix: &str) {
        match self {
            Self::Has { label }
            | Self::Equal { label, .. }
            | Self::NotEqual { label, .. }
            | Self::Contains { label, .. }
            | Self::StartsWith { label, .. }
            | Self::EndsWith { label, .. }
            | Self::In { label, .. }
            | Self::NotIn { label, .. } => *label = [prefix, label].concat().into(),
            Self::Not(operand) => operand.add_key_prefix(prefix),
            Self::And(operands) | Self::Or(operands) => {
                for operand in operands {
                    operand.add_key_prefix(prefix);
                }
            }
            Self::All | Self::Global => {}
        }
    }
}

fn is_member(values: &[Box<str>], have: &str) -> bool {
    values.binary_search_by(|value| (**value).cmp(have)).is_ok()
}

/// Writes the canonical form.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all()"),
            Self::Global => f.write_str("global()"),
            Self::Has { label } => {
                f.write_str("has(")?;
                f.write_str(label)?;
                f.write_char(')')
            }
            Self::Equal { label, value } => write_comparison(f, label, " == ", value),
            Self::NotEqual { label, value } => write_comparison(f, label, " != ", value),
            Self::Contains { label, value } => write_comparison(f, label, " contains ", value),
            Self::StartsWith { label, value } => write_comparison(f, label, " starts with ", value),
            Self::EndsWith { label, value } => write_comparison(f, label, " ends with ", value),
            Self::In { label, values } => write_membership(f, label, " in {", values),
            Self::NotIn { label, values } => write_membership(f, label, " not in {", values),
            Self::Not(operand) => {
                f.write_char('!')?;
                fmt::Display::fmt(operand, f)
            }
            Self::And(operands) => write_group(f, operands, " && "),
            Self::Or(operands) => write_group(f, operands, " || "),
        }
    }
}

fn write_comparison(f: &mut fmt::Formatter<'_>, label: &str, operator: &str, value: &str) -> fmt::Result {
    f.write_str(label)?;
    f.write_str(operator)?;
    write_quoted(f, value)
}

fn write_membership(
    f: &mut fmt::Formatter<'_>,
    label: &str,
    operator: &str,
    values: &[Box<str>],
) -> fmt::Result {
    f.write_str(label)?;
    f.write_str(operator)?;
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write_quoted(f, value)?;
    }
    f.write_char('}')
}

fn write_group(f: &mut fmt::Formatter<'_>, operands: &[Node], operator: &str) -> fmt::Result {
    f.write_char('(')?;
    for (index, operand) in operands.iter().enumerate() {
        if index > 0 {
            f.write_str(operator)?;
        }
        fmt::Display::fmt(operand, f)?;
    }
    f.write_char(')')
}

/// The grammar has no escapes, so a parsed value never contains both kinds of quote.
fn write_quoted(f: &mut fmt::Formatter<'_>, value: &str) -> fmt::Result {
    let quote = if value.contains('"') { '\'' } else { '"' };
    f.write_char(quote)?;
    f.write_str(value)?;
    f.write_char(quote)
}

/// Iterator over the nodes of an expression; see [`Node::nodes`].
#[derive(Clone, Debug)]
pub struct Nodes<'a> {
    pending: Vec<&'a Node>,
}

impl<'a> Iterator for Nodes<'a> {
    type Item = &'a Node;

    fn next(&mut self) -> Option<&'a Node> {
        let node = self.pending.pop()?;
        self.pending.extend(node.operands().iter().rev());
        Some(node)
    }
}
