//! The small values that an intent consists of: numbers, networks and names that are parsed once and cannot be
//! confused.

use ipnet::IpNet;
use model::IpVersion;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

/// An AS number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AsNumber(pub u32);

impl fmt::Display for AsNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<api::scalars::ASNumber> for AsNumber {
    fn from(number: api::scalars::ASNumber) -> Self {
        Self(number.0)
    }
}

/// A network, never with bits beyond its length.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix(IpNet);

impl Prefix {
    /// The network that contains this address with this length.
    #[must_use]
    #[inline]
    pub fn new(net: IpNet) -> Self {
        // Fast path: a speaker calls this for every route, and routes are networks already.
        let is_whole = match net {
            IpNet::V4(net) => {
                net.addr().to_bits().checked_shl(net.prefix_len().into()).is_none_or(|rest| rest == 0)
            }
            IpNet::V6(net) => {
                net.addr().to_bits().checked_shl(net.prefix_len().into()).is_none_or(|rest| rest == 0)
            }
        };
        Self(if is_whole { net } else { net.trunc() })
    }

    /// The network of one address.
    #[must_use]
    pub fn host(address: IpAddr) -> Self {
        Self(IpNet::from(address))
    }

    /// The network as an [`IpNet`].
    #[must_use]
    pub fn net(self) -> IpNet {
        self.0
    }

    /// The address family.
    #[must_use]
    pub fn version(self) -> IpVersion {
        IpVersion::of(&self.0)
    }

    /// The prefix length.
    #[must_use]
    pub fn length(self) -> u8 {
        self.0.prefix_len()
    }

    /// Whether it is one address.
    #[must_use]
    pub fn is_host(self) -> bool {
        self.0.prefix_len() == self.0.max_prefix_len()
    }

    /// Whether `other` is inside, or the same.
    #[must_use]
    #[inline]
    pub fn contains(self, other: Prefix) -> bool {
        let is_in = match (self.0, other.0) {
            (IpNet::V4(one), IpNet::V4(other)) => {
                let differing = one.addr().to_bits() ^ other.addr().to_bits();
                differing.leading_zeros() >= one.prefix_len().into()
            }
            (IpNet::V6(one), IpNet::V6(other)) => {
                let differing = one.addr().to_bits() ^ other.addr().to_bits();
                differing.leading_zeros() >= one.prefix_len().into()
            }
            _ => false,
        };
        is_in && self.0.prefix_len() <= other.0.prefix_len()
    }

    /// Whether the address is inside.
    #[must_use]
    pub fn contains_address(self, address: IpAddr) -> bool {
        self.0.contains(&address)
    }
}

impl From<IpNet> for Prefix {
    fn from(net: IpNet) -> Self {
        Self::new(net)
    }
}

impl FromStr for Prefix {
    type Err = ipnet::AddrParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self::new)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The priority of a route: the metric of a kernel route, where less is better. On the wire it is the local preference,
/// where more is better: they add up to [`Priority::TOP`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u32);

impl Priority {
    /// The sum of metric and local preference.
    pub const TOP: u32 = 2_147_483_647;
    /// The priority of ordinary routes, unless a BGPConfiguration sets another.
    pub const NORMAL: Self = Self(1024);
    /// The preference of a route that wins over local ones (BIRD's `preference`; ordinary BGP routes have 100).
    pub const OVERRIDE_PREFERENCE: u32 = 200;

    /// The corresponding local preference.
    #[must_use]
    pub fn local_preference(self) -> u32 {
        Self::TOP.saturating_sub(self.0)
    }

    /// The priority that corresponds to a local preference.
    #[must_use]
    pub fn of_local_preference(preference: u32) -> Self {
        Self(Self::TOP.saturating_sub(preference))
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A BGP community.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Community {
    /// Two numbers of 16 bits (RFC 1997).
    Standard(u16, u16),
    /// Three numbers of 32 bits (RFC 8092).
    Large(u32, u32, u32),
}

/// The error for text that is not a community.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a community: write aa:nn with 16 bits each, or aa:nn:mm with 32 bits each")]
pub struct CommunityError(pub String);

impl FromStr for Community {
    type Err = CommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || CommunityError(text.to_owned());
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        let parts: Vec<&str> = text.split(':').collect();
        if !parts.iter().all(|part| digits(part)) {
            return Err(wrong());
        }
        match parts[..] {
            [first, second] => {
                Ok(Self::Standard(first.parse().map_err(|_| wrong())?, second.parse().map_err(|_| wrong())?))
            }
            [first, second, third] => Ok(Self::Large(
                first.parse().map_err(|_| wrong())?,
                second.parse().map_err(|_| wrong())?,
                third.parse().map_err(|_| wrong())?,
            )),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard(first, second) => write!(f, "{first}:{second}"),
            Self::Large(first, second, third) => write!(f, "{first}:{second}:{third}"),
        }
    }
}

/// A pattern for names of interfaces, in which `*` stands for any text and `?` for one character.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct InterfacePattern(String);

impl InterfacePattern {
    /// Creates a pattern from its text.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The pattern's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the name of an interface matches.
    #[must_use]
    pub fn matches(&self, name: &str) -> bool {
        matches_glob(self.0.as_bytes(), name.as_bytes())
    }
}

impl fmt::Display for InterfacePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Backtracks to the last `*`: where the rest stops matching, it takes one more character.
fn matches_glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut place) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, place));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[place] => {
                at += 1;
                place += 1;
            }
            _ => match star {
                Some((star_at, taken)) => {
                    star = Some((star_at, taken + 1));
                    at = star_at + 1;
                    place = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

/// The cluster that a route reflector reflects for, written as an IPv4 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub Ipv4Addr);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A time in whole seconds, as BGP counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Secs(pub u32);

impl fmt::Display for Secs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The password of sessions (TCP MD5). It cannot be printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// Wraps a text that must be kept secret.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the socket or the file of BIRD. Not for messages or logs.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_interfaces() {
        for (pattern, name, expected) in [
            ("*.cali", "vxlan.cali", true),
            ("*.cali", "vxlan.calico", false),
            ("*.calico", "vxlan-v6.calico", true),
            ("bpf*.cali", "bpfin.cali", true),
            ("tunl0", "tunl0", true),
            ("tunl0", "tunl01", false),
            ("*", "", true),
            ("eth?", "eth0", true),
            ("eth?", "eth", false),
            ("a*b*c", "axxbyybzzc", true),
            ("a*b*c", "axxbyybzz", false),
        ] {
            assert_eq!(InterfacePattern::new(pattern).matches(name), expected, "{pattern} on {name}");
        }
    }

    #[test]
    fn communities() {
        assert_eq!("65000:100".parse(), Ok(Community::Standard(65000, 100)));
        assert_eq!("4200000000:1:2".parse(), Ok(Community::Large(4_200_000_000, 1, 2)));
        for wrong in ["", "1", "70000:1", "1:2:3:4", "a:b", "1:", "+1:2"] {
            assert!(wrong.parse::<Community>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_prefix_has_no_bits_beyond_its_length() {
        let prefix: Prefix = "10.0.3.7/16".parse().unwrap();
        assert_eq!(prefix.to_string(), "10.0.0.0/16");
    }

    #[test]
    fn networks_contain_each_other_like_their_addresses() {
        let texts = [
            "0.0.0.0/0",
            "10.0.0.0/8",
            "10.1.0.0/16",
            "10.1.2.3/32",
            "11.0.0.0/8",
            "255.255.255.255/32",
            "::/0",
            "fd00::/8",
            "fd00:1::/64",
            "fd00:1::1/128",
        ];
        let nets: Vec<IpNet> = texts.iter().map(|text| text.parse().expect("a network")).collect();
        for one in &nets {
            assert_eq!(Prefix::new(*one).net(), *one);
            for other in &nets {
                let is_in = Prefix::new(*one).contains(Prefix::new(*other));
                assert_eq!(is_in, one.contains(other), "{other} in {one}");
            }
        }
        for (text, whole) in
            [("10.1.2.3/0", "0.0.0.0/0"), ("10.1.2.3/31", "10.1.2.2/31"), ("fd00::1/0", "::/0")]
        {
            let net: IpNet = text.parse().expect("a network");
            assert_eq!(Prefix::new(net).to_string(), whole);
        }
    }

    #[test]
    fn priority_and_local_preference_are_complements() {
        assert_eq!(Priority::NORMAL.local_preference(), 2_147_482_623);
        assert_eq!(Priority::of_local_preference(2_147_482_623), Priority::NORMAL);
        assert_eq!(Priority::of_local_preference(u32::MAX), Priority(0));
    }

    #[test]
    fn a_password_is_not_printed() {
        assert!(!format!("{:?}", Password::new("hunter2")).contains("hunter2"));
    }
}
