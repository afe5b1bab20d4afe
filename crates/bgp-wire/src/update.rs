//! UPDATE: routes that are announced and withdrawn, and what was wrong with them.

use crate::{Attributes, Family, NextHop, Nlri, UpdateFault};
use smallvec::SmallVec;
use std::fmt;

/// Prefixes of one family that are reached by one next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The family of the prefixes.
    pub family: Family,
    /// Where packets go.
    pub next_hop: NextHop,
    /// The prefixes.
    pub nlri: Vec<Nlri>,
}

/// An UPDATE, after RFC 7606 has been applied to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Update {
    /// Prefixes that are gone, of both families; also those whose announcement was malformed (treat-as-withdraw).
    pub withdrawn: Vec<Nlri>,
    /// Prefixes that are reachable, with the attributes of this message. Empty in a message that only withdraws.
    pub reach: SmallVec<[Reach; 1]>,
    /// What is said about the prefixes of `reach`.
    pub attributes: Attributes,
    /// That the sender has sent all it has of a family (RFC 4724).
    pub end_of_rib: Option<Family>,
    /// How many announced prefixes were left out because no host elsewhere can have their addresses (groups, links, loopback).
    pub ignored: usize,
    /// What was wrong, and what was done about it. For the log and figures; nothing further is to be done.
    pub faults: Vec<AttributeFault>,
}

impl Update {
    /// Whether the message announces anything.
    #[must_use]
    pub fn announces(&self) -> bool {
        self.reach.iter().any(|reach| !reach.nlri.is_empty())
    }
}

/// What RFC 7606 asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultAction {
    /// The attribute is ignored, the routes are taken.
    Discard,
    /// The routes of the message count as withdrawn.
    Withdraw,
}

/// What was wrong with an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// Its length does not fit its type.
    Length,
    /// Its flags do not fit its type.
    Flags,
    /// Its value has no meaning.
    Value,
    /// It came twice; the first one counts.
    Repeated,
    /// It has to be there, and is not.
    Missing,
    /// It runs past the end of the attributes.
    Overrun,
    /// An external peer must not send it.
    NotFromExternal,
}

/// A malformed attribute, and what was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttributeFault {
    /// The type code.
    pub code: u8,
    /// What was wrong.
    pub kind: FaultKind,
    /// What was done.
    pub action: FaultAction,
}

impl AttributeFault {
    /// The subcode that a speaker without RFC 7606 would end the session with.
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
