//! Numbers with special forms: AS numbers, DSCP values, and floats printed like Go's.

use super::int_or_string::{IntOrString, with_open_pattern};
use crate::schema::{READS, Schema, object};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use std::fmt;

/// The number of an autonomous system. Read from a number, its text, or the dotted form `high.low`; written as a number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ASNumber(pub u32);

impl ASNumber {
    /// Parses an AS number.
    ///
    /// # Errors
    /// A sentence saying what is wrong with the text.
    pub fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("invalid AS Number format ({text})");
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if digits(text) {
            return text.parse().map(Self).map_err(|_| wrong());
        }
        match text.split_once('.') {
            Some((high, low)) if digits(high) && digits(low) => {
                let high: u16 = high.parse().map_err(|_| wrong())?;
                let low: u16 = low.parse().map_err(|_| wrong())?;
                Ok(Self((u32::from(high) << 16) + u32::from(low)))
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for ASNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for ASNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match IntOrString::deserialize(deserializer)? {
            IntOrString::Int(number) => u32::try_from(number)
                .map(Self)
                .map_err(|_| de::Error::custom(format!("invalid AS Number ({number})"))),
            IntOrString::String(text) => Self::from_text(&text).map_err(de::Error::custom),
        }
    }
}

impl Schema for ASNumber {
    fn schema() -> Map<String, Value> {
        object(json!({"type": "integer", "format": "int32", READS: "as-number"}))
    }
}

/// A differentiated services code point: a number from 0 to 63, or one of the standard names in any case.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Dscp(IntOrString);

impl Dscp {
    const NAMES: [(&'static str, u8); 21] = [
        ("DF", 0),
        ("EF", 46),
        ("AF11", 10),
        ("AF12", 12),
        ("AF13", 14),
        ("AF21", 18),
        ("AF22", 20),
        ("AF23", 22),
        ("AF31", 26),
        ("AF32", 28),
        ("AF33", 30),
        ("AF41", 34),
        ("AF42", 36),
        ("AF43", 38),
        ("CS0", 0),
        ("CS1", 8),
        ("CS2", 16),
        ("CS3", 24),
        ("CS4", 32),
        ("CS5", 40),
        ("CS6", 48),
    ];

    /// Creates a code point from a number, which is not checked here.
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        Self(IntOrString::Int(number.into()))
    }

    /// Creates a code point from its text: a known name in its usual spelling, other text unchanged.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let known = Self::NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text));
        Self(IntOrString::from(known.map_or(text, |(name, _)| name)))
    }

    /// The value that goes into a packet.
    ///
    /// # Errors
    /// A sentence saying what is wrong.
    pub fn value(&self) -> Result<u8, String> {
        let number = match &self.0 {
            IntOrString::Int(number) => *number,
            IntOrString::String(text) => {
                let trimmed = text.trim();
                return Self::NAMES
                    .iter()
                    .find(|(name, _)| name.eq_ignore_ascii_case(trimmed))
                    .map(|(_, value)| *value)
                    .ok_or_else(|| format!("{text} is not a valid DSCP value"));
            }
        };
        match u8::try_from(number) {
            Ok(value) if value <= 63 => Ok(value),
            _ => Err("DSCP must be between 0 and 63".into()),
        }
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Dscp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = IntOrString::deserialize(deserializer)?;
        // Calico treats a number in quotes as a number, and writes it back as one.
        if let IntOrString::String(text) = &value
            && !text.is_empty()
            && text.bytes().all(|byte| byte.is_ascii_digit())
            && let Ok(number) = text.parse::<u8>()
        {
            return Ok(Self::from_number(number));
        }
        Ok(Self(value))
    }
}

impl Schema for Dscp {
    fn schema() -> Map<String, Value> {
        with_open_pattern()
    }
}

/// A number that may have a fraction, printed as Go prints a `float64`: `1000000`, not `1000000.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct GoFloat(pub f64);

impl From<f64> for GoFloat {
    fn from(value: f64) -> Self {
        Self(value)
    }
}

impl fmt::Display for GoFloat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = self.0.abs();
        if size != 0.0 && !(1e-6..1e21).contains(&size) {
            // Rust omits the plus sign of an exponent, Go does not.
            let text = format!("{:e}", self.0);
            return match text.split_once('e') {
                Some((digits, power)) if !power.starts_with('-') => write!(f, "{digits}e+{power}"),
                _ => f.write_str(&text),
            };
        }
        self.0.fmt(f)
    }
}

impl Serialize for GoFloat {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[expect(clippy::cast_possible_truncation, reason = "whole and far within the range of i64")]
        if self.0.fract() == 0.0 && self.0.abs() < 1e15 && !(self.0 == 0.0 && self.0.is_sign_negative()) {
            return serializer.serialize_i64(self.0 as i64);
        }
        match RawValue::from_string(self.to_string()) {
            Ok(text) => text.serialize(serializer),
            // Not a number in JSON: infinity and the like, which no reader can have produced.
            Err(_) => serializer.serialize_f64(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for GoFloat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        f64::deserialize(deserializer).map(Self)
    }
}

impl Schema for GoFloat {
    fn schema() -> Map<String, Value> {
        object(json!({"type": "number"}))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_like_in_go() {
        for (input, output) in [
            ("1000000.0", "1000000"),
            ("1e6", "1000000"),
            ("0", "0"),
            ("-0.0", "-0"),
            ("-12", "-12"),
            ("1.5", "1.5"),
            ("100.25", "100.25"),
            ("0.1", "0.1"),
            ("1e-6", "0.000001"),
            ("1e-7", "1e-7"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("1.25e300", "1.25e+300"),
            ("9007199254740993", "9007199254740992"),
        ] {
            let value: GoFloat = serde_json::from_str(input).unwrap();
            assert_eq!(serde_json::to_string(&value).unwrap(), output);
        }
    }

    #[test]
    fn as_numbers() {
        for (input, output) in [
            ("64512", Some("64512")),
            ("\"64512\"", Some("64512")),
            ("\"1.10\"", Some("65546")),
            ("4294967295", Some("4294967295")),
            ("4294967296", None),
            ("\"1.65536\"", None),
            ("\"1.2.3\"", None),
            ("\"\"", None),
            ("-1", None),
        ] {
            let number = serde_json::from_str::<ASNumber>(input).ok();
            assert_eq!(
                number.map(|number| serde_json::to_string(&number).unwrap()).as_deref(),
                output,
                "{input}"
            );
        }
    }

    #[test]
    fn code_points() {
        for (input, output, value) in [
            ("0", "0", Some(0)),
            ("63", "63", Some(63)),
            ("64", "64", None),
            ("\"40\"", "40", Some(40)),
            ("\"ef\"", "\"ef\"", Some(46)),
            ("\" AF43 \"", "\" AF43 \"", Some(38)),
            ("\"CS9\"", "\"CS9\"", None),
            ("-1", "-1", None),
        ] {
            let dscp: Dscp = serde_json::from_str(input).unwrap();
            assert_eq!(serde_json::to_string(&dscp).unwrap(), output);
            assert_eq!(dscp.value().ok(), value, "{input}");
        }
    }
}
