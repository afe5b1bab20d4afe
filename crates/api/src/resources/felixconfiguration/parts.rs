//! The small structs inside Felix's settings.

use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::{Duration, IpOrCidr};
use crate::text::text_newtype;
use api_derive::resource_struct;

/// How long one named part of Felix may be silent.
#[resource_struct]
pub struct HealthTimeoutOverride {
    /// The part, as Felix names it in its log.
    #[field(always, required)]
    pub name: String,
    /// The time.
    #[field(required)]
    pub timeout: Duration,
}

/// A protocol and port, perhaps only for some addresses.
#[resource_struct]
pub struct ProtoPort {
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The port.
    #[field(always, required)]
    pub port: u16,
    /// The addresses; all when empty.
    pub net: IpOrCidr,
}

/// A range of route tables, in the form that came first.
#[resource_struct(rules)]
pub struct RouteTableRange {
    /// The first table.
    #[field(always, required)]
    pub min: i64,
    /// The last table.
    #[field(always, required)]
    pub max: i64,
}

impl HasRules for RouteTableRange {
    fn rules() -> &'static [Rule<Self>] {
        &[Rule {
            cel: "1 <= self.min && self.min <= self.max && self.max <= 250",
            message: "must be a range of route table indices within 1..250",
            reason: Reason::Invalid,
            holds: |range| 1 <= range.min && range.min <= range.max && range.max <= 250,
        }]
    }
}

/// A range of route tables.
#[resource_struct(rules)]
pub struct RouteTableIDRange {
    /// The first table.
    #[field(always, required)]
    pub min: i64,
    /// The last table.
    #[field(always, required)]
    pub max: i64,
}

impl RouteTableIDRange {
    /// The number of tables in the range; 0 if its end is before its start.
    #[must_use]
    pub fn count(&self) -> u64 {
        if self.max < self.min { 0 } else { self.max.abs_diff(self.min).saturating_add(1) }
    }
}

impl HasRules for RouteTableIDRange {
    fn rules() -> &'static [Rule<Self>] {
        &[
            Rule {
                cel: "self.min >= 1",
                message: "min must be >= 1",
                reason: Reason::Invalid,
                holds: |range| range.min >= 1,
            },
            Rule {
                cel: "self.min <= self.max",
                message: "min must not be greater than max",
                reason: Reason::Invalid,
                holds: |range| range.min <= range.max,
            },
        ]
    }
}

text_newtype! {
    /// How long BPF connection tracking keeps an entry: a duration, or `Auto` for the kernel's own value.
    BPFConntrackTimeout => Option<std::time::Duration>,
    |text: &str| if text == "Auto" { Ok(None) } else { Duration::new(text).parse().map(Some) },
    {"type": "string", "pattern": r"^(([0-9]*(\.[0-9]*)?(ms|s|h|m|us)+)+|Auto)$"}
}

/// How long BPF connection tracking keeps entries, by the state they are in.
#[resource_struct]
pub struct BPFConntrackTimeouts {
    /// New connections. Default 10s.
    pub creation_grace_period: Option<BPFConntrackTimeout>,
    /// TCP, a SYN without answer. Default 20s.
    pub tcp_syn_sent: Option<BPFConntrackTimeout>,
    /// TCP, open and idle. Default 1h.
    pub tcp_established: Option<BPFConntrackTimeout>,
    /// TCP, closed by both sides. Default Auto.
    pub tcp_fins_seen: Option<BPFConntrackTimeout>,
    /// TCP, reset. Default 40s.
    pub tcp_reset_seen: Option<BPFConntrackTimeout>,
    /// UDP, idle. Default 60s.
    pub udp_timeout: Option<BPFConntrackTimeout>,
    /// Other protocols, idle. Default 10m.
    pub generic_timeout: Option<BPFConntrackTimeout>,
    /// ICMP, idle. Default 5s.
    pub icmp_timeout: Option<BPFConntrackTimeout>,
}
