//! A service on a ring with known flows, at a known time.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use flows::{Action, Counters, EndpointType, FlowKey, Labels, Peer, Reporter, RingOptions, Service, Trace};
use http::{Request, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tower::ServiceExt as _;
use whisker::for_tests::{Access, ClusterConfig, Local, Options, Policies, SharedRing, Source, service};

/// The beginning of a bucket.
pub(crate) const NOW: i64 = 1_700_000_010;

pub(crate) struct World {
    pub(crate) ring: Arc<SharedRing>,
    pub(crate) service: Router,
    time: Arc<AtomicI64>,
}

impl World {
    pub(crate) fn empty() -> Self {
        Self::with_access(Access::default())
    }

    pub(crate) fn with_access(access: Access) -> Self {
        Self::with(access, Policies::fixed(cluster()))
    }

    pub(crate) fn without_policies() -> Self {
        Self::with(Access::default(), Policies::nowhere("no datastore in this test"))
    }

    fn with(access: Access, policies: Policies) -> Self {
        let time = Arc::new(AtomicI64::new(NOW));
        let clock = Arc::clone(&time);
        let ring =
            SharedRing::with_clock(RingOptions::default(), Arc::new(move || clock.load(Ordering::Relaxed)));
        let source: Arc<dyn Source> = Arc::new(Local::new(Arc::clone(&ring), "a test"));
        let config = ClusterConfig {
            cluster_id: "id-1".to_owned(),
            cluster_type: "k8s,bgp".to_owned(),
            calico_version: "v3.32.1".to_owned(),
            notifications: "Disabled".to_owned(),
            calico_cloud_url: String::new(),
        };
        let service = service(source, Options { access, policies, page_dir: None, config });
        Self { ring, service, time }
    }

    /// A world with the flows of a small shop.
    pub(crate) fn shop() -> Self {
        let world = Self::empty();
        for (key, packets) in shop() {
            world.add(&key, NOW - 30, packets);
        }
        world
    }

    pub(crate) fn add(&self, key: &FlowKey, start: i64, packets: u64) {
        let labels = |text: &str| -> Labels { text.split_whitespace().collect() };
        let (source, dest) = (labels("app=web tier=front"), labels("app=db"));
        self.ring.add(key, start, &counters(packets), &source, &dest);
    }

    pub(crate) fn advance(&self, seconds: i64) {
        self.time.fetch_add(seconds, Ordering::Relaxed);
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.ask(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(crate) async fn ask(&self, request: Request<Body>) -> Response {
        self.service.clone().oneshot(request).await.unwrap()
    }

    /// Requests a path; returns the status and the JSON.
    pub(crate) async fn json(&self, path: &str) -> (StatusCode, Value) {
        let response = self.get(path).await;
        let status = response.status();
        assert_eq!(response.headers()["content-type"], "application/json", "{path}");
        (status, serde_json::from_slice(&bytes(response).await).unwrap())
    }
}

pub(crate) async fn bytes(response: Response) -> Vec<u8> {
    response.into_body().collect().await.unwrap().to_bytes().to_vec()
}

pub(crate) fn counters(packets: u64) -> Counters {
    Counters {
        packets_in: packets,
        packets_out: 2 * packets,
        bytes_in: 100 * packets,
        bytes_out: 1000 * packets,
        started: 3,
        completed: 2,
        live: 1,
    }
}

pub(crate) fn key(
    from: &str,
    to: &str,
    port: i64,
    reporter: Reporter,
    enforced: &[&str],
    pending: &[&str],
) -> FlowKey {
    let peer = |text: &str| {
        let (namespace, name) = text.split_once('/').unwrap();
        let kind = if namespace == "-" { EndpointType::Network } else { EndpointType::Workload };
        Peer { kind, namespace: namespace.into(), name: name.into() }
    };
    let hits =
        |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<flows::PolicyHit>>();
    let enforced = hits(enforced);
    FlowKey {
        source: peer(from),
        dest: peer(to),
        dest_port: port,
        service: Service::default(),
        protocol: "tcp".into(),
        reporter,
        action: enforced.last().map_or(Action::Allow, |hit| hit.action),
        trace: Arc::new(Trace { enforced, pending: hits(pending) }),
    }
}

/// The flows of a small shop, each with its packets.
pub(crate) fn shop() -> Vec<(FlowKey, u64)> {
    const PROFILE: &[&str] = &["0|__PROFILE__|pro:kns.shop|allow|0"];
    vec![
        (
            key(
                "-/pub",
                "shop/web-*",
                80,
                Reporter::Dst,
                &["0|platform|gnp:base|pass|1", "1|default|np:shop/web|allow|0"],
                &[],
            ),
            10,
        ),
        // Both ends report, and the destination's end denies.
        (key("shop/web-*", "shop/db", 5432, Reporter::Src, PROFILE, &[]), 7),
        (key("shop/web-*", "shop/db", 5432, Reporter::Dst, &["0|default|np:shop/db|deny|-1"], &[]), 7),
        // Allowed, but a staged policy would deny it.
        (key("ops/probe", "shop/web-*", 80, Reporter::Dst, PROFILE, &["0|default|snp:shop/tried|deny|2"]), 1),
    ]
}

/// Two pods with enforced and staged policies; the names match the flows of [`shop`].
pub(crate) fn cluster() -> explain::Cluster {
    let pod = |name: &str, namespace: &str, app: &str, address: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
            "spec": {"nodeName": "n1"}, "status": {"podIP": address},
        })
    };
    let mut cluster = explain::Cluster::new();
    for object in [
        pod("web-1", "shop", "web", "10.0.0.1"),
        pod("db", "shop", "db", "10.0.0.2"),
        pod("probe", "ops", "probe", "10.0.0.3"),
        json!({
            "apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy",
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"selector": "app == 'db'", "types": ["Ingress"], "ingress": [
                {"action": "Allow", "protocol": "TCP", "source": {"selector": "app == 'api'"}, "destination": {"ports": [5432]}},
            ]},
        }),
    ] {
        cluster.add_manifest(object).unwrap();
    }
    cluster.complete();
    cluster
}
