//! ADD: a container gets addresses, a device, and an endpoint that policy applies to.
//!
//! ```text
//!            ┌─► known: datastore, Kubernetes ─┐   ┌─► addresses ─┐
//!  prepare ──┤                                 ├──►┤              ├──► complete: device finished │ endpoint written ─► result
//!            └─► pair of devices (not a pod) ──┘   └─► devices ───┘              (a new endpoint: at once)
//! ```
//!
//! Independent steps run at once: first all reads, then taking addresses and creating the pair of devices. For a
//! container that is not a pod the devices are begun along with the reads. The order of writes is Calico's: addresses,
//! devices, endpoint, profile. If a step fails, everything that this call created is undone.

mod complete;
mod known;
mod plain;
mod pod;

use crate::assigned::Assigned;
use crate::attachment::Attachment;
use crate::context::Context;
use crate::dataplane::{Begun, Made, PodNetwork};
use crate::error::{CniError, Result, code};
use crate::fault;
use crate::host;
use crate::ipam::assign::Selection;
use crate::request::Request;
use crate::turn::Turn;
use crate::wiring::Plan;
use cni_protocol::result::CniResult;
use netlink::MacAddress;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

/// One ADD: the attachment, and its network as far as it is known without asking.
struct Adding<'a> {
    attachment: Attachment<'a>,
    /// The name of its endpoint if a new one is created.
    name: String,
    /// The network; its addresses follow later.
    network: PodNetwork,
}

/// Attaches a container.
///
/// # Errors
/// When the container cannot be attached; nothing of it is left then.
pub(crate) async fn add(context: &Context, request: &Request) -> Result<CniResult> {
    fault::point("started");
    let mut adding = Adding::prepare(context, request)?;
    let _turn = Turn::for_call(&context.paths.turns, &request.container_id).await?;
    // The same container may be added again before the release of its first life was carried out: the release comes
    // first.
    crate::pending::carry_out_for(context, &request.container_id).await?;
    let begun = if adding.can_begin_early() { adding.network.begin() } else { Begun::NOTHING };
    let known = match Box::pin(known::read(&adding.attachment)).await {
        Ok(known) => known,
        Err(error) => {
            begun.undo().await;
            return Err(error);
        }
    };
    fault::point("store-read");
    if let Some(endpoint) = &known.existing {
        // One interface per pod: the existing endpoint is this one, whatever its interface was called.
        adding.attachment.identity.identifiers.endpoint.clone_from(&endpoint.spec.endpoint);
    }
    match known.pod {
        Some(pod) => Box::pin(pod::add(adding, pod, known.existing, known.ahead)).await,
        None => Box::pin(plain::add(adding, known.existing, known.ahead, begun)).await,
    }
}

impl<'a> Adding<'a> {
    fn prepare(context: &'a Context, request: &'a Request) -> Result<Self> {
        let conf = &request.conf;
        if conf.policy_setup_timeout_seconds < 0 {
            let message = format!("invalid pod startup delay of {}", conf.policy_setup_timeout_seconds);
            return Err(CniError::new(code::INVALID_CONFIGURATION, message));
        }
        let node = host::node_name(conf, &context.paths)?;
        let mtu = host::mtu(conf, &context.paths)?;
        conf.device()?;
        let dataplane = conf.dataplane()?;
        let attachment =
            Attachment { context, request, identity: crate::identity::Identity::of(request, &node) };
        let identity = &attachment.identity;
        if !identity.is_pod() && conf.feature_control.ip_addrs_no_ipam {
            let message = "requested feature is not supported for this runtime: ip_addrs_no_ipam";
            return Err(CniError::new(code::UNSUPPORTED_FIELD, message));
        }
        let name = identity.endpoint_name()?;
        let namespace = Arc::new(request.needed_namespace()?);
        let mut plan = Plan::new(conf, identity.device(&request.environment), &request.ifname, mtu)?;
        plan.pod_mac = Some(random_mac());
        if conf.is_calico_ipam() {
            plan.expected = Selection::of(conf).families;
        }
        Ok(Self { attachment, name, network: PodNetwork { dataplane, namespace, plan } })
    }

    /// Whether the pair of devices can be created before the datastore has answered: nothing that is stored influences
    /// it, and there is nothing to wait for.
    fn can_begin_early(&self) -> bool {
        !self.attachment.identity.is_pod() && self.attachment.request.conf.readiness_gates.is_empty()
    }

    /// Joins the two steps that were begun at once; if one of them failed, the other is undone.
    async fn both(&self, taken: Result<Assigned>, begun: Result<Made>) -> Result<(Assigned, Made)> {
        fault::point("addresses-assigned");
        match (taken, begun) {
            (Ok(assigned), Ok(made)) => Ok((assigned, made)),
            (Ok(_), Err(error)) => {
                complete::take_back(&self.attachment, Made::Nothing, false).await;
                Err(error)
            }
            (Err(error), begun) => {
                begun.unwrap_or(Made::Nothing).undo().await;
                Err(error)
            }
        }
    }
}

/// A random, locally administered hardware address, as the kernel would choose. Chosen here, it is known before the
/// device has it.
fn random_mac() -> MacAddress {
    let [first, rest @ ..] = RandomState::new().build_hasher().finish().to_be_bytes();
    let [second, third, fourth, fifth, sixth, ..] = rest;
    MacAddress([(first & 0xfe) | 0x02, second, third, fourth, fifth, sixth])
}
