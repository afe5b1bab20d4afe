//! The kinds with many settings: objects with every field set, in the order and form in which Go writes them.

use api::schema::{for_kind, property};
use api::{Kind, Resource};
use serde_json::Value;
use std::collections::BTreeSet;

fn objects() -> Vec<(Kind, &'static str)> {
    include_str!("../data/settings.txt")
        .lines()
        .map(|line| {
            let value: Value = serde_json::from_str(line).unwrap();
            (Kind::from_name(value["kind"].as_str().unwrap()).unwrap(), line)
        })
        .collect()
}

#[test]
fn every_field_is_written_back_in_order() {
    for (kind, line) in objects() {
        let resource =
            Resource::from_json(kind, line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(String::from_utf8(resource.to_json().unwrap()).unwrap(), line);
        resource.validate().unwrap_or_else(|errors| panic!("{line}\n{errors}"));
    }
}

#[test]
fn no_field_is_missing_from_the_objects() {
    for kind in [
        Kind::BGPConfiguration,
        Kind::BGPFilter,
        Kind::BGPPeer,
        Kind::CalicoNodeStatus,
        Kind::ClusterInformation,
        Kind::FelixConfiguration,
        Kind::KubeControllersConfiguration,
    ] {
        let mut seen = BTreeSet::new();
        for (_, line) in objects().into_iter().filter(|(found, _)| *found == kind) {
            let value: Value = serde_json::from_str(line).unwrap();
            seen.extend(value["spec"].as_object().unwrap().keys().cloned());
        }
        let known = property(for_kind(kind), "spec").unwrap()["properties"].as_object().unwrap();
        let known: BTreeSet<String> = known.keys().cloned().collect();
        assert_eq!(seen, known, "{kind}");
    }
}

#[test]
fn felix_has_all_188_parameters() {
    let spec = property(for_kind(Kind::FelixConfiguration), "spec").unwrap();
    assert_eq!(spec["properties"].as_object().unwrap().len(), 188);
}

#[test]
fn words_in_any_case_keep_their_spelling_and_mean_the_same() {
    use api::{ChainInsert, ChainInsertMode, EnabledOrDisabled, Written};
    for (text, meaning) in [
        ("insert", Some(ChainInsert::Insert)),
        ("APPEND", Some(ChainInsert::Append)),
        ("Prepend", None),
        ("", None),
    ] {
        let mode = ChainInsertMode::from(text);
        assert_eq!((mode.as_str(), mode.parse().ok()), (text, meaning));
    }
    let switch = Written::<EnabledOrDisabled>::from("enabled");
    assert_eq!(
        (switch.as_str(), switch.known()),
        ("enabled", None),
        "this one is compared letter for letter"
    );
}

#[test]
fn peer_addresses() {
    for (text, port) in [
        ("10.0.0.1", Some(None)),
        ("10.0.0.1:179", Some(Some(179))),
        ("fd00::1", Some(None)),
        ("[fd00::1]:65535", Some(Some(65535))),
        ("[fd00::1]", None),
        ("[10.0.0.1]:179", None),
        ("fd00::1:179:x", None),
        ("10.0.0.1:0", None),
        ("10.0.0.1:65536", None),
        ("10.0.0.1:+1", None),
        ("10.0.0.1:", None),
        ("peer.example:179", None),
        ("", None),
    ] {
        assert_eq!(api::PeerAddress::from(text).parse().ok().map(|(_, port)| port), port, "{text}");
    }
}
