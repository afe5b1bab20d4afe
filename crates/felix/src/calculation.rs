//! The thread between feed and dataplane: it processes as much of the feed as is waiting, flushes the calculation graph
//! once, and passes the messages on in parts, because all messages of a first flush together are larger than the graph.
//! It also watches the configuration.

use crate::figures::figures;
use crate::{flows, policysync};
use calc::{CalcGraph, GraphConfig, Stats};
use dataplane::runner::{self, Event};
use felix_config::{Change, ConfigResolver};
use follow::{Events, FeedEvent};
use messages::{Encapsulation, ToDataplane};
use model::feed::Status;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use telemetry::{Health, Metrics, Pulse};

/// The maximum number of updates processed before a flush, even if more are waiting.
const UPDATES_PER_FLUSH: usize = 100_000;
/// The number of messages in a part.
const MESSAGES_PER_PART: usize = 512;

/// Why the thread ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The change can only be applied by a restart.
    Restart(String),
    /// An error that cannot be handled.
    Failed(String),
}

/// The inputs and outputs of the thread.
pub(crate) struct Calculation {
    pub(crate) graph: GraphConfig,
    pub(crate) resolver: ConfigResolver,
    pub(crate) encapsulation: Encapsulation,
    pub(crate) dataplane: runner::Sender,
    /// The messages are also sent here, if proxies need to know policies.
    pub(crate) policy_sync: Option<policysync::Sender>,
    /// The entries and messages are also sent here, if flows are logged.
    pub(crate) flows: Option<flows::Tap>,
    pub(crate) pulse: Pulse,
    /// The time limits of parts: a parameter that is applied at once.
    pub(crate) health: Health,
    pub(crate) metrics: Metrics,
}

impl Calculation {
    /// Starts the thread. `ended` is notified when it ends by itself.
    pub(crate) fn start(
        self,
        feed: Events,
        ended: impl FnOnce(Verdict) + Send + 'static,
    ) -> std::io::Result<std::thread::JoinHandle<()>> {
        std::thread::Builder::new().name("calculation".to_owned()).spawn(move || {
            if let Some(verdict) = self.work(feed) {
                ended(verdict);
            }
        })
    }

    fn work(mut self, mut receiver: Events) -> Option<Verdict> {
        let mut graph = CalcGraph::new(self.graph.clone());
        let stats = Arc::new(Mutex::new(Stats::default()));
        figures(&self.metrics, &stats);
        let mut outlet = Outlet {
            dataplane: self.dataplane.clone(),
            policy_sync: self.policy_sync.take(),
            flows: self.flows.clone(),
            part: Vec::new(),
            count: 0,
            is_gone: false,
            encapsulation: self.encapsulation,
            other_encapsulation: None,
        };
        loop {
            self.pulse.idle();
            let mut next = Some(receiver.blocking_recv()?);
            self.pulse.busy();
            let begin = Instant::now();
            let mut taken = 0;
            while let Some(event) = next.take() {
                taken += self.take(&mut graph, event);
                if taken < UPDATES_PER_FLUSH {
                    next = receiver.try_recv().ok();
                }
            }
            if let Err(verdict) = self.follow_configuration() {
                return Some(verdict);
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
                    "pools require other tunnels: {need:?} instead of {:?}",
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

    /// Applies configuration changes, or returns why Felix cannot continue with them.
    fn follow_configuration(&mut self) -> Result<(), Verdict> {
        let Some(news) = self.resolver.flush().map_err(|error| Verdict::Failed(error.to_string()))? else {
            return Ok(());
        };
        if !news.is_datastore_ready {
            // The content of a datastore that is being migrated or filled is not meant to be enforced. The programmed
            // state remains, and the next start waits.
            return Err(Verdict::Restart(
                "the datastore is not ready to be used (datastoreReady of the ClusterInformation)".to_owned(),
            ));
        }
        match news.change {
            Change::Restart(names) => {
                Err(Verdict::Restart(format!("configuration changed: {}", names.join(", "))))
            }
            Change::Live(names) => {
                tracing::info!(
                    parameters = names.join(", "),
                    "configuration changed; applied without a restart"
                );
                self.health.set_overrides(crate::run::health_overrides(self.resolver.config()));
                Ok(())
            }
            Change::None => Ok(()),
        }
    }

    /// Processes an event; returns its number of entries.
    fn take(&mut self, graph: &mut CalcGraph, event: FeedEvent) -> usize {
        match event {
            FeedEvent::Entries(entries) => {
                let count = entries.len();
                self.metrics.count(
                    "felix_calc_graph_updates_processed",
                    "Number of datastore updates processed by the calculation graph.",
                    u32::try_from(count).map_or(f64::MAX, f64::from),
                );
                if let Some(flows) = &self.flows {
                    flows.entries(&entries);
                }
                for entry in entries {
                    self.resolver.on_entry(&entry);
                    graph.on_entry(entry);
                }
                count
            }
            FeedEvent::Status(status) => {
                self.resolver.on_status(status);
                graph.on_status(status);
                let state = match status {
                    Status::WaitForDatastore => 1.0,
                    Status::ResyncInProgress => {
                        self.metrics.count(
                            "felix_resyncs_started",
                            "Number of times Felix has started resyncing with the datastore.",
                            1.0,
                        );
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
            FeedEvent::Away(reason) => {
                tracing::warn!(%reason, "the datastore cannot be followed; what is programmed stays");
                self.pulse.report(false, reason);
                0
            }
        }
    }
}

/// Passes messages on in parts.
struct Outlet {
    dataplane: runner::Sender,
    policy_sync: Option<policysync::Sender>,
    flows: Option<flows::Tap>,
    part: Vec<ToDataplane>,
    count: usize,
    /// Whether the receiver is gone: Felix is about to end.
    is_gone: bool,
    encapsulation: Encapsulation,
    /// The encapsulations that pools need, if they differ from those set up at the start: devices and guard rules for
    /// tunnels.
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

    /// Sends the remaining messages; returns the total number of messages, or `None` when the receiver is gone.
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
        if let Some(flows) = &self.flows {
            flows.messages(&part);
        }
        self.is_gone |= self.dataplane.send(event(part)).is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use felix_config::kinds::NoSurroundings;
    use felix_config::{Source, Sources};
    use model::feed::{FeedEntry, ReadyFlag, Tier};
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Duration;
    use tokio::sync::mpsc;

    fn ready(is_ready: bool) -> FeedEntry {
        FeedEntry::Ready(ReadyFlag, Some(is_ready))
    }

    fn setting(name: &str, text: &str) -> FeedEntry {
        FeedEntry::GlobalConfig(name.to_owned(), Some(text.to_owned()))
    }

    /// A started calculation whose feed is in sync; its verdict is sent over the second channel.
    fn running(health: &Health) -> (mpsc::Sender<FeedEvent>, Receiver<Verdict>, Box<dyn Send>) {
        let mut sources = Sources::default();
        sources.set(Source::EnvironmentVariable, [("felixhostname".to_owned(), "n1".to_owned())].into());
        let resolver = ConfigResolver::new(sources, Box::new(NoSurroundings)).expect("a configuration");
        let (dataplane, events) = runner::testing::mailbox().expect("a mailbox");
        let calculation = Calculation {
            graph: GraphConfig { host: "n1".into(), ..GraphConfig::default() },
            resolver,
            encapsulation: Encapsulation::default(),
            dataplane,
            policy_sync: None,
            flows: None,
            pulse: Pulse::new(),
            health: health.clone(),
            metrics: Metrics::default(),
        };
        let (sender, verdict) = sync_channel(1);
        let (feed, events_of_feed) = mpsc::channel(16);
        let _thread = calculation
            .start(events_of_feed.into(), move |verdict| {
                let _ = sender.send(verdict);
            })
            .expect("a thread");
        for event in [
            FeedEvent::Status(Status::WaitForDatastore),
            FeedEvent::Status(Status::ResyncInProgress),
            FeedEvent::Entries(vec![ready(true)]),
            FeedEvent::Status(Status::InSync),
        ] {
            let _ = feed.blocking_send(event);
        }
        (feed, verdict, events)
    }

    #[test]
    fn a_locked_datastore_requires_a_restart() {
        let (feed, verdict, events) = running(&Health::default());
        let tier = FeedEntry::Tier("default".into(), Some(Tier::default()));
        assert!(verdict.recv_timeout(Duration::from_millis(200)).is_err(), "it goes on while it may");
        let _ = feed.blocking_send(FeedEvent::Entries(vec![ready(false), tier]));
        let verdict = verdict.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert!(
            matches!(&verdict, Verdict::Restart(reason) if reason.contains("datastoreReady")),
            "{verdict:?}"
        );
        drop(events);
    }

    #[test]
    fn health_timeouts_are_applied_at_once() {
        let health = Health::default();
        health.register("CalculationGraph", &Pulse::new(), true, true, Duration::from_secs(30));
        let (feed, verdict, _events) = running(&health);
        let overrides = setting("HealthTimeoutOverrides", "CalculationGraph=1m");
        let _ = feed.blocking_send(FeedEvent::Entries(vec![overrides]));
        let is_followed = || health.summary(Instant::now()).detail.contains("1m0s (override)");
        for _ in 0..600 {
            if is_followed() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(is_followed(), "{}", health.summary(Instant::now()).detail);
        // Other parameters require a restart.
        let _ = feed.blocking_send(FeedEvent::Entries(vec![setting("LogPrefix", "mine")]));
        let verdict = verdict.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert_eq!(verdict, Verdict::Restart("configuration changed: LogPrefix".to_owned()));
    }
}
