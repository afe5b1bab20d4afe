//! Kinds with rules of their own.

use super::pools::affinity_key;
use super::{initialised, refusal, refused_fields};
use crate::stores::Store;
use api::*;
use client::{DeleteOptions, Error};
use model::{Key, Value};

pub(super) async fn peers_need_their_filters(store: &dyn Store) {
    let client = store.client();
    let (peers, filters) = (client.resource::<BGPPeerSpec>(), client.resource::<BGPFilterSpec>());
    let peer = |filters: &[&str]| {
        let spec = serde_json::json!({"peerIP": "192.0.2.1", "asNumber": 64512, "filters": filters});
        BGPPeer::new("", "peer", serde_json::from_value(spec).expect("a peer"))
    };
    filters.create(BGPFilter::new("", "here", BGPFilterSpec::default())).await.expect("a filter");
    let outcome = peers.create(peer(&["here", "not-here", "nor-here"])).await;
    let Err(Error::Validation(errors)) = &outcome else { panic!("{outcome:?}") };
    assert_eq!(
        errors.to_string(),
        "error with field spec.filters = 'not-here, nor-here' (BGPFilter(s) not found)"
    );
    let mut created = peers.create(peer(&["here"])).await.expect("creating");
    created.spec.filters = vec!["not-here".into()];
    assert_eq!(refusal(peers.update(created).await, "spec.filters"), "BGPFilter(s) not found");
}

pub(super) async fn single_objects_have_one_name(store: &dyn Store) {
    let client = initialised(store).await;
    let other = ClusterInformation::new("", "other", ClusterInformationSpec::default());
    assert_eq!(
        refused_fields(client.resource::<ClusterInformationSpec>().create(other).await),
        ["metadata.name"]
    );
    let other = KubeControllersConfiguration::new("", "other", KubeControllersConfigurationSpec::default());
    let outcome = client.resource::<KubeControllersConfigurationSpec>().create(other).await;
    assert_eq!(refused_fields(outcome), ["metadata.name"]);
    let other = IPAMConfiguration::new("", "other", IPAMConfigurationSpec::default());
    assert_eq!(
        refused_fields(client.resource::<IPAMConfigurationSpec>().create(other).await),
        ["metadata.name"]
    );

    let spec: BGPConfigurationSpec =
        serde_json::from_value(serde_json::json!({"asNumber": 64500})).expect("a spec");
    let own = BGPConfiguration::new("", "node.n1", spec.clone());
    assert_eq!(
        refused_fields(client.resource::<BGPConfigurationSpec>().create(own).await),
        ["spec.asNumber"]
    );
    let shared = BGPConfiguration::new("", "default", spec);
    client.resource::<BGPConfigurationSpec>().create(shared).await.expect("creating");
    let kept = KubeControllersConfiguration::new("", "default", KubeControllersConfigurationSpec::default());
    let kept = client.resource::<KubeControllersConfigurationSpec>().create(kept).await.expect("creating");
    assert_eq!(kept.spec.prometheus_metrics_port, Some(9094));
}

pub(super) async fn felix_configuration_gets_its_defaults(store: &dyn Store) {
    let configurations = store.client().resource::<FelixConfigurationSpec>();
    let created = configurations
        .create(FelixConfiguration::new("", "default", Default::default()))
        .await
        .expect("creating");
    let stored = serde_json::to_value(&created.spec).expect("JSON");
    for (field, expected) in [
        ("floatingIPs", "Disabled"),
        ("bpfConnectTimeLoadBalancing", "TCP"),
        ("bpfHostNetworkedNATWithoutCTLB", "Enabled"),
        // From the schema: filled in by us or by the API server, with the same result.
        ("nftablesMode", "Auto"),
    ] {
        assert_eq!(stored[field], expected, "{field}");
    }
    let spec: FelixConfigurationSpec =
        serde_json::from_value(serde_json::json!({"nodeSelector": "has(rack)"})).expect("a spec");
    let selected = FelixConfiguration::new("", "racks", spec.clone());
    configurations.create(selected).await.expect("a selector on an object of any other name");
    let own = FelixConfiguration::new("", "node.n1", spec);
    assert!(matches!(configurations.create(own).await, Err(Error::Validation(_))));
}

pub(super) async fn the_default_profile_is_built_in(store: &dyn Store) {
    let profiles = store.client().resource::<ProfileSpec>();
    let name = DEFAULT_ALLOW_PROFILE;
    let profile = profiles.get("", name).await.expect("always there");
    assert_eq!((profile.spec.ingress.len(), profile.spec.egress.len()), (1, 1));
    let again = Profile::new("", name, ProfileSpec::default());
    assert!(matches!(profiles.create(again).await, Err(Error::AlreadyExists { .. })));
    assert!(matches!(profiles.update(profile).await, Err(Error::NotSupported { .. })));
    assert!(matches!(
        profiles.delete("", name, &DeleteOptions::default()).await,
        Err(Error::NotSupported { .. })
    ));
    let own = profiles.create(Profile::new("", "own", ProfileSpec::default())).await;
    if store.is_kubernetes() {
        assert!(matches!(own, Err(Error::NotSupported { .. })), "profiles come from namespaces: {own:?}");
    } else {
        own.expect("creating");
    }
}

pub(super) async fn workload_endpoints_are_named_by_their_spec(store: &dyn Store) {
    let client = store.client();
    let endpoints = client.resource::<WorkloadEndpointSpec>();
    let spec = serde_json::json!({
        "orchestrator": "k8s", "node": "n-1", "pod": "web-1", "endpoint": "eth0",
        "interfaceName": "cali0", "ipNetworks": ["10.0.0.1/32"],
    });
    let spec: WorkloadEndpointSpec = serde_json::from_value(spec).expect("a spec");
    let misnamed = WorkloadEndpoint::new("shop", "misnamed", spec.clone());
    assert_eq!(refused_fields(endpoints.create(misnamed).await), ["metadata.name"]);
    let outcome = endpoints.create(WorkloadEndpoint::new("shop", "", spec)).await;
    if store.is_kubernetes() {
        // On Kubernetes an endpoint is a pod, and this pod does not exist.
        outcome.expect_err("no pod to write to");
        return;
    }
    let created = outcome.expect("creating without a name");
    assert_eq!(created.metadata.name, "n--1-k8s-web--1-eth0");
    let label = |name: &str| created.metadata.labels.get(name).map(String::as_str);
    assert_eq!(label("projectcalico.org/namespace"), Some("shop"));
    assert_eq!(label("projectcalico.org/orchestrator"), Some("k8s"));
}

pub(super) async fn ipam_settings_reach_ipam(store: &dyn Store) {
    let client = store.client();
    let settings = client.resource::<IPAMConfigurationSpec>();
    let spec: IPAMConfigurationSpec = serde_json::from_value(
        serde_json::json!({"strictAffinity": true, "autoAllocateBlocks": true, "maxBlocksPerHost": 4}),
    )
    .expect("a spec");
    settings.create(IPAMConfiguration::new("", "default", spec)).await.expect("creating");
    let read = || async {
        match client.backend().get(&Key::IpamConfig, None).await.expect("IPAM's settings").value {
            Value::IpamConfig(config) => config,
            other => panic!("{other:?}"),
        }
    };
    let config = read().await;
    assert!(config.strict_affinity && config.auto_allocate_blocks);
    assert_eq!(config.max_blocks_per_host, 4);

    // Users see what IPAM itself changed, and their next change builds on it.
    let mut entry = client.backend().get(&Key::IpamConfig, None).await.expect("IPAM's settings");
    if let Value::IpamConfig(config) = &mut entry.value {
        config.max_blocks_per_host = 9;
    }
    client.backend().update(&entry).await.expect("updating");
    let changed = settings
        .update_with_retry("", "default", |settings| {
            assert_eq!(settings.spec.max_blocks_per_host, 9);
            settings.spec.ip_cooldown_seconds = 30;
            true
        })
        .await
        .expect("updating");
    assert_eq!(changed.spec.max_blocks_per_host, 9);
    assert_eq!(read().await.ip_cooldown_seconds, 30);
    settings.delete("", "default", &DeleteOptions::default()).await.expect("deleting");
    assert!(client.backend().get(&Key::IpamConfig, None).await.is_err_and(|error| error.is_does_not_exist()));
}

pub(super) async fn affinities_are_deleted_by_revision_only(store: &dyn Store) {
    let client = store.client();
    let affinities = client.resource::<BlockAffinitySpec>();
    let spec: BlockAffinitySpec = serde_json::from_value(
        serde_json::json!({"state": "confirmed", "node": "n1", "cidr": "10.0.0.0/26", "deleted": false}),
    )
    .expect("a spec");
    let name = "n1-10-0-0-0-26";
    let created = affinities.create(BlockAffinity::new("", name, spec)).await.expect("creating");
    let outcome = affinities.delete("", name, &DeleteOptions::default()).await;
    assert_eq!(refused_fields(outcome), ["metadata.resourceVersion"]);
    assert_eq!(affinities.get("", name).await.expect("still there").spec.node, "n1");
    let options = DeleteOptions::at(&created.metadata.resource_version);
    affinities.delete("", name, &options).await.expect("deleting");
    assert!(matches!(affinities.get("", name).await, Err(Error::DoesNotExist { .. })));
    let claim = client.backend().get(&affinity_key("n1", "10.0.0.0/26"), None).await;
    assert!(claim.is_err_and(|error| error.is_does_not_exist()));
}
