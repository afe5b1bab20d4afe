//! Who wires the pod: this plugin by netlink, on a thread that may block, or an external service.

use crate::config::{Dataplane, NetConf};
use crate::error::{CniError, Result, code};
use crate::external::{self, ExternalWish};
use crate::wiring::{self, Wire, WiringPlan};
use netlink::MacAddress;
use netlink::namespace::Namespace;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::spawn_blocking;

/// How long removing a device may take: some old kernels never come back from it.
const REMOVAL_PATIENCE: Duration = Duration::from_secs(20);

/// A pod's network under construction.
#[derive(Debug)]
pub(crate) enum Wiring {
    /// A pair of devices.
    Linux(Box<Wire>),
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

/// Makes the pair of devices ahead of the addresses, if nothing is in the way.
///
/// # Errors
/// When the kernel refuses.
pub(crate) async fn begin(
    dataplane: &Dataplane,
    plan: &WiringPlan,
    namespace: &Arc<Namespace>,
) -> Result<Wiring> {
    match dataplane {
        Dataplane::Grpc(_) => Ok(Wiring::Later),
        Dataplane::Linux => {
            let (plan, namespace) = (plan.clone(), Arc::clone(namespace));
            let wire = blocking(move || Wire::create(&plan, &namespace, false)).await?;
            Ok(wire.map_or(Wiring::Later, |wire| Wiring::Linux(Box::new(wire))))
        }
    }
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
        return Ok((external::add(socket, wish()).await?, Wiring::Later));
    }
    let (plan, namespace) = (plan.clone(), Arc::clone(namespace));
    blocking(move || {
        let mut wire = match begun {
            Wiring::Linux(wire) => wire,
            // Something was in the way: the device of an older container of the same pod, or a leftover.
            Wiring::Later => match Wire::create(&plan, &namespace, true)? {
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
    if let Wiring::Linux(mut wire) = wiring {
        let outcome = blocking(move || {
            wire.undo();
            Ok(())
        });
        if let Err(error) = outcome.await {
            tracing::error!(%error, "the pod's device could not be removed again");
        }
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
        return external::delete(&socket, conf, netns, ifname).await;
    }
    let Some(namespace) = namespace else { return Ok(()) };
    let device = ifname.to_owned();
    let work = blocking(move || wiring::remove(&namespace, &device));
    match tokio::time::timeout(REMOVAL_PATIENCE, work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CniError::wiring(format!("timed out deleting device in netns {netns}"))),
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(CniError::new(code::INTERNAL, format!("a worker thread failed: {error}"))),
    }
}
