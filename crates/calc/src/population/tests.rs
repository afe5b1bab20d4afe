//! Items under their keys, and the profiles that are added and removed with them.

use super::{ItemId, ItemKey, Population, Put};
use crate::matching::Labelled as _;
use model::v1::WorkloadEndpointKey;
use std::collections::BTreeMap;

fn map(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn workload(name: &str) -> WorkloadEndpointKey {
    WorkloadEndpointKey {
        host: "h".into(),
        orchestrator: "k8s".into(),
        workload: name.into(),
        endpoint: "eth0".into(),
    }
}

fn value(population: &Population, id: ItemId, name: &str) -> Option<String> {
    let symbol = population.labels.names.find(name)?;
    let item = population.item(id)?;
    population.view(item).value(symbol).map(|value| String::from_utf8_lossy(value).into_owned())
}

#[test]
fn items_inherit_and_leave_nothing_behind() {
    let mut population = Population::default();
    let profiles = ["p1".into(), "p2".into()];
    let Put::New(a) = population.put(
        &ItemKey::from(&workload("a")),
        &map(&[("own", "1"), ("both", "mine")]).into(),
        &profiles,
        b"x",
    ) else {
        panic!("it is new")
    };
    let same = population.put(
        &ItemKey::from(&workload("a")),
        &map(&[("own", "1"), ("both", "mine")]).into(),
        &profiles,
        b"x",
    );
    assert!(matches!(same, Put::Same(id) if id == a));

    for (profile, labels) in [("p1", map(&[("both", "p1")])), ("p2", map(&[("both", "p2"), ("far", "2")]))] {
        let id = population.get_or_add_parent(&profile.into());
        assert!(population.set_parent_labels(id, &labels).is_some());
        assert!(population.set_parent_labels(id, &labels).is_none(), "nothing changed");
    }
    let got = ["own", "both", "far", "none"].map(|name| value(&population, a, name));
    assert_eq!(got, [Some("1".into()), Some("mine".into()), Some("2".into()), None]);

    let Put::Changed(_, before) =
        population.put(&ItemKey::from(&workload("a")), &map(&[]).into(), &profiles, b"y")
    else {
        panic!("labels and contribution are others")
    };
    assert_eq!(
        (before.contribution().0, population.item(a).unwrap().contribution().0),
        (&b"x"[..], &b"y"[..])
    );
    population.forget(before.labels);
    assert_eq!(value(&population, a, "both"), Some("p1".into()), "the first profile wins");

    assert!(matches!(
        population.put(&ItemKey::NetworkSet { name: "a" }, &map(&[]).into(), &[], b""),
        Put::New(_)
    ));
    assert!(population.remove(&ItemKey::from(&workload("b"))).is_none());
    let (_, item) = population.remove(&ItemKey::from(&workload("a"))).unwrap();
    population.forget(item.labels);
    assert_eq!(population.item_count(), 1, "the set of the same name stays");
    population.remove(&ItemKey::NetworkSet { name: "a" }).unwrap();

    for profile in profiles {
        let id = population.find_parent(&profile).expect("it still has labels");
        let old = population.set_parent_labels(id, &map(&[])).unwrap();
        population.forget(old);
        population.drop_parent_if_unused(id);
        assert!(population.find_parent(&profile).is_none());
    }
    assert_eq!((population.labels.len(), population.labels.names.len(), population.words.len()), (0, 0, 0));
}

#[test]
fn a_pinned_profile_stays_and_keeps_its_members_apart() {
    let mut population = Population::default();
    let pinned = population.get_or_add_parent(&"p".into());
    population.pin_parent(pinned);
    let twice = ["p".into(), "p".into()];
    let Put::New(a) = population.put(&ItemKey::from(&workload("a")), &map(&[]).into(), &twice, b"") else {
        panic!("it is new")
    };
    assert_eq!(population.parent(pinned).unwrap().items.as_slice(), [a]);
    let put = population.put(&ItemKey::from(&workload("a")), &map(&[]).into(), &["q".into()], b"");
    assert!(matches!(put, Put::Changed(..)));
    assert!(population.parent(pinned).unwrap().items.is_empty());
    assert_eq!(population.find_parent(&"p".into()), Some(pinned));
    population.unpin_parent(pinned);
    assert_eq!(population.find_parent(&"p".into()), None);
    assert_eq!(population.parents().count(), 1);
}
