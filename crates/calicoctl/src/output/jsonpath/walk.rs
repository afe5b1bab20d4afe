//! Finds the values of a path. A missing field is simply not found, never an error.

use super::parse::{Filter, Operand, Operator, Path, Step};
use serde_json::Value;
use std::cmp::Ordering;

/// The values that a path finds.
///
/// # Errors
/// When a condition compares values that have no order.
pub(super) fn find<'v>(path: &Path, root: &'v Value, current: &'v Value) -> Result<Vec<&'v Value>, String> {
    follow(&path.steps, root, vec![if path.from_root { root } else { current }])
}

fn follow<'v>(steps: &[Step], root: &'v Value, mut values: Vec<&'v Value>) -> Result<Vec<&'v Value>, String> {
    for step in steps {
        values = match step {
            Step::Field(name) => values.into_iter().filter_map(|value| value.get(name.as_str())).collect(),
            Step::Wildcard => values.into_iter().flat_map(children).collect(),
            Step::Recursive => {
                let mut all = Vec::new();
                values.into_iter().for_each(|value| descend(value, &mut all));
                all
            }
            Step::Slice { start, end, step, single } => {
                values.into_iter().flat_map(|value| cut(value, *start, *end, *step, *single)).collect()
            }
            Step::Union(paths) => {
                let mut all = Vec::new();
                for path in paths {
                    all.extend(follow(path, root, values.clone())?);
                }
                all
            }
            Step::Filter(filter) => {
                let mut kept = Vec::new();
                for value in values.into_iter().flat_map(elements) {
                    if holds(filter, root, value)? {
                        kept.push(value);
                    }
                }
                kept
            }
        };
    }
    Ok(values)
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

/// The values that a condition is applied to: the elements of a list.
fn elements(value: &Value) -> Vec<&Value> {
    value.as_array().map(|items| items.iter().collect()).unwrap_or_default()
}

fn descend<'v>(value: &'v Value, all: &mut Vec<&'v Value>) {
    all.push(value);
    for child in children(value) {
        descend(child, all);
    }
}

fn cut(value: &Value, start: Option<i64>, end: Option<i64>, step: usize, single: bool) -> Vec<&Value> {
    let items = elements(value);
    let length = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let place = |index: i64| if index < 0 { index + length } else { index };
    let from = place(start.unwrap_or(0));
    let to = if single { from.saturating_add(1) } else { place(end.unwrap_or(length)) };
    if from < 0 {
        return Vec::new();
    }
    let range = |index: i64| usize::try_from(index.clamp(0, length)).unwrap_or(0);
    let (from, to) = (range(from), range(to));
    if from >= to { Vec::new() } else { items[from..to].iter().step_by(step).copied().collect() }
}

fn holds(filter: &Filter, root: &Value, value: &Value) -> Result<bool, String> {
    let (left, operator, right) = match filter {
        Filter::Exists(operand) => return Ok(!side(operand, root, value)?.is_empty()),
        Filter::Compare(left, operator, right) => (left, operator, right),
    };
    let (left, right) = (side(left, root, value)?, side(right, root, value)?);
    // As in kubectl, a condition on a missing value does not hold.
    let (Some(left), Some(right)) = (left.first(), right.first()) else { return Ok(false) };
    Ok(match (operator, order(left, right)) {
        (Operator::Equal, ordering) => ordering == Some(Ordering::Equal) || left == right,
        (Operator::Unequal, ordering) => ordering != Some(Ordering::Equal) && left != right,
        (_, None) => return Err(format!("{left} and {right} cannot be compared by order")),
        (Operator::Less, Some(ordering)) => ordering.is_lt(),
        (Operator::LessOrEqual, Some(ordering)) => ordering.is_le(),
        (Operator::Greater, Some(ordering)) => ordering.is_gt(),
        (Operator::GreaterOrEqual, Some(ordering)) => ordering.is_ge(),
    })
}

fn side<'v>(operand: &'v Operand, root: &'v Value, value: &'v Value) -> Result<Vec<&'v Value>, String> {
    match operand {
        Operand::Literal(literal) => Ok(vec![literal]),
        Operand::Path(path) => find(path, root, value),
    }
}

/// The order of two numbers or two strings; other values have none.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Number(left), Value::Number(right)) => left.as_f64()?.partial_cmp(&right.as_f64()?),
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        _ => None,
    }
}
