//! A port as rules write it: one number, a range `min:max`, or the name of a port.

use super::int_or_string::{IntOrString, read_either, with_open_pattern};
use super::names;
use crate::errors::{FieldErrors, FieldPath};
use crate::schema::Schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;

/// One port, a range of ports, or a named port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// A range of numbers, both ends included; a single port is a range of one.
    Range {
        /// The lowest port.
        min: u16,
        /// The highest port.
        max: u16,
    },
    /// The name of a port of the endpoint.
    Named(String),
    /// Something that is not a port, kept as it was written.
    Other(IntOrString),
}

impl Default for Port {
    fn default() -> Self {
        Self::single(0)
    }
}

impl Port {
    /// Creates a single port.
    #[must_use]
    pub const fn single(port: u16) -> Self {
        Self::Range { min: port, max: port }
    }

    /// Creates a range of ports, both ends included.
    #[must_use]
    pub const fn range(min: u16, max: u16) -> Self {
        Self::Range { min, max }
    }

    /// Creates a named port.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self::Named(name.into())
    }

    /// Parses a port; digits alone are a number.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let other = || Self::Other(IntOrString::from(text));
        if digits(text) {
            return text.parse().map_or_else(|_| other(), Self::single);
        }
        if let Some((low, high)) = text.split_once(':') {
            return match (digits(low) && digits(high), low.parse(), high.parse()) {
                (true, Ok(min), Ok(max)) if min <= max => Self::range(min, max),
                _ => other(),
            };
        }
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-');
        if (1..=128).contains(&text.len()) && text.bytes().all(allowed) { Self::named(text) } else { other() }
    }

    /// Whether this is a named port.
    #[must_use]
    pub const fn is_named(&self) -> bool {
        matches!(self, Self::Named(_))
    }

    /// The lowest and highest number, for ports given by number.
    #[must_use]
    pub const fn bounds(&self) -> Option<(u16, u16)> {
        match self {
            Self::Range { min, max } => Some((*min, *max)),
            _ => None,
        }
    }

    /// Adds an error if this is not a port that a rule may name.
    pub fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        match self {
            Self::Range { min, max } if min > max => errors.add(path.clone(), self, "port range invalid"),
            Self::Range { min: 0, .. } => {
                errors.add(path.clone(), self, "port range invalid, port number must be between 1 and 65535");
            }
            Self::Range { .. } => {}
            Self::Named(name) => {
                if let Err(reason) = names::check_port_name(name) {
                    errors.add(path.clone(), name, reason);
                }
            }
            Self::Other(_) => errors.add(
                path.clone(),
                self,
                "must be a port number between 1 and 65535, a range 'min:max', or the name of a port",
            ),
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { min, max } if min == max => min.fmt(f),
            Self::Range { min, max } => write!(f, "{min}:{max}"),
            Self::Named(name) => f.write_str(name),
            Self::Other(value) => value.fmt(f),
        }
    }
}

impl Serialize for Port {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Range { min, max } if min == max => serializer.serialize_u16(*min),
            Self::Range { .. } => serializer.collect_str(self),
            Self::Named(name) => serializer.serialize_str(name),
            Self::Other(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let from_number =
            |number| u16::try_from(number).map_or(Self::Other(IntOrString::Int(number)), Self::single);
        read_either(deserializer, from_number, Self::from_text)
    }
}

impl Schema for Port {
    fn schema() -> Map<String, Value> {
        with_open_pattern()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_forms() {
        // The input, and what is written back.
        for (input, output, valid) in [
            ("80", "80", true),
            ("\"80\"", "80", true),
            ("\"0080\"", "80", true),
            ("\"80:90\"", "\"80:90\"", true),
            ("\"80:80\"", "80", true),
            ("\"http\"", "\"http\"", true),
            ("0", "0", false),
            ("65535", "65535", true),
            ("65536", "65536", false),
            ("-1", "-1", false),
            ("\"90:80\"", "\"90:80\"", false),
            ("\"0:80\"", "\"0:80\"", false),
            ("\"1:2:3\"", "\"1:2:3\"", false),
            ("\"1:+2\"", "\"1:+2\"", false),
            ("\"99999\"", "\"99999\"", false),
            ("\"\"", "\"\"", false),
            ("\"HTTP\"", "\"HTTP\"", false),
            ("\"a b\"", "\"a b\"", false),
        ] {
            let port: Port = serde_json::from_str(input).unwrap();
            assert_eq!(serde_json::to_string(&port).unwrap(), output, "{input}");
            let mut errors = FieldErrors::new();
            port.validate(&FieldPath::new("port"), &mut errors);
            assert_eq!(errors.is_empty(), valid, "{input}: {errors}");
        }
        assert!(serde_json::from_str::<Port>("true").is_err());
        assert!(serde_json::from_str::<Port>("1.5").is_err());
    }
}
