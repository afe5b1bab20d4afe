//! Ranges of ports and of route tables.

use super::{Kind, Refusal, Surroundings};
use crate::go_numbers;
use crate::values::{PortRange, RouteTableRange};
use api::scalars::Port;

/// A port, or a range of ports.
pub(crate) struct PortRangeKind;

impl Kind for PortRangeKind {
    type Value = Option<PortRange>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<PortRange>, Refusal> {
        port_range(text).map(Some)
    }

    fn accepts(&self) -> String {
        "a port, or two with `:` between".to_owned()
    }
}

/// A list of ports and ranges of ports.
pub(crate) struct PortRangeList;

impl Kind for PortRangeList {
    type Value = Vec<PortRange>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<PortRange>, Refusal> {
        text.split(',').map(port_range).collect()
    }

    fn accepts(&self) -> String {
        "ports, or pairs of them with `:` between, separated by commas".to_owned()
    }
}

fn port_range(text: &str) -> Result<PortRange, Refusal> {
    match Port::from_text(text) {
        Port::Range { min, max } if min <= max => Ok(PortRange { min, max }),
        Port::Named(_) => Err(Refusal::Value(format!("{text} has port name set"))),
        _ => Err(Refusal::Value(format!("{text} is not a valid port range"))),
    }
}

/// Route tables of the deprecated parameter: a range within 1 to 250.
pub(crate) struct TableRange;

impl Kind for TableRange {
    type Value = Option<RouteTableRange>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<RouteTableRange>, Refusal> {
        let digits = |part: &str| {
            let is_number = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<u32>().ok()).flatten()
        };
        let range = text
            .split_once('-')
            .and_then(|(min, max)| Some(RouteTableRange { min: digits(min)?, max: digits(max)? }));
        range
            .filter(|range| range.min >= 1 && range.max >= range.min && range.max <= 250)
            .map(Some)
            .ok_or_else(|| Refusal::value("must be a range of route table indices within 1-250"))
    }

    fn accepts(&self) -> String {
        "two numbers from 1 to 250 with `-` between".to_owned()
    }
}

/// Route tables: several ranges, together at most [`MAX_TABLES`].
pub(crate) struct TableRanges;

/// More tables would cost too much to maintain.
const MAX_TABLES: u64 = 0xffff;

impl Kind for TableRanges {
    type Value = Vec<RouteTableRange>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Vec<RouteTableRange>, Refusal> {
        let found = pairs_of_numbers(text);
        if found.is_empty() {
            return Err(Refusal::value("must be a list of route-table ranges"));
        }
        let mut tables: u64 = 0;
        let mut ranges = Vec::new();
        for (min, max) in found {
            let min = go_numbers::decimal(min).filter(|min| *min > 0);
            let min = min.ok_or_else(|| Refusal::value("min value is not a valid number"))?;
            let max = go_numbers::decimal(max);
            let max = max.ok_or_else(|| Refusal::value("max value is not a valid number"))?;
            if min > max {
                return Err(Refusal::value("min value is greater than max value"));
            }
            let (Ok(first), Ok(last)) = (u32::try_from(min), u32::try_from(max)) else {
                return Err(Refusal::value("max value is too high"));
            };
            tables = tables.saturating_add(u64::from(last - first) + 1);
            if tables > MAX_TABLES {
                return Err(Refusal::value("targets too many tables"));
            }
            ranges.push(RouteTableRange { min: first, max: last });
        }
        Ok(ranges)
    }

    fn accepts(&self) -> String {
        format!(
            "pairs of numbers with `-` between, separated by commas or spaces; at most {MAX_TABLES} tables"
        )
    }
}

/// Every `digits-digits` in a text, with anything between them.
fn pairs_of_numbers(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = text;
    loop {
        let Some(start) = rest.find(|character: char| character.is_ascii_digit()) else { return found };
        rest = &rest[start..];
        let (min, after) = split_digits(rest);
        match after.strip_prefix('-').map(split_digits) {
            Some((max, after)) if !max.is_empty() => {
                found.push((min, max));
                rest = after;
            }
            _ => rest = after,
        }
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|character: char| !character.is_ascii_digit()).unwrap_or(text.len()))
}
