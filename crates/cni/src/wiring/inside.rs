//! The pod's side of a wire. A thread inside the pod's namespace prepares everything that needs no address, and waits
//! for the addresses; without them it ends and has changed nothing that would outlast the device.

use super::apply::write_settings;
use super::plan::{Families, GATEWAY_V4, Plan};
use crate::error::{CniError, Result, code};
use ipnet::IpNet;
use netlink::interface_settings::Setting;
use netlink::namespace::{Namespace, spawn_in};
use netlink::{Address, Handle, Kernel as _, Link, LinkRef, MacAddress, Operation, Route};
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// The waiting thread.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Dropping it ends the thread.
    addresses: Option<Sender<Plan>>,
    thread: Option<JoinHandle<io::Result<Result<MacAddress>>>>,
}

impl Waiting {
    /// Starts the thread for a pod whose device exists.
    pub(super) fn start(plan: &Plan, namespace: &Namespace) -> Result<Self> {
        let (addresses, later) = channel::<Plan>();
        let plan = plan.clone();
        let file = namespace.duplicate().map_err(CniError::wiring)?;
        let thread = spawn_in(file, move || {
            let ready = Ready::new(&plan, plan.expected)?;
            match later.recv() {
                Ok(plan) => ready.wire(&plan),
                Err(_) => Err(CniError::wiring("the pod's device is no longer needed")),
            }
        });
        let thread = Some(thread.map_err(CniError::wiring)?);
        Ok(Self { addresses: Some(addresses), thread })
    }

    /// Applies the pod's addresses and routes; returns the hardware address of its end.
    pub(super) fn finish(mut self, plan: &Plan) -> Result<MacAddress> {
        if let Some(addresses) = self.addresses.take() {
            // A thread that has already failed does not receive this, and reports its error below.
            let _ = addresses.send(plan.clone());
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(Ok(outcome))) => outcome,
            Some(Ok(Err(error))) => Err(CniError::wiring(format!("failed to enter netns: {error}"))),
            Some(Err(_)) | None => Err(CniError::new(code::INTERNAL, "the pod's thread failed")),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.addresses = None;
        // When the device is removed next, nothing may still work on it.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The pod's end, prepared except for addresses. Must be created and used inside the pod's namespace.
pub(super) struct Ready {
    handle: Handle,
    link: Link,
    made: Vec<Setting>,
}

impl Ready {
    /// Finds the pod's end, and writes the settings that addresses of these families need.
    pub(super) fn new(plan: &Plan, families: Families) -> Result<Self> {
        let made = plan.pod_settings_before(families);
        write_settings(&made)?;
        let mut handle = Handle::open().map_err(CniError::wiring)?;
        let link = handle
            .link(&LinkRef::Name(plan.pod_device.clone()))
            .map_err(CniError::wiring)?
            .ok_or_else(|| CniError::wiring(format!("the pod's device {} is gone", plan.pod_device)))?;
        Ok(Self { handle, link, made })
    }

    /// Applies addresses and routes.
    pub(super) fn wire(mut self, plan: &Plan) -> Result<MacAddress> {
        let mut settings = plan.pod_settings_before(plan.families());
        settings.retain(|setting| !self.made.contains(setting));
        write_settings(&settings)?;
        let index = self.link.index;
        let mut operations = vec![Operation::up(index)];
        if plan.has_v4() {
            let gateway = IpAddr::V4(GATEWAY_V4);
            operations.push(Operation::AddRoute(Route::on_link(IpNet::from(gateway), index)));
            let routes = plan.routes_of(false).map(|to| Operation::AddRoute(Route::via(to, gateway, index)));
            operations.extend(routes);
        }
        if plan.has_v6() {
            let gateway = Plan::gateway_v6();
            operations
                .extend(plan.routes_of(true).map(|to| Operation::AddRoute(Route::via(to, gateway, index))));
        }
        for address in &plan.addresses {
            let skip_duplicate_detection = address.addr().is_ipv6();
            operations.push(Operation::AddAddress(Address {
                skip_duplicate_detection,
                ..Address::new(index, *address)
            }));
        }
        netlink::first_failure(self.handle.apply(&operations))
            .map_err(|error| CniError::wiring(format!("inside the pod's network namespace: {error}")))?;
        write_settings(&plan.pod_settings_after())?;
        self.link.mac.ok_or_else(|| {
            CniError::wiring(format!("the pod's device {} has no hardware address", plan.pod_device))
        })
    }
}
