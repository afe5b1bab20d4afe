//! Watches the questions for this node and writes the answers, only where they differ from what is there.

use super::answer;
use super::readings::Daemons;
use super::schedule::Schedule;
use crate::context::{Context, ContextError};
use crate::shutdown_signal::Shutdown;
use api::meta::Time;
use api::{CalicoNodeStatus, CalicoNodeStatusSpec, CalicoNodeStatusStatus, NodeStatusClass};
use bird_control::{BirdError, Family};
use client::{Client, ListQuery, OpenError, ResourceEvent};
use futures::StreamExt as _;
use std::time::Duration;
use tokio::time::Instant;

/// How often an answer is tried against others who write the question.
const ATTEMPTS: usize = 3;

/// The pauses after trouble with the datastore.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Why questions cannot be answered.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// The settings cannot be used.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// The datastore cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

/// Answers questions until the end.
///
/// # Errors
/// When the settings cannot be used. What the datastore fails with is tried again.
pub async fn run(context: &Context, shutdown: Shutdown) -> Result<(), StatusError> {
    let client = Client::open(&context.client_config()?).await?;
    let folders = bird_control::SOCKET_FOLDERS.iter().map(|folder| context.path(folder)).collect();
    let mut reporter = Reporter {
        client,
        node_name: context.node_name()?,
        daemons: Daemons(folders),
        schedule: Schedule::default(),
    };
    let mut pause = SHORTEST_PAUSE;
    while !shutdown.is_requested() {
        let started = Instant::now();
        if let Err(error) = reporter.follow(&shutdown).await {
            // Servers end watches after a while: nothing to speak of.
            if started.elapsed() > LONGEST_PAUSE {
                tracing::debug!(%error, "node status questions: watching again");
                pause = SHORTEST_PAUSE;
                continue;
            }
            tracing::warn!(%error, "node status questions: watching again in {} s", pause.as_secs());
            shutdown.sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
    Ok(())
}

struct Reporter {
    client: Client,
    node_name: String,
    daemons: Daemons,
    schedule: Schedule,
}

impl Reporter {
    /// Lists the questions, then follows them until the watch or everything ends.
    async fn follow(&mut self, shutdown: &Shutdown) -> client::Result<()> {
        let questions = self.client.resource::<CalicoNodeStatusSpec>();
        let list = questions.list(&ListQuery::all()).await?;
        let names: Vec<&str> = list.items.iter().map(|question| question.metadata.name.as_str()).collect();
        self.schedule.retain(&names);
        for question in &list.items {
            self.schedule.put(&self.node_name, question, Instant::now());
        }
        let mut watch = questions.watch(&ListQuery::all().at(&list.revision)).await?;
        loop {
            let next = self.schedule.next();
            tokio::select! {
                event = watch.next() => match event {
                    Some(event) => self.take(event?),
                    None => return Ok(()),
                },
                () = until(next) => self.answer_due().await?,
                () = shutdown.requested() => return Ok(()),
            }
        }
    }

    fn take(&mut self, event: ResourceEvent<CalicoNodeStatus>) {
        match event {
            ResourceEvent::Added(question) | ResourceEvent::Modified { new: question, .. } => {
                self.schedule.put(&self.node_name, &question, Instant::now());
            }
            ResourceEvent::Deleted(question) => self.schedule.remove(&question.metadata.name),
            ResourceEvent::Bookmark(_) => {}
            ResourceEvent::Invalid(entry) => {
                tracing::error!(
                    question = entry.key,
                    reason = entry.reason,
                    "a question that cannot be read"
                );
            }
        }
    }

    async fn answer_due(&mut self) -> client::Result<()> {
        for name in self.schedule.take_due(Instant::now()) {
            self.answer(&name).await?;
        }
        Ok(())
    }

    /// Answers one question: all of it, or nothing when a daemon gives no proper answer.
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

    /// The answer, on top of what the question holds for classes that it does not ask for.
    async fn ask(&self, question: &CalicoNodeStatus) -> Result<CalicoNodeStatusStatus, BirdError> {
        let mut status = question.status.clone();
        for family in Family::BOTH {
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
                            "asks for something that is not known"
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
