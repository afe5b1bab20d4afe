//! Truth values, numbers, durations and choices.

use super::{Kind, Refusal, Surroundings};
use crate::go_numbers;
use crate::values::Interval;
use api::scalars::Dscp;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const BOOL: &str = "`true`, `1`, `yes`, `y`, `t`, or `false`, `0`, `no`, `n`, `f`, in any case";

fn parse_bool(text: &str) -> Result<bool, Refusal> {
    match text.to_lowercase().as_str() {
        "true" | "1" | "yes" | "y" | "t" => Ok(true),
        "false" | "0" | "no" | "n" | "f" => Ok(false),
        _ => Err(Refusal::value("invalid boolean")),
    }
}

/// A truth value.
pub(crate) struct Bool;

impl Kind for Bool {
    type Value = bool;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<bool, Refusal> {
        parse_bool(text)
    }

    fn accepts(&self) -> String {
        BOOL.to_owned()
    }
}

/// A truth value, or none.
pub(crate) struct OptionalBool;

impl Kind for OptionalBool {
    type Value = Option<bool>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<bool>, Refusal> {
        parse_bool(text).map(Some)
    }

    fn accepts(&self) -> String {
        BOOL.to_owned()
    }
}

/// An integer in any of these inclusive ranges.
pub(crate) struct Int(pub(crate) &'static [(i64, i64)]);

/// Any integer.
pub(crate) const ANY_INT: Int = Int(&[(i64::MIN, i64::MAX)]);

impl Kind for Int {
    type Value = i64;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<i64, Refusal> {
        let value = go_numbers::int(text).ok_or_else(|| Refusal::value("invalid int"))?;
        if self.0.iter().any(|(min, max)| (min..=max).contains(&&value)) {
            return Ok(value);
        }
        Err(Refusal::Value(match self.0 {
            [(min, _)] if value < *min => format!("value must be at least {min}"),
            [(_, max)] => format!("value must be at most {max}"),
            ranges => {
                let ranges = ranges
                    .iter()
                    .map(|(min, max)| if min == max { format!(" {min}") } else { format!(" {min}-{max}") });
                format!("value must be one of{}", ranges.collect::<String>())
            }
        }))
    }

    fn accepts(&self) -> String {
        let is_within = |(min, max): &(i64, i64), (from, to): &(i64, i64)| from <= min && max <= to;
        let told = self
            .0
            .iter()
            .enumerate()
            .filter(|(index, range)| !self.0[..*index].iter().any(|earlier| is_within(range, earlier)));
        let ranges = told.map(|(_, range)| match range {
            (i64::MIN, i64::MAX) => "an integer".to_owned(),
            (min, i64::MAX) => format!("an integer from {min}"),
            (min, max) => format!("an integer from {min} to {max}"),
        });
        ranges.collect::<Vec<_>>().join(", or ")
    }
}

/// A duration as a number without a unit.
pub(crate) struct Time {
    nanos_per_unit: f64,
    unit: &'static str,
}

/// In seconds.
pub(crate) const SECONDS: Time = Time { nanos_per_unit: 1e9, unit: "seconds" };
/// In milliseconds.
pub(crate) const MILLISECONDS: Time = Time { nanos_per_unit: 1e6, unit: "milliseconds" };

impl Kind for Time {
    type Value = Interval;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Interval, Refusal> {
        let number = go_numbers::float(text).ok_or_else(|| Refusal::value("invalid float"))?;
        let nanos = number * self.nanos_per_unit;
        // Beyond 63 bits Go's conversion yields the lowest number, which every parameter takes as "never".
        #[expect(clippy::cast_possible_truncation, reason = "Go cuts fractions of nanoseconds off too")]
        let nanos = if nanos.abs() < 9.2e18 { nanos as i64 } else { i64::MIN };
        Ok(Interval::from_nanos(nanos))
    }

    fn accepts(&self) -> String {
        format!("{}, with or without a fraction", self.unit)
    }
}

/// A mask of packet mark bits.
pub(crate) struct MarkMask;

/// Nothing works with fewer bits.
const MIN_MARK_BITS: u32 = 2;

impl Kind for MarkMask {
    type Value = u32;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<u32, Refusal> {
        let mask =
            go_numbers::uint32(text).ok_or_else(|| Refusal::value("invalid mark: should be 32-bit int"))?;
        if mask.count_ones() < MIN_MARK_BITS {
            return Err(Refusal::Value(format!("invalid mark: needs to have {MIN_MARK_BITS} bits set")));
        }
        Ok(mask)
    }

    fn accepts(&self) -> String {
        format!("32 bits, such as `0xffff0000`; at least {MIN_MARK_BITS} of them set")
    }
}

/// A differentiated services code point.
pub(crate) struct DscpKind;

impl Kind for DscpKind {
    type Value = u8;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<u8, Refusal> {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && let Ok(number @ 0..=63) = text.parse::<u8>() {
            return Ok(number);
        }
        Dscp::from_text(text).value().map_err(Refusal::Whole)
    }

    fn accepts(&self) -> String {
        "a number from 0 to 63, or a name such as `AF11` or `EF`".to_owned()
    }
}

/// An IPv4 address.
pub(crate) struct Ipv4;

impl Kind for Ipv4 {
    type Value = Option<Ipv4Addr>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<Ipv4Addr>, Refusal> {
        match address(text) {
            Some(IpAddr::V4(address)) => Ok(Some(address)),
            _ => Err(Refusal::value("not an IPv4 address")),
        }
    }

    fn accepts(&self) -> String {
        "an IPv4 address".to_owned()
    }
}

/// An IPv6 address.
pub(crate) struct Ipv6;

impl Kind for Ipv6 {
    type Value = Option<Ipv6Addr>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<Ipv6Addr>, Refusal> {
        match address(text) {
            Some(IpAddr::V6(address)) => Ok(Some(address)),
            _ => Err(Refusal::value("not an IPv6 address")),
        }
    }

    fn accepts(&self) -> String {
        "an IPv6 address".to_owned()
    }
}

/// Parses an address; an IPv4-mapped IPv6 address counts as IPv4.
fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

/// A closed list of words.
pub(crate) trait Choices: Copy + 'static {
    /// The words, in the spelling of the reference, with their values.
    fn choices() -> impl Iterator<Item = (&'static str, Self)>;
}

/// One of a closed list of words, in any case. The word `none` stands for `None`.
pub(crate) struct Choice<E>(PhantomData<E>);

/// Creates the kind [`Choice`].
pub(crate) const fn choice<E>() -> Choice<E> {
    Choice(PhantomData)
}

impl<E: Choices> Kind for Choice<E> {
    type Value = Option<E>;

    fn parse(&self, text: &str, _around: &dyn Surroundings) -> Result<Option<E>, Refusal> {
        let text = text.to_lowercase();
        let known = E::choices().find(|(word, _)| word.to_lowercase() == text);
        known.map(|(_, value)| Some(value)).ok_or_else(|| Refusal::value("unknown option"))
    }

    fn accepts(&self) -> String {
        let words: Vec<String> = E::choices().map(|(word, _)| format!("`{word}`")).collect();
        words.join(", ")
    }
}
