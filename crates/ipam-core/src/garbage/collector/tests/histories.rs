//! Random histories: pods are created, move, restart and end, nodes disappear and return, caches lag, the API fails,
//! while the collector runs inside a shell. An address in use is never released; a leaked address always is,
//! eventually.
//!
//! The model is realistic about time: a kubelet reports a pod's new address within [`LAG`], which is shorter than the
//! grace period, even after its node was deleted; and nothing new starts on such a node.

use super::*;
use proptest::prelude::*;

/// How far behind a cache or a status may be, in seconds.
const LAG: i64 = 300;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A pod starts on a node: the plugin takes an address, and the kubelet reports it later.
    Start { pod: u8, node: usize },
    /// The kubelet reports the pod's address.
    Report { pod: u8 },
    /// A pod gets a new sandbox, with a new address; the old one is released, or leaks.
    Restart { pod: u8, cleanly: bool },
    /// A pod ends; its address is released, or leaks.
    Stop { pod: u8, cleanly: bool },
    /// The pod finishes but still exists.
    Finish { pod: u8, cleanly: bool },
    /// The node is deleted, with or without its pods.
    DeleteNode { node: usize, pods_too: bool },
    /// The node joins again.
    CreateNode { node: usize },
    /// The cache of pods and nodes catches up.
    Refresh,
    /// The feed of blocks catches up.
    Feed,
    /// Time passes.
    Wait { seconds: i64 },
    /// The collector examines; a shell whose requests may fail carries out its verdicts.
    Collect { api_fails: bool },
    /// The controller starts again: the memory of suspicions is lost.
    RestartController,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pod = 0..6u8;
    let node = 0..NODES.len();
    let step = prop_oneof![
        4 => (pod.clone(), node.clone()).prop_map(|(pod, node)| Step::Start { pod, node }),
        4 => pod.clone().prop_map(|pod| Step::Report { pod }),
        2 => (pod.clone(), any::<bool>()).prop_map(|(pod, cleanly)| Step::Restart { pod, cleanly }),
        3 => (pod.clone(), any::<bool>()).prop_map(|(pod, cleanly)| Step::Stop { pod, cleanly }),
        1 => (pod, any::<bool>()).prop_map(|(pod, cleanly)| Step::Finish { pod, cleanly }),
        1 => (node.clone(), any::<bool>()).prop_map(|(node, pods_too)| Step::DeleteNode { node, pods_too }),
        1 => node.prop_map(|node| Step::CreateNode { node }),
        2 => Just(Step::Refresh),
        3 => Just(Step::Feed),
        3 => (1..LAG).prop_map(|seconds| Step::Wait { seconds }),
        4 => any::<bool>().prop_map(|api_fails| Step::Collect { api_fails }),
        1 => Just(Step::RestartController),
    ];
    prop::collection::vec(step, 1..120)
}

/// The true state of a pod.
#[derive(Clone, Debug)]
struct Pod {
    node: usize,
    /// The address that it uses.
    address: Option<IpAddr>,
    /// The address in its status.
    reported: Option<IpAddr>,
    /// The time at which it got its address.
    started: i64,
    finished: bool,
}

#[derive(Debug, Default)]
struct Simulation {
    now: i64,
    containers: u32,
    pods: BTreeMap<u8, Pod>,
    nodes: BTreeSet<usize>,
    blocks: BTreeMap<IpNet, AllocationBlock>,
    /// The blocks that the feed has delivered.
    fed: BTreeMap<IpNet, AllocationBlock>,
    cache: Cluster,
    refreshed: i64,
    collector: Collector,
}

impl Simulation {
    fn new() -> Self {
        let mut simulation = Self { nodes: (0..NODES.len()).collect(), ..Self::default() };
        for (node, cidr) in [(0, "10.0.0.0/28"), (1, "10.0.1.0/28"), (2, "10.0.2.0/28")] {
            let record = block(cidr, NODES[node]);
            simulation.blocks.insert(record.cidr, record);
        }
        simulation.refresh();
        simulation.feed();
        simulation
    }

    /// The cluster as shown by its API.
    fn live(&self) -> Cluster {
        let present: Vec<&str> = self.nodes.iter().map(|node| NODES[*node]).collect();
        let mut cluster = Cluster::with(&present);
        for node in NODES {
            cluster.nodes.entry(node.to_owned()).or_insert(NodeFact::Gone { kubernetes: node.to_owned() });
        }
        for (name, pod) in &self.pods {
            let addresses = pod.reported.filter(|_| !pod.finished).into_iter().collect();
            let state = PodState {
                node: NODES[pod.node].to_owned(),
                has_reported: pod.reported.is_some(),
                is_evicted: false,
                addresses: Some(addresses),
            };
            cluster.pods.insert(("shop".to_owned(), format!("p{name}")), PodFact::Present(state));
        }
        cluster
    }

    /// Addresses in use.
    fn used(&self) -> BTreeSet<IpAddr> {
        self.pods.values().filter(|pod| !pod.finished).filter_map(|pod| pod.address).collect()
    }

    fn allocated(&self) -> BTreeSet<IpAddr> {
        self.blocks.values().flat_map(|record| Block::new(record).allocations()).map(|a| a.address).collect()
    }

    fn take(&mut self, pod: u8, node: usize) -> Option<IpAddr> {
        self.containers += 1;
        let handle = format!("k8s-pod-network.c{}", self.containers);
        let attributes = [("namespace", "shop"), ("pod", &format!("p{pod}")), ("node", NODES[node])]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let taker = Taker { handle: Some(handle.into()), attributes: attributes.into_iter().collect() };
        // Its own block first, then any block with room.
        let mut ranges: Vec<IpNet> = self.blocks.keys().copied().collect();
        ranges.sort_by_key(|cidr| {
            self.blocks[cidr].affinity.as_deref() != Some(format!("host:{}", NODES[node]).as_str())
        });
        for cidr in ranges {
            let record = self.blocks.get_mut(&cidr)?;
            if let Some(net) = take::take(record, 1, &taker, &AddressSet::default()).first() {
                record.sequence_number += 1;
                return Some(net.addr());
            }
        }
        None
    }

    fn give_back(&mut self, address: Option<IpAddr>) {
        let Some(address) = address else { return };
        if let Some(record) = self.blocks.values_mut().find(|record| record.cidr.contains(&address)) {
            crate::release(record, &[Release::of(address)], 0, at(self.now)).expect("no guards");
            record.sequence_number += 1;
        }
    }

    fn refresh(&mut self) {
        let live = self.live();
        for node in NODES {
            let pods_differ = live.pods != self.cache.pods;
            if pods_differ || live.nodes.get(node) != self.cache.nodes.get(node) {
                self.collector.touch(node);
            }
        }
        self.cache = live;
        self.refreshed = self.now;
    }

    fn feed(&mut self) {
        for (cidr, record) in &self.blocks {
            if self.fed.get(cidr) != Some(record) {
                self.collector.block_changed(record);
            }
        }
        self.fed = self.blocks.clone();
    }

    fn wait(&mut self, seconds: i64) {
        self.now += seconds;
        for pod in self.pods.values_mut().filter(|pod| !pod.finished) {
            if self.now - pod.started > LAG {
                pod.reported = pod.address;
            }
        }
        if self.now - self.refreshed > LAG {
            self.refresh();
            self.feed();
        }
    }

    /// Examines, checks each leak with the live cluster, and releases under the guards.
    fn collect(&mut self, api_fails: bool) -> Result<(), TestCaseError> {
        let verdicts = self.collector.examine(&self.cache, at(self.now), &settings());
        let live = Cluster { is_blind: api_fails, ..self.live() };
        let used = self.used();
        for leak in verdicts.leaks {
            if !self.collector.still_leaked(&leak, &live) {
                continue;
            }
            let record = self.blocks.get_mut(&leak.block).expect("the block");
            let mut written = record.clone();
            match crate::release(&mut written, &[leak.release()], 0, at(self.now)) {
                Ok(released) => {
                    for address in released.addresses {
                        prop_assert!(!used.contains(&address), "{address} is in use: {leak:?}");
                    }
                    written.sequence_number += 1;
                    *record = written;
                    self.collector.released(&leak);
                }
                // Lost against another writer; the feed will report the change.
                Err(_) => continue,
            }
        }
        for gone in verdicts.gone_nodes {
            self.collector.node_released(&gone.name);
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Start { pod, node } => {
                if self.nodes.contains(&node) && !self.pods.contains_key(&pod) {
                    let address = self.take(pod, node);
                    let started = self.now;
                    self.pods.insert(pod, Pod { node, address, reported: None, started, finished: false });
                }
            }
            Step::Report { pod } => {
                let nodes = &self.nodes;
                if let Some(pod) =
                    self.pods.get_mut(&pod).filter(|pod| nodes.contains(&pod.node) && !pod.finished)
                {
                    pod.reported = pod.address;
                }
            }
            Step::Restart { pod, cleanly } => {
                let running =
                    self.pods.get(&pod).filter(|pod| !pod.finished && self.nodes.contains(&pod.node));
                if let Some(Pod { node, address, .. }) = running.cloned() {
                    if cleanly {
                        self.give_back(address);
                    }
                    let new = self.take(pod, node);
                    let started = self.now;
                    if let Some(pod) = self.pods.get_mut(&pod) {
                        (pod.address, pod.started) = (new, started);
                    }
                }
            }
            Step::Stop { pod, cleanly } => {
                let pod = self.pods.remove(&pod);
                if let Some(pod) = pod.filter(|pod| cleanly && self.nodes.contains(&pod.node)) {
                    self.give_back(pod.address);
                }
            }
            Step::Finish { pod, cleanly } => {
                let nodes = &self.nodes;
                if let Some(pod) =
                    self.pods.get_mut(&pod).filter(|pod| nodes.contains(&pod.node) && !pod.finished)
                {
                    (pod.finished, pod.reported) = (true, pod.address);
                    if let Some(address) = pod.address.take().filter(|_| cleanly) {
                        self.give_back(Some(address));
                    }
                }
            }
            Step::DeleteNode { node, pods_too } => {
                self.nodes.remove(&node);
                if pods_too {
                    self.pods.retain(|_, pod| pod.node != node);
                }
            }
            Step::CreateNode { node } => drop(self.nodes.insert(node)),
            Step::Refresh => self.refresh(),
            Step::Feed => self.feed(),
            Step::Wait { seconds } => self.wait(seconds),
            Step::Collect { api_fails } => self.collect(api_fails)?,
            Step::RestartController => {
                self.collector = Collector::default();
                self.fed.clear();
                self.refresh();
                self.feed();
            }
        }
        let missing: Vec<IpAddr> = self.used().difference(&self.allocated()).copied().collect();
        prop_assert!(missing.is_empty(), "in use and not allocated: {missing:?}");
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn used_addresses_stay_and_leaked_ones_go(history in steps()) {
        let mut simulation = Simulation::new();
        for step in history {
            simulation.step(step)?;
        }
        // Settle: every status is reported, every cache is fresh, and the grace period passes.
        for pod in simulation.pods.values_mut() {
            pod.reported = pod.address.or(pod.reported);
        }
        simulation.refresh();
        simulation.feed();
        for _ in 0..2 {
            simulation.collect(false)?;
            simulation.now += GRACE.as_secs() + 1;
            simulation.refresh();
            simulation.feed();
        }
        simulation.collect(false)?;
        prop_assert_eq!(simulation.allocated(), simulation.used());
    }

    /// After a history the collector knows the same as a new one that starts at its end.
    #[test]
    fn changes_one_by_one_and_all_at_once_are_the_same(history in steps()) {
        let mut simulation = Simulation::new();
        for step in history {
            simulation.step(step)?;
        }
        simulation.refresh();
        simulation.feed();
        let mut fresh = Collector::default();
        for record in simulation.blocks.values() {
            fresh.block_changed(record);
        }
        // Only the old collector remembers suspicions, so let all of them become old.
        simulation.collector.touch_all();
        let (first, last) = (at(simulation.now), at(simulation.now + GRACE.as_secs() + 1));
        for collector in [&mut simulation.collector, &mut fresh] {
            collector.examine(&simulation.cache, first, &settings());
        }
        let mut old = simulation.collector.examine(&simulation.cache, last, &settings());
        let mut new = fresh.examine(&simulation.cache, last, &settings());
        for verdicts in [&mut old, &mut new] {
            verdicts.leaks.iter_mut().for_each(|leak| leak.since = at(0));
        }
        prop_assert_eq!(old, new);
    }
}
