//! How the host's own packets reach services: by sockets that choose backends themselves, by a pair of devices through
//! which packets to services pass, or by both for different protocols; and the kernel settings needed for that.

use crate::managers::Interfaces;
use crate::managers::SERVICE_GATEWAYS;
use api::{BPFConnectTimeLoadBalancing, EnabledOrDisabled};
use bpf_driver::Interface;
use felix_config::Config;
use messages::InterfaceName;
use netlink::{
    DeviceKind, Error, Kernel, Link, LinkChange, Neighbour, NewLink, Operation, Peer, first_failure, sysctl,
};
use rules::{SERVICES_DEVICE, SERVICES_DEVICE_END};
use std::collections::{BTreeMap, BTreeSet};

/// The paths in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HostPath {
    /// Whether sockets choose backends; `true` if all but those of UDP do.
    pub(crate) sockets: Option<bool>,
    /// Whether packets pass through the devices; `true` if only those of UDP do.
    pub(crate) devices: Option<bool>,
}

impl HostPath {
    /// The configured paths. Without a control group for the sockets only packets are left.
    pub(crate) fn new(config: &Config, has_group: bool) -> Self {
        let by_packets = config.bpf_host_networked_nat_without_ctlb != Some(EnabledOrDisabled::Disabled);
        match config.bpf_connect_time_load_balancing {
            Some(BPFConnectTimeLoadBalancing::Enabled) if has_group => {
                Self { sockets: Some(false), devices: None }
            }
            Some(BPFConnectTimeLoadBalancing::Disabled) => {
                Self { sockets: None, devices: by_packets.then_some(false) }
            }
            _ if has_group && by_packets => Self { sockets: Some(true), devices: Some(true) },
            _ if has_group => Self { sockets: Some(false), devices: None },
            _ => Self { sockets: None, devices: by_packets.then_some(false) },
        }
    }
}

/// The pair of devices.
#[derive(Debug)]
pub(super) struct Devices {
    is_wanted: bool,
    mtu: u32,
    with_v6: bool,
    /// The numbers of the devices once they are set up.
    settled: Option<(u32, u32)>,
    is_removed: bool,
}

impl Devices {
    pub(super) fn new(is_wanted: bool, mtu: u32, with_v6: bool) -> Self {
        Self { is_wanted, mtu, with_v6, settled: None, is_removed: false }
    }

    /// Creates the devices, or removes those of an earlier process.
    pub(super) fn apply(&mut self, kernel: &mut dyn Kernel, interfaces: &Interfaces) -> Result<(), Error> {
        if !self.is_wanted {
            if !std::mem::replace(&mut self.is_removed, true)
                && let Some(found) = kernel.link(&SERVICES_DEVICE.into())?
                && found.kind == "veth"
            {
                first_failure(kernel.apply(&[Operation::DeleteLink(found.index.into())]))?;
            }
            return Ok(());
        }
        let known = interfaces.index(SERVICES_DEVICE).zip(interfaces.index(SERVICES_DEVICE_END));
        if self.settled.is_some() && known == self.settled && interfaces.is_up(SERVICES_DEVICE) {
            return Ok(());
        }
        let (near, far) = self.ensure(kernel)?;
        let mut operations = Vec::new();
        for link in [&near, &far] {
            let change = LinkChange {
                up: (!link.up).then_some(true),
                mtu: (link.mtu != self.mtu).then_some(self.mtu),
                ..LinkChange::default()
            };
            if change.up.is_some() || change.mtu.is_some() {
                operations.push(Operation::ChangeLink(link.index.into(), change));
            }
        }
        if let Some(mac) = far.mac {
            // A permanent entry, so that no neighbour request is sent.
            for gateway in SERVICE_GATEWAYS.into_iter().filter(|one| one.is_ipv4() || self.with_v6) {
                let neighbour = Neighbour::permanent(near.index, gateway, mac);
                operations.push(Operation::ReplaceNeighbour(neighbour));
            }
        }
        first_failure(kernel.apply(&operations))?;
        // The host's own addresses arrive here as sources.
        for (parameter, value) in [
            ("all/rp_filter", "0"),
            ("bpfin.cali/rp_filter", "0"),
            ("bpfout.cali/rp_filter", "0"),
            ("bpfout.cali/accept_local", "1"),
            ("bpfout.cali/forwarding", "1"),
        ] {
            set(parameter, value);
        }
        self.settled = Some((near.index, far.index));
        Ok(())
    }

    fn ensure(&self, kernel: &mut dyn Kernel) -> Result<(Link, Link), Error> {
        let find = |kernel: &mut dyn Kernel| -> Result<_, Error> {
            let near = kernel.link(&SERVICES_DEVICE.into())?;
            Ok(near.zip(kernel.link(&SERVICES_DEVICE_END.into())?))
        };
        if let Some(found) = find(kernel)? {
            return Ok(found);
        }
        for name in [SERVICES_DEVICE, SERVICES_DEVICE_END] {
            if kernel.link(&name.into())?.is_some() {
                first_failure(kernel.apply(&[Operation::DeleteLink(name.into())]))?;
            }
        }
        let peer = Peer { name: SERVICES_DEVICE_END.to_owned(), namespace: None, mac: None };
        let pair = NewLink {
            mtu: Some(self.mtu),
            up: true,
            ..NewLink::new(SERVICES_DEVICE, DeviceKind::Veth(peer))
        };
        first_failure(kernel.apply(&[Operation::AddLink(pair)]))?;
        find(kernel)?.ok_or_else(|| Error::Refused {
            what: format!("make {SERVICES_DEVICE}"),
            errno: netlink::Errno::NODEV,
            message: "it disappeared again".to_owned(),
        })
    }
}

fn set(parameter: &str, value: &str) {
    if let Err(error) = sysctl::ensure(&format!("net/ipv4/conf/{parameter}"), value) {
        tracing::warn!(%error, "cannot apply a kernel setting that services need");
    }
}

/// Lets the kernel accept packets whose source is an address of the host or of a service, on interfaces that have
/// programs: these check sources themselves.
#[derive(Debug, Default)]
pub(super) struct Sources {
    settled: BTreeSet<u32>,
}

impl Sources {
    pub(super) fn apply(&mut self, wanted: &BTreeMap<InterfaceName, Interface>) {
        let there: BTreeSet<u32> = wanted.values().map(|interface| interface.index).collect();
        self.settled.retain(|index| there.contains(index));
        for (name, interface) in wanted {
            if !self.settled.insert(interface.index) || name.contains('/') {
                continue;
            }
            set(&format!("{name}/accept_local"), "1");
            // The return path to a service may not pass a strict check.
            let path = format!("net/ipv4/conf/{name}/rp_filter");
            if sysctl::read(&path).is_ok_and(|value| value.trim() == "1") {
                set(&format!("{name}/rp_filter"), "2");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use felix_config::kinds::NoSurroundings;

    #[test]
    fn sockets_and_packets_share_protocols() {
        use BPFConnectTimeLoadBalancing::{Disabled, Enabled, TCP};
        for (mode, by_packets, has_group, sockets, devices) in [
            (TCP, true, true, Some(true), Some(true)),
            (TCP, false, true, Some(false), None),
            (TCP, true, false, None, Some(false)),
            (Enabled, true, true, Some(false), None),
            (Enabled, true, false, None, Some(false)),
            (Disabled, true, true, None, Some(false)),
            (Disabled, false, true, None, None),
            (Enabled, false, false, None, None),
        ] {
            let config = Config {
                bpf_connect_time_load_balancing: Some(mode),
                bpf_host_networked_nat_without_ctlb: Some(if by_packets {
                    EnabledOrDisabled::Enabled
                } else {
                    EnabledOrDisabled::Disabled
                }),
                ..Config::with_defaults(&NoSurroundings)
            };
            let found = HostPath::new(&config, has_group);
            assert_eq!(found, HostPath { sockets, devices }, "{mode:?} {by_packets} {has_group}");
        }
    }
}
