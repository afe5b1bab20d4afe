//! The collector on small clusters, and on long random histories.

use super::*;
use crate::Release;
use crate::garbage::judge::{MachineFact, PodFact, PodState};
use crate::garbage::{Figures, PoolRange};
use crate::{AddressSet, Holder as Taker, Owner, take};

mod histories;

const GRACE: SignedDuration = SignedDuration::from_mins(15);

pub(super) fn settings() -> Settings {
    Settings { grace: Some(GRACE), cooldown_seconds: 0 }
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds).expect("a time")
}

/// The state of the cluster.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    pub(super) nodes: BTreeMap<String, NodeFact>,
    pub(super) pods: BTreeMap<(String, String), PodFact>,
    pub(super) machines: BTreeSet<(String, String)>,
    pub(super) is_blind: bool,
}

impl Cluster {
    fn with(nodes: &[&str]) -> Self {
        let exists = |node: &&str| {
            let kubernetes = (*node).to_owned();
            ((*node).to_owned(), NodeFact::Exists { kubernetes, is_migrating: false })
        };
        Self { nodes: nodes.iter().map(exists).collect(), ..Self::default() }
    }

    fn add_pod(&mut self, name: &str, node: &str, addresses: &[IpAddr]) {
        let state = PodState {
            node: node.to_owned(),
            has_reported: !addresses.is_empty(),
            is_evicted: false,
            addresses: Some(addresses.to_vec()),
        };
        self.pods.insert(("shop".to_owned(), name.to_owned()), PodFact::Present(state));
    }

    fn gone(&mut self, node: &str) {
        self.nodes.insert(node.to_owned(), NodeFact::Gone { kubernetes: node.to_owned() });
    }
}

impl World for Cluster {
    fn pod(&self, namespace: &str, name: &str) -> PodFact {
        if self.is_blind {
            return PodFact::Unknown;
        }
        self.pods.get(&(namespace.to_owned(), name.to_owned())).cloned().unwrap_or(PodFact::Absent)
    }

    fn machine(&self, namespace: &str, name: &str) -> MachineFact {
        match self.machines.contains(&(namespace.to_owned(), name.to_owned())) {
            true => MachineFact::Present,
            false => MachineFact::Absent,
        }
    }

    fn node(&self, name: &str) -> NodeFact {
        let gone = || NodeFact::Gone { kubernetes: name.to_owned() };
        self.nodes.get(name).cloned().unwrap_or_else(gone)
    }
}

pub(super) fn block(cidr: &str, node: &str) -> AllocationBlock {
    let owner = Owner { affinity_type: AffinityType::Host, host: node.to_owned() };
    take::new_block(cidr.parse().expect("a range"), &owner, None, at(0))
}

/// Takes an address with these attributes.
pub(super) fn take_one(record: &mut AllocationBlock, handle: &str, attributes: &[(&str, &str)]) -> IpAddr {
    let attributes = attributes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let taker = Taker { handle: Some(handle.into()), attributes };
    let taken = take::take(record, 1, &taker, &AddressSet::default());
    record.sequence_number += 1;
    taken.first().expect("an address").addr()
}

pub(super) fn take_for_pod(record: &mut AllocationBlock, handle: &str, pod: &str, node: &str) -> IpAddr {
    take_one(record, handle, &[("namespace", "shop"), ("pod", pod), ("node", node)])
}

fn addresses(verdicts: &Verdicts) -> Vec<String> {
    verdicts.leaks.iter().map(|leak| leak.address.to_string()).collect()
}

#[test]
fn a_pod_that_is_gone_leaks_after_the_grace_period() {
    let mut record = block("10.0.0.0/29", "n1");
    let used = take_for_pod(&mut record, "h1", "web", "n1");
    let left = take_for_pod(&mut record, "h2", "old", "n1");
    let mut cluster = Cluster::with(&["n1"]);
    cluster.add_pod("web", "n1", &[used]);
    let mut collector = Collector::default();
    collector.block_changed(&record);
    assert!(collector.examine(&cluster, at(0), &settings()).is_empty());
    let due = collector.due_at(&settings()).expect("an address is suspected");
    assert_eq!(due.duration_since(at(0)).as_secs(), 15 * 60);
    assert!(collector.examine(&cluster, at(900), &settings()).is_empty(), "not a moment too early");
    let verdicts = collector.examine(&cluster, at(901), &settings());
    assert_eq!(addresses(&verdicts), [left.to_string()]);
    let leak = &verdicts.leaks[0];
    assert_eq!(leak.reason.to_string(), "pod shop/old no longer exists");
    assert_eq!(leak.release().handle.as_deref(), Some("h2"));
    assert_eq!(leak.since, at(0));
    // The verdict was not carried out, so it is repeated. Then it is carried out.
    assert_eq!(collector.examine(&cluster, at(902), &settings()), verdicts);
    assert!(collector.still_leaked(leak, &cluster));
    collector.released(leak);
    assert!(collector.examine(&cluster, at(903), &settings()).is_empty());
    assert_eq!(collector.due_at(&settings()), None);
}

#[test]
fn suspicion_ends_with_a_new_allocation_or_a_pod_that_is_seen() {
    let mut record = block("10.0.0.0/29", "n1");
    take_for_pod(&mut record, "h1", "web", "n1");
    let mut cluster = Cluster::with(&["n1"]);
    let mut collector = Collector::default();
    collector.block_changed(&record);
    collector.examine(&cluster, at(0), &settings());
    // Released and taken again, for the same pod and container: another sequence number.
    let mut again = block("10.0.0.0/29", "n1");
    again.sequence_number = record.sequence_number;
    let address = take_for_pod(&mut again, "h1", "web", "n1");
    collector.block_changed(&again);
    assert!(collector.examine(&cluster, at(901), &settings()).is_empty());
    cluster.add_pod("web", "n1", &[address]);
    collector.touch("n1");
    assert!(collector.examine(&cluster, at(902), &settings()).is_empty());
    assert_eq!(collector.due_at(&settings()), None);
}

#[test]
fn the_live_cluster_decides() {
    let mut record = block("10.0.0.0/29", "n1");
    let address = take_for_pod(&mut record, "h1", "web", "n1");
    let cluster = Cluster::with(&["n1"]);
    let mut collector = Collector::default();
    collector.block_changed(&record);
    collector.examine(&cluster, at(0), &settings());
    let verdicts = collector.examine(&cluster, at(901), &settings());
    let mut live = cluster.clone();
    live.add_pod("web", "n1", &[address]);
    assert!(!collector.still_leaked(&verdicts.leaks[0], &live));
    assert!(collector.examine(&cluster, at(902), &settings()).is_empty(), "the suspicion begins again");
    // If the API does not answer, the address counts as used, too.
    live.is_blind = true;
    let verdicts = collector.examine(&cluster, at(2000), &settings());
    assert_eq!(verdicts.leaks.len(), 1);
    assert!(!collector.still_leaked(&verdicts.leaks[0], &live));
    assert!(collector.examine(&cluster, at(2001), &settings()).is_empty());
    assert!(collector.due_at(&settings()).is_some(), "and it is not forgotten");
}

#[test]
fn without_a_grace_period_only_gone_nodes_are_collected() {
    let mut record = block("10.0.0.0/29", "n1");
    take_for_pod(&mut record, "h1", "old", "n1");
    let pools = [PoolRange { name: "p".to_owned(), cidr: "10.0.0.0/16".parse().expect("a range") }];
    for (grace, suspected) in [(Some(SignedDuration::ZERO), 1), (None, 0)] {
        let settings = Settings { grace, cooldown_seconds: 0 };
        let mut cluster = Cluster::with(&["n1"]);
        let mut collector = Collector::default();
        collector.block_changed(&record);
        collector.examine(&cluster, at(0), &settings);
        collector.touch_all();
        assert!(collector.examine(&cluster, at(1_000_000), &settings).is_empty());
        let figures = collector.figures(&pools, ["n1", "n2"].into_iter());
        assert_eq!(figures.candidates["p"]["n1"], suspected);
        assert_eq!(figures.in_use["p"]["n2"], 0, "nodes with nothing are there");
        cluster.gone("n1");
        collector.touch("n1");
        let verdicts = collector.examine(&cluster, at(1_000_001), &settings);
        assert_eq!((verdicts.leaks.len(), verdicts.gone_nodes.len()), (1, 1));
    }
}

#[test]
fn a_gone_node_is_released_once_unused_and_its_tunnels_last() {
    let mut record = block("10.0.0.0/28", "n1");
    let tunnel =
        take_one(&mut record, "vxlan-tunnel-addr-n1", &[("node", "n1"), ("type", "vxlanTunnelAddress")]);
    let web = take_for_pod(&mut record, "h1", "web", "n1");
    let old = take_for_pod(&mut record, "h2", "old", "n1");
    let mut cluster = Cluster::with(&["n1"]);
    cluster.add_pod("web", "n1", &[web]);
    let mut collector = Collector::default();
    collector.block_changed(&record);
    collector.examine(&cluster, at(0), &settings());
    cluster.gone("n1");
    collector.touch("n1");
    // A pod still exists, so the node may exist, too.
    let verdicts = collector.examine(&cluster, at(1), &settings());
    assert_eq!((addresses(&verdicts), verdicts.gone_nodes.len()), (vec![old.to_string()], 0));
    cluster.pods.clear();
    collector.touch("n1");
    let verdicts = collector.examine(&cluster, at(2), &settings());
    assert_eq!(addresses(&verdicts), [tunnel, web, old].map(|address| address.to_string()));
    assert_eq!(verdicts.gone_nodes, [GoneNode { name: "n1".to_owned() }]);
    assert_eq!(verdicts.leaks[0].reason.to_string(), "node n1 no longer exists");
    // It comes back before the verdict is carried out.
    let mut back = cluster.clone();
    back.nodes = Cluster::with(&["n1"]).nodes;
    assert!(!collector.still_leaked(&verdicts.leaks[0], &back));
    assert!(collector.examine(&back, at(3), &settings()).gone_nodes.is_empty());
    collector.touch("n1");
    assert!(collector.examine(&back, at(4), &settings()).is_empty(), "the others are candidates again");
    collector.touch("n1");
    for leak in collector.examine(&cluster, at(5), &settings()).leaks {
        collector.released(&leak);
    }
    collector.node_released("n1");
    assert!(collector.examine(&cluster, at(6), &settings()).is_empty());
    collector.block_gone(&record.cidr);
    assert!(collector.examine(&cluster, at(7), &settings()).is_empty());
    assert_eq!((collector.nodes.len(), collector.handles.len(), collector.allocations()), (0, 0, 0));
}

#[test]
fn a_handle_is_released_as_a_whole() {
    let (mut v4, mut v6) = (block("10.0.0.0/29", "n1"), block("fd00::/125", "n1"));
    let four = take_for_pod(&mut v4, "h1", "web", "n1");
    take_for_pod(&mut v6, "h1", "web", "n1");
    let mut cluster = Cluster::with(&["n1"]);
    cluster.add_pod("web", "n1", &[four]);
    let mut collector = Collector::default();
    collector.block_changed(&v4);
    collector.block_changed(&v6);
    collector.examine(&cluster, at(0), &settings());
    let verdicts = collector.examine(&cluster, at(901), &settings());
    assert!(verdicts.is_empty(), "one of them is in use: {verdicts:?}");
    assert_eq!(collector.confirmed(), 1);
    cluster.pods.clear();
    collector.touch("n1");
    collector.examine(&cluster, at(902), &settings());
    assert_eq!(collector.examine(&cluster, at(1803), &settings()).leaks.len(), 2);
}

#[test]
fn foreign_allocations_are_left_alone() {
    let mut record = block("10.0.0.0/28", "n1");
    take_one(&mut record, "mine", &[("node", "n1"), ("note", "by hand")]);
    take_one(&mut record, "lb-x", &[("namespace", "shop"), ("service", "web")]);
    let mut cluster = Cluster::default();
    cluster.gone("n1");
    let mut collector = Collector::default();
    collector.block_changed(&record);
    assert!(collector.examine(&cluster, at(0), &settings()).is_empty());
    // A node that never belonged to Kubernetes.
    let mut record = block("10.0.1.0/28", "bare");
    take_for_pod(&mut record, "h", "old", "bare");
    cluster.nodes.insert("bare".to_owned(), NodeFact::Untouchable);
    collector.block_changed(&record);
    assert!(collector.examine(&cluster, at(0), &settings()).is_empty());
    collector.touch_all();
    assert!(collector.examine(&cluster, at(10_000), &settings()).is_empty());
}

#[test]
fn machines_get_at_least_five_minutes() {
    let attributes = [("namespace", "shop"), ("pod", "l-1"), ("node", "n1"), ("vmi-name", "db")];
    for (grace, wait) in [(None, 300), (Some(SignedDuration::from_mins(1)), 300), (Some(GRACE), 900)] {
        let settings = Settings { grace, cooldown_seconds: 0 };
        let mut record = block("10.0.0.0/29", "n1");
        take_one(&mut record, "k8s-pod-network.vmi.shop.db", &attributes);
        let mut cluster = Cluster::with(&["n1"]);
        cluster.machines.insert(("shop".to_owned(), "db".to_owned()));
        let mut collector = Collector::default();
        collector.block_changed(&record);
        collector.examine(&cluster, at(0), &settings);
        assert_eq!(collector.due_at(&settings), None);
        cluster.machines.clear();
        collector.touch("n1");
        collector.examine(&cluster, at(0), &settings);
        assert!(collector.examine(&cluster, at(wait), &settings).is_empty());
        let verdicts = collector.examine(&cluster, at(wait + 1), &settings);
        assert_eq!(verdicts.leaks.len(), 1);
        let expected = "neither virtual machine shop/db nor an instance of it exists any longer";
        assert_eq!(verdicts.leaks[0].reason.to_string(), expected);
    }
}

#[test]
fn idle_blocks_are_given_up_except_the_last_one_and_during_a_migration() {
    let ranges = ["10.0.0.0/29", "10.0.0.8/29", "10.0.0.16/29"];
    let mut collector = Collector::default();
    for cidr in ranges {
        collector.block_changed(&block(cidr, "n1"));
    }
    let cluster = Cluster::with(&["n1"]);
    let mut migrating = cluster.clone();
    let fact = NodeFact::Exists { kubernetes: "n1".to_owned(), is_migrating: true };
    migrating.nodes.insert("n1".to_owned(), fact);
    collector.examine(&cluster, at(0), &settings());
    collector.touch("n1");
    collector.examine(&migrating, at(1), &settings());
    assert_eq!(collector.due_at(&settings()), None);
    collector.touch("n1");
    collector.examine(&cluster, at(2), &settings());
    assert!(collector.examine(&cluster, at(902), &settings()).is_empty());
    let verdicts = collector.examine(&cluster, at(903), &settings());
    let idle: Vec<(String, usize)> =
        verdicts.idle_blocks.iter().map(|idle| (idle.cidr.to_string(), idle.blocks_of_node)).collect();
    assert_eq!(idle, [("10.0.0.0/29".to_owned(), 3), ("10.0.0.8/29".to_owned(), 2)]);
    // One of them is used in the meantime.
    let mut used = block("10.0.0.8/29", "n1");
    take_for_pod(&mut used, "h", "web", "n1");
    collector.block_changed(&used);
    collector.block_gone(&"10.0.0.0/29".parse().expect("a range"));
    let mut cluster = cluster;
    cluster.add_pod("web", "n1", &[]);
    assert!(collector.examine(&cluster, at(904), &settings()).is_empty());
    assert_eq!(collector.examine(&cluster, at(1805), &settings()).idle_blocks.len(), 1);
}

#[test]
fn rested_addresses_are_collected_in_time() {
    let mut record = block("10.0.0.0/29", "n1");
    let address = take_for_pod(&mut record, "h", "web", "n1");
    let settings = Settings { grace: Some(GRACE), cooldown_seconds: 30 };
    crate::release(&mut record, &[Release::of(address)], 30, at(0)).expect("released");
    let mut collector = Collector::default();
    collector.block_changed(&record);
    let cluster = Cluster::with(&["n1"]);
    assert!(collector.examine(&cluster, at(30), &settings).is_empty());
    assert_eq!(collector.due_at(&settings), Some(at(31)));
    assert_eq!(collector.examine(&cluster, at(31), &settings).rested_blocks, [record.cidr]);
}

#[test]
fn figures_are_by_pool_and_node() {
    let mut own = block("10.0.0.0/29", "n1");
    take_for_pod(&mut own, "h1", "web", "n1");
    take_for_pod(&mut own, "h2", "api", "n2");
    let mut stray = block("10.9.0.0/29", "n2");
    take_one(&mut stray, "h3", &[]);
    let mut collector = Collector::default();
    collector.block_changed(&own);
    collector.block_changed(&stray);
    let pools = [PoolRange { name: "p".to_owned(), cidr: "10.0.0.0/16".parse().expect("a range") }];
    let figures = collector.figures(&pools, ["n1"].into_iter());
    let text = format!("{:?} {:?} {:?}", figures.in_use, figures.borrowed, figures.blocks);
    assert_eq!(
        text,
        r#"{"no_ippool": {"unknown_node": 1}, "p": {"n1": 1, "n2": 1}} {"p": {"n1": 0, "n2": 1}} {"no_ippool": {"n2": 1}, "p": {"n1": 1}}"#
    );
    assert_eq!(Figures::by_node(&figures.borrowed)["n2"], 1);
    assert_eq!(figures.in_use_by_node["n2"], 1);
}
