//! The parts of a pod's network, as data: a pair of devices, settings on both sides, addresses, routes.
//!
//! The plan does not contain numbers that the kernel assigns; they are filled in when it is carried out.

use crate::assigned::{Assigned, Traffic};
use crate::config::{DeviceType, NetConf};
use crate::error::Result;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink::interface_settings::{Setting, workload_settings};
use netlink::{Family, MacAddress};
use std::net::{IpAddr, Ipv4Addr};

/// The hardware address of the host's end of every pod's device.
pub(crate) const HOST_MAC: MacAddress = MacAddress([0xee; 6]);
/// The gateway of pods for all destinations; the host answers for it (proxy ARP).
pub(crate) const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// The IP versions of a pod's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// The network of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The name of the host's end.
    pub host_device: String,
    /// The name of the pod's end.
    pub pod_device: String,
    /// The kind of the devices.
    pub device: DeviceType,
    /// The MTU.
    pub mtu: Option<u32>,
    /// The number of queues.
    pub queues: u32,
    /// The hardware address of the pod's end; `None` for the kernel's choice.
    pub pod_mac: Option<MacAddress>,
    /// The families of the addresses, if known in advance: what they need is prepared while addresses are being taken.
    pub expected: Families,
    /// The pod's addresses, each with its full prefix length.
    pub addresses: Vec<IpNet>,
    /// Destinations that the pod reaches through the host.
    pub routes: Vec<IpNet>,
    /// Whether the host gets routes to the pod; not for the target of a migration, whose source still has them.
    pub host_routes: bool,
    /// Whether the pod may forward packets.
    pub forwarding: bool,
}

impl Plan {
    /// The plan of a configuration; addresses follow later.
    ///
    /// # Errors
    /// When the configured device type is unknown.
    pub fn new(conf: &NetConf, host_device: String, pod_device: &str, mtu: Option<u32>) -> Result<Self> {
        Ok(Self {
            host_device,
            pod_device: pod_device.to_owned(),
            device: conf.device()?,
            mtu,
            queues: u32::try_from(conf.num_queues.max(1)).unwrap_or(1),
            pod_mac: None,
            expected: Families::default(),
            addresses: Vec::new(),
            routes: default_routes(),
            host_routes: true,
            forwarding: conf.container_settings.allow_ip_forwarding,
        })
    }

    /// Sets the addresses, whatever their prefix lengths.
    pub fn set_addresses(&mut self, addresses: impl IntoIterator<Item = IpAddr>) {
        self.addresses = addresses.into_iter().map(IpNet::from).collect();
    }

    /// Sets what address management assigned.
    pub(crate) fn set_assigned(&mut self, assigned: &Assigned) {
        self.set_addresses(assigned.ips());
        self.host_routes = assigned.traffic == Traffic::Here;
    }

    /// Whether the pod has an IPv4 address.
    #[must_use]
    pub fn has_v4(&self) -> bool {
        self.addresses.iter().any(|address| address.addr().is_ipv4())
    }

    /// Whether the pod has an IPv6 address.
    #[must_use]
    pub fn has_v6(&self) -> bool {
        self.addresses.iter().any(|address| address.addr().is_ipv6())
    }

    /// The families of the pod's addresses.
    #[must_use]
    pub fn families(&self) -> Families {
        Families { v4: self.has_v4(), v6: self.has_v6() }
    }

    /// The pod's routes of one family.
    pub fn routes_of(&self, v6: bool) -> impl Iterator<Item = IpNet> + '_ {
        self.routes.iter().copied().filter(move |route| route.addr().is_ipv6() == v6)
    }

    /// The gateway of the pod's IPv6 routes: the address that the kernel derives from the host's hardware address.
    #[must_use]
    pub fn gateway_v6() -> IpAddr {
        HOST_MAC.link_local().into()
    }

    /// Settings of the host's end for addresses of these families, before it is up.
    #[must_use]
    pub fn host_settings(&self, families: Families) -> Vec<Setting> {
        let name = &self.host_device;
        let mut settings = Vec::new();
        if families.v6 {
            let conf = |key: &str| format!("net/ipv6/conf/{name}/{key}");
            settings.extend([
                Setting::needed(conf("accept_dad"), "0"),
                Setting::needed(conf("disable_ipv6"), "0"),
            ]);
        }
        let wanted = [(families.v4, Family::V4), (families.v6, Family::V6)];
        let wanted: Vec<Family> =
            wanted.into_iter().filter_map(|(has, family)| has.then_some(family)).collect();
        settings.extend(workload_settings(name, &wanted));
        settings
    }

    /// Settings inside the pod for addresses of these families, before its end is up.
    #[must_use]
    pub fn pod_settings_before(&self, families: Families) -> Vec<Setting> {
        if !families.v6 {
            return Vec::new();
        }
        let mut settings =
            vec![Setting::needed(format!("net/ipv6/conf/{}/accept_dad", self.pod_device), "0")];
        for scope in ["all", "default", "lo"] {
            settings.push(Setting::needed(format!("net/ipv6/conf/{scope}/disable_ipv6"), "0"));
        }
        settings
    }

    /// Settings inside the pod once it has its addresses.
    #[must_use]
    pub fn pod_settings_after(&self) -> Vec<Setting> {
        let value = if self.forwarding { "1" } else { "0" };
        let mut settings = Vec::new();
        if self.has_v4() {
            settings.push(Setting::needed("net/ipv4/ip_forward", value));
        }
        if self.has_v6() {
            settings.push(Setting::needed("net/ipv6/conf/all/forwarding", value));
        }
        settings
    }
}

/// Both families.
#[must_use]
pub(crate) fn default_routes() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

#[cfg(test)]
mod tests {
    use super::Plan;
    use crate::config::NetConf;

    fn plan(addresses: &[&str]) -> Plan {
        let mut plan = Plan::new(&NetConf::default(), "cali1".into(), "eth0", Some(1450)).unwrap();
        plan.set_addresses(addresses.iter().map(|text| text.parse().unwrap()));
        plan
    }

    fn lines(settings: Vec<super::Setting>) -> Vec<String> {
        settings.into_iter().map(|setting| format!("{}={}", setting.path, setting.value)).collect()
    }

    #[test]
    fn settings_depend_on_the_families() {
        let v4 = plan(&["10.0.0.1"]);
        assert_eq!(
            lines(v4.host_settings(v4.families())),
            [
                "net/ipv6/conf/cali1/accept_ra=0",
                "net/ipv4/conf/cali1/route_localnet=1",
                "net/ipv4/neigh/cali1/proxy_delay=0",
                "net/ipv4/conf/cali1/proxy_arp=1",
                "net/ipv4/conf/cali1/forwarding=1",
            ]
        );
        assert!(v4.pod_settings_before(v4.families()).is_empty());
        assert_eq!(lines(v4.pod_settings_after()), ["net/ipv4/ip_forward=0"]);
        let v6 = plan(&["fd00::1"]);
        assert_eq!(v6.host_settings(v6.families()).len(), 5);
        assert_eq!(v6.pod_settings_before(v6.families()).len(), 4);
        assert_eq!(v6.addresses[0].to_string(), "fd00::1/128");
        assert_eq!(Plan::gateway_v6().to_string(), "fe80::ecee:eeff:feee:eeee");
    }
}
