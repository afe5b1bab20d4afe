//! An IP protocol as rules write it: a number, or one of the names that Calico knows.

use super::int_or_string::{IntOrString, read_either, with_open_pattern};
use crate::errors::{FieldErrors, FieldPath};
use crate::schema::Schema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use std::fmt;

/// An IP protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// By number.
    Number(u8),
    /// `TCP`
    Tcp,
    /// `UDP`
    Udp,
    /// `ICMP`
    Icmp,
    /// `ICMPv6`
    Icmpv6,
    /// `SCTP`
    Sctp,
    /// `UDPLite`
    UdpLite,
    /// A name or number that is not a protocol, kept as it was written.
    Other(IntOrString),
}

impl Default for Protocol {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl Protocol {
    const NAMED: [(&'static str, Self, u8); 6] = [
        ("TCP", Self::Tcp, 6),
        ("UDP", Self::Udp, 17),
        ("ICMP", Self::Icmp, 1),
        ("ICMPv6", Self::Icmpv6, 58),
        ("SCTP", Self::Sctp, 132),
        ("UDPLite", Self::UdpLite, 136),
    ];

    /// The protocol with this name in any case, as users of the command line may write it.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        Self::NAMED
            .iter()
            .find(|(known, ..)| known.eq_ignore_ascii_case(name))
            .map_or_else(|| Self::Other(IntOrString::from(name)), |(_, protocol, _)| protocol.clone())
    }

    /// The protocol number in packets, unless this is not a protocol.
    #[must_use]
    pub fn number(&self) -> Option<u8> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Other(_) => None,
            named => Self::NAMED.iter().find(|(_, known, _)| known == named).map(|(.., number)| *number),
        }
    }

    /// Whether rules with this protocol may name ports: TCP, UDP and SCTP, by name or number.
    #[must_use]
    pub const fn supports_ports(&self) -> bool {
        matches!(self, Self::Tcp | Self::Udp | Self::Sctp | Self::Number(6 | 17 | 132))
    }

    /// Whether this is ICMP for IPv4.
    #[must_use]
    pub const fn is_icmp(&self) -> bool {
        matches!(self, Self::Icmp | Self::Number(1))
    }

    /// Whether this is ICMP for IPv6.
    #[must_use]
    pub const fn is_icmpv6(&self) -> bool {
        matches!(self, Self::Icmpv6 | Self::Number(58))
    }

    /// Adds an error if this is not a protocol that a rule may name.
    pub fn validate(&self, path: &FieldPath, errors: &mut FieldErrors) {
        match self {
            Self::Number(0) | Self::Other(IntOrString::Int(_)) => {
                errors.add(path.clone(), self, "protocol number invalid: must be 1 to 255");
            }
            Self::Other(IntOrString::String(name)) => {
                let reason = match Self::from_name(name.trim()) {
                    Self::Other(_) => {
                        let names = Self::NAMED.map(|(name, ..)| name).join(", ");
                        format!("protocol name invalid: must be one of {names}, or a number from 1 to 255")
                    }
                    meant => format!("protocol name invalid: did you mean {meant}?"),
                };
                errors.add(path.clone(), self, reason);
            }
            _ => {}
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Other(value) => value.fmt(f),
            named => f.write_str(
                Self::NAMED.iter().find(|(_, known, _)| known == named).map_or("", |(name, ..)| name),
            ),
        }
    }
}

impl Serialize for Protocol {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(number) => serializer.serialize_u8(*number),
            Self::Other(value) => value.serialize(serializer),
            named => serializer.collect_str(named),
        }
    }
}

impl<'de> Deserialize<'de> for Protocol {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let from_number =
            |number| u8::try_from(number).map_or(Self::Other(IntOrString::Int(number)), Self::Number);
        read_either(deserializer, from_number, |text| {
            // Calico treats a number in quotes as a number, and writes it back as one.
            if !text.is_empty()
                && text.bytes().all(|byte| byte.is_ascii_digit())
                && let Ok(number) = text.parse()
            {
                return Self::Number(number);
            }
            match Self::NAMED.iter().find(|(name, ..)| *name == text) {
                Some((_, protocol, _)) => protocol.clone(),
                None => Self::Other(IntOrString::from(text)),
            }
        })
    }
}

impl Schema for Protocol {
    fn schema() -> Map<String, Value> {
        with_open_pattern()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_forms() {
        for (input, output, valid, ports) in [
            ("\"TCP\"", "\"TCP\"", true, true),
            ("\"UDPLite\"", "\"UDPLite\"", true, false),
            ("\"tcp\"", "\"tcp\"", false, false),
            ("6", "6", true, true),
            ("\"17\"", "17", true, true),
            ("132", "132", true, true),
            ("0", "0", false, false),
            ("256", "256", false, false),
            ("\"ICMPv6\"", "\"ICMPv6\"", true, false),
            ("\"\"", "\"\"", false, false),
        ] {
            let protocol: Protocol = serde_json::from_str(input).unwrap();
            assert_eq!(serde_json::to_string(&protocol).unwrap(), output, "{input}");
            let mut errors = FieldErrors::new();
            protocol.validate(&FieldPath::new("protocol"), &mut errors);
            assert_eq!(errors.is_empty(), valid, "{input}: {errors}");
            assert_eq!(protocol.supports_ports(), ports, "{input}");
        }
        assert_eq!(Protocol::from_name("icmpV6"), Protocol::Icmpv6);
        assert_eq!(Protocol::Icmpv6.number(), Some(58));
    }
}
