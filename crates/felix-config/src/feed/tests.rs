//! Settings from feeds, arriving in any order.

use super::*;
use api::Node;
use model::convert::{self, Faults};
use model::feed::ReadyFlag;
use model::v1::HostConfigKey;
use serde_json::{Value, json};

fn global(name: &str, text: Option<&str>) -> FeedEntry {
    FeedEntry::GlobalConfig(name.into(), text.map(str::to_owned))
}

fn host(host: &str, name: &str, text: Option<&str>) -> FeedEntry {
    FeedEntry::HostConfig(HostConfigKey { host: host.into(), name: name.into() }, text.map(str::to_owned))
}

fn node(name: &str, zone: &str) -> FeedEntry {
    let mut node = Node::default();
    node.metadata.labels.insert("zone".into(), zone.into());
    FeedEntry::Node(name.into(), Some(Box::new(convert::node::node(node, &mut Faults::new()))))
}

fn configuration(name: &str, created: Option<&str>, selector: &str, spec: &Value) -> FeedEntry {
    let mut object = json!({
        "kind": "FelixConfiguration", "apiVersion": "projectcalico.org/v3",
        "metadata": {"name": name, "creationTimestamp": created}, "spec": spec
    });
    if !selector.is_empty() {
        object["spec"]["nodeSelector"] = selector.into();
    }
    let configuration: FelixConfiguration = serde_json::from_value(object).unwrap();
    FeedEntry::FelixConfiguration(name.into(), Some(Box::new(configuration)))
}

fn in_sync(updates: &[FeedEntry]) -> FeedSettings {
    let mut feed = FeedSettings::new("me");
    feed.on_entry(&FeedEntry::Ready(ReadyFlag, Some(true)));
    for update in updates {
        feed.on_entry(update);
    }
    assert_eq!(feed.take_news(), None, "nothing is handed out before the feed is in sync");
    feed.on_status(Status::ResyncInProgress);
    assert_eq!(feed.take_news(), None);
    feed.on_status(Status::InSync);
    feed
}

fn texts(pairs: &[(&str, &str)]) -> Texts {
    pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn settings_for_all_nodes_and_for_this_node_are_kept_apart() {
    let mut feed = in_sync(&[
        global("LogPrefix", Some("a")),
        host("me", "LogPrefix", Some("b")),
        host("other", "LogPrefix", Some("c")),
    ]);
    let news = feed.take_news().unwrap();
    assert!(news.is_ready);
    assert_eq!((news.global, news.host), (texts(&[("LogPrefix", "a")]), texts(&[("LogPrefix", "b")])));
    assert_eq!(feed.take_news(), None);
    // Repetitions, and entries about other things, are not news.
    feed.on_entry(&global("LogPrefix", Some("a")));
    feed.on_entry(&global("Unset", None));
    feed.on_entry(&host("other", "LogPrefix", None));
    feed.on_entry(&node("other", "a"));
    assert_eq!(feed.take_news(), None);
    feed.on_entry(&host("me", "LogPrefix", None));
    assert_eq!(feed.take_news().unwrap().host, texts(&[]));
    feed.on_entry(&FeedEntry::Ready(ReadyFlag, None));
    assert!(!feed.take_news().unwrap().is_ready);
}

#[test]
fn a_datastore_is_not_ready_before_it_says_so() {
    let mut feed = FeedSettings::new("me");
    feed.on_status(Status::InSync);
    assert_eq!(feed.take_news(), Some(DatastoreSettings::default()));
}

#[test]
fn the_oldest_configuration_that_selects_the_node_applies() {
    let spec =
        |prefix: &str| json!({"logPrefix": prefix, "bpfEnabled": true, "routeRefreshInterval": "1m30s"});
    let selected = |prefix: &str| {
        texts(&[("BPFEnabled", "true"), ("LogPrefix", prefix), ("RouteRefreshInterval", "90")])
    };
    let young = configuration("a", Some("2026-02-01T00:00:00Z"), "zone == 'x'", &spec("young"));
    let old = configuration("z", Some("2026-01-01T00:00:00Z"), "has(zone)", &spec("old"));
    let elsewhere = configuration("b", Some("2025-01-01T00:00:00Z"), "zone == 'y'", &spec("elsewhere"));
    let unscoped = configuration("c", Some("2024-01-01T00:00:00Z"), "", &spec("unscoped"));
    let broken = configuration("d", Some("2024-01-01T00:00:00Z"), "zone ==", &spec("broken"));
    let updates = [young.clone(), old, elsewhere, unscoped, broken, node("me", "x")];
    for order in [updates.clone(), {
        let mut reversed = updates;
        reversed.reverse();
        reversed
    }] {
        let mut feed = in_sync(&order);
        assert_eq!(feed.take_news().unwrap().selected, selected("old"));
        feed.on_entry(&node("me", "y"));
        assert_eq!(feed.take_news().unwrap().selected, selected("elsewhere"));
        feed.on_entry(&node("me", "y"));
        assert_eq!(feed.take_news(), None);
        feed.on_entry(&FeedEntry::FelixConfiguration("b".into(), None));
        assert_eq!(feed.take_news().unwrap().selected, selected("old"));
        feed.on_entry(&FeedEntry::Node("me".into(), None));
        assert_eq!(feed.take_news().unwrap().selected, texts(&[]));
    }
    // Of equally old configurations the first name wins; one without a time is the oldest.
    let same = configuration("b", Some("2026-02-01T00:00:00Z"), "all()", &spec("same"));
    let timeless = configuration("y", None, "all()", &spec("timeless"));
    assert_eq!(
        in_sync(&[same.clone(), young, node("me", "x")]).take_news().unwrap().selected,
        selected("young")
    );
    assert_eq!(
        in_sync(&[same, timeless, node("me", "x")]).take_news().unwrap().selected,
        selected("timeless")
    );
}

#[test]
fn annotations_override_fields() {
    let mut scoped = configuration("a", None, "all()", &json!({"logPrefix": "field"}));
    if let FeedEntry::FelixConfiguration(_, Some(configuration)) = &mut scoped {
        let annotations = &mut configuration.metadata.annotations;
        annotations.insert("config.projectcalico.org/LogPrefix".into(), "annotation".into());
        annotations.insert("config.projectcalico.org/Extra".into(), "x".into());
    }
    let mut feed = in_sync(&[scoped, node("me", "x")]);
    assert_eq!(feed.take_news().unwrap().selected, texts(&[("Extra", "x"), ("LogPrefix", "annotation")]));
}
