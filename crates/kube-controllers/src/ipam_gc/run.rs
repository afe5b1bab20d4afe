//! When to check addresses, and the order in which verdicts are carried out.
//!
//! Events only record changes. One task checks when there is news (at most once per [`PAUSE`]), when a suspicion has
//! become old enough, and everything periodically. Addresses are released first, then idle blocks, then the claims of
//! deleted nodes, because only empty blocks can be released. Failures are retried after a pause that doubles.

use super::facts::{Cached, CalicoNodes, is_about_addresses};
use super::live::{Live, Witness, is_for_gone_node};
use super::machines::{VirtualMachine, VirtualMachineInstance};
use super::state::State;
use crate::controller::{Context, Controller};
use crate::informer::Informer;
use crate::informer::kinds::{Node, Pod};
use api::Kind;
use async_trait::async_trait;
use client::DatastoreType;
use daemon::{Backoff, Shutdown};
use ipam::{Ipam, Owner};
use ipam_core::garbage::{Leak, NodeFact, Settings, Verdicts, World as _};
use jiff::{SignedDuration, Timestamp};
use model::{AffinityType, ListOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The least time between two checks: changes in the meantime are handled together.
const PAUSE: Duration = Duration::from_millis(100);

/// The least time until something that is due is checked.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// How often everything is checked if no grace period determines it.
const PERIOD: Duration = Duration::from_secs(300);

/// How many addresses are released at once.
const BATCH: usize = 10_000;

/// The pauses after failures.
const RETRY: Backoff = Backoff::new(Duration::from_millis(5), Duration::from_secs(30));

/// The garbage collection of addresses; part of the node controller.
#[derive(Debug)]
pub struct IpamGc {
    shared: Arc<Shared>,
    pods: Informer<Pod>,
    nodes: Informer<Node>,
    machines: Informer<VirtualMachine>,
    instances: Informer<VirtualMachineInstance>,
    witness: Witness,
    ipam: Ipam,
    grace: Option<Duration>,
}

/// The state that listeners and the task share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    news: Notify,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IpamGc {
    /// Subscribes to all relevant changes. `grace` is `leakGracePeriod`.
    #[must_use]
    pub fn new(context: &Context, grace: Option<Duration>) -> Self {
        let shared = Arc::new(Shared::default());
        for list in [
            ListOptions::Block { ip_version: None },
            ListOptions::resources(Kind::Node),
            ListOptions::resources(Kind::IPPool),
            ListOptions::resources(Kind::IPReservation),
            ListOptions::resources(Kind::ClusterInformation),
        ] {
            let listener = Arc::clone(&shared);
            context.feed.follow(list, move |update| {
                listener.state().update(update);
                listener.news.notify_one();
            });
        }
        let listener = Arc::clone(&shared);
        context.feed.on_status(move |status| {
            listener.state().status(status);
            listener.news.notify_one();
        });
        let pods = context.informers.of::<Pod>();
        let listener = Arc::clone(&shared);
        pods.subscribe(move |change| {
            // A new pod frees nothing. One that ends, moves or reports a different address may.
            let Some(old) = &change.old else { return };
            if change.new.as_ref().is_some_and(|new| !is_about_addresses(old, new)) {
                return;
            }
            let mut state = listener.state();
            for name in state.calico_names(&old.node) {
                state.collector.touch(&name);
            }
            listener.news.notify_one();
        });
        let nodes = context.informers.of::<Node>();
        let listener = Arc::clone(&shared);
        nodes.subscribe(move |change| {
            let mut state = listener.state();
            for name in state.calico_names(&change.key.name) {
                state.collector.touch(&name);
            }
            listener.news.notify_one();
        });
        let figures = Arc::clone(&shared);
        context.metrics.source(move |page| super::figures::figures(&figures.state(), page));
        let is_kubernetes = context.datastore == DatastoreType::Kubernetes;
        Self {
            shared,
            pods,
            nodes,
            // If these may not be read, addresses of machines are never released, but all others are.
            machines: context.informers.if_allowed(),
            instances: context.informers.if_allowed(),
            witness: Witness {
                cluster: context.cluster.clone(),
                client: context.client.clone(),
                is_kubernetes,
            },
            ipam: Ipam::new(Arc::clone(context.client.backend())),
            grace,
        }
    }

    fn cached<'a>(&'a self, calico_nodes: &'a CalicoNodes) -> Cached<'a> {
        Cached {
            pods: &self.pods,
            nodes: &self.nodes,
            machines: &self.machines,
            instances: &self.instances,
            calico_nodes,
            is_kubernetes: self.witness.is_kubernetes,
        }
    }

    async fn settings(&self) -> Settings {
        let grace = self.grace.map(|grace| SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX));
        let mut settings = Settings { grace, cooldown_seconds: 0 };
        if self.shared.state().collector.has_resting() {
            match self.ipam.config().await {
                Ok(config) => settings.cooldown_seconds = config.ip_cooldown_seconds,
                Err(error) => {
                    tracing::warn!(%error, "the settings of address management cannot be read: addresses rest on");
                    settings.cooldown_seconds = i32::MAX;
                }
            }
        }
        settings
    }

    /// Checks once. Returns true if everything that was due could be done.
    async fn look(&self, settings: &Settings) -> bool {
        let verdicts = {
            let mut state = self.shared.state();
            if !state.is_in_sync || !state.is_ready {
                return true;
            }
            let State { collector, calico_nodes, .. } = &mut *state;
            collector.examine(&self.cached(calico_nodes), Timestamp::now(), settings)
        };
        if verdicts.is_empty() {
            return true;
        }
        self.carry_out(&verdicts).await
    }

    async fn carry_out(&self, verdicts: &Verdicts) -> bool {
        let mut is_done = true;
        let gone = self.gone_nodes(verdicts);
        for batch in verdicts.leaks.chunks(BATCH) {
            let live = self.witness.ask(batch, gone.iter().map(String::as_str)).await;
            let leaks = self.confirmed(batch, &live, &gone);
            is_done &= leaks.len() == batch.len();
            is_done &= self.release(&leaks).await;
        }
        for cidr in &verdicts.rested_blocks {
            match self.ipam.collect_rested(*cidr).await {
                Ok(_) => {}
                // Another client changed the block; it will be checked again.
                Err(error) if error.is_conflict() || error.is_does_not_exist() => {}
                Err(error) => {
                    tracing::warn!(%cidr, %error, "addresses that have rested were not freed");
                    is_done = false;
                }
            }
        }
        for idle in &verdicts.idle_blocks {
            let count = idle.blocks_of_node;
            tracing::info!(block = %idle.cidr, node = idle.node, blocks_of_node = count, "giving up an empty block");
            match self.ipam.release_block_affinity(idle.cidr, true).await {
                // The node must not lose its last block before the feed reports that this one is gone.
                Ok(()) => self.shared.state().collector.block_gone(&idle.cidr),
                Err(error) => {
                    tracing::warn!(block = %idle.cidr, node = idle.node, %error, "the block was not given up");
                    // The feed will report a change; until then it stays idle and due.
                    self.shared.state().collector.block_kept(&idle.cidr);
                }
            }
        }
        if !verdicts.gone_nodes.is_empty() {
            let names = || verdicts.gone_nodes.iter().map(|gone| gone.name.as_str());
            let live = self.witness.ask(&[], names()).await;
            for name in names() {
                is_done &= self.forget_node(name, &live).await;
            }
        }
        is_done
    }

    /// The nodes whose leaks were confirmed because the node is gone.
    fn gone_nodes(&self, verdicts: &Verdicts) -> BTreeSet<String> {
        let state = self.shared.state();
        let cached = self.cached(&state.calico_nodes);
        let leaks = verdicts.leaks.iter().filter(|leak| is_for_gone_node(leak, &cached));
        leaks.map(|leak| leak.node.clone()).collect()
    }

    /// The leaks that the live cluster confirms, only whole handles.
    fn confirmed<'a>(&self, batch: &'a [Leak], live: &Live, gone: &BTreeSet<String>) -> Vec<&'a Leak> {
        let mut state = self.shared.state();
        let mut resurrected = BTreeSet::new();
        for leak in batch {
            if gone.contains(&leak.node) && !matches!(live.node(&leak.node), NodeFact::Gone { .. }) {
                // The cache is outdated: the node exists, so there is no hurry.
                state.collector.touch(&leak.node);
                resurrected.insert(&leak.handle);
            } else if !state.collector.still_leaked(leak, live) {
                tracing::info!(address = %leak.address, handle = %leak.handle, "an address that looked leaked is in use");
                resurrected.insert(&leak.handle);
            }
        }
        batch.iter().filter(|leak| !resurrected.contains(&leak.handle)).collect()
    }

    async fn release(&self, leaks: &[&Leak]) -> bool {
        if leaks.is_empty() {
            return true;
        }
        for leak in leaks {
            tracing::warn!(
                address = %leak.address, handle = %leak.handle, node = leak.node, reason = %leak.reason, since = %leak.since,
                "releasing a leaked address"
            );
        }
        let requests: Vec<_> = leaks.iter().map(|leak| leak.release()).collect();
        let outcome = match self.ipam.release_ips(&requests).await {
            Ok(outcome) => outcome,
            Err(error) => {
                tracing::warn!(%error, count = leaks.len(), "leaked addresses were not released");
                return false;
            }
        };
        let by_address: BTreeMap<IpAddr, &Leak> = leaks.iter().map(|leak| (leak.address, *leak)).collect();
        let mut state = self.shared.state();
        for release in &outcome.released {
            if let Some(leak) = by_address.get(&release.address) {
                state.collector.released(leak);
                state.count_reclaimed(&leak.block, &leak.node);
            }
        }
        if let Some(error) = &outcome.failure {
            let left = leaks.len() - outcome.released.len();
            tracing::warn!(%error, left, "some leaked addresses were not released");
        }
        outcome.failure.is_none()
    }

    async fn forget_node(&self, name: &str, live: &Live) -> bool {
        if !matches!(live.node(name), NodeFact::Gone { .. }) {
            self.shared.state().collector.touch(name);
            return true;
        }
        tracing::info!(node = name, "giving up the blocks of a node that is gone");
        let owner = Owner { affinity_type: AffinityType::Host, host: name.to_owned() };
        match self.ipam.release_host_affinities(&owner, true).await {
            Ok(()) => {
                self.shared.state().forget_node(name);
                true
            }
            Err(error) => {
                tracing::warn!(node = name, %error, "could not release the blocks of a deleted node");
                false
            }
        }
    }

    /// The longest time to wait for news.
    fn wait(&self, settings: &Settings, full: Instant, retry: Option<Duration>) -> Duration {
        let due = self.shared.state().collector.due_at(settings);
        let due = due.map(|due| Duration::try_from(due.duration_since(Timestamp::now())).unwrap_or_default());
        // Work that was due but failed must not keep the loop busy.
        let due = due.map(|due| due.max(LEAST_WAIT));
        let full = full.saturating_duration_since(Instant::now());
        [due, retry, Some(full)].into_iter().flatten().min().unwrap_or(full)
    }
}

#[async_trait]
impl Controller for IpamGc {
    fn name(&self) -> &'static str {
        "IPAM"
    }

    async fn run(self: Box<Self>, shutdown: Shutdown) -> anyhow::Result<()> {
        tokio::select! {
            () = async {
                self.pods.synced().await;
                self.nodes.synced().await;
                self.machines.synced().await;
                self.instances.synced().await;
            } => {}
            () = shutdown.requested() => return Ok(()),
        }
        let period = self.grace.filter(|grace| !grace.is_zero()).map_or(PERIOD, |grace| grace / 2);
        tracing::info!(?period, "addresses are checked on every event, and all together in this period");
        let mut full = Instant::now() + period;
        let mut backoff = RETRY;
        loop {
            let settings = self.settings().await;
            let retry = match self.look(&settings).await {
                true => {
                    backoff.reset();
                    None
                }
                false => Some(backoff.pause()),
            };
            if !shutdown.sleep(PAUSE).await {
                return Ok(());
            }
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = tokio::time::sleep(self.wait(&settings, full, retry)) => {}
                () = shutdown.requested() => return Ok(()),
            }
            if Instant::now() >= full {
                self.shared.state().collector.touch_all();
                full = Instant::now() + period;
            }
        }
    }
}
