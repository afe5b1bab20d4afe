//! `node node-services`: everything that runs alongside Felix, as tasks of one process.
//!
//! One task that fails ends the process with its name and error, and the supervisor restarts it. Shutdown happens
//! between steps, so that nothing is left half done. Services of other components (the CNI agent's socket) are passed
//! in as values: this crate knows nothing about them.

use crate::context::Context;
use crate::startup::has_networking;
use crate::{address_monitor, condition, status, token_monitor, tunnel};
use daemon::{Shutdown, ShutdownHandle};
use futures::future::BoxFuture;
use std::error::Error;
use std::time::Duration;
use tokio::task::JoinSet;

/// How long tasks may take to shut down.
const END_PATIENCE: Duration = Duration::from_secs(20);

/// The result of a service.
pub(crate) type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// A service of the node.
pub struct Service {
    /// Its name in messages.
    pub name: &'static str,
    /// Runs the service until the shutdown.
    pub run: Box<dyn FnOnce(Shutdown) -> BoxFuture<'static, Outcome> + Send>,
}

impl Service {
    /// Creates a service from an asynchronous function.
    pub fn new<F, E>(name: &'static str, run: impl FnOnce(Shutdown) -> F + Send + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>> + 'static,
    {
        Self {
            name,
            run: Box::new(|shutdown| {
                let task = run(shutdown);
                Box::pin(async move { task.await.map_err(Into::into) })
            }),
        }
    }
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Service").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why the services ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServicesError {
    /// A service failed.
    #[error("node services are stopping because {service} failed: {source}")]
    Failed {
        /// The name of the service.
        service: &'static str,
        /// Its error.
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },
    /// A service ended without a shutdown.
    #[error("node services are stopping because {0} ended unexpectedly")]
    Ended(&'static str),
    /// Signals cannot be received.
    #[error("cannot receive signals: {0}")]
    Signals(#[source] std::io::Error),
}

/// The node's own services, according to its settings.
#[must_use]
pub(crate) fn own(context: &Context) -> Vec<Service> {
    let with = |context: &Context| context.clone();
    let mut services = Vec::new();
    let complete = with(context);
    services.push(Service::new("complete-startup", |shutdown| async move {
        condition::manage(&complete, condition::READY_PATIENCE, shutdown).await
    }));
    let tunnels = with(context);
    services.push(Service::new("tunnel-ip-allocator", |shutdown| async move {
        tunnel::run(&tunnels, shutdown).await
    }));
    let reporter = with(context);
    services.push(Service::new("node-status-reporter", |shutdown| async move {
        status::run(&reporter, shutdown).await
    }));
    if has_networking(context) {
        let addresses = with(context);
        services.push(Service::new("monitor-addresses", |shutdown| async move {
            address_monitor::run(&addresses, shutdown).await
        }));
    }
    if context.settings.manage_cni {
        let tokens = with(context);
        services.push(Service::new("cni-config-monitor", |shutdown| async move {
            token_monitor::run(&tokens, shutdown).await
        }));
    }
    services
}

/// Runs the node's own services and these others until SIGTERM or SIGINT, or until one fails.
///
/// # Errors
/// When a service fails.
pub(crate) async fn run(context: &Context, others: Vec<Service>) -> Result<(), ServicesError> {
    let mut services = own(context);
    services.extend(others);
    run_until(services, daemon::signals::end().map_err(ServicesError::Signals)?).await
}

/// Runs services until `end` completes, or until one fails.
///
/// # Errors
/// When a service fails.
pub(crate) async fn run_until(
    services: Vec<Service>,
    over: impl Future<Output = ()>,
) -> Result<(), ServicesError> {
    let (handle, shutdown) = ShutdownHandle::new();
    let mut tasks = JoinSet::new();
    for service in services {
        tracing::info!(service = service.name, "starting");
        let (name, task) = (service.name, (service.run)(shutdown.clone()));
        tasks.spawn(async move { (name, task.await) });
    }
    let first = tokio::select! {
        () = over => Ok(()),
        outcome = first_end(&mut tasks) => outcome,
    };
    handle.request();
    let rest = async {
        while let Some(ended) = tasks.join_next().await {
            if let Ok((service, Err(error))) = ended {
                tracing::error!(service, %error, "failed during shutdown");
            }
        }
    };
    if tokio::time::timeout(END_PATIENCE, rest).await.is_err() {
        tracing::error!("some services did not end in time");
    }
    first
}

/// Waits for the first task to end, which none should.
async fn first_end(tasks: &mut JoinSet<(&'static str, Outcome)>) -> Result<(), ServicesError> {
    match tasks.join_next().await {
        Some(Ok((service, Err(source)))) => Err(ServicesError::Failed { service, source }),
        Some(Ok((service, Ok(())))) => Err(ServicesError::Ended(service)),
        Some(Err(error)) => Err(ServicesError::Failed { service: "a service", source: error.into() }),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn obedient(ended: &Arc<AtomicBool>) -> Service {
        let ended = ended.clone();
        Service::new("obedient", |shutdown| async move {
            shutdown.requested().await;
            ended.store(true, Ordering::SeqCst);
            Ok::<(), std::io::Error>(())
        })
    }

    #[tokio::test]
    async fn a_failing_service_ends_all_and_is_named() {
        let ended = Arc::new(AtomicBool::new(false));
        let failing = Service::new("failing", |_| async { Err(std::io::Error::other("out of luck")) });
        let outcome = run_until(vec![obedient(&ended), failing], std::future::pending()).await;
        let error = outcome.expect_err("a failure").to_string();
        assert_eq!(error, "node services are stopping because failing failed: out of luck");
        assert!(ended.load(Ordering::SeqCst), "the other service was not shut down");
    }

    #[tokio::test]
    async fn a_service_that_ends_by_itself_is_a_failure() {
        let leaving = Service::new("leaving", |_| async { Ok::<(), std::io::Error>(()) });
        let outcome = run_until(vec![leaving], std::future::pending()).await;
        assert!(matches!(outcome, Err(ServicesError::Ended("leaving"))), "{outcome:?}");
    }

    #[tokio::test]
    async fn services_are_waited_for_at_shutdown() {
        let ended = Arc::new(AtomicBool::new(false));
        run_until(vec![obedient(&ended)], std::future::ready(())).await.expect("an orderly end");
        assert!(ended.load(Ordering::SeqCst));
    }
}
