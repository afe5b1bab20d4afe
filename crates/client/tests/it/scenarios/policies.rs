//! Tiers and policies.

use super::{initialised, refused_fields};
use crate::stores::Store;
use api::{
    GlobalNetworkPolicy, GlobalNetworkPolicySpec, NetworkPolicy, NetworkPolicySpec, PolicyType, StagedAction,
    StagedNetworkPolicy, StagedNetworkPolicySpec, Tier, TierSpec,
};
use client::{DeleteOptions, Error, ListQuery};

const TIER_LABEL: &str = "projectcalico.org/tier";

fn in_tier(tier: &str) -> GlobalNetworkPolicySpec {
    GlobalNetworkPolicySpec { tier: tier.into(), ..Default::default() }
}

pub(super) async fn a_policy_needs_its_tier(store: &dyn Store) {
    let client = store.client();
    let policies = client.resource::<GlobalNetworkPolicySpec>();
    let outcome = policies.create(GlobalNetworkPolicy::new("", "p", in_tier(""))).await;
    let Err(Error::DoesNotExist { key, .. }) = outcome else {
        panic!("no default tier yet, but {outcome:?}")
    };
    assert_eq!(key, "Tier(default)");

    initialised(store).await;
    policies
        .create(GlobalNetworkPolicy::new("", "p", in_tier("")))
        .await
        .expect("the default tier is there now");
    let outcome = policies.create(GlobalNetworkPolicy::new("", "net-sec.p", in_tier("net-sec"))).await;
    let Err(error @ Error::DoesNotExist { .. }) = outcome else { panic!("no such tier, but {outcome:?}") };
    assert!(error.to_string().starts_with("resource does not exist: Tier(net-sec)"), "{error}");
    client
        .resource::<TierSpec>()
        .create(Tier::new("", "net-sec", TierSpec::default()))
        .await
        .expect("the tier");
    policies.create(GlobalNetworkPolicy::new("", "net-sec.p", in_tier("net-sec"))).await.expect("creating");
}

pub(super) async fn defaults_are_filled_in_and_labels_forced(store: &dyn Store) {
    let client = initialised(store).await;
    let policies = client.resource::<NetworkPolicySpec>();
    let mut policy = NetworkPolicy::new("shop", "plain", NetworkPolicySpec::default());
    policy.metadata.labels.insert(TIER_LABEL.into(), "wrong".into());
    policy.metadata.labels.insert("mine".into(), "kept".into());
    let created = policies.create(policy).await.expect("creating");
    let read = policies.get("shop", "plain").await.expect("reading");
    let listed = policies.list(&ListQuery::in_namespace("shop")).await.expect("listing").items.remove(0);
    for policy in [&created, &read, &listed] {
        assert_eq!(policy.metadata.labels.get(TIER_LABEL).map(String::as_str), Some("default"));
        assert_eq!(policy.metadata.labels.get("mine").map(String::as_str), Some("kept"));
        assert_eq!(policy.spec.types, [PolicyType::Ingress]);
        assert_eq!(policy.spec.tier, "default");
        assert!(
            !policy.metadata.annotations.contains_key("projectcalico.org/metadata"),
            "an internal annotation shows"
        );
    }
    let mut invalid = read;
    invalid.spec.selector = "app == ".into();
    assert_eq!(refused_fields(policies.update(invalid).await), ["spec.selector"]);
}

pub(super) async fn a_tier_with_policies_cannot_be_deleted(store: &dyn Store) {
    let client = initialised(store).await;
    let (tiers, policies) = (client.resource::<TierSpec>(), client.resource::<GlobalNetworkPolicySpec>());
    tiers.create(Tier::new("", "busy", TierSpec::default())).await.expect("the tier");
    let mut policy =
        policies.create(GlobalNetworkPolicy::new("", "busy.p", in_tier("busy"))).await.expect("a policy");
    let outcome = tiers.delete("", "busy", &DeleteOptions::default()).await;
    let Err(error @ Error::NotSupported { .. }) = outcome else { panic!("not empty, but {outcome:?}") };
    assert!(error.to_string().contains("Cannot delete a non-empty tier"), "{error}");
    assert!(error.to_string().contains("GlobalNetworkPolicy(busy.p)"), "{error}");

    // A policy whose tier was deleted can still be changed.
    policy.spec.order = Some(api::scalars::GoFloat(7.0));
    policies.update(policy).await.expect("updating");
    policies.delete("", "busy.p", &DeleteOptions::default()).await.expect("deleting the policy");
    tiers.delete("", "busy", &DeleteOptions::default()).await.expect("the tier is empty");
}

pub(super) async fn built_in_tiers_stay(store: &dyn Store) {
    let client = initialised(store).await;
    let tiers = client.resource::<TierSpec>();
    for name in ["default", "kube-admin", "kube-baseline"] {
        let outcome = tiers.delete("", name, &DeleteOptions::default()).await;
        let Err(error @ Error::NotSupported { .. }) = outcome else { panic!("{name}: {outcome:?}") };
        assert!(error.to_string().contains(&format!("Cannot delete {name} tier")), "{error}");
        let mut tier = tiers.get("", name).await.expect("still there");
        tier.spec.order = Some(api::scalars::GoFloat(5.0));
        assert_eq!(refused_fields(tiers.update(tier).await), ["spec.order"], "{name}");
    }
}

pub(super) async fn names_are_checked(store: &dyn Store) {
    let client = initialised(store).await;
    let tiers = client.resource::<TierSpec>();
    for name in ["a.b", "A", &"x".repeat(64)] {
        let outcome = tiers.create(Tier::new("", name, TierSpec::default())).await;
        assert_eq!(refused_fields(outcome), ["metadata.name"], "{name}");
    }
    let policies = client.resource::<NetworkPolicySpec>();
    for name in ["a.b.c", "Upper", "under_score", "-a"] {
        let outcome = policies.create(NetworkPolicy::new("shop", name, NetworkPolicySpec::default())).await;
        assert_eq!(refused_fields(outcome), ["metadata.name"], "{name}");
    }
    for name in ["a", "a.b", "default.c", "knp.default.a.b.c"] {
        let policy = NetworkPolicy::new("shop", name, NetworkPolicySpec::default());
        let created = policies.create(policy).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(created.metadata.name, name);
        assert_eq!(policies.get("shop", name).await.expect("reading").metadata.name, name);
    }
    // Written as by version 3.32: under exactly this name.
    assert_eq!(store.stored_policy_names("shop").await, ["a", "a.b", "default.c", "knp.default.a.b.c"]);
}

pub(super) async fn names_of_old_versions_are_understood(store: &dyn Store) {
    let client = initialised(store).await;
    let policies = client.resource::<NetworkPolicySpec>();
    store.put_legacy_policy("shop", "old").await;
    store.put_legacy_policy("shop", "gone").await;
    let listed = policies.list(&ListQuery::in_namespace("shop")).await.expect("listing").items;
    let names: Vec<&str> = listed.iter().map(|policy| policy.metadata.name.as_str()).collect();
    assert_eq!(names, ["gone", "old"]);

    let mut old = policies.get("shop", "old").await.expect("reading by the name that users know");
    assert_eq!((old.metadata.name.as_str(), old.spec.selector.as_str()), ("old", "app == 'db'"));
    assert_eq!(old.metadata.labels.get(TIER_LABEL).map(String::as_str), Some("default"));
    old.spec.selector = "app == 'new'".into();
    let updated = policies.update(old.clone()).await.expect("updating");
    assert_eq!(updated.metadata.name, "old");
    assert!(
        matches!(policies.update(old).await, Err(Error::UpdateConflict { .. })),
        "a stale update must fail"
    );
    assert_eq!(policies.get("shop", "old").await.expect("reading").spec.selector.as_str(), "app == 'new'");
    let again = NetworkPolicy::new("shop", "old", NetworkPolicySpec::default());
    assert!(matches!(policies.create(again).await, Err(Error::AlreadyExists { .. })), "the name is taken");

    policies.delete("shop", "gone", &DeleteOptions::default()).await.expect("deleting");
    policies.delete("shop", "old", &DeleteOptions::default()).await.expect("deleting");
    assert_eq!(store.stored_policy_names("shop").await, Vec::<String>::new());
}

pub(super) async fn staged_policies(store: &dyn Store) {
    let client = initialised(store).await;
    let policies = client.resource::<StagedNetworkPolicySpec>();
    let created =
        policies.create(StagedNetworkPolicy::new("shop", "s", Default::default())).await.expect("creating");
    assert_eq!(created.spec.staged_action, StagedAction::Set);
    assert_eq!(created.spec.types, [PolicyType::Ingress]);
    let mut deletion = StagedNetworkPolicy::new("shop", "d", StagedNetworkPolicySpec::default());
    deletion.spec.staged_action = StagedAction::Delete;
    let created = policies.create(deletion.clone()).await.expect("creating a staged deletion");
    assert!(created.spec.types.is_empty());
    deletion.metadata.name = "e".into();
    deletion.spec.selector = "all()".into();
    assert!(matches!(policies.create(deletion).await, Err(Error::Validation(_))));
}
