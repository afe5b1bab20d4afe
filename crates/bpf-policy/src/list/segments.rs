//! The heads of a list's segments, and the rows of its ports.

use super::ListRule;
use super::ports::Values;
use crate::layout::{Action, Dimension, ListId, Row, RowKey, SEGMENT_RULES, Segment};

/// The segments of a list.
pub(super) fn segments(rules: &[ListRule]) -> Vec<Segment> {
    let dimensions = |rules: &[ListRule]| {
        Dimension::ALL
            .into_iter()
            .filter(|dimension| rules.iter().any(|rule| rule.conditions.has(*dimension)))
            .fold(0, |mask, dimension| mask | dimension.bit())
    };
    let list_dimensions = dimensions(rules);
    let count = rules.len().div_ceil(SEGMENT_RULES);
    let segment = |(number, rules): (usize, &[ListRule])| {
        let row = |is_set: &dyn Fn(&ListRule) -> bool| {
            let mut row = Row::default();
            rules.iter().enumerate().for_each(|(bit, rule)| row.set(bit, is_set(rule)));
            row
        };
        Segment {
            rules: u16::try_from(rules.len()).unwrap_or(u16::MAX),
            dimensions: dimensions(rules),
            list_dimensions,
            last: number + 1 == count,
            log: row(&|rule| rule.entry.action == Action::Log),
            defaults: Dimension::ALL.map(|dimension| row(&|rule| rule.conditions.by_default(dimension))),
        }
    };
    rules.chunks(SEGMENT_RULES).enumerate().map(segment).collect()
}

/// The rows of the values of the list's ports, where they differ from the default.
pub(super) fn port_rows(list: ListId, segments: &[Segment], values: &Values) -> Vec<(RowKey, Row)> {
    let mut rows = Vec::new();
    for (dimension, value, bits) in values.iter() {
        for (number, segment) in segments.iter().enumerate() {
            if segment.dimensions & dimension.bit() == 0 {
                continue;
            }
            let mut row = Row::default();
            let words = bits.iter().skip(number * row.0.len());
            row.0.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
            if row != segment.defaults[dimension.index()] {
                let segment = u16::try_from(number).unwrap_or(u16::MAX);
                let key = RowKey { list, value: u64::from(value), segment, dimension: dimension as u8 };
                rows.push((key, row));
            }
        }
    }
    rows
}
