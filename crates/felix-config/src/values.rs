//! The types that parameters have, where Rust has none that fits.

use ipnet::IpNet;
use regex::Regex;
use std::fmt;
use std::time::Duration;

/// A length of time as Felix counts it: nanoseconds, and negative ones are possible. Most parameters mean "never" by
/// anything that is not positive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval {
    nanos: i64,
}

impl Interval {
    /// So many nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { nanos }
    }

    /// So many seconds.
    #[must_use]
    pub const fn from_secs(seconds: i32) -> Self {
        Self { nanos: seconds as i64 * 1_000_000_000 }
    }

    /// In nanoseconds.
    #[must_use]
    pub const fn as_nanos(self) -> i64 {
        self.nanos
    }

    /// The duration; none for zero and less, which most parameters mean as "never".
    #[must_use]
    pub fn positive(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
    }

    /// The duration; zero for anything negative.
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

/// A regular expression. Two are the same when their texts are.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// The expression in this text; `None` when it is none.
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

    /// Whether a text has a part that matches.
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
    /// The peers it is open for; all without.
    pub net: Option<IpNet>,
}

/// Ports from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortRange {
    /// The lowest.
    pub min: u16,
    /// The highest.
    pub max: u16,
}

/// Route tables from `min` to `max`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTableRange {
    /// The lowest.
    pub min: u32,
    /// The highest.
    pub max: u32,
}
