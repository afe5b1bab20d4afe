//! Follows the requests for this node's status and writes the answers, but only if they differ from the stored ones.

use super::answer;
use super::readings::Daemons;
use super::schedule::Schedule;
use crate::context::{Context, ContextError};
use api::meta::Time;
use api::{CalicoNodeStatus, CalicoNodeStatusSpec, CalicoNodeStatusStatus, NodeStatusClass};
use bird_control::BirdError;
use client::{Client, OpenError};
use daemon::Shutdown;
use follow::FeedEvent;
use model::IpVersion;
use model::feed::FeedEntry;
use tokio::sync::mpsc;
use tokio::time::Instant;
use typha_wire::SyncerType;

/// How often writing an answer is attempted when others write the resource, too.
const ATTEMPTS: usize = 3;

/// Why requests cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The datastore cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// The source of requests; it stops when dropped.
#[expect(dead_code, reason = "held for their ends alone")]
enum Following {
    Datastore(follow::Follower),
    Typha(typha_client::Follower),
}

/// Answers requests until the shutdown.
///
/// # Errors
/// When the settings cannot be used. Errors of the datastore are retried.
pub async fn run(context: &Context, shutdown: Shutdown) -> Result<(), StatusError> {
    let client = context.client::<StatusError>().await?;
    let folders = bird_control::SOCKET_FOLDERS.iter().map(|folder| context.path(folder)).collect();
    let mut reporter = Reporter {
        client,
        node_name: context.node_name()?,
        daemons: Daemons(folders),
        schedule: Schedule::default(),
    };
    let (_following, events) = match context.typha(SyncerType::NodeStatus, &reporter.node_name).await? {
        Some(plan) => {
            let (follower, events) = plan.start();
            (Following::Typha(follower), events)
        }
        None => {
            let (follower, events) = follow::follow(reporter.client.backend(), follow::feeds::node_status());
            (Following::Datastore(follower), events)
        }
    };
    reporter.follow(events, &shutdown).await;
    Ok(())
}

struct Reporter {
    client: Client,
    node_name: String,
    daemons: Daemons,
    schedule: Schedule,
}

impl Reporter {
    /// Follows the requests until the shutdown.
    async fn follow(&mut self, mut events: mpsc::Receiver<FeedEvent>, shutdown: &Shutdown) {
        while !shutdown.is_requested() {
            let next = self.schedule.next();
            tokio::select! {
                event = events.recv() => match event {
                    Some(FeedEvent::Entries(entries)) => entries.into_iter().for_each(|entry| self.take(entry)),
                    Some(FeedEvent::Status(_) | FeedEvent::Away(_)) => {}
                    None => return,
                },
                () = until(next) => self.answer_due().await,
                () = shutdown.requested() => return,
            }
        }
    }

    fn take(&mut self, entry: FeedEntry) {
        match entry {
            FeedEntry::NodeStatus(_, Some(question)) => {
                self.schedule.put(&self.node_name, &question, Instant::now());
            }
            FeedEntry::NodeStatus(name, None) => self.schedule.remove(&name),
            _ => {}
        }
    }

    /// Answers the due requests. Errors of the datastore are logged; the request is answered when it is due again.
    async fn answer_due(&mut self) {
        for name in self.schedule.take_due(Instant::now()) {
            if let Err(error) = self.answer(&name).await {
                tracing::warn!(question = name, %error, "not answered");
            }
        }
    }

    /// Answers one request completely, or not at all if a daemon does not give a valid answer.
    async fn answer(&self, name: &str) -> client::Result<()> {
        let questions = self.client.resource::<CalicoNodeStatusSpec>();
        for attempt in 1..=ATTEMPTS {
            let mut question = match questions.get("", name).await {
                Ok(question) => question,
                Err(error) if error.is_does_not_exist() => return Ok(()),
                Err(error) => return Err(error),
            };
            let status = match self.ask(&question).await {
                Ok(status) => status,
                Err(error) => {
                    tracing::error!(question = name, %error, "not answered");
                    return Ok(());
                }
            };
            if status == question.status {
                return Ok(());
            }
            question.status = status;
            question.status.last_updated =
                Some(Time::new(jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()));
            match questions.update_status(question).await {
                Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
                Err(error) if error.is_conflict() || error.is_does_not_exist() => {
                    tracing::warn!(question = name, %error, "not answered");
                    return Ok(());
                }
                outcome => return outcome.map(drop),
            }
        }
        Ok(())
    }

    /// The answer; it keeps the stored values of classes that are not requested.
    async fn ask(&self, question: &CalicoNodeStatus) -> Result<CalicoNodeStatusStatus, BirdError> {
        let mut status = question.status.clone();
        for family in IpVersion::BOTH {
            for class in &question.spec.classes {
                match class {
                    NodeStatusClass::Agent => {
                        answer::agent(&mut status, family, self.daemons.status(family).await?);
                    }
                    NodeStatusClass::BGP => {
                        answer::bgp(&mut status, family, self.daemons.sessions(family).await?);
                    }
                    NodeStatusClass::Routes => {
                        answer::routes(&mut status, family, self.daemons.routes(family).await?);
                    }
                    NodeStatusClass::Unset | NodeStatusClass::Other(_) => {
                        tracing::warn!(
                            question = question.metadata.name,
                            class = class.as_str(),
                            "asks for an unknown class"
                        );
                    }
                }
            }
        }
        Ok(status)
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
