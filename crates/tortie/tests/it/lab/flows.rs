//! Who talked to whom in a lab: the demonstration's denied flows, and the page of a living cluster.

use super::{Lab, told};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use testkit::Signal;

/// After the matrix, every denied flow is shown with the policy that denied it.
#[test]
fn a_demonstration_shows_what_was_denied_and_by_which_policy() {
    let lab = Lab::new();
    let text = lab.succeed(&["demo", "--flows", "--nodes", "2", "--pods", "3"]);
    assert!(text.contains("with its policy, was there "), "{text}");
    let denied = "GlobalNetworkPolicy default-deny: none of its rules match, and tier default ends";
    for line in ["shop/cart", "shop/database"] {
        let line =
            text.lines().find(|row| row.trim_start().starts_with(line) && row.contains("shop/frontend"));
        assert!(line.is_some_and(|row| row.ends_with(denied)), "{text}");
    }
    assert!(text.contains(" lab ui` opens"), "{text}");
    lab.assert_gone();
}

/// The response of the page's server.
fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the page's port");
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// The page is served on loopback, shows a denied flow with its rule, and knows the policies; an interrupt removes
/// everything.
#[test]
fn a_living_cluster_in_the_browser() {
    let lab = Lab::new();
    let mut child = lab.command(&["ui", "--nodes", "2"]).spawn().expect("the program");
    let mut lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
    let address =
        lines.find_map(|line| line.ok()?.split_once("Open http://").map(|(_, rest)| rest.to_owned()));
    let address = address.unwrap_or_else(|| panic!("no address\n{}", lab.logs()));
    let address = address.trim_end_matches('/').to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    assert!(get(&address, "/").contains("<title>Whisker"));
    testkit::eventually("a denied flow with its rule, and one that would be denied", || {
        let flows = get(&address, "/api/v1/flows?startTimeGte=-600");
        let has =
            |words: &[&str]| flows.split("{\"id\"").any(|flow| words.iter().all(|word| flow.contains(word)));
        has(&["\"action\":\"Deny\"", "\"laptop\"", "platform.guard"])
            && has(&["\"would\":\"Deny\"", "\"frontend\""])
    })
    .unwrap();
    let policy = get(&address, "/api/v1/policy?kind=GlobalNetworkPolicy&name=platform.guard");
    assert!(policy.contains("projectcalico.org/namespace == 'guest'"), "{policy}");
    // The lab can be used and changed in the meantime.
    lab.succeed(&["ctl", "flows", "--denied", "--last", "1"]);
    testkit::signal(child.id(), Signal::INT).expect("a signal");
    let output = child.wait_with_output().expect("an end");
    assert!(output.status.success(), "{}", told(&output));
    lab.assert_gone();
}
