//! The thread between feed and dataplane: it takes in what the feed says, as much as is waiting, flushes the calculation
//! graph once, and hands the messages on in parts: those of a first flush together are larger than the graph. It also
//! watches the configuration.

use crate::figures::figures;
use crate::policysync;
use calc::{CalcGraph, GraphConfig, Stats};
use dataplane::runner::Event;
use felix_config::{Change, ConfigResolver};
use messages::{Encapsulation, ToDataplane};
use model::feed::{Status, Update};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use telemetry::{Health, Metrics, Pulse};
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
    /// Which parts may take how long: a parameter that is followed at once.
    pub(crate) health: Health,
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

    /// Follows the configuration, or says why Felix cannot go on with it.
    fn follow_configuration(&mut self) -> Result<(), Verdict> {
        let Some(news) = self.resolver.flush().map_err(|error| Verdict::Failed(error.to_string()))? else {
            return Ok(());
        };
        if !news.is_datastore_ready {
            // What comes from a datastore that is being migrated or filled is not what anybody meant to enforce. What is
            // programmed stays, and the next start waits.
            return Err(Verdict::Restart(
                "the datastore is not ready to be used (datastoreReady of the ClusterInformation)".to_owned(),
            ));
        }
        match news.change {
            Change::Restart(names) => {
                Err(Verdict::Restart(format!("configuration changed: {}", names.join(", "))))
            }
            Change::Live(names) => {
                tracing::info!(parameters = names.join(", "), "configuration changed, and is followed");
                self.health.set_overrides(crate::run::health_overrides(self.resolver.config()));
                Ok(())
            }
            Change::None => Ok(()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use felix_config::kinds::NoSurroundings;
    use felix_config::{Source, Sources};
    use model::feed::{Change as FeedChange, FeedValue, Tier};
    use model::{Key, V1Key};
    use std::sync::mpsc::{Receiver, sync_channel};
    use std::time::Duration;

    fn update(key: V1Key, value: Option<FeedValue>) -> Update {
        Update { key: Key::V1(key), value, revision: String::new(), change: FeedChange::Updated }
    }

    fn ready(is_ready: bool) -> Update {
        update(V1Key::ReadyFlag, Some(FeedValue::Ready(is_ready)))
    }

    fn setting(name: &str, text: &str) -> Update {
        update(V1Key::GlobalConfig { name: name.to_owned() }, Some(FeedValue::Text(text.to_owned())))
    }

    /// A calculation that has begun, with a feed that is in sync; its verdict comes over the second channel.
    fn running(health: &Health) -> (mpsc::Sender<Heard>, Receiver<Verdict>, Receiver<Event>) {
        let mut sources = Sources::default();
        sources.set(Source::EnvironmentVariable, [("felixhostname".to_owned(), "n1".to_owned())].into());
        let resolver = ConfigResolver::new(sources, Box::new(NoSurroundings)).expect("a configuration");
        let (dataplane, events) = sync_channel(100);
        let calculation = Calculation {
            graph: GraphConfig { host: "n1".into(), ..GraphConfig::default() },
            resolver,
            encapsulation: Encapsulation::default(),
            dataplane,
            policy_sync: None,
            pulse: Pulse::new(),
            health: health.clone(),
            metrics: Metrics::default(),
        };
        let (sender, verdict) = sync_channel(1);
        let (feed, _thread) = calculation
            .start(move |verdict| {
                let _ = sender.send(verdict);
            })
            .expect("a thread");
        for heard in [
            Heard::Status(Status::WaitForDatastore),
            Heard::Status(Status::ResyncInProgress),
            Heard::Updates(vec![ready(true)]),
            Heard::Status(Status::InSync),
        ] {
            let _ = feed.0.blocking_send(heard);
        }
        (feed.0, verdict, events)
    }

    #[test]
    fn a_datastore_that_is_locked_asks_for_a_new_start() {
        let (feed, verdict, events) = running(&Health::default());
        let tier = update(V1Key::Tier { name: "default".into() }, Some(FeedValue::Tier(Tier::default())));
        assert!(verdict.recv_timeout(Duration::from_millis(200)).is_err(), "it goes on while it may");
        let _ = feed.blocking_send(Heard::Updates(vec![ready(false), tier]));
        let verdict = verdict.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert!(
            matches!(&verdict, Verdict::Restart(reason) if reason.contains("datastoreReady")),
            "{verdict:?}"
        );
        drop(events);
    }

    #[test]
    fn limits_of_health_are_followed_at_once() {
        let health = Health::default();
        health.register("CalculationGraph", &Pulse::new(), true, true, Duration::from_secs(30));
        let (feed, verdict, _events) = running(&health);
        let overrides = setting("HealthTimeoutOverrides", "CalculationGraph=1m");
        let _ = feed.blocking_send(Heard::Updates(vec![overrides]));
        let is_followed = || health.summary(Instant::now()).detail.contains("1m0s (override)");
        for _ in 0..600 {
            if is_followed() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(is_followed(), "{}", health.summary(Instant::now()).detail);
        // Others ask for a new start.
        let _ = feed.blocking_send(Heard::Updates(vec![setting("LogPrefix", "mine")]));
        let verdict = verdict.recv_timeout(Duration::from_secs(60)).expect("it ends");
        assert_eq!(verdict, Verdict::Restart("configuration changed: LogPrefix".to_owned()));
    }
}
