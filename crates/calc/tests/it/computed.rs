//! The parts of a workload's message other than policy.

use crate::dataplane::Dataplane;
use crate::run::HOST;
use crate::text::apply;
use crate::world::{World, difference};
use api::{BGPPeer, Kind, LiveMigration, Node, Resource};
use calc::{CalcGraph, GraphConfig};
use messages::{IpSetType, LiveMigrationRole, WorkloadEndpoint};
use model::convert::{self, Faults, object};
use model::feed::{FeedEntry, NamespacedName, Status};

struct Graph(CalcGraph, Dataplane, World);

impl Graph {
    fn new(text: &str) -> Self {
        let config = GraphConfig { host: HOST.into(), istio_ambient: true, ..GraphConfig::default() };
        let mut graph = Self(CalcGraph::new(config), Dataplane::default(), World::new());
        graph.0.on_status(Status::InSync);
        graph.change(text);
        graph
    }

    fn change(&mut self, text: &str) {
        let mut next = self.2.clone();
        apply(&mut next, text);
        for entry in difference(&self.2, &next) {
            self.0.on_entry(entry);
        }
        self.2 = next;
        self.flush();
    }

    fn entry(&mut self, entry: FeedEntry) {
        self.0.on_entry(entry);
        self.flush();
    }

    fn peer(&mut self, peer: BGPPeer, there: bool) {
        let name = peer.metadata.name.clone();
        self.entry(FeedEntry::BgpPeer(
            name,
            there.then(|| Box::new(object::bgp_peer(peer, &mut Faults::new()))),
        ));
    }

    fn node(&mut self, node: Node, there: bool) {
        let name = node.metadata.name.as_str().into();
        self.entry(FeedEntry::Node(
            name,
            there.then(|| Box::new(convert::node::node(node, &mut Faults::new()))),
        ));
    }

    fn migration(&mut self, migration: LiveMigration, there: bool) {
        let (namespace, name) = (migration.metadata.namespace.clone(), migration.metadata.name.clone());
        let key = NamespacedName { namespace, name };
        let migration = object::live_migration(migration, &mut Faults::new());
        self.entry(FeedEntry::LiveMigration(key, there.then(|| Box::new(migration))));
    }

    fn flush(&mut self) {
        let mut out = Vec::new();
        self.0.flush(&mut out);
        self.1.apply(out);
    }

    fn workload(&self, name: &str) -> &WorkloadEndpoint {
        let mut found = self.1.policy.workloads.iter().filter(|(id, _)| *id.workload == *name);
        found.next().expect(name).1
    }
}

fn peer(name: &str, node_selector: &str, workloads: &str) -> BGPPeer {
    let mut peer = BGPPeer::default();
    peer.metadata.name = name.into();
    peer.spec.node_selector = node_selector.into();
    peer.spec.local_workload_selector = workloads.into();
    peer
}

fn node(labels: &[(&str, &str)]) -> Node {
    let mut node = Node::default();
    node.metadata.name = HOST.into();
    node.metadata.labels = labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    node
}

#[test]
fn workloads_get_the_first_peer_that_matches_them_and_this_node() {
    let mut graph =
        Graph::new("workload h1 n/a ip=10.0.0.1 labels=app=router profiles=p\nworkload h1 n/b ip=10.0.0.2");
    let mut named = peer("x-named", "", "app == 'router'");
    named.spec.node = HOST.into();
    graph.peer(named.clone(), true);
    graph.peer(peer("b-rack", "rack == '1'", "has(app)"), true);
    graph.peer(peer("a-all", "all()", "has(inherited)"), true);
    graph.peer(peer("0-none", "all()", ""), true);
    graph.peer(peer("0-broken", "all()", "has("), true);
    assert_eq!(graph.workload("n/a").local_bgp_peer, "x-named");
    assert_eq!(graph.workload("n/b").local_bgp_peer, "");
    graph.node(node(&[("rack", "1")]), true);
    assert_eq!(graph.workload("n/a").local_bgp_peer, "b-rack");
    graph.change("profile p labels=inherited=yes");
    assert_eq!(graph.workload("n/a").local_bgp_peer, "a-all");
    graph.change("delete profile p");
    graph.node(node(&[]), false);
    assert_eq!(graph.workload("n/a").local_bgp_peer, "x-named");
    graph.peer(named, false);
    assert_eq!(graph.workload("n/a").local_bgp_peer, "");
}

fn migration(name: &str, uid: &str, json: &str) -> LiveMigration {
    let text = format!(
        r#"{{"kind": "LiveMigration", "metadata": {{"name": "{name}", "namespace": "n", "uid": "{uid}"}}, "spec": {json}}}"#
    );
    let Ok(Resource::LiveMigration(migration)) = Resource::from_json(Kind::LiveMigration, text.as_bytes())
    else {
        panic!("{text}")
    };
    *migration
}

#[test]
fn a_migration_gives_roles_to_its_workloads() {
    let mut graph = Graph::new("workload h1 n/a ip=10.0.0.1\nworkload h1 n/b ip=10.0.0.1 labels=job=1");
    let source = migration(
        "m1",
        "u1",
        r#"{"source": {"workload": {"hostname": "elsewhere", "orchestratorID": "k8s", "workloadID": "n/a"}},
            "target": {"selector": "job == '1'"}}"#,
    );
    graph.migration(source.clone(), true);
    let role = |graph: &Graph, name: &str| {
        let workload = graph.workload(name);
        (workload.live_migration_role, workload.live_migration_uid.clone())
    };
    assert_eq!(role(&graph, "n/a"), (LiveMigrationRole::Source, "u1".into()));
    assert_eq!(role(&graph, "n/b"), (LiveMigrationRole::Target, "u1".into()));
    let named = migration(
        "m2",
        "u2",
        r#"{"target": {"workloadEndpoint": {"orchestratorID": "k8s", "workloadID": "n/a", "endpointID": "eth0"}}}"#,
    );
    graph.migration(named.clone(), true);
    assert_eq!(
        role(&graph, "n/a"),
        (LiveMigrationRole::Target, "u2".into()),
        "a target comes before a source"
    );
    graph.migration(named, false);
    graph.migration(source, false);
    assert_eq!(role(&graph, "n/a"), (LiveMigrationRole::None, String::new()));
    assert_eq!(role(&graph, "n/b"), (LiveMigrationRole::None, String::new()));
}

#[test]
fn the_ambient_mesh_is_a_set_and_a_mark() {
    let orchestrator = "projectcalico.org/orchestrator=k8s";
    let mut graph = Graph::new(&format!(
        "profile kns.m labels=pcns.istio.io/dataplane-mode=ambient\n\
         workload h1 m/a ip=10.0.0.1 labels={orchestrator} profiles=kns.m\n\
         workload h1 m/b ip=10.0.0.2 labels={orchestrator},istio.io/dataplane-mode=none profiles=kns.m\n\
         workload h2 n/c ip=10.0.0.3,fd00::3 labels={orchestrator},istio.io/dataplane-mode=ambient\n\
         netset s nets=10.1.0.0/16 profiles=kns.m"
    ));
    let members = |graph: &Graph| {
        let (set_type, members) = &graph.1.policy.sets["all-istio-weps"];
        assert_eq!(*set_type, IpSetType::Ip);
        members.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(members(&graph), ["10.0.0.1", "10.0.0.3", "fd00::3"]);
    assert!(graph.workload("m/a").is_istio_ambient && !graph.workload("m/b").is_istio_ambient);
    graph.change("profile kns.m labels=x=y");
    assert_eq!(members(&graph), ["10.0.0.3", "fd00::3"]);
    assert!(!graph.workload("m/a").is_istio_ambient);
}
