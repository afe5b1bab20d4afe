//! The addresses that address management assigned to a container: ADD's own type, between the forms of IPAM plugins,
//! the datastore and the runtime's answer.

use crate::request::Request;
use crate::wiring::Ends;
use cni_protocol::result::{CniResult, Dns, Interface, Ip, Route};
use ipnet::IpNet;
use std::net::IpAddr;

/// Addresses of a container, and what else its IPAM plugin returned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Assigned {
    /// The addresses, each with the prefix length that its manager assigned.
    pub(crate) addresses: Vec<IpNet>,
    /// Passed on to the runtime.
    pub(crate) routes: Vec<Route>,
    /// Passed on to the runtime.
    pub(crate) dns: Dns,
    /// Where packets to the addresses are delivered.
    pub(crate) traffic: Traffic,
}

/// Where packets to a container's addresses are delivered once it is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// To this host.
    #[default]
    Here,
    /// To the host that a virtual machine is moving away from; it keeps its routes until the move is over.
    StillElsewhere,
}

impl Assigned {
    /// Addresses of Calico's own management: each has a route, unless its packets are delivered elsewhere.
    pub(crate) fn of(addresses: Vec<IpNet>, traffic: Traffic) -> Self {
        let routes = match traffic {
            // Like in Calico, the destination keeps the address's own bits.
            Traffic::Here => addresses.iter().copied().map(Route::to).collect(),
            Traffic::StillElsewhere => Vec::new(),
        };
        Self { addresses, routes, dns: Dns::default(), traffic }
    }

    /// Addresses that no IPAM plugin manages.
    pub(crate) fn unmanaged(addresses: impl IntoIterator<Item = IpAddr>) -> Self {
        Self { addresses: addresses.into_iter().map(IpNet::from).collect(), ..Self::default() }
    }

    /// The answer of another IPAM plugin.
    pub(crate) fn by_plugin(result: CniResult) -> Self {
        let CniResult { ips, routes, dns, .. } = result;
        Self {
            addresses: ips.into_iter().map(|ip| ip.address).collect(),
            routes,
            dns,
            traffic: Traffic::Here,
        }
    }

    /// The addresses without their prefix lengths.
    pub(crate) fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().map(IpNet::addr)
    }

    /// The result of `calico-ipam`.
    pub(crate) fn into_ipam_result(self) -> CniResult {
        let ip = |address| Ip { address, gateway: None, interface: None };
        CniResult {
            ips: self.addresses.into_iter().map(ip).collect(),
            routes: self.routes,
            dns: self.dns,
            ..CniResult::default()
        }
    }

    /// The result of `calico`: both ends of the device; addresses have their full prefix length and no gateway.
    pub(crate) fn into_result(self, request: &Request, ends: &Ends, mtu: Option<u32>) -> CniResult {
        let host = Interface { name: ends.host_device.clone(), ..Interface::default() };
        let pod = Interface {
            name: request.ifname.clone(),
            mac: ends.mac.map(|mac| mac.to_string()).unwrap_or_default(),
            mtu: mtu.unwrap_or_default(),
            sandbox: request.netns.clone(),
            ..Interface::default()
        };
        let ips = self.ips().map(|address| Ip { address: address.into(), gateway: None, interface: Some(1) });
        CniResult { interfaces: vec![host, pod], ips: ips.collect(), routes: self.routes, dns: self.dns }
    }
}

#[cfg(test)]
mod tests {
    use super::{Assigned, Traffic};
    use ipnet::IpNet;

    #[test]
    fn a_machine_that_moves_here_brings_no_routes() {
        let addresses: Vec<IpNet> = vec!["10.0.0.5/26".parse().unwrap(), "fd00::5/122".parse().unwrap()];
        let here = Assigned::of(addresses.clone(), Traffic::Here).into_ipam_result();
        assert_eq!(here.routes.iter().map(|route| route.dst).collect::<Vec<_>>(), addresses);
        let elsewhere = Assigned::of(addresses.clone(), Traffic::StillElsewhere).into_ipam_result();
        assert!(elsewhere.routes.is_empty());
        assert_eq!(elsewhere.ips.iter().map(|ip| ip.address).collect::<Vec<_>>(), addresses);
    }
}
