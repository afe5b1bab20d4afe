//! The thread between feed and dataplane: it takes in what the feed says, as much as is waiting, flushes the calculation
//! graph once, and hands the messages on in parts: those of a first flush together are larger than the graph. It also
//! watches the configuration.

use crate::policysync;
use calc::{CalcGraph, GraphConfig, Stats};
use dataplane::runner::Event;
use felix_config::{Change, ConfigResolver};
use messages::{Encapsulation, ToDataplane};
use model::feed::{Status, Update};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use telemetry::{Figure, FigureKind, Metrics, Pulse};
use tokio::sync::mpsc;

/// How many deliveries of the feed may wait.
const WAITING: usize = 16;
/// How many updates are taken in before a flush, even if more are waiting.
const UPDATES_PER_FLUSH: usize = 100_000;
/// How many messages make a part.
const MESSAGES_PER_PART: usize = 512;

/// What the feed says.
pub(crate) enum Heard {
    /// Entries came, changed or went.
    Updates(Vec<Update>),
    /// The feed has come this far.
    Status(Status),
    /// The datastore has been away for too long.
    Failed(String),
}

/// The feed's side of the thread.
pub(crate) struct Feed(mpsc::Sender<Heard>);

#[async_trait::async_trait]
impl syncer::Sink for Feed {
    async fn updates(&mut self, updates: Vec<Update>) {
        // When nobody listens any more, Felix is about to end.
        let _ = self.0.send(Heard::Updates(updates)).await;
    }

    async fn status(&mut self, status: Status) {
        let _ = self.0.send(Heard::Status(status)).await;
    }

    async fn failed(&mut self, error: String) {
        let _ = self.0.send(Heard::Failed(error)).await;
    }
}

/// Why the thread ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Only a new start can follow this change.
    Restart(String),
    /// Nothing can be done.
    Failed(String),
}

/// What the thread needs.
pub(crate) struct Calculation {
    pub(crate) graph: GraphConfig,
    pub(crate) resolver: ConfigResolver,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) dataplane: SyncSender<Event>,
    /// Where messages go as well, when proxies are to know policies.
    pub(crate) policy_sync: Option<policysync::Sender>,
    pub(crate) pulse: Pulse,
    pub(crate) metrics: Metrics,
}

impl Calculation {
    /// Starts the thread. `ended` is told when it ends by itself.
    pub(crate) fn start(
        self,
        ended: impl FnOnce(Verdict) + Send + 'static,
    ) -> std::io::Result<(Feed, std::thread::JoinHandle<()>)> {
        let (sender, receiver) = mpsc::channel(WAITING);
        let thread = std::thread::Builder::new().name("calculation".to_owned()).spawn(move || {
            if let Some(verdict) = self.work(receiver) {
                ended(verdict);
            }
        })?;
        Ok((Feed(sender), thread))
    }

    fn work(mut self, mut receiver: mpsc::Receiver<Heard>) -> Option<Verdict> {
        let mut graph = CalcGraph::new(self.graph.clone());
        let stats = Arc::new(Mutex::new(Stats::default()));
        figures(&self.metrics, &stats);
        let mut outlet = Outlet {
            dataplane: self.dataplane.clone(),
            policy_sync: self.policy_sync.take(),
            part: Vec::new(),
            count: 0,
            is_gone: false,
            encapsulation: self.encapsulation,
            other_encapsulation: None,
        };
        let config = Arc::new(self.resolver.effective().texts.clone());
        outlet.push(ToDataplane::ConfigUpdate(config));
        outlet.finish()?;
        loop {
            self.pulse.idle();
            let mut next = Some(receiver.blocking_recv()?);
            self.pulse.busy();
            let begin = Instant::now();
            let mut taken = 0;
            while let Some(heard) = next.take() {
                taken += self.take(&mut graph, heard);
                if taken < UPDATES_PER_FLUSH {
                    next = receiver.try_recv().ok();
                }
            }
            match self.resolver.flush() {
                Ok(Some(news)) => match news.change {
                    Change::Restart(names) => {
                        return Some(Verdict::Restart(format!(
                            "configuration changed: {}",
                            names.join(", ")
                        )));
                    }
                    Change::Live(_) => outlet.push(ToDataplane::ConfigUpdate(news.texts)),
                    Change::None => {}
                },
                Ok(None) => {}
                Err(error) => return Some(Verdict::Failed(error.to_string())),
            }
            graph.flush_each(|message| outlet.push(message));
            self.metrics.observe(
                "felix_calc_graph_update_time_seconds",
                "Seconds to update calculation graph for each datastore OnUpdate call.",
                begin.elapsed().as_secs_f64(),
            );
            *stats.lock().unwrap_or_else(PoisonError::into_inner) = graph.stats();
            if let Some(need) = outlet.other_encapsulation {
                return Some(Verdict::Restart(format!(
                    "pools ask for other tunnels: {need:?} instead of {:?}",
                    self.encapsulation
                )));
            }
            let sent = outlet.finish()?;
            if sent > 0 {
                self.metrics.count(
                    "felix_calc_graph_output_events",
                    "Number of events emitted by the calculation graph.",
                    u32::try_from(sent).map_or(f64::MAX, f64::from),
                );
            }
        }
    }

    /// Returns how many entries it was.
    fn take(&mut self, graph: &mut CalcGraph, heard: Heard) -> usize {
        match heard {
            Heard::Updates(updates) => {
                let count = updates.len();
                self.metrics.count(
                    "felix_calc_graph_updates_processed",
                    "Number of datastore updates processed by the calculation graph.",
                    u32::try_from(count).map_or(f64::MAX, f64::from),
                );
                for update in updates {
                    self.resolver.on_update(&update);
                    graph.on_update(update);
                }
                count
            }
            Heard::Status(status) => {
                self.resolver.on_status(status);
                graph.on_status(status);
                let state = match status {
                    Status::WaitForDatastore => 1.0,
                    Status::ResyncInProgress => {
                        let help = "Number of times Felix has started resyncing with the datastore.";
                        self.metrics.count("felix_resyncs_started", help, 1.0);
                        2.0
                    }
                    Status::InSync => {
                        self.pulse.report(true, "");
                        3.0
                    }
                };
                self.metrics.set("felix_resync_state", "Current datastore state.", state);
                0
            }
            Heard::Failed(reason) => {
                tracing::warn!(%reason, "the datastore cannot be followed; what is programmed stays");
                self.pulse.report(false, reason);
                0
            }
        }
    }
}

/// Hands messages on in parts.
struct Outlet {
    dataplane: SyncSender<Event>,
    policy_sync: Option<policysync::Sender>,
    part: Vec<ToDataplane>,
    count: usize,
    /// Whether nobody listens any more: Felix is about to end.
    is_gone: bool,
    encapsulation: Encapsulation,
    /// What pools ask for, if it is not what was made at the start: devices and guard rules for tunnels.
    other_encapsulation: Option<Encapsulation>,
}

impl Outlet {
    fn push(&mut self, message: ToDataplane) {
        if let ToDataplane::Encapsulation(need) = message
            && need != self.encapsulation
        {
            self.other_encapsulation = Some(need);
        }
        self.count += 1;
        self.part.push(message);
        if self.part.len() >= MESSAGES_PER_PART && self.other_encapsulation.is_none() {
            let part = std::mem::take(&mut self.part);
            self.send(part, Event::Part);
        }
    }

    /// Hands on what is left; returns how many messages it was altogether, or nothing when nobody listens any more.
    fn finish(&mut self) -> Option<usize> {
        let count = std::mem::take(&mut self.count);
        if count > 0 {
            let part = std::mem::take(&mut self.part);
            self.send(part, Event::Messages);
        }
        (!self.is_gone).then_some(count)
    }

    fn send(&mut self, part: Vec<ToDataplane>, event: fn(Vec<ToDataplane>) -> Event) {
        if let Some(policy_sync) = &self.policy_sync {
            policy_sync.tell(&part);
        }
        self.is_gone |= self.dataplane.send(event(part)).is_err();
    }
}

/// Figures that are read when somebody asks.
fn figures(metrics: &Metrics, stats: &Arc<Mutex<Stats>>) {
    let stats = Arc::clone(stats);
    metrics.source(move |figures| {
        let stats = *stats.lock().unwrap_or_else(PoisonError::into_inner);
        let number = |count: usize| u32::try_from(count).map_or(f64::MAX, f64::from);
        for (name, help, value) in [
            (
                "felix_active_local_endpoints",
                "Number of active endpoints on this host.",
                stats.active_local_endpoints,
            ),
            (
                "felix_active_local_policies",
                "Number of active policies on this host.",
                stats.active_local_policies,
            ),
            (
                "felix_active_local_selectors",
                "Number of active selectors on this host.",
                stats.active_local_selectors,
            ),
            (
                "felix_cluster_num_hosts",
                "Total number of Calico hosts in the cluster.",
                stats.cluster_num_hosts,
            ),
            (
                "felix_cluster_num_workload_endpoints",
                "Total number of workload endpoints cluster-wide.",
                stats.cluster_num_workload_endpoints,
            ),
            (
                "felix_cluster_num_host_endpoints",
                "Total number of host endpoints cluster-wide.",
                stats.cluster_num_host_endpoints,
            ),
            (
                "felix_cluster_num_tiers",
                "Total number of Calico tiers in the cluster.",
                stats.cluster_num_tiers,
            ),
            (
                "felix_cluster_num_policies",
                "Total number of policies in the cluster.",
                stats.cluster_num_policies,
            ),
            (
                "felix_cluster_num_profiles",
                "Total number of profiles in the cluster.",
                stats.cluster_num_profiles,
            ),
            (
                "felix_label_index_num_endpoints",
                "Total number of endpoints and similar objects in the index.",
                stats.label_index_num_endpoints,
            ),
        ] {
            let values = vec![(String::new(), number(value))];
            figures.push(Figure { name, kind: FigureKind::Gauge, help, values });
        }
    });
}
