//! UPDATE: announced and withdrawn routes, and faults found in them.

use crate::{Attributes, Family, NextHop, Nlri, UpdateFault};
use smallvec::SmallVec;
use std::fmt;

/// Prefixes of one family with the same next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The family of the prefixes.
    pub family: Family,
    /// The next hop.
    pub next_hop: NextHop,
    /// The prefixes.
    pub nlri: Vec<Nlri>,
}

/// An UPDATE after applying RFC 7606.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Withdrawn prefixes of both families, including those whose announcement was malformed (treat-as-withdraw).
    pub withdrawn: Vec<Nlri>,
    /// Announced prefixes, with the attributes of this message. Empty in a message that only withdraws.
    pub reach: SmallVec<[Reach; 1]>,
    /// The attributes of the prefixes in `reach`.
    pub attributes: Attributes,
    /// The family for which the sender has sent all its routes (RFC 4724).
    pub end_of_rib: Option<Family>,
    /// The number of announced prefixes left out because no host elsewhere can have their addresses (multicast,
    /// link-local, loopback).
    pub ignored: usize,
    /// The faults and how they were handled. For the log and figures; no further action is needed.
    pub faults: Vec<AttributeFault>,
}

impl Update {
    /// Whether the message announces anything.
    #[must_use]
    pub fn announces(&self) -> bool {
        self.reach.iter().any(|reach| !reach.nlri.is_empty())
    }
}

/// The handling required by RFC 7606.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultAction {
    /// The attribute is ignored, but the routes are accepted.
    Discard,
    /// The routes of the message are treated as withdrawn.
    Withdraw,
}

/// A fault in an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Its length does not fit its type.
    Length,
    /// Its flags do not fit its type.
    Flags,
    /// Its value is invalid.
    Value,
    /// It is repeated; the first one counts.
    Repeated,
    /// It is mandatory but missing.
    Missing,
    /// It extends beyond the end of the attributes.
    Overrun,
    /// An external peer must not send it.
    NotFromExternal,
}

/// A malformed attribute, and how it was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeFault {
    /// The type code.
    pub code: u8,
    /// The fault.
    pub kind: FaultKind,
    /// The handling.
    pub action: FaultAction,
}

impl AttributeFault {
    /// The subcode with which a speaker without RFC 7606 would end the session.
    #[must_use]
    pub fn as_update_fault(&self) -> UpdateFault {
        match self.kind {
            FaultKind::Length => UpdateFault::AttributeLength,
            FaultKind::Flags => UpdateFault::AttributeFlags,
            FaultKind::Missing => UpdateFault::MissingWellKnown,
            FaultKind::Repeated | FaultKind::Overrun => UpdateFault::MalformedAttributes,
            FaultKind::Value | FaultKind::NotFromExternal => UpdateFault::OptionalAttribute,
        }
    }
}

impl fmt::Display for AttributeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use crate::attribute as name;
        match self.code {
            name::ORIGIN => f.write_str("ORIGIN"),
            name::AS_PATH => f.write_str("AS_PATH"),
            name::NEXT_HOP => f.write_str("NEXT_HOP"),
            name::MED => f.write_str("MULTI_EXIT_DISC"),
            name::LOCAL_PREF => f.write_str("LOCAL_PREF"),
            name::ATOMIC_AGGREGATE => f.write_str("ATOMIC_AGGREGATE"),
            name::AGGREGATOR => f.write_str("AGGREGATOR"),
            name::COMMUNITIES => f.write_str("COMMUNITIES"),
            name::ORIGINATOR_ID => f.write_str("ORIGINATOR_ID"),
            name::CLUSTER_LIST => f.write_str("CLUSTER_LIST"),
            name::MP_REACH => f.write_str("MP_REACH_NLRI"),
            name::MP_UNREACH => f.write_str("MP_UNREACH_NLRI"),
            name::EXTENDED_COMMUNITIES => f.write_str("EXTENDED_COMMUNITIES"),
            name::AS4_PATH => f.write_str("AS4_PATH"),
            name::AS4_AGGREGATOR => f.write_str("AS4_AGGREGATOR"),
            name::AIGP => f.write_str("AIGP"),
            name::LARGE_COMMUNITIES => f.write_str("LARGE_COMMUNITY"),
            code => write!(f, "attribute {code}"),
        }?;
        f.write_str(match self.kind {
            FaultKind::Length => " has a wrong length",
            FaultKind::Flags => " has wrong flags",
            FaultKind::Value => " has a meaningless value",
            FaultKind::Repeated => " came twice",
            FaultKind::Missing => " is missing",
            FaultKind::Overrun => " runs past the end of the attributes",
            FaultKind::NotFromExternal => " may not come from an external peer",
        })?;
        f.write_str(match self.action {
            FaultAction::Discard => "; the attribute was ignored",
            FaultAction::Withdraw => "; the routes were treated as withdrawn",
        })
    }
}
