//! The drop-in proof: the objects of a file, created by our client on etcd, give the same bytes that Calico stored.

use crate::stores::{RealEtcd, Store};
use api::document::{self, Checks};

const INPUT: &str = include_str!("../data/felix-input.yaml");
const STORED_BY_CALICO: &str = include_str!("../../../testkit/data/felix-etcd.txt");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stored_bytes_equal_those_of_calico() {
    let store = RealEtcd::start().await;
    let documents = document::read("input.yaml", INPUT.as_bytes(), Checks::Everything).expect("a valid file");
    assert!(documents.len() > 10, "the file has lost objects");
    for document in documents {
        let resource = document.resource;
        let label = format!("{}({})", resource.kind(), resource.name());
        store.client().create_any(resource).await.unwrap_or_else(|error| panic!("{label}: {error}"));
    }
    let (ours, calicos) = (masked(&store.dump("/calico/")), masked(STORED_BY_CALICO));
    let (ours, calicos): (Vec<&str>, Vec<&str>) = (ours.lines().collect(), calicos.lines().collect());
    for (our, calico) in ours.iter().zip(&calicos) {
        assert_eq!(our, calico);
    }
    assert_eq!(ours.len(), calicos.len());
}

/// The text with the values that differ from run to run replaced.
fn masked(text: &str) -> String {
    let mut text = text.to_owned();
    for field in ["uid", "creationTimestamp", "clusterGUID"] {
        let start = format!("\"{field}\":\"");
        let mut out = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some(position) = rest.find(&start) {
            let value = position + start.len();
            let end = rest[value..].find('"').map_or(rest.len(), |length| value + length);
            // The shape must match even though the value differs.
            out.push_str(&rest[..value]);
            out.extend(rest[value..end].chars().map(shape));
            rest = &rest[end..];
        }
        out.push_str(rest);
        text = out;
    }
    text
}

/// Maps digits and hexadecimal letters to the same character; keeps everything else.
fn shape(character: char) -> char {
    if character.is_ascii_hexdigit() { 'x' } else { character }
}
