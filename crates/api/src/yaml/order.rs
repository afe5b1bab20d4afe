//! The order of names in a map: letters after everything else, digits compared as numbers.

use serde_json::{Map, Value};
use std::cmp::Ordering;

/// The fields in the order in which they are written.
pub(super) fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut entries: Vec<_> = fields.iter().collect();
    entries.sort_by(|(one, _), (other, _)| natural(one, other));
    entries
}

fn natural(one: &str, other: &str) -> Ordering {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    for index in 0..one.len().min(other.len()) {
        let (a, b) = (one[index], other[index]);
        if a == b {
            continue;
        }
        match (a.is_alphabetic(), b.is_alphabetic()) {
            (true, true) => return a.cmp(&b),
            (true, false) => return Ordering::Greater,
            (false, true) => return Ordering::Less,
            (false, false) => {}
        }
        // Zeros only count after another digit of the same number.
        let started = (a == '0' || b == '0')
            && one[..index].iter().rev().take_while(|c| c.is_ascii_digit()).any(|digit| *digit != '0');
        let (a_value, a_end) = number(&one, index, started);
        let (b_value, b_end) = number(&other, index, started);
        return a_value.cmp(&b_value).then(a_end.cmp(&b_end)).then(a.cmp(&b));
    }
    one.len().cmp(&other.len())
}

/// The number that starts at `start`, and the position of its end.
fn number(text: &[char], start: usize, started: bool) -> (i64, usize) {
    let mut value = i64::from(started);
    let mut end = start;
    while let Some(digit) = text.get(end).and_then(|character| character.to_digit(10)) {
        value = value.wrapping_mul(10).wrapping_add(i64::from(digit));
        end += 1;
    }
    (value, end)
}
