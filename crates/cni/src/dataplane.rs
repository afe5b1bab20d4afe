//! Who wires the pod: this plugin by netlink, on a thread that may block, or an external service.

use crate::config::{Dataplane, NetConf};
use crate::error::{CniError, Result, code};
use crate::external::{self, Attachment, ExternalWish};
use crate::wiring::{self, Wire, WiringPlan};
use netlink::MacAddress;
use netlink::namespace::Namespace;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::task::{JoinError, JoinHandle, spawn_blocking};

/// How long removing a device may take: some old kernels never come back from it.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(20);

/// How many pods are wired at once. The kernel makes devices one at a time; threads that wait for their turn there keep
/// processors busy that others need.
static WIRING: Semaphore = Semaphore::const_new(2);

/// A pod's network under construction.
#[derive(Debug)]
pub(crate) enum Wiring {
    /// A pair of devices.
    Linux(Box<Wire>),
    /// Something that an external service made.
    External(Attachment),
    /// Nothing yet: made in one go when everything is known.
    Later,
}

/// What the pod's network turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wired {
    /// The host's end.
    pub(crate) host_device: String,
    /// The hardware address of the pod's end.
    pub(crate) mac: Option<MacAddress>,
}

/// A pair of devices that is being made while the caller goes on. Whoever has one waits for it in the end.
#[derive(Debug)]
pub(crate) struct Begun(Option<JoinHandle<Result<Wiring>>>);

impl Begun {
    /// Nothing is being made.
    pub(crate) const NOTHING: Self = Self(None);

    /// The same, or begun now if nothing is being made.
    pub(crate) fn or_begin(
        self,
        dataplane: &Dataplane,
        plan: &WiringPlan,
        namespace: &Arc<Namespace>,
    ) -> Self {
        if self.0.is_some() { self } else { begin(dataplane, plan, namespace) }
    }

    /// What was made; [`Wiring::Later`] when something was in the way.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) async fn done(self) -> Result<Wiring> {
        match self.0 {
            None => Ok(Wiring::Later),
            Some(task) => task.await.unwrap_or_else(|error| Err(failed_thread(&error))),
        }
    }

    /// Takes it back.
    pub(crate) async fn undo(self) {
        undo(self.done().await.unwrap_or(Wiring::Later)).await;
    }
}

/// Begins to make the pair of devices ahead of the addresses, if nothing is in the way.
pub(crate) fn begin(dataplane: &Dataplane, plan: &WiringPlan, namespace: &Arc<Namespace>) -> Begun {
    if *dataplane != Dataplane::Linux {
        return Begun::NOTHING;
    }
    let (plan, namespace) = (plan.clone(), Arc::clone(namespace));
    Begun(Some(tokio::spawn(async move {
        let wire = in_turn(move || Wire::create(&plan, &namespace, false)).await?;
        Ok(wire.map_or(Wiring::Later, |wire| Wiring::Linux(Box::new(wire))))
    })))
}

/// Finishes the pod's network. After a failure nothing of it is left.
///
/// # Errors
/// When the kernel or the service refuses.
pub(crate) async fn finish(
    dataplane: &Dataplane,
    begun: Wiring,
    plan: &WiringPlan,
    namespace: &Arc<Namespace>,
    wish: impl FnOnce() -> ExternalWish,
) -> Result<(Wired, Wiring)> {
    if let Dataplane::Grpc(socket) = dataplane {
        let wish = wish();
        let attachment = Attachment {
            socket: socket.clone(),
            netns: wish.netns.clone(),
            ifname: wish.ifname.clone(),
            options: wish.options.clone(),
        };
        return Ok((external::add(socket, wish).await?, Wiring::External(attachment)));
    }
    let (plan, namespace) = (plan.clone(), Arc::clone(namespace));
    in_turn(move || {
        let mut wire = match begun {
            Wiring::Linux(wire) => wire,
            // Something was in the way: the device of an older container of the same pod, or a leftover.
            Wiring::Later | Wiring::External(_) => match Wire::create(&plan, &namespace, true)? {
                Some(wire) => Box::new(wire),
                None => return Err(CniError::wiring(format!("device {} is in the way", plan.host_device))),
            },
        };
        match wire.finish(&plan, &namespace) {
            Ok(mac) => {
                let wired = Wired { host_device: plan.host_device.clone(), mac: Some(mac) };
                Ok((wired, Wiring::Linux(wire)))
            }
            Err(error) => {
                wire.undo();
                Err(error)
            }
        }
    })
    .await
}

/// Takes a network back that was made for an ADD that failed.
pub(crate) async fn undo(wiring: Wiring) {
    let outcome = match wiring {
        Wiring::Later => Ok(()),
        Wiring::External(attachment) => external::delete(attachment).await,
        Wiring::Linux(mut wire) => {
            blocking(move || {
                wire.undo();
                Ok(())
            })
            .await
        }
    };
    if let Err(error) = outcome {
        tracing::error!(%error, "the pod's device could not be removed again");
    }
}

/// Removes the pod's network; what is gone already is fine.
///
/// # Errors
/// When the kernel or the service refuses, or does not come back.
pub(crate) async fn remove(
    conf: &NetConf,
    netns: &str,
    namespace: Option<Arc<Namespace>>,
    ifname: &str,
) -> Result<()> {
    if let Dataplane::Grpc(socket) = conf.dataplane()? {
        let (netns, ifname) = (netns.to_owned(), ifname.to_owned());
        return external::delete(Attachment { socket, netns, ifname, options: external::options(conf) })
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
    // Nobody closes it.
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
