//! Compares filters with a slow, obvious evaluator of the flags, with and without a server that applies its part.

use crate::{data, parse};
use flows::{Action, Decider, EndpointType, Reporter};
use flows_cli::filter::Filter;
use flows_cli::{Flow, json, push};
use proptest::prelude::*;

const PODS: [&str; 9] = [
    "web",
    "shop/web",
    "shop/web-7d9f-x2k9z",
    "web-7d9f-zzzzz",
    "db-0",
    "load/db",
    "d",
    "coredns-abc",
    "bare",
];
const NAMESPACES: [&str; 4] = ["shop", "load", "-", "nowhere"];
const LABELS: [&str; 6] =
    ["app=web", "app", "app!=web", "app=web,version=2", "app=web,version!=2", "nothing"];

/// Flags with one of their values.
fn flag() -> impl Strategy<Value = (&'static str, &'static str)> {
    let of = |flags: &'static [&'static str], values: &'static [&'static str]| {
        (prop::sample::select(flags), prop::sample::select(values))
    };
    prop_oneof![
        of(&["from-pod", "to-pod", "pod"], &PODS),
        of(&["from-namespace", "to-namespace", "namespace"], &NAMESPACES),
        of(&["from-label", "to-label", "label"], &LABELS),
        of(&["service"], &["web", "shop/db", "load/db"]),
        of(&["port"], &["80", "53", "5432", "0"]),
        of(&["protocol"], &["tcp", "UDP", "icmp"]),
        of(&["verdict"], &["allowed", "denied", "passed", "Deny"]),
        of(&["denied", "would-deny", "would-allow"], &[""]),
        of(&["policy"], &["db", "shop/web", "tried", "office", "load/db"]),
        of(&["tier"], &["default", "platform"]),
        of(&["reporter"], &["src", "dst"]),
    ]
}

/// Whether one flag holds, evaluated in the most obvious way.
fn holds(name: &str, value: &str, flow: &Flow) -> bool {
    let key = &flow.key;
    let both = [(&key.source, &flow.source_labels), (&key.dest, &flow.dest_labels)];
    let ends = match name.split('-').next().unwrap() {
        "from" => vec![both[0]],
        "to" => vec![both[1]],
        _ => both.to_vec(),
    };
    let split = |text: &str| match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
        None => (None, text.to_owned()),
    };
    let hits: Vec<_> = key.trace.enforced.iter().chain(&key.trace.pending).collect();
    let pending = key.trace.pending.last().map(|hit| hit.action);
    match name.trim_start_matches("from-").trim_start_matches("to-") {
        "pod" => {
            let (namespace, pod) = split(value);
            ends.iter().any(|(peer, _)| {
                let stem = peer.name.trim_end_matches('*');
                peer.kind == EndpointType::Workload
                    && namespace.as_ref().is_none_or(|wanted| **wanted == *peer.namespace)
                    && (peer.name.starts_with(&pod)
                        || (stem.ends_with('-') && stem != &*peer.name && pod.starts_with(stem)))
            })
        }
        "namespace" => ends.iter().any(|(peer, _)| &*peer.namespace == value),
        "label" => ends.iter().any(|(_, labels)| {
            let has = |text: &str| labels.texts().iter().any(|label| &**label == text);
            value.split(',').all(|part| match part.split_once("!=") {
                Some((key, value)) => !has(&format!("{key}={value}")),
                None if part.contains('=') => has(part),
                None => labels.texts().iter().any(|label| label.starts_with(&format!("{part}="))),
            })
        }),
        "service" => {
            let (namespace, service) = split(value);
            *key.service.name == *service && namespace.is_none_or(|wanted| *wanted == *key.service.namespace)
        }
        "port" => key.dest_port.to_string() == value && ["tcp", "udp", "sctp"].contains(&&*key.protocol),
        "protocol" => key.protocol.eq_ignore_ascii_case(value),
        "verdict" => match value {
            "allowed" => key.action == Action::Allow,
            "passed" => key.trace.enforced.iter().any(|hit| hit.action == Action::Pass),
            _ => key.action == Action::Deny,
        },
        "denied" => key.action == Action::Deny,
        "would-deny" => key.action != Action::Deny && pending == Some(Action::Deny),
        "would-allow" => key.action != Action::Allow && pending == Some(Action::Allow),
        "policy" => {
            let (namespace, policy) = split(value);
            hits.iter().filter_map(|hit| hit.policy()).any(|found| {
                *found.name == *policy && namespace.as_ref().is_none_or(|wanted| **wanted == *found.namespace)
            })
        }
        "tier" => hits.iter().any(|hit| match &hit.by {
            Decider::Rule { policy, .. } => &*policy.tier == value,
            Decider::EndOfTier { tier, .. } => &**tier == value,
        }),
        "reporter" => key.reporter == if value == "src" { Reporter::Src } else { Reporter::Dst },
        other => panic!("{other}"),
    }
}

/// Flags in the same group are alternatives.
fn group(name: &str) -> &str {
    match name {
        "denied" => "verdict",
        "would-allow" => "would-deny",
        name => name,
    }
}

fn passes(flags: &[(bool, (&str, &str))], flow: &Flow) -> bool {
    flags.iter().all(|(not, (name, value))| match not {
        true => !holds(name, value, flow),
        false => flags
            .iter()
            .filter(|(not, (other, _))| !not && group(other) == group(name))
            .any(|(_, (name, value))| holds(name, value, flow)),
    })
}

fn filter(flags: &[(bool, (&str, &str))]) -> Filter {
    let mut words = Vec::new();
    for (not, (name, value)) in flags {
        if *not {
            words.push("--not".to_owned());
        }
        words.push(format!("--{name}"));
        if !value.is_empty() {
            words.push((*value).to_owned());
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    parse(&words).unwrap().list.input.filters.0
}

proptest! {
    #[test]
    fn local_and_server_filters_agree_with_the_flags(flags in prop::collection::vec((prop::bool::weighted(0.25), flag()), 0..5)) {
        let flows = json::read(&std::fs::read_to_string(data("shop.jsonl")).unwrap()).unwrap();
        let filter = filter(&flags);
        let asked = push::server_filter(&filter);
        // As the server decodes it.
        let server = goldmane_api::convert::filter(push::message(&asked));
        prop_assert_eq!(&server, &asked);
        for flow in &flows {
            let expected = passes(&flags, flow);
            prop_assert_eq!(filter.passes(flow), expected, "{:?}\n{:?}", flags, flow);
            prop_assert!(!expected || server.passes(&flow.key), "the server keeps back {:?}\n{:?}", flags, flow);
        }
    }
}

#[test]
fn servers_do_their_part() {
    let asked = |words: &[&str]| push::server_filter(&parse(words).unwrap().list.input.filters.0);
    let full = asked(&[
        "--from-pod",
        "shop/web-1",
        "--to-namespace",
        "kube-system",
        "--port",
        "53",
        "--protocol",
        "UDP",
        "--denied",
        "--reporter",
        "src",
    ]);
    let texts = |texts: &[flows::query::StringMatch]| {
        texts.iter().map(|text| (text.value.clone(), text.is_fuzzy)).collect::<Vec<_>>()
    };
    assert_eq!(texts(&full.source_names), [("web-1".to_owned(), true), ("web-*".to_owned(), false)]);
    assert_eq!(texts(&full.source_namespaces), [("shop".to_owned(), false)]);
    assert_eq!(texts(&full.dest_namespaces), [("kube-system".to_owned(), false)]);
    assert_eq!(texts(&full.protocols), [("udp".to_owned(), false)]);
    assert_eq!((full.dest_ports, full.actions, full.reporter), (vec![53], vec![Action::Deny], Reporter::Src));
    let would = asked(&["--would-deny"]);
    assert_eq!((would.actions, would.pending_actions), (vec![Action::Allow], vec![Action::Deny]));
    for words in [
        &["--pod", "web"][..],
        &["--not", "--denied"],
        &["--policy", "db"],
        &["--denied", "--verdict", "passed"],
        &[],
    ] {
        assert!(asked(words).is_empty(), "{words:?}");
    }
}

#[test]
fn mistakes_are_reported() {
    for (words, part) in [
        (&["--not"][..], "--not must have a filter behind it"),
        (&["--not", "--not", "--denied"], "--not is given twice"),
        (&["--verdict", "maybe"], "--verdict: \"maybe\" is not a verdict"),
        (&["--port", "http"], "--port: \"http\" is not a port number"),
        (&["--label", "=x"], "--label: \"=x\" is not KEY=VALUE"),
        (&["--reporter", "both"], "--reporter: \"both\" is not a reporter"),
        (&["--server", "a:1", "--input-file", "x"], "cannot be used with"),
    ] {
        let error = parse(words).unwrap_err().to_string();
        assert!(error.contains(part), "{words:?}: {error}");
    }
}
