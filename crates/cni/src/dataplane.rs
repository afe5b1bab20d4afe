//! Wires the pod: this plugin over netlink, in a thread that may block, or an external service.

use crate::config::{Dataplane, NetConf};
use crate::error::{CniError, Result, code};
use crate::external::{self, ExternalWish, PodInterface};
use crate::wiring::{self, Ends, Pair, Plan};
use netlink::namespace::Namespace;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// How long removing a device may take: on some old kernels the removal never returns.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(20);

/// How many pods are wired at once. The kernel creates devices one at a time; threads that wait for their turn there
/// keep processors busy that others need.
static WIRING: Semaphore = Semaphore::const_new(2);

/// A pod's network: what creates it, where, and its intended state.
#[derive(Clone, Debug)]
pub(crate) struct PodNetwork {
    pub(crate) dataplane: Dataplane,
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) plan: Plan,
}

/// How much of a pod's network has been created.
#[derive(Debug)]
pub(crate) enum Made {
    /// A pair of devices.
    Pair(Box<Pair>),
    /// The result of an external service.
    External(PodInterface),
    /// Nothing yet: everything is created at once when all is known.
    Nothing,
}

/// A pair of devices that is being created while the caller continues. The caller must eventually wait for it.
#[derive(Debug)]
pub(crate) struct Begun(Option<JoinHandle<Result<Made>>>);

impl Begun {
    /// Nothing is being created.
    pub(crate) const NOTHING: Self = Self(None);

    /// Returns this, or begins now if nothing is being created.
    pub(crate) fn or_begin(self, network: &PodNetwork) -> Self {
        if self.0.is_some() { self } else { network.begin() }
    }

    /// Waits for the devices; [`Made::Nothing`] if something was in the way.
    ///
    /// # Errors
    /// When the kernel reports an error.
    pub(crate) async fn done(self) -> Result<Made> {
        match self.0 {
            None => Ok(Made::Nothing),
            Some(task) => task.await.unwrap_or_else(|error| Err(failed_thread(&error))),
        }
    }

    /// Removes what was created.
    pub(crate) async fn undo(self) {
        self.done().await.unwrap_or(Made::Nothing).undo().await;
    }
}

impl PodNetwork {
    /// Begins to create the pair of devices before the addresses are known, if nothing is in the way.
    pub(crate) fn begin(&self) -> Begun {
        if self.dataplane != Dataplane::Linux {
            return Begun::NOTHING;
        }
        let (plan, namespace) = (self.plan.clone(), Arc::clone(&self.namespace));
        Begun(Some(tokio::spawn(async move {
            let pair = in_turn(move || Pair::create(&plan, &namespace, false)).await?;
            Ok(pair.map_or(Made::Nothing, |pair| Made::Pair(Box::new(pair))))
        })))
    }

    /// Completes the network. After a failure nothing of it is left.
    ///
    /// # Errors
    /// When the kernel or the service reports an error.
    pub(crate) async fn finish(
        &self,
        begun: Made,
        wish: impl FnOnce() -> ExternalWish,
    ) -> Result<(Ends, Made)> {
        if let Dataplane::Grpc(socket) = &self.dataplane {
            let wish = wish();
            let interface = PodInterface {
                socket: socket.clone(),
                netns: wish.netns.clone(),
                ifname: wish.ifname.clone(),
                options: wish.options.clone(),
            };
            return Ok((external::add(socket, wish).await?, Made::External(interface)));
        }
        let (plan, namespace) = (self.plan.clone(), Arc::clone(&self.namespace));
        in_turn(move || {
            let mut pair = match begun {
                Made::Pair(pair) => pair,
                // Something was in the way: the device of an older container of the same pod, or a leftover.
                Made::Nothing | Made::External(_) => match Pair::create(&plan, &namespace, true)? {
                    Some(pair) => Box::new(pair),
                    None => {
                        return Err(CniError::wiring(format!("device {} is in the way", plan.host_device)));
                    }
                },
            };
            match pair.finish(&plan, &namespace) {
                Ok(mac) => {
                    let ends = Ends { host_device: plan.host_device.clone(), mac: Some(mac) };
                    Ok((ends, Made::Pair(pair)))
                }
                Err(error) => {
                    pair.undo();
                    Err(error)
                }
            }
        })
        .await
    }

    /// Whether all of it exists in the kernel.
    pub(crate) async fn is_made(&self) -> Result<bool> {
        let (plan, namespace) = (self.plan.clone(), Arc::clone(&self.namespace));
        Ok(blocking(move || wiring::check(&plan, &namespace)).await?.is_empty())
    }
}

impl Made {
    /// Removes what was created for an ADD that failed.
    pub(crate) async fn undo(self) {
        let outcome = match self {
            Self::Nothing => Ok(()),
            Self::External(interface) => external::delete(interface).await,
            Self::Pair(mut pair) => {
                blocking(move || {
                    pair.undo();
                    Ok(())
                })
                .await
            }
        };
        if let Err(error) = outcome {
            tracing::error!(%error, "the pod's device could not be removed again");
        }
    }
}

/// Removes the pod's network. A network that is already gone is not an error.
///
/// # Errors
/// When the kernel or the service reports an error, or does not answer in time.
pub(crate) async fn remove(
    conf: &NetConf,
    netns: &str,
    namespace: Option<Arc<Namespace>>,
    ifname: &str,
) -> Result<()> {
    if let Dataplane::Grpc(socket) = conf.dataplane()? {
        let (netns, ifname) = (netns.to_owned(), ifname.to_owned());
        return external::delete(PodInterface { socket, netns, ifname, options: external::options(conf) })
            .await;
    }
    let Some(namespace) = namespace else { return Ok(()) };
    let device = ifname.to_owned();
    let work = blocking(move || wiring::remove(&namespace, &device));
    match tokio::time::timeout(REMOVAL_PATIENCE, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CniError::wiring(format!("timed out deleting device in netns {netns}"))),
    }
}

async fn in_turn<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    // The semaphore is never closed.
    let _turn = WIRING.acquire().await.ok();
    blocking(work).await
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(failed_thread(&error)),
    }
}

fn failed_thread(error: &JoinError) -> CniError {
    CniError::new(code::INTERNAL, format!("a worker thread failed: {error}"))
}
