//! Output of Calico's own tool, reproduced by ours byte for byte.

use api::document::{Checks, read};
use api::{Kind, Resource};
use calicoctl::for_tests::{Answer, Format, Settings};
use std::path::PathBuf;

fn captured(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/captured").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn lists_in_yaml() {
    for (name, kind) in [
        ("nodes.yaml", Kind::Node),
        ("profiles.yaml", Kind::Profile),
        ("workloadendpoints.yaml", Kind::WorkloadEndpoint),
    ] {
        let text = captured(name);
        let documents =
            read(name, text.as_bytes(), Checks::Structure).unwrap_or_else(|mistakes| panic!("{mistakes}"));
        let items: Vec<Resource> = documents.into_iter().map(|document| document.resource).collect();
        // The list's own version is the last field of the document; those of the items are indented more.
        let revision = text.lines().rev().find_map(|line| line.strip_prefix("  resourceVersion: "));
        let revision = revision.unwrap_or_default().trim_matches('"').to_owned();
        let answer = Answer::List { kind, items, revision };
        let printed = Format::Yaml.render(&[answer], false, &Settings::default()).expect("YAML");
        assert_eq!(printed, text, "{name}");
    }
}

#[test]
fn the_wide_table_of_workload_endpoints() {
    let stored = captured("workloadendpoints-stored.jsonl");
    let read =
        |line: &str| Resource::from_json(Kind::WorkloadEndpoint, line.as_bytes()).expect("an endpoint");
    let items: Vec<Resource> = stored.lines().map(read).collect();
    let answer = Answer::List { kind: Kind::WorkloadEndpoint, items, revision: String::new() };
    let printed = Format::Wide.render(&[answer], true, &Settings::default()).expect("a table");
    assert_eq!(printed, captured("workloadendpoints-wide.txt"));
}
