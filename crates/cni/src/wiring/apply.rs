//! Carries out a plan: first the pair of devices, which needs no address yet, then everything that does.
//!
//! The pair is created from the host's side in one request, with the other end already in the pod's namespace and both
//! with their names, MTU and hardware addresses: nothing is moved or renamed where others could see it incomplete. If
//! the families of the addresses are known beforehand, both sides are also prepared for them. Code runs inside the
//! pod's namespace only in a thread that ends there.

use super::inside::{Ready, Waiting};
use super::plan::{Families, HOST_MAC, Plan};
use crate::config::DeviceType;
use crate::error::{CniError, Result};
use crate::fault;
use daemon::Backoff;
use netlink::interface_settings::Setting;
use netlink::namespace::Namespace;
use netlink::{
    DeviceKind, Family, Handle, Kernel as _, Link, LinkChange, LinkRef, MacAddress, NewLink, Operation, Peer,
    Route, RouteFilter, TABLE_MAIN, sysctl,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the kernel may take to accept the host's hardware address.
const MAC_PATIENCE: Duration = Duration::from_secs(5);
/// How long the kernel may take to create the host's link-local address.
const LINK_LOCAL_PATIENCE: Duration = Duration::from_secs(10);
/// The pauses between polls of what the kernel is about to do: mostly it is done at once.
const POLLS: Backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(50));

/// The resulting ends of a pod's network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    /// The name of the host's end.
    pub host_device: String,
    /// The hardware address of the pod's end.
    pub mac: Option<MacAddress>,
}

/// A pair of devices, one end on the host and one in the pod.
#[derive(Debug)]
pub struct Pair {
    host: Handle,
    link: Link,
    /// The host's settings that have been written.
    made: Vec<Setting>,
    /// The pod's side, if it is prepared.
    inside: Option<Waiting>,
}

impl Pair {
    /// Creates the pair. If a device of the same name exists on the host, `replace` decides: true deletes it first,
    /// false creates no pair and changes nothing.
    ///
    /// # Errors
    /// When the kernel reports an error.
    pub fn create(plan: &Plan, namespace: &Namespace, replace: bool) -> Result<Option<Self>> {
        let mut host = Handle::open().map_err(CniError::wiring)?;
        let file = Arc::new(namespace.duplicate().map_err(CniError::wiring)?);
        let name = LinkRef::Name(plan.host_device.clone());
        if replace {
            delete(&mut host, &name)?;
        }
        let new = |kind: fn(Peer) -> DeviceKind| {
            let peer =
                Peer { name: plan.pod_device.clone(), namespace: Some(Arc::clone(&file)), mac: plan.pod_mac };
            NewLink {
                mtu: plan.mtu,
                mac: Some(HOST_MAC),
                queues: Some(plan.queues),
                ..NewLink::new(&plan.host_device, kind(peer))
            }
        };
        let mut outcome = match plan.device {
            DeviceType::Veth => add(&mut host, new(DeviceKind::Veth), &name),
            DeviceType::Netkit => add(&mut host, new(DeviceKind::Netkit), &name),
        };
        if plan.device == DeviceType::Netkit && outcome.as_ref().is_err_and(netlink::Error::is_unsupported) {
            tracing::info!("this kernel has no netkit devices; the pod gets a veth pair");
            outcome = add(&mut host, new(DeviceKind::Veth), &name);
        }
        let link = match outcome {
            Ok(link) => link,
            Err(error) if error.is_exists() && !replace => return Ok(None),
            Err(error) if error.is_exists() => {
                return Err(CniError::wiring(error).with_details(format!(
                    "the pod's network namespace {} has a device {} already",
                    namespace.path().display(),
                    plan.pod_device
                )));
            }
            Err(error) => return Err(CniError::wiring(error)),
        };
        let mut pair = Self { host, link, made: Vec::new(), inside: None };
        fault::point("link-created");
        match pair.settle_mac().and_then(|()| pair.make_ready(plan, namespace)) {
            Ok(()) => Ok(Some(pair)),
            Err(error) => {
                pair.undo();
                Err(error)
            }
        }
    }

    /// Some kernels and daemons change the address of a new device once more; it is set again until it stays.
    fn settle_mac(&mut self) -> Result<()> {
        let deadline = Instant::now() + MAC_PATIENCE;
        let mut backoff = POLLS;
        while self.link.mac != Some(HOST_MAC) {
            if Instant::now() > deadline {
                return Err(CniError::wiring(format!(
                    "timed out waiting for host-side interface {:?} to accept MAC {HOST_MAC}",
                    self.link.name
                )));
            }
            std::thread::sleep(backoff.pause());
            let link = LinkRef::Index(self.link.index);
            let change = LinkChange { mac: Some(HOST_MAC), ..LinkChange::default() };
            let (outcomes, read) =
                self.host.apply_and_read(&[Operation::ChangeLink(link.clone(), change)], &link);
            if let Err(error) = netlink::first_failure(outcomes) {
                tracing::warn!(%error, "the host's end keeps the kernel's hardware address");
                return Ok(());
            }
            self.link = read.map_err(CniError::wiring)?;
        }
        Ok(())
    }

    /// Does what is possible before there are addresses.
    fn make_ready(&mut self, plan: &Plan, namespace: &Namespace) -> Result<()> {
        if plan.expected == Families::default() {
            return Ok(());
        }
        self.inside = Some(Waiting::start(plan, namespace)?);
        self.made = plan.host_settings(plan.expected);
        write_settings(&self.made)
    }

    /// Applies settings, addresses and routes to both ends; returns the hardware address of the pod's end.
    ///
    /// # Errors
    /// When the kernel reports an error. The pair still exists then: see [`Pair::undo`].
    pub fn finish(&mut self, plan: &Plan, namespace: &Namespace) -> Result<MacAddress> {
        let mut settings = plan.host_settings(plan.families());
        settings.retain(|setting| !self.made.contains(setting));
        write_settings(&settings)?;
        fault::point("host-settings");
        let routes: Vec<Route> = if plan.host_routes {
            plan.addresses.iter().map(|address| Route::on_link(*address, self.link.index)).collect()
        } else {
            Vec::new()
        };
        self.bring_up(Operation::up(self.link.index), &routes)?;
        fault::point("host-up");
        let mac = match self.inside.take() {
            Some(waiting) => waiting.finish(plan)?,
            None => namespace
                .run(|| Ready::new(plan, plan.families())?.wire(plan))
                .map_err(CniError::wiring)??,
        };
        fault::point("pod-wired");
        if plan.has_v6() {
            self.await_link_local(&routes)?;
        }
        Ok(mac)
    }

    /// Brings the host's end up, with the routes to the pod.
    fn bring_up(&mut self, up: Operation, routes: &[Route]) -> Result<()> {
        let mut operations = vec![up];
        operations.extend(routes.iter().cloned().map(Operation::AddRoute));
        let mut outcomes = self.host.apply(&operations).into_iter();
        outcomes.next().transpose().map_err(CniError::wiring)?;
        for (route, outcome) in routes.iter().zip(outcomes) {
            match outcome {
                Err(error) if error.is_exists() => self.explain_existing(route)?,
                outcome => outcome.map_err(CniError::wiring)?,
            }
        }
        Ok(())
    }

    /// A route that already exists is no problem when it is ours: Felix may have been faster.
    fn explain_existing(&mut self, wanted: &Route) -> Result<()> {
        let filter = RouteFilter { table: Some(TABLE_MAIN), ..RouteFilter::all(wanted.family()) };
        let found = self.host.routes(&filter).map_err(CniError::wiring)?;
        let mut same = found.iter().filter(|route| route.destination == wanted.destination);
        if same.clone().any(|route| route.device == wanted.device && route.scope == wanted.scope)
            || (wanted.family() == Family::V6 && same.clone().any(|route| route.device == wanted.device))
        {
            return Ok(());
        }
        let conflict = match same.next() {
            Some(route) => {
                let index = route.device.unwrap_or_default();
                let link = self.host.link(&LinkRef::Index(index)).ok().flatten();
                let name = link.map_or_else(|| "unknown".to_owned(), |link| link.name);
                format!(
                    "route (Ifindex: {index}, Dst: {}, Scope: {:?}, Iface: {name})",
                    route.destination, route.scope
                )
            }
            None => "it has disappeared again".to_owned(),
        };
        Err(CniError::wiring(format!(
            "error adding host side routes for interface: {name}, error: route (Ifindex: {}, Dst: {}, Scope: {:?}) already \
             exists for an interface other than '{name}': {conflict}",
            self.link.index,
            wanted.destination,
            wanted.scope,
            name = self.link.name
        ))
        .with_details("another pod or program has the address; `calicoctl ipam check` shows which"))
    }

    /// The pod's gateway is the host's link-local address; without it the pod cannot send.
    fn await_link_local(&mut self, routes: &[Route]) -> Result<()> {
        let deadline = Instant::now() + LINK_LOCAL_PATIENCE;
        let expected = Plan::gateway_v6();
        let mut backoff = POLLS;
        let mut toggled = false;
        loop {
            let index = self.link.index;
            let found = self.host.addresses(Some(Family::V6), Some(index)).map_err(CniError::wiring)?;
            if found.iter().any(|address| address.address.addr() == expected && !address.tentative) {
                return Ok(());
            }
            if Instant::now() > deadline {
                let has =
                    found.iter().map(|address| address.address.to_string()).collect::<Vec<_>>().join(", ");
                return Err(CniError::wiring(format!(
                    "failed to get IPv6 addresses for host side of the pod interface {}: it should have {expected} but has [{has}]",
                    self.link.name
                ))
                .with_details("check that IPv6 is enabled on this host (net.ipv6.conf.all.disable_ipv6)"));
            }
            // The address was derived from an older hardware address: setting the device down and up again creates a
            // new one. If the expected address is merely tentative, all that is left is to wait.
            let is_on_its_way = found.iter().any(|address| address.address.addr() == expected);
            if !found.is_empty() && !is_on_its_way && !toggled {
                toggled = true;
                let down = LinkChange { up: Some(false), mac: Some(HOST_MAC), ..LinkChange::default() };
                let down = [Operation::ChangeLink(LinkRef::Index(index), down)];
                netlink::first_failure(self.host.apply(&down)).map_err(CniError::wiring)?;
                // A device that goes down loses its routes.
                self.bring_up(Operation::up(index), routes)?;
            }
            std::thread::sleep(backoff.pause());
        }
    }

    /// Deletes the pair.
    pub fn undo(&mut self) {
        self.inside = None;
        if let Err(error) = delete(&mut self.host, &LinkRef::Index(self.link.index)) {
            tracing::warn!(%error, device = %self.link.name, "the pod's device could not be removed again");
        }
    }
}

fn add(host: &mut Handle, new: NewLink, name: &LinkRef) -> netlink::Result<Link> {
    let (outcomes, read) = host.apply_and_read(&[Operation::AddLink(new)], name);
    netlink::first_failure(outcomes)?;
    read
}

/// Deletes a device, unless it is already gone.
fn delete(handle: &mut Handle, link: &LinkRef) -> Result<()> {
    match netlink::first_failure(handle.apply(&[Operation::DeleteLink(link.clone())])) {
        Err(error) if error.is_missing() => Ok(()),
        outcome => outcome.map_err(CniError::wiring),
    }
}

pub(super) fn write_settings(settings: &[Setting]) -> Result<()> {
    for setting in settings {
        match sysctl::write(&setting.path, &setting.value) {
            Ok(()) => {}
            Err(error) if !setting.is_needed => {
                tracing::warn!(%error, "could not write a kernel setting; continuing");
            }
            Err(error) => return Err(CniError::wiring(error)),
        }
    }
    Ok(())
}

/// Removes the pod's device, and with it the host's end. A namespace or device that is gone is not an error.
///
/// # Errors
/// When the kernel reports an error.
pub fn remove(namespace: &Namespace, device: &str) -> Result<()> {
    let name = LinkRef::Name(device.to_owned());
    let outcome = namespace
        .run(|| Handle::open().map_err(CniError::wiring).and_then(|mut pod| delete(&mut pod, &name)));
    match outcome {
        Ok(outcome) => outcome.map_err(|error| {
            CniError::wiring(format!("failed to clean up workload's pod interface inside netns: {error}"))
        }),
        Err(error) if error.is_missing() => Ok(()),
        Err(error) => Err(CniError::wiring(format!("failed to enter netns: {error}"))),
    }
}
