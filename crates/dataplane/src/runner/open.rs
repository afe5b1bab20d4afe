//! The start of the loop: opens sockets, examines the machine, and writes nothing but the MTU of pods.

use super::answers::Answers;
use super::arrivals::Arrivals;
use super::backend::{self, IPVS_INTERFACE, Opened};
use super::bpf::Bpf;
use super::clock::{Every, Overdue, Throttle};
use super::drivers::Drivers;
use super::figures::Figures;
use super::interface_setup::InterfaceSetup;
use super::leftovers::Leftovers;
use super::others::Others;
use super::outcome::Progress;
use super::pace::Pace;
use super::refusals::Refusals;
use super::roster::{self, Roster};
use super::start::{Machine, StartError};
use super::{Loop, Refreshes, wireguard_figures};
use crate::desired::Desired;
use crate::managers::{ASSUMED_MTU, Interfaces, Mtus, World, host_mtu};
use crate::settings::DataplaneSettings;
use messages::{FromDataplane, InterfaceName};
use netlink::netfilter::conntrack;
use netlink::{Handle, Interests, Kernel as _, Monitor, sysctl};
use routing::bandwidth::BandwidthDriver;
use routing::conntrack::Connections;
use routing::limits::Bandwidth;
use routing::routes::Background;
use routing::routes::device::{TunnelDevices, UnusedTunnels};
use rules::tree::IpVersion;
use rules::{IPIP_INTERFACE, VXLAN_INTERFACE, VXLAN_INTERFACE_V6};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The process report is delayed at first, so that a process that keeps dying does not report.
const FIRST_PROCESS_REPORT: Duration = Duration::from_secs(10);

/// Used where the kernel has no connection table.
struct NoConnections;

impl Connections for NoConnections {
    fn forget(&mut self, _: &BTreeSet<std::net::IpAddr>) -> Result<usize, netlink::netfilter::Error> {
        Ok(0)
    }
}

impl Loop {
    pub(super) fn open(
        settings: DataplaneSettings,
        machine: &Machine,
        reports: Box<dyn FnMut(FromDataplane) + Send>,
    ) -> Result<Self, StartError> {
        let config = Arc::clone(&settings.config);
        // Listening comes first, so that nothing is missed between reading and listening.
        let monitor = Monitor::open(Interests { links: true, routes: true, ..Interests::default() })?;
        let mut kernel = Handle::open()?;
        let links = kernel.links()?;
        let has_ipvs = links.iter().any(|link| link.name == IPVS_INTERFACE);
        let host = host_mtu(
            config.mtu_iface_pattern.as_ref(),
            links.iter().map(|link| (link.name.as_str(), link.running, link.mtu)),
        );
        let host = host.unwrap_or_else(|| {
            tracing::warn!(assumed = ASSUMED_MTU, "no interface that is up matches MTUIfacePattern");
            ASSUMED_MTU
        });
        let mtus = Mtus::new(&config, &settings.encapsulation, host);
        write_mtu(&machine.mtu_file, mtus.pod, config.require_mtu_file)?;
        let loopback = links.iter().find(|link| link.loopback).map_or(1, |link| link.index);
        let with_v6 = config.ipv6_support && backend::kernel_has_v6();
        let bpf = Bpf::open(&settings, machine, with_v6, loopback, &mtus);
        let beside_bpf = bpf.as_ref().is_some_and(Bpf::is_possible);
        let host_path = bpf.as_ref().and_then(Bpf::host_path);
        let Opened { renderer, planes, arp, leftovers, kube_proxy, watched, own_ports, own_commits } =
            backend::open(&settings, machine, has_ipvs, &mtus, beside_bpf)?;
        let renderer = Arc::new(renderer);
        let others = Others::open(watched, own_ports, own_commits);
        let connections = match conntrack::Client::open() {
            Ok(client) => Background::start(client)?,
            Err(error) => {
                tracing::warn!(%error, "cannot remove the connections of deleted addresses");
                Background::start(NoConnections)?
            }
        };
        let bandwidth = match netlink::tc::Client::open() {
            Ok(client) => Some(BandwidthDriver::new(client, netlink::tc::ticks_in_microsecond())),
            Err(error) => {
                tracing::warn!(%error, "cannot limit the bandwidth of workloads");
                None
            }
        };
        let now = Instant::now();
        let versions: Vec<IpVersion> = planes.iter().map(|plane| plane.version).collect();
        let encrypting: Vec<(IpVersion, InterfaceName)> = planes
            .iter()
            .filter_map(|plane| plane.wireguard.as_ref())
            .filter(|one| one.is_enabled())
            .map(|one| (one.version(), one.interface().clone()))
            .collect();
        let mut desired = Desired::new(&versions);
        let roster =
            Roster::new(&settings, &renderer, &mtus, &encrypting, beside_bpf, host_path, &mut desired);
        let figures = Figures::new(&settings.metrics);
        if config.prometheus_wire_guard_metrics_enabled && !encrypting.is_empty() {
            let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
            let devices = encrypting.iter().map(|(_, device)| device.to_string()).collect();
            wireguard_figures::watch(&settings.metrics, &name, devices);
        }
        let reverse_path = match host_path {
            // Programs check sources, and answers may have a service's address as source.
            Some(_) => "0".to_owned(),
            None => sysctl::read("net/ipv4/conf/default/rp_filter").unwrap_or_else(|_| "1".to_owned()),
        };
        let answers = roster::answers_neighbours(&config).then(Answers::start).transpose()?;
        let announce = config.local_subnet_l2_reachability_refresh_interval.positive();
        let need = &settings.encapsulation;
        let unused_tunnels = UnusedTunnels::new(
            [
                (!need.vxlan).then_some(VXLAN_INTERFACE),
                (config.ipv6_support && !need.vxlan_v6).then_some(VXLAN_INTERFACE_V6),
            ],
            (!need.ipip && config.ipip_enabled.is_none()).then_some(IPIP_INTERFACE),
        );
        let mut work = Self {
            reports,
            roster,
            world: World::new(renderer, Interfaces::new(config.interface_exclude.clone()), now),
            desired,
            drivers: Drivers {
                planes,
                arp,
                devices: TunnelDevices::default(),
                interfaces: InterfaceSetup::new(reverse_path),
                limits: Bandwidth::default(),
                bandwidth,
                answers_changed: true,
            },
            bpf,
            leftovers: Leftovers::new(leftovers),
            kube_proxy: Leftovers::new(kube_proxy),
            unused_tunnels,
            kernel: Box::new(kernel),
            monitor,
            others,
            arrivals: Arrivals::default(),
            announces: false,
            connections: Box::new(connections),
            counts_connections: false,
            figures,
            refusals: Refusals::default(),
            rules_are_written: false,
            has_ipvs,
            mtus,
            mtu_check: None,
            begin: now,
            pace: Pace::WaitingForSync,
            progress: Progress::Nothing,
            throttle: Throttle::new(now),
            overdue: Overdue::default(),
            refreshes: Refreshes {
                sets: Every::new(config.ipsets_refresh_interval.positive(), now),
                routes: Every::new(config.route_refresh_interval.positive(), now),
                interfaces: Every::new(config.interface_refresh_interval.positive(), now),
                process_report: Every::new(config.reporting_interval.positive(), now)
                    .first_after(FIRST_PROCESS_REPORT, now),
                announce: Every::new(announce.filter(|_| answers.is_some()), now),
            },
            answers,
            settings,
        };
        work.read_interfaces(now)?;
        Ok(work)
    }
}

fn write_mtu(file: &Path, mtu: u32, is_required: bool) -> Result<(), StartError> {
    let write = || {
        if let Some(directory) = file.parent() {
            std::fs::create_dir_all(directory)?;
        }
        // Plugins read the file at any moment, and one that finds it empty refuses its pod.
        daemon::files::write(file, mtu.to_string().as_bytes(), 0o644)
    };
    match write() {
        Ok(()) => Ok(()),
        Err(reason) if is_required => Err(StartError::MtuFile { path: file.to_owned(), reason }),
        Err(reason) => {
            tracing::error!(%reason, file = %file.display(), "the MTU of pods is not written and may be wrong");
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::write_mtu;

    #[test]
    fn a_reader_of_the_mtu_never_finds_it_half_written() {
        let folder = tempfile::tempdir().unwrap();
        let (file, reader) = (folder.path().join("below/mtu"), folder.path().join("reader"));
        write_mtu(&file, 1450, true).unwrap();
        // A reader that opened the old file still reads all of it.
        std::fs::hard_link(&file, &reader).unwrap();
        write_mtu(&file, 9000, true).unwrap();
        assert_eq!(std::fs::read_to_string(&reader).unwrap(), "1450");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "9000");
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn an_mtu_that_cannot_be_written_ends_the_start_only_if_it_is_required() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mtu");
        std::fs::create_dir(&file).unwrap();
        assert!(write_mtu(&file, 1450, true).is_err());
        assert!(write_mtu(&file, 1450, false).is_ok());
    }
}
