//! Converts queries to Goldmane's messages.

use crate::source::SortBy;
use flows::query::{Filter, HintType, PolicyMatch, StringMatch};
use goldmane_api::proto;
use prost::Message as _;

pub(super) fn sort_number(sort: SortBy) -> i32 {
    let sort = match sort {
        SortBy::Time => proto::SortBy::Time,
        SortBy::DestName => proto::SortBy::DestName,
        SortBy::DestNamespace => proto::SortBy::DestNamespace,
        SortBy::DestType => proto::SortBy::DestType,
        SortBy::SourceName => proto::SortBy::SourceName,
        SortBy::SourceNamespace => proto::SortBy::SourceNamespace,
        SortBy::SourceType => proto::SortBy::SourceType,
    };
    sort.into()
}

pub(super) fn hint_number(of: HintType) -> i32 {
    let of = match of {
        HintType::DestName => proto::FilterType::DestName,
        HintType::SourceName => proto::FilterType::SourceName,
        HintType::DestNamespace => proto::FilterType::DestNamespace,
        HintType::SourceNamespace => proto::FilterType::SourceNamespace,
        HintType::PolicyTier => proto::FilterType::PolicyTier,
        HintType::PolicyName => proto::FilterType::PolicyName,
        HintType::PolicyKind => proto::FilterType::PolicyKind,
        HintType::PolicyNamespace => proto::FilterType::PolicyNamespace,
    };
    of.into()
}

/// The message for a filter.
pub(super) fn filter(filter: &Filter) -> proto::Filter {
    let texts = |texts: &[StringMatch]| texts.iter().map(string_match).collect();
    let actions = |actions: &[flows::Action]| actions.iter().map(|action| action.number()).collect();
    proto::Filter {
        source_names: texts(&filter.source_names),
        source_namespaces: texts(&filter.source_namespaces),
        dest_names: texts(&filter.dest_names),
        dest_namespaces: texts(&filter.dest_namespaces),
        protocols: texts(&filter.protocols),
        dest_ports: filter.dest_ports.iter().map(|port| proto::PortMatch { port: *port }).collect(),
        actions: actions(&filter.actions),
        pending_actions: actions(&filter.pending_actions),
        policies: filter.policies.iter().map(policy_match).collect(),
        reporter: filter.reporter.number(),
    }
}

fn policy_match(wanted: &PolicyMatch) -> proto::PolicyMatch {
    let part = |text: &Option<StringMatch>| {
        text.as_ref().map(|text| string_match(text).encode_to_vec().into()).unwrap_or_default()
    };
    proto::PolicyMatch {
        kind: wanted.kind.number(),
        tier: part(&wanted.tier),
        namespace: part(&wanted.namespace),
        name: part(&wanted.name),
        action: wanted.action.number(),
    }
}

fn string_match(text: &StringMatch) -> proto::StringMatch {
    proto::StringMatch { value: text.value.clone(), r#type: i32::from(text.is_fuzzy) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flows::{Action, PolicyKind, Reporter};

    #[test]
    fn a_filter_survives_a_round_trip() {
        let text = |value: &str, is_fuzzy| StringMatch { value: value.to_owned(), is_fuzzy };
        let wanted = Filter {
            source_names: vec![text("a", false)],
            source_namespaces: vec![text("b", true), text("c", false)],
            dest_names: vec![text("d", true)],
            dest_namespaces: vec![text("e", false)],
            protocols: vec![text("tcp", false)],
            dest_ports: vec![80, 443],
            actions: vec![Action::Deny],
            pending_actions: vec![Action::Allow, Action::Pass],
            policies: vec![PolicyMatch {
                kind: PolicyKind::NetworkPolicy,
                tier: Some(text("t", false)),
                namespace: None,
                name: Some(text("n", true)),
                action: Action::Deny,
            }],
            reporter: Reporter::Dst,
        };
        assert_eq!(goldmane_api::convert::filter(Some(filter(&wanted))), wanted);
    }
}
