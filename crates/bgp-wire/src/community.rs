//! Communities: tags on a route that filters evaluate.

use std::fmt;
use std::str::FromStr;

/// A standard community (RFC 1997), written `65000:100`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Community(pub u32);

impl Community {
    /// Must not be announced outside this AS.
    pub const NO_EXPORT: Self = Self(0xffff_ff01);
    /// Must not be announced to any peer.
    pub const NO_ADVERTISE: Self = Self(0xffff_ff02);
    /// Must not be announced outside this member of a confederation.
    pub const NO_EXPORT_SUBCONFED: Self = Self(0xffff_ff03);

    /// Combines two halves.
    #[must_use]
    pub fn new(system: u16, value: u16) -> Self {
        Self(u32::from(system) << 16 | u32::from(value))
    }

    /// The first half, often an AS number.
    #[must_use]
    pub fn system(self) -> u16 {
        u16::try_from(self.0 >> 16).unwrap_or_default()
    }

    /// The second half.
    #[must_use]
    pub fn value(self) -> u16 {
        u16::try_from(self.0 & 0xffff).unwrap_or_default()
    }
}

/// The error for text that is not a community.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseCommunityError;

impl fmt::Display for ParseCommunityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a community: expected numbers separated by colons")
    }
}

impl std::error::Error for ParseCommunityError {}

impl FromStr for Community {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (system, value) = text.split_once(':').ok_or(ParseCommunityError)?;
        let half = |text: &str| text.parse::<u16>().map_err(|_| ParseCommunityError);
        Ok(Self::new(half(system)?, half(value)?))
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.system(), self.value())
    }
}

/// A large community (RFC 8092), written `65000:1:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeCommunity {
    /// The AS that defines its meaning.
    pub system: u32,
    /// The first part of the value.
    pub first: u32,
    /// The second part of the value.
    pub second: u32,
}

impl FromStr for LargeCommunity {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':').map(|part| part.parse::<u32>().map_err(|_| ParseCommunityError));
        let mut part = || parts.next().ok_or(ParseCommunityError)?;
        let community = Self { system: part()?, first: part()?, second: part()? };
        if parts.next().is_some() { Err(ParseCommunityError) } else { Ok(community) }
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.system, self.first, self.second)
    }
}

/// An extended community (RFC 4360): eight bytes, of which the first ones determine the format of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExtendedCommunity(pub [u8; 8]);

impl ExtendedCommunity {
    /// Whether it may be sent to other ASes.
    #[must_use]
    pub fn is_transitive(self) -> bool {
        self.0[0] & 0x40 == 0
    }
}

impl fmt::Display for ExtendedCommunity {
    /// Like BIRD: `(rt, 1, 2)`, `(ro, 1, 2)`, or `(generic, 0x…, 0x…)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, sub, a, b, c, d, e, g] = self.0;
        let name = match sub {
            2 => Some("rt"),
            3 => Some("ro"),
            _ => None,
        };
        let (first, second) = match kind & 0x3f {
            0 => (u32::from(u16::from_be_bytes([a, b])), u32::from_be_bytes([c, d, e, g])),
            1 | 2 => (u32::from_be_bytes([a, b, c, d]), u32::from(u16::from_be_bytes([e, g]))),
            _ => (0, 0),
        };
        match (name, kind & 0xbf) {
            (Some(name), 0 | 2) => write!(f, "({name}, {first}, {second})"),
            (Some(name), 1) => write!(f, "({name}, {}, {second})", std::net::Ipv4Addr::from(first)),
            _ => write!(
                f,
                "(generic, {:#x}, {:#x})",
                u32::from_be_bytes([kind, sub, a, b]),
                u32::from_be_bytes([c, d, e, g])
            ),
        }
    }
}
