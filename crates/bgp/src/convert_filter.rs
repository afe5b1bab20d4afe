//! Converts BGPFilter resources to typed rules. A filter with a part that this version does not understand rejects
//! everything in the directions for which it has rules: what it was meant to withhold is not known.

use crate::intent::Problem;
use crate::intent::filter::{
    Action, Filter, FilterName, FilterRule, Lengths, Operation, Operator, PeerType, PrefixMatch, RouteSource,
};
use crate::values::{AsNumber, Community, InterfacePattern, Prefix, Priority};
use api::scalars::names::is_interface_pattern;
use api::{
    BGPFilterAction, BGPFilterMatchOperator, BGPFilterMatchSource, BGPFilterOperation, BGPFilterPeerType,
    BGPFilterRuleV4, BGPFilterRuleV6, BGPFilterSpec,
};

pub(crate) fn filter(name: &str, spec: &BGPFilterSpec) -> (Filter, Option<Problem>) {
    let mut reason = None;
    let mut rules = |rules: Vec<Result<FilterRule, String>>| -> Vec<FilterRule> {
        rules.into_iter().collect::<Result<_, _>>().unwrap_or_else(|wrong| {
            reason.get_or_insert(wrong);
            vec![FilterRule::all(Action::Reject)]
        })
    };
    let v4 = |rules: &[BGPFilterRuleV4]| rules.iter().map(rule_v4).collect();
    let v6 = |rules: &[BGPFilterRuleV6]| rules.iter().map(rule_v6).collect();
    let filter = Filter {
        name: FilterName(name.to_owned()),
        import_v4: rules(v4(&spec.import_v4)),
        export_v4: rules(v4(&spec.export_v4)),
        import_v6: rules(v6(&spec.import_v6)),
        export_v6: rules(v6(&spec.export_v6)),
    };
    (filter, reason.map(|reason| Problem::Filter { filter: name.to_owned(), reason }))
}

/// The rules of the two families only differ in the type of their lengths.
macro_rules! rule {
    ($name:ident, $rule:ty, $longest:literal) => {
        fn $name(rule: &$rule) -> Result<FilterRule, String> {
            // An unknown condition would otherwise count as always met.
            if let Some(field) = rule.extra.keys().next() {
                return Err(format!("field '{field}' is unknown"));
            }
            let lengths = rule.prefix_length.as_ref().map(|lengths| (lengths.min, lengths.max));
            Ok(FilterRule {
                action: match &rule.action {
                    BGPFilterAction::Accept => Action::Accept,
                    BGPFilterAction::Reject => Action::Reject,
                    other => return Err(format!("action '{other}' is unknown")),
                },
                peer_type: match &rule.peer_type {
                    BGPFilterPeerType::Unset => None,
                    BGPFilterPeerType::EBGP => Some(PeerType::External),
                    BGPFilterPeerType::IBGP => Some(PeerType::Internal),
                    other => return Err(format!("peerType '{other}' is unknown")),
                },
                prefix: if rule.cidr.is_empty() {
                    None
                } else {
                    let prefix = Prefix::new(rule.cidr.parse()?.masked());
                    Some(prefix_match(&rule.match_operator, prefix, lengths, $longest)?)
                },
                source: match &rule.source {
                    BGPFilterMatchSource::Unset => None,
                    BGPFilterMatchSource::RemotePeers => Some(RouteSource::RemotePeers),
                    other => return Err(format!("source '{other}' is unknown")),
                },
                interface: match rule.interface.as_str() {
                    "" => None,
                    name if is_interface_pattern(name) => Some(InterfacePattern::new(name)),
                    name => return Err(format!("'{name}' is not the name of an interface or a pattern")),
                },
                community: match &rule.communities {
                    None => None,
                    Some(communities) => match &communities.values[..] {
                        [value] => Some(community(value.as_str())?),
                        _ => return Err("communities must hold exactly one value".to_owned()),
                    },
                },
                as_path_prefix: rule.as_path_prefix.iter().copied().map(AsNumber::from).collect(),
                priority: rule.priority.map(priority).transpose()?,
                operations: rule.operations.iter().map(operation).collect::<Result<_, _>>()?,
            })
        }
    };
}

rule!(rule_v4, BGPFilterRuleV4, 32);
rule!(rule_v6, BGPFilterRuleV6, 128);

fn prefix_match(
    operator: &BGPFilterMatchOperator,
    prefix: Prefix,
    lengths: Option<(Option<i32>, Option<i32>)>,
    longest: u8,
) -> Result<PrefixMatch, String> {
    let operator = match operator {
        BGPFilterMatchOperator::Equal => Operator::Equal,
        BGPFilterMatchOperator::NotEqual => Operator::NotEqual,
        BGPFilterMatchOperator::In => Operator::In,
        BGPFilterMatchOperator::NotIn => Operator::NotIn,
        other => return Err(format!("matchOperator '{other}' is unknown")),
    };
    let length =
        |length: i32| u8::try_from(length).map_err(|_| format!("prefix length {length} is out of range"));
    let lengths = match lengths {
        None => None,
        Some((min, max)) => Some(Lengths {
            min: min.map(length).transpose()?.map_or(prefix.length(), |min| min.max(prefix.length())),
            max: max.map(length).transpose()?.map_or(longest, |max| max.min(longest)),
        }),
    };
    Ok(PrefixMatch { operator, prefix, lengths })
}

fn operation(operation: &BGPFilterOperation) -> Result<Operation, String> {
    match operation {
        BGPFilterOperation {
            add_community: Some(add), prepend_as_path: None, set_priority: None, ..
        } => {
            let value = add.value.as_ref().ok_or("addCommunity has no value")?;
            Ok(Operation::AddCommunity(community(value.as_str())?))
        }
        BGPFilterOperation {
            add_community: None,
            prepend_as_path: Some(prepend),
            set_priority: None,
            ..
        } => Ok(Operation::PrependAsPath(prepend.prefix.iter().copied().map(AsNumber::from).collect())),
        BGPFilterOperation {
            add_community: None, prepend_as_path: None, set_priority: Some(set), ..
        } => Ok(Operation::SetPriority(priority(set.value.ok_or("setPriority has no value")?)?)),
        _ => Err("an operation is not exactly one of addCommunity, prependASPath and setPriority".to_owned()),
    }
}

fn community(text: &str) -> Result<Community, String> {
    text.parse().map_err(|error: crate::CommunityError| error.to_string())
}

fn priority(value: i64) -> Result<Priority, String> {
    match u32::try_from(value) {
        Ok(value) if (1..Priority::TOP).contains(&value) => Ok(Priority(value)),
        _ => Err(format!("priority {value} is not between 1 and {}", Priority::TOP - 1)),
    }
}
