//! Lists: their selection, order and revision.

use crate::harness::{Store, expect_error, label, labelled, name_of, network_set, network_sets};
use anyhow::{Result, ensure};
use api::Kind;
use datastore::Error;
use model::ListOptions;

fn options(namespace: Option<&str>, name: Option<&str>, name_is_prefix: bool) -> ListOptions {
    ListOptions::Resource {
        kind: Kind::NetworkSet,
        namespace: namespace.map(str::to_owned),
        name: name.map(str::to_owned),
        name_is_prefix,
    }
}

pub(crate) async fn selections(store: &Store) -> Result<()> {
    store.fixture.namespace("other").await?;
    store.fixture.namespace("default-2").await?;
    for (namespace, name) in
        [("default", "web"), ("default", "web-2"), ("default", "db"), ("other", "web"), ("default-2", "web")]
    {
        store.backend.create(&network_set(namespace, name, "10.0.0.0/8")?).await?;
    }
    /// Namespace, name, whether the name is a prefix, and the entries found.
    type Selected<'a> = (Option<&'a str>, Option<&'a str>, bool, &'a [&'a str]);
    let cases: &[Selected<'_>] = &[
        (None, None, false, &["default-2/web", "default/db", "default/web", "default/web-2", "other/web"]),
        (Some("default"), None, false, &["default/db", "default/web", "default/web-2"]),
        (Some("default"), Some("web"), false, &["default/web"]),
        (Some("default"), Some("web"), true, &["default/web", "default/web-2"]),
        (Some("default"), Some("nothing"), true, &[]),
        (Some("nowhere"), None, false, &[]),
        (None, Some("web"), false, &["default-2/web", "default/web", "other/web"]),
    ];
    for (namespace, name, prefix, expected) in cases {
        let listed = store.backend.list(&options(*namespace, *name, *prefix), None).await?;
        let mut found: Vec<String> = listed
            .items
            .iter()
            .filter_map(|item| item.as_resource())
            .map(|set| format!("{}/{}", set.namespace(), set.name()))
            .collect();
        found.sort();
        ensure!(found == *expected, "{namespace:?} {name:?} {prefix}: {found:?}");
        ensure!(!listed.revision.is_empty(), "no revision");
    }
    Ok(())
}

pub(crate) async fn order_and_revision(store: &Store) -> Result<()> {
    for name in ["c", "a", "b"] {
        store.backend.create(&network_set("default", name, "10.0.0.0/8")?).await?;
    }
    let listed = store.backend.list(&network_sets("default"), None).await?;
    let names: Vec<&str> = listed.items.iter().map(name_of).collect();
    ensure!(names == ["a", "b", "c"], "{names:?}");
    for item in &listed.items {
        let read = store.backend.get(&item.key, None).await?;
        ensure!(read == *item, "the list says {item:?}, get says {read:?}");
    }
    Ok(())
}

pub(crate) async fn at_revision(store: &Store) -> Result<()> {
    let first = store.backend.create(&network_set("default", "a", "10.0.0.0/8")?).await?;
    let before = store.backend.list(&network_sets("default"), None).await?;
    store.backend.update(&labelled(&first, "second")).await?;
    store.backend.create(&network_set("default", "b", "10.0.0.0/8")?).await?;
    let listed = store.backend.list(&network_sets("default"), Some(&before.revision)).await?;
    if store.abilities.reads_at_revision {
        ensure!(listed.items == before.items, "at {}: {:?}", before.revision, listed.items);
        ensure!(listed.revision == before.revision, "a watch from {} would miss changes", listed.revision);
        let outcome = store.backend.list(&network_sets("default"), Some("999999999")).await;
        expect_error(outcome, "expired", Error::is_expired)?;
    } else {
        // "Not older than": any revision from then on is right; the current one is the freshest.
        ensure!(!listed.items.is_empty(), "nothing at {}", before.revision);
    }
    let now = store.backend.list(&network_sets("default"), Some("0")).await?;
    ensure!(now.items.iter().any(|item| label(item) == "second"), "at 0: {:?}", now.items);
    Ok(())
}
