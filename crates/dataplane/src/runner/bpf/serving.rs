//! Services in the rounds of the dataplane: the known properties of this node, when the maps are written, and who is
//! notified.

use super::health::HealthPorts;
use super::host_path::{Devices, HostPath, Sources};
use super::{Outcome, Owners};
use crate::managers::Mtus;
use bpf_driver::{Driver, Interface};
use bpf_services::Here;
use felix_config::Config;
use messages::{InterfaceName, ToDataplane};
use netlink::Kernel;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The label of a node's zone.
const ZONE: &str = "topology.kubernetes.io/zone";

/// The state of serving services.
pub(super) struct Serving {
    host: String,
    zone: String,
    here: Option<Here>,
    /// The addresses by which other nodes know this one, IPv4 and IPv6.
    node: [Option<IpAddr>; 2],
    is_node_written: bool,
    /// The largest packets inside tunnels.
    rooms: [u32; 2],
    /// `BPFKubeProxyMinSyncPeriod`.
    period: Duration,
    written_at: Option<Instant>,
    /// Whether everything has been written once.
    is_complete: bool,
    devices: Devices,
    sources: Sources,
    health: Option<HealthPorts>,
    /// Why services are not served as desired.
    pub(super) trouble: Option<String>,
}

impl Serving {
    pub(super) fn new(config: &Config, host: &str, path: HostPath, mtus: &Mtus, with_v6: bool) -> Self {
        let port = u16::try_from(config.bpf_kube_proxy_healthz_port).ok().filter(|port| *port != 0);
        let health = HealthPorts::start(port)
            .inspect_err(|error| tracing::error!(%error, "cannot answer load balancers about services"));
        Self {
            host: host.to_owned(),
            zone: String::new(),
            here: None,
            node: [None; 2],
            is_node_written: false,
            rooms: [mtus.vxlan, mtus.vxlan_v6],
            period: config.bpf_kube_proxy_min_sync_period.or_zero(),
            written_at: None,
            is_complete: false,
            devices: Devices::new(path.devices.is_some(), mtus.pod, with_v6),
            sources: Sources::default(),
            health: health.ok(),
            trouble: None,
        }
    }

    /// Whether programs find complete services.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn hear(&mut self, message: &ToDataplane, driver: &mut Driver) {
        match message {
            ToDataplane::HostMetadataUpdate(node, host) if **node == *self.host => {
                self.set_zone(host.labels.get(ZONE).cloned().unwrap_or_default());
                let address = |text: &str| text.split('/').next()?.parse::<IpAddr>().ok();
                self.node = [address(&host.ipv4_addr), address(&host.ipv6_addr)];
                self.is_node_written = false;
            }
            ToDataplane::HostMetadataRemove(node) if **node == *self.host => {
                self.set_zone(String::new());
                (self.node, self.is_node_written) = ([None; 2], false);
            }
            _ => {}
        }
        driver.hear_services(message);
    }

    /// Records a new zone of the node, which the driver has to be given.
    fn set_zone(&mut self, zone: String) {
        if zone != self.zone {
            (self.zone, self.here) = (zone, None);
        }
    }

    /// Writes services, as often as is permitted, and then has the host use them. `moved`: the interfaces that should
    /// have programs, or `None` if interfaces are unchanged.
    pub(super) fn apply(
        &mut self,
        driver: &mut Driver,
        owners: &Owners<'_>,
        kernel: &mut dyn Kernel,
        moved: Option<&BTreeMap<InterfaceName, Interface>>,
        now: Instant,
        outcome: &mut Outcome,
    ) {
        self.trouble = None;
        if moved.is_some() || self.here.is_none() {
            let here = Here { zone: self.zone.clone(), addresses: addresses(owners) };
            if self.here.as_ref() != Some(&here) {
                driver.node_is(&here);
                self.here = Some(here);
            }
        }
        let mut failures = Vec::new();
        if !self.is_node_written {
            match driver.write_node(self.node, self.rooms) {
                Ok(()) => self.is_node_written = true,
                Err(error) => failures.push(format!("this node's address for eBPF programs: {error}")),
            }
        }
        if driver.has_service_changes() {
            let wait = self.written_at.filter(|_| self.is_complete);
            let wait = wait.map(|at| (at + self.period).saturating_duration_since(now));
            match wait.filter(|wait| !wait.is_zero()) {
                Some(wait) => outcome.again_in = outcome.again_in.into_iter().chain([wait]).min(),
                None => failures.extend(self.write(driver, now).err()),
            }
        }
        if let Err(error) = self.devices.apply(kernel, owners.interfaces) {
            failures.push(format!("devices of services: {error}"));
        }
        moved.into_iter().for_each(|wanted| self.sources.apply(wanted));
        if self.is_complete
            && let Err(error) = driver.attach_sockets()
        {
            failures.push(format!("programs of sockets: {error}"));
        }
        self.trouble = failures.first().cloned();
        outcome.failures.extend(failures);
    }

    fn write(&mut self, driver: &mut Driver, now: Instant) -> Result<(), String> {
        let written = driver.write_services();
        if let Some(health) = &self.health {
            health.tell(driver.health_checks(), written.is_ok());
        }
        match written {
            Ok(changes) => {
                self.is_complete = true;
                if changes > 0 {
                    self.written_at = Some(now);
                    tracing::debug!(changes, "wrote services for eBPF programs");
                }
                Ok(())
            }
            Err(error) => Err(format!("services of eBPF programs: {error}")),
        }
    }
}

/// The addresses on which node ports are served: the host's own, except those that only the host itself or one link can
/// reach.
fn addresses(owners: &Owners<'_>) -> Vec<IpAddr> {
    let hosts = owners.interfaces.all().filter(|one| !(owners.is_workload)(&one.name));
    let all = hosts.flat_map(|one| &one.addresses).copied();
    let mut all: Vec<IpAddr> = all
        .filter(|address| match address {
            IpAddr::V4(address) => !address.is_loopback(),
            IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}
