//! Types of parameters for which Rust has no suitable one.

use ipnet::IpNet;
use regex::Regex;
use std::fmt;
use std::time::Duration;

/// A duration as Felix counts it: in nanoseconds, and possibly negative. For most parameters a value that is not
/// positive means "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    nanos: i64,
}

impl Interval {
    /// From a number of nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// From a number of seconds.
    #[must_use]
    pub const fn from_secs(seconds: i32) -> Self {
        Self { nanos: seconds as i64 * 1_000_000_000 }
    }

    /// Returns the number of nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    /// The duration; `None` if it is not positive, which means "never" for most parameters.
    #[must_use]
    pub fn positive(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// The duration; zero if it is negative.
    #[must_use]
    pub fn or_zero(self) -> Duration {
        self.positive().unwrap_or_default()
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos < 0 {
            f.write_str("-")?;
        }
        f.write_str(&api::scalars::go_duration(Duration::from_nanos(self.nanos.unsigned_abs())))
    }
}

/// A regular expression. Two are equal if their texts are.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Parses an expression; `None` if it is invalid.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        Regex::new(text).ok().map(Self)
    }

    /// The expression that matches exactly this text.
    #[must_use]
    pub fn exactly(text: &str) -> Option<Self> {
        Self::new(&format!("^{}$", regex::escape(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether any part of a text matches.
    #[must_use]
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Eq for Pattern {}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A protocol that has ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortProtocol {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

/// A port that failsafe rules let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProtoPort {
    /// The protocol.
    pub protocol: PortProtocol,
    /// The port.
    pub port: u16,
    /// The peers for which it is open; all if unset.
    pub net: Option<IpNet>,
}

/// Ports from `min` to `max`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// The lowest.
    pub min: u16,
    /// The highest.
    pub max: u16,
}

/// Route tables from `min` to `max`, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTableRange {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}
