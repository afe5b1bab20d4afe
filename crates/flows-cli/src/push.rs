//! The part of a filter that a server can apply.
//!
//! The server's filter never drops a selected flow, and the whole filter is applied again to its answer. So the result
//! does not depend on what a server understands; only less is transferred.
//!
//! Policies and tiers are filtered here only: servers ignore the policy that made a tier's end apply, and those of
//! Calico 3.31 and before expect another form of the message, which they would treat as a name that nothing has.

use crate::filter::{Condition, End, Field, Filter, Verdict};
use flows::Action;
use flows::query::{Filter as ServerFilter, StringMatch};
use goldmane_api::proto;

/// The filter to send to a server.
#[must_use]
pub fn server_filter(filter: &Filter) -> ServerFilter {
    let wanted = |field: Field| filter.wanted.get(&field).map_or(&[][..], Vec::as_slice);
    let mut asked = ServerFilter::default();
    (asked.source_names, asked.source_namespaces) = end(filter, End::Source);
    (asked.dest_names, asked.dest_namespaces) = end(filter, End::Dest);
    asked.protocols = wanted(Field::Protocol)
        .iter()
        .filter_map(|condition| match condition {
            Condition::Protocol(protocol) => Some(exact(protocol)),
            _ => None,
        })
        .collect();
    asked.dest_ports = wanted(Field::Port)
        .iter()
        .filter_map(|condition| if let Condition::Port(port) = condition { Some(*port) } else { None })
        .collect();
    if let [Condition::Reporter(reporter)] = wanted(Field::Reporter) {
        asked.reporter = *reporter;
    }
    asked.actions = actions(wanted(Field::Verdict));
    if let [Condition::Would(action)] = wanted(Field::Would) {
        asked.pending_actions = vec![*action];
        if asked.actions.is_empty() {
            asked.actions = [Action::Allow, Action::Deny].into_iter().filter(|done| done != action).collect();
        }
    }
    asked
}

fn exact(value: &str) -> StringMatch {
    StringMatch { value: value.to_owned(), is_fuzzy: false }
}

/// The names and namespaces of one end.
fn end(filter: &Filter, end: End) -> (Vec<StringMatch>, Vec<StringMatch>) {
    let mut names = Vec::new();
    let mut namespaces: Option<Vec<StringMatch>> = Some(Vec::new());
    for condition in filter.wanted.get(&Field::Pod(end)).into_iter().flatten() {
        let Condition::Pod(_, name) = condition else { continue };
        // The name may be a prefix of the flow's name, or the flow's name without `*` may be a prefix of it.
        names.push(StringMatch { value: name.name.clone(), is_fuzzy: true });
        let places = name.name.match_indices('-').map(|(place, _)| place);
        names.extend(places.map(|place| exact(&format!("{}*", &name.name[..=place]))));
        match (&name.namespace, &mut namespaces) {
            (Some(namespace), Some(known)) => known.push(exact(namespace)),
            // One of the pods may be in any namespace.
            _ => namespaces = None,
        }
    }
    if let Some(wanted) = filter.wanted.get(&Field::Namespace(end)) {
        let values = wanted.iter().filter_map(|condition| match condition {
            Condition::Namespace(_, namespace) => Some(exact(namespace)),
            _ => None,
        });
        namespaces = Some(values.collect());
    }
    (names, namespaces.unwrap_or_default())
}

/// The actions of the verdicts; empty if one of them is not an action of a flow.
fn actions(verdicts: &[Condition]) -> Vec<Action> {
    let action = |condition: &Condition| match condition {
        Condition::Verdict(Verdict::Allowed) => Some(Action::Allow),
        Condition::Verdict(Verdict::Denied) => Some(Action::Deny),
        _ => None,
    };
    verdicts.iter().map(action).collect::<Option<Vec<_>>>().unwrap_or_default()
}

/// Encodes a filter that [`server_filter`] built.
#[must_use]
pub fn message(filter: &ServerFilter) -> Option<proto::Filter> {
    if filter.is_empty() {
        return None;
    }
    let texts = |texts: &[StringMatch]| {
        let text = |text: &StringMatch| proto::StringMatch {
            value: text.value.clone(),
            r#type: if text.is_fuzzy { proto::MatchType::Fuzzy } else { proto::MatchType::Exact } as i32,
        };
        texts.iter().map(text).collect()
    };
    let numbers = |actions: &[Action]| actions.iter().map(|action| action.number()).collect();
    Some(proto::Filter {
        source_names: texts(&filter.source_names),
        source_namespaces: texts(&filter.source_namespaces),
        dest_names: texts(&filter.dest_names),
        dest_namespaces: texts(&filter.dest_namespaces),
        protocols: texts(&filter.protocols),
        dest_ports: filter.dest_ports.iter().map(|port| proto::PortMatch { port: *port }).collect(),
        actions: numbers(&filter.actions),
        policies: Vec::new(),
        reporter: filter.reporter.number(),
        pending_actions: numbers(&filter.pending_actions),
    })
}
