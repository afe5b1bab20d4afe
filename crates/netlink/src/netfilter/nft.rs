//! nftables: one table's chains, rules, sets and maps as values, changed in transactions and read back.
//!
//! A [`Client`] works on any table; a [`Table`] names one. Changes are values ([`Change`]) that [`Client::commit`]
//! carries out all or none. Of a rule only what its owner needs is read: handle and comment; a [`RuleView`] shows a
//! little more.

mod change;
mod client;
mod expression;
mod set;
mod view;

pub use change::{BaseChain, ChainKind, Change, Hook, Rule};
pub use client::{ChainFound, Client, CommitRefused, ElementFound, RuleFound, SetFound};
pub use expression::{
    AnonymousSet, CompareOperator, ConntrackKey, Data, Expression, FibResult, MetaKey, NatKind, PayloadBase,
    Register, RejectKind, Verdict, fib_flags, nat_flags,
};
pub use set::{Element, Key, KeyType, Set};
pub use view::RuleView;

use std::sync::Arc;

/// The family of packets that a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    Ip,
    /// ARP.
    Arp,
    /// IPv6.
    Ip6,
}

impl Family {
    /// The kernel's number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ip => 2,
            Self::Arp => 3,
            Self::Ip6 => 10,
        }
    }

    /// The name that `nft` uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Arp => "arp",
            Self::Ip6 => "ip6",
        }
    }
}

/// Names a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Table {
    /// Its family.
    pub family: Family,
    /// Its name.
    pub name: Arc<str>,
}

impl Table {
    /// The table of this family and name.
    #[must_use]
    pub fn new(family: Family, name: &str) -> Self {
        Self { family, name: name.into() }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.family.as_str(), self.name)
    }
}
