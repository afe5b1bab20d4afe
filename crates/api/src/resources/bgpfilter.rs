//! BGPFilter: which routes are sent and accepted, and how they are changed. The first rule that matches decides.

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::names::{check_metadata, is_interface_pattern};
use crate::scalars::{ASNumber, Cidr};
use crate::text::{string_enum, text_newtype};
use api_derive::resource_struct;
use serde_json::{Map, Value};

/// A list of rules for BGP routes.
pub type BGPFilter = Object<BGPFilterSpec>;

/// Rules for BGP routes, by direction and family.
#[resource_struct]
pub struct BGPFilterSpec {
    /// Rules for IPv4 routes that are sent.
    #[field(list = "atomic")]
    pub export_v4: Vec<BGPFilterRuleV4>,
    /// Rules for IPv4 routes that are received.
    #[field(list = "atomic")]
    pub import_v4: Vec<BGPFilterRuleV4>,
    /// Rules for IPv6 routes that are sent.
    #[field(list = "atomic")]
    pub export_v6: Vec<BGPFilterRuleV6>,
    /// Rules for IPv6 routes that are received.
    #[field(list = "atomic")]
    pub import_v6: Vec<BGPFilterRuleV6>,
}

/// The two families have the same rule except for the limits of addresses.
macro_rules! filter_rule {
    ($(#[$doc:meta])* $rule:ident, $lengths:ident, $version:literal, $cidr_length:literal, $max:literal) => {
        $(#[$doc])*
        #[resource_struct(rules, atomic)]
        pub struct $rule {
            /// The network that the route is compared with.
            #[field(format = "cidr", max_len = $cidr_length)]
            pub cidr: Cidr,
            /// The prefix lengths that match, together with `cidr`; from that of `cidr` to the longest when absent.
            pub prefix_length: Option<$lengths>,
            /// Limits an export rule to routes that were learned from peers.
            pub source: BGPFilterMatchSource,
            /// The outgoing interface; `*` stands for any part.
            #[field(max_len = 15)]
            pub interface: String,
            /// How the route is compared with `cidr`.
            pub match_operator: BGPFilterMatchOperator,
            /// Limits the rule to one kind of peer.
            pub peer_type: BGPFilterPeerType,
            /// A community that the route carries.
            pub communities: Option<BGPFilterCommunityMatch>,
            /// How the AS path begins.
            #[field(name = "asPathPrefix", list = "atomic")]
            pub as_path_prefix: Vec<ASNumber>,
            /// The metric of the route.
            #[field(min = 1, max = 2147483646)]
            pub priority: Option<i64>,
            /// Whether a matching route passes.
            #[field(always, required)]
            pub action: BGPFilterAction,
            /// Changes to a matching route that passes, in order.
            #[field(min_items = 1, max_items = 10, list = "atomic", schema = one_change_each)]
            pub operations: Vec<BGPFilterOperation>,
        }

        impl HasRules for $rule {
            fn rules() -> &'static [Rule<Self>] {
                &[
                    Rule {
                        cel: "(has(self.cidr) && self.cidr != '') == \
                              (has(self.matchOperator) && self.matchOperator != '')",
                        message: "cidr and matchOperator must both be set or both be empty",
                        reason: Reason::Invalid,
                        holds: |rule| rule.cidr.is_empty() == rule.match_operator.is_unset(),
                    },
                    Rule {
                        cel: "!has(self.prefixLength) || (has(self.cidr) && self.cidr != '')",
                        message: "cidr is required when prefixLength is set",
                        reason: Reason::Invalid,
                        holds: |rule| rule.prefix_length.is_none() || !rule.cidr.is_empty(),
                    },
                    Rule {
                        cel: "self.action == 'Accept' || !has(self.operations) || self.operations.size() == 0",
                        message: "operations may only be used with action Accept",
                        reason: Reason::Invalid,
                        holds: |rule| rule.operations.is_empty() || rule.action == BGPFilterAction::Accept,
                    },
                ]
            }
        }

        impl $rule {
            fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
                self.check_rules(path, errors);
                check_cidr(&self.cidr, $version, &path.child("cidr"), errors);
                if !self.interface.is_empty() && !is_interface_pattern(&self.interface) {
                    errors.add(path.child("interface"), &self.interface, "is not the name of an interface or a pattern");
                }
                errors.require(!self.action.is_unset(), path.child("action"), "", "is required");
                for (index, operation) in self.operations.iter().enumerate() {
                    operation.check(&path.child("operations").index(index), errors);
                }
            }
        }

        /// The prefix lengths that match, both ends included.
        #[resource_struct(atomic)]
        pub struct $lengths {
            /// The shortest.
            #[field(min = 0, max = $max)]
            pub min: Option<i32>,
            /// The longest.
            #[field(min = 0, max = $max)]
            pub max: Option<i32>,
        }
    };
}

filter_rule! {
    /// A rule for IPv4 routes.
    BGPFilterRuleV4, BGPFilterPrefixLengthV4, 4, 18, 32
}

filter_rule! {
    /// A rule for IPv6 routes.
    BGPFilterRuleV6, BGPFilterPrefixLengthV6, 6, 43, 128
}

/// Each item of the list is one change.
fn one_change_each(schema: &mut Map<String, Value>) {
    crate::schema::limit_items(schema, "minProperties", 1.into());
    crate::schema::limit_items(schema, "maxProperties", 1.into());
}

string_enum! {
    /// Where a route was learned.
    BGPFilterMatchSource { RemotePeers = "RemotePeers" }
}

string_enum! {
    /// How a route is compared with a network.
    BGPFilterMatchOperator { Equal = "Equal", NotEqual = "NotEqual", In = "In", NotIn = "NotIn" }
}

string_enum! {
    /// Whether a matching route passes.
    BGPFilterAction { Accept = "Accept", Reject = "Reject" }
}

string_enum! {
    /// Kinds of peers: of another AS, or of our own.
    BGPFilterPeerType { EBGP = "eBGP", IBGP = "iBGP" }
}

text_newtype! {
    /// A BGP community: `aa:nn` with 16 bits each, or `aa:nn:mm` with 32 bits each, without leading zeros.
    BGPCommunityValue => Vec<u32>, parse_community, {"type": "string", "maxLength": 32, "pattern": (community_pattern())}
}

fn parse_community(text: &str) -> Result<Vec<u32>, String> {
    super::setting_checks::check_community(text)?;
    text.split(':').map(|part| part.parse().map_err(|_| format!("'{part}' is not a number"))).collect()
}

/// The pattern of a community, assembled from the patterns of its numbers.
fn community_pattern() -> String {
    let (short, long) = (number_pattern("65535"), number_pattern("4294967295"));
    format!("^({short}:{short}|{long}:{long}:{long})$")
}

/// The pattern of a number from 0 to `max` without leading zeros: all with fewer digits, then, digit by digit, those
/// that agree with `max` so far and are below it in this digit. The last digit includes `max` itself.
fn number_pattern(max: &str) -> String {
    let mut forms = vec!["[0-9]".to_owned(), format!("[1-9][0-9]{{1,{}}}", max.len().saturating_sub(2))];
    for (place, digit) in max.bytes().enumerate() {
        let places_after = max.len() - place - 1;
        let lowest = if place == 0 { b'1' } else { b'0' };
        let highest = if places_after == 0 { digit } else { digit - 1 };
        if highest < lowest {
            continue;
        }
        let rest = match places_after {
            0 => String::new(),
            1 => "[0-9]".to_owned(),
            count => format!("[0-9]{{{count}}}"),
        };
        forms.push(format!("{}[{}-{}]{rest}", &max[..place], char::from(lowest), char::from(highest)));
    }
    format!("({})", forms.join("|"))
}

/// The communities that a route must carry.
#[resource_struct(atomic)]
pub struct BGPFilterCommunityMatch {
    /// Exactly one community.
    #[field(always, required, min_items = 1, max_items = 1, list = "atomic")]
    pub values: Vec<BGPCommunityValue>,
}

/// A change to a route: exactly one of the fields is set.
#[resource_struct(atomic)]
pub struct BGPFilterOperation {
    /// Adds a community.
    pub add_community: Option<BGPFilterAddCommunity>,
    /// Puts AS numbers before the path.
    #[field(name = "prependASPath")]
    pub prepend_as_path: Option<BGPFilterPrependASPath>,
    /// Sets the metric.
    pub set_priority: Option<BGPFilterSetPriority>,
}

/// The community that is added.
#[resource_struct(atomic)]
pub struct BGPFilterAddCommunity {
    /// The community.
    #[field(always, required)]
    pub value: Option<BGPCommunityValue>,
}

/// The AS numbers that are put before the path.
#[resource_struct(atomic)]
pub struct BGPFilterPrependASPath {
    /// The numbers, in the order in which they will stand.
    #[field(always, required, min_items = 1, max_items = 10, list = "atomic")]
    pub prefix: Vec<ASNumber>,
}

/// The metric that is set.
#[resource_struct(atomic)]
pub struct BGPFilterSetPriority {
    /// The metric, as in Felix's settings.
    #[field(always, required, min = 1, max = 2147483646)]
    pub value: Option<i64>,
}

impl BGPFilterOperation {
    fn check(&self, path: &FieldPath, errors: &mut FieldErrors) {
        let changes = usize::from(self.add_community.is_some())
            + usize::from(self.prepend_as_path.is_some())
            + usize::from(self.set_priority.is_some());
        errors.require(
            changes == 1 && self.extra.is_empty(),
            path.clone(),
            format!("{changes} operations"),
            "exactly one of addCommunity, prependASPath and setPriority must be set",
        );
        if let Some(add) = &self.add_community {
            errors.require(add.value.is_some(), path.child("addCommunity").child("value"), "", "is required");
        }
        if let Some(set) = &self.set_priority {
            errors.require(set.value.is_some(), path.child("setPriority").child("value"), "", "is required");
        }
    }
}

fn check_cidr(cidr: &Cidr, version: u8, path: &FieldPath, errors: &mut FieldErrors) {
    if cidr.is_empty() {
        return;
    }
    match cidr.parse_strict() {
        Err(reason) => errors.add(path.clone(), cidr, reason),
        Ok(network) if network.ip_version() != version => {
            errors.add(path.clone(), cidr, format!("must be an IPv{version} network"));
        }
        Ok(_) => {}
    }
}

impl Spec for BGPFilterSpec {
    const KIND: Kind = Kind::BGPFilter;
    type Status = NoStatus;

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        for (name, rules) in [("exportV4", &self.export_v4), ("importV4", &self.import_v4)] {
            for (index, rule) in rules.iter().enumerate() {
                rule.check(&spec.child(name).index(index), errors);
            }
        }
        for (name, rules) in [("exportV6", &self.export_v6), ("importV6", &self.import_v6)] {
            for (index, rule) in rules.iter().enumerate() {
                rule.check(&spec.child(name).index(index), errors);
            }
        }
    }
}
