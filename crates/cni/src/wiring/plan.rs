//! What a pod's network is made of, as data: a pair of devices, settings on both sides, addresses, routes.
//!
//! The plan knows nothing of numbers that the kernel gives; whoever carries it out fills them in.

use crate::config::{DeviceType, NetConf};
use crate::error::Result;
use crate::result::Ip;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use netlink::MacAddress;
use std::net::{IpAddr, Ipv4Addr};

/// The hardware address of the host's end of every pod's device.
pub const HOST_MAC: MacAddress = MacAddress([0xee; 6]);
/// The address that pods send to when they send to anybody; the host answers for it (proxy ARP).
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);

/// One kernel setting below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Which.
    pub path: String,
    /// Its value.
    pub value: &'static str,
    /// Whether going on without it is fine.
    pub optional: bool,
}

/// Of which IP versions a pod has addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Families {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

/// The network of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WiringPlan {
    /// The name of the host's end.
    pub host_device: String,
    /// The name of the pod's end.
    pub pod_device: String,
    /// What kind of devices.
    pub device: DeviceType,
    /// The largest packet.
    pub mtu: Option<u32>,
    /// How many queues.
    pub queues: u32,
    /// The hardware address of the pod's end; the kernel's choice when not given.
    pub pod_mac: Option<MacAddress>,
    /// The addresses that there will be, where that is known: what they need is made ready while they are being taken.
    pub expected: Families,
    /// The pod's addresses, each as a network of its own.
    pub addresses: Vec<IpNet>,
    /// Destinations that the pod reaches by the host.
    pub routes: Vec<IpNet>,
    /// Whether the host gets routes to the pod; not for the target of a migration, whose source still has them.
    pub host_routes: bool,
    /// Whether the pod may forward packets.
    pub forwarding: bool,
}

impl WiringPlan {
    /// The plan of a configuration, with addresses to follow.
    ///
    /// # Errors
    /// A device type that does not exist.
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

    /// With the addresses that were given.
    pub fn set_addresses(&mut self, ips: &[Ip]) {
        self.addresses = crate::endpoint::host_networks(ips);
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

    /// The gateway of the pod's IPv6 routes: what the kernel makes of the host's hardware address.
    #[must_use]
    pub fn gateway_v6() -> IpAddr {
        HOST_MAC.link_local().into()
    }

    /// Settings of the host's end for addresses of these families, before it is up.
    #[must_use]
    pub fn host_settings(&self, families: Families) -> Vec<Setting> {
        let name = &self.host_device;
        let mut settings = Vec::new();
        if families.v4 {
            let conf = |key: &str| format!("net/ipv4/conf/{name}/{key}");
            settings.extend([
                needed(conf("route_localnet"), "1"),
                // Without the usual wait before answering for others: nobody else could.
                optional(format!("net/ipv4/neigh/{name}/proxy_delay"), "0"),
                needed(conf("proxy_arp"), "1"),
                needed(conf("forwarding"), "1"),
            ]);
        }
        let conf = |key: &str| format!("net/ipv6/conf/{name}/{key}");
        if families.v6 {
            settings.extend([
                needed(conf("accept_dad"), "0"),
                needed(conf("disable_ipv6"), "0"),
                needed(conf("proxy_ndp"), "1"),
                needed(conf("forwarding"), "1"),
            ]);
        }
        // A pod must not become the host's router by sending advertisements.
        settings.push(optional(conf("accept_ra"), "0"));
        settings
    }

    /// Settings inside the pod for addresses of these families, before its end is up.
    #[must_use]
    pub fn pod_settings_before(&self, families: Families) -> Vec<Setting> {
        if !families.v6 {
            return Vec::new();
        }
        let mut settings = vec![needed(format!("net/ipv6/conf/{}/accept_dad", self.pod_device), "0")];
        for scope in ["all", "default", "lo"] {
            settings.push(needed(format!("net/ipv6/conf/{scope}/disable_ipv6"), "0"));
        }
        settings
    }

    /// Settings inside the pod once it has its addresses.
    #[must_use]
    pub fn pod_settings_after(&self) -> Vec<Setting> {
        let value = if self.forwarding { "1" } else { "0" };
        let mut settings = Vec::new();
        if self.has_v4() {
            settings.push(needed("net/ipv4/ip_forward".to_owned(), value));
        }
        if self.has_v6() {
            settings.push(needed("net/ipv6/conf/all/forwarding".to_owned(), value));
        }
        settings
    }
}

/// Everything, of both families.
#[must_use]
pub fn default_routes() -> Vec<IpNet> {
    vec![IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())]
}

fn needed(path: String, value: &'static str) -> Setting {
    Setting { path, value, optional: false }
}

fn optional(path: String, value: &'static str) -> Setting {
    Setting { path, value, optional: true }
}

#[cfg(test)]
mod tests {
    use super::WiringPlan;
    use crate::config::NetConf;
    use crate::result::Ip;

    fn plan(addresses: &[&str]) -> WiringPlan {
        let mut plan = WiringPlan::new(&NetConf::default(), "cali1".into(), "eth0", Some(1450)).unwrap();
        let ip = |text: &&str| Ip { address: text.parse().unwrap(), gateway: None, interface: None };
        plan.set_addresses(&addresses.iter().map(ip).collect::<Vec<_>>());
        plan
    }

    fn lines(settings: Vec<super::Setting>) -> Vec<String> {
        settings.into_iter().map(|setting| format!("{}={}", setting.path, setting.value)).collect()
    }

    #[test]
    fn settings_depend_on_the_families() {
        let v4 = plan(&["10.0.0.1/26"]);
        assert_eq!(
            lines(v4.host_settings(v4.families())),
            [
                "net/ipv4/conf/cali1/route_localnet=1",
                "net/ipv4/neigh/cali1/proxy_delay=0",
                "net/ipv4/conf/cali1/proxy_arp=1",
                "net/ipv4/conf/cali1/forwarding=1",
                "net/ipv6/conf/cali1/accept_ra=0"
            ]
        );
        assert!(v4.pod_settings_before(v4.families()).is_empty());
        assert_eq!(lines(v4.pod_settings_after()), ["net/ipv4/ip_forward=0"]);
        let v6 = plan(&["fd00::1/122"]);
        assert_eq!(v6.host_settings(v6.families()).len(), 5);
        assert_eq!(v6.pod_settings_before(v6.families()).len(), 4);
        assert_eq!(v6.addresses[0].to_string(), "fd00::1/128");
        assert_eq!(WiringPlan::gateway_v6().to_string(), "fe80::ecee:eeff:feee:eeee");
    }
}
