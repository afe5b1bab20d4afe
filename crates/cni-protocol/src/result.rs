//! Results of ADD: read from other plugins in any version, written in the version of the configuration.
//!
//! The form is Go's, byte for byte: indented by four spaces, no final newline, the order of keys as in Calico's own
//! plugin (sorted from 1.0.0 on, declaration order before).

use crate::error::{CniError, Result, code};
use crate::version::CniVersion;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::net::IpAddr;

/// A result, in the shape of the newest version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CniResult {
    /// Devices; addresses refer to them by index.
    pub interfaces: Vec<Interface>,
    /// Addresses.
    pub ips: Vec<Ip>,
    /// Routes.
    pub routes: Vec<Route>,
    /// Name servers and search domains, as received.
    pub dns: Dns,
}

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its hardware address.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Its MTU.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// The device's PCI address.
    #[serde(rename = "pciID", default, skip_serializing_if = "String::is_empty")]
    pub pci_id: String,
    /// The path of its namespace; empty for the host's.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    /// A socket that represents the device.
    #[serde(rename = "socketPath", default, skip_serializing_if = "String::is_empty")]
    pub socket_path: String,
}

/// An address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ip {
    /// The address with its prefix length.
    #[serde(with = "network_text")]
    pub address: IpNet,
    /// The gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The index of its device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The advertised maximum segment size.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub advmss: u32,
    /// The destination.
    #[serde(with = "network_text")]
    pub dst: IpNet,
    /// The gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// The MTU.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// Its priority.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u32,
    /// Its scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u32>,
    /// The routing table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
}

/// Name resolution settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dns {
    /// Name servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The local domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Domains to search.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// Networks as text, including the host bits.
mod network_text {
    use ipnet::IpNet;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(network: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(network)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|_| D::Error::custom(format!("{text:?} is not an address with a prefix length")))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Route {
    /// A route with only a destination.
    #[must_use]
    pub fn to(dst: IpNet) -> Self {
        Self { advmss: 0, dst, gw: None, mtu: 0, priority: 0, scope: None, table: None }
    }
}

/// From 1.0.0 on, with keys sorted as in Go's maps.
#[derive(Serialize, Deserialize)]
struct Newest {
    #[serde(rename = "cniVersion", default)]
    cni_version: String,
    #[serde(default, skip_serializing_if = "is_empty_dns")]
    dns: Dns,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<Interface>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ips: Vec<Ip>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    routes: Vec<Route>,
}

fn is_empty_dns(dns: &Dns) -> bool {
    *dns == Dns::default()
}

/// 0.3.0 to 0.4.0.
#[derive(Serialize)]
struct Middle<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    interfaces: Vec<MiddleInterface<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ips: Vec<MiddleIp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<OldRoute>,
    dns: &'a Dns,
}

#[derive(Serialize)]
struct MiddleInterface<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    mac: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    sandbox: &'a str,
}

#[derive(Serialize)]
struct MiddleIp {
    version: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<usize>,
    #[serde(with = "network_text")]
    address: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
}

/// A route with its keys in declaration order.
#[derive(Serialize)]
struct OldRoute {
    #[serde(with = "network_text")]
    dst: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gw: Option<IpAddr>,
    #[serde(skip_serializing_if = "is_zero")]
    mtu: u32,
    #[serde(skip_serializing_if = "is_zero")]
    advmss: u32,
    #[serde(skip_serializing_if = "is_zero")]
    priority: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<u32>,
}

/// 0.1.0 and 0.2.0: one address of each family.
#[derive(Serialize)]
struct Oldest<'a> {
    #[serde(rename = "cniVersion")]
    cni_version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip4: Option<OldestIp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip6: Option<OldestIp>,
    dns: &'a Dns,
}

#[derive(Serialize)]
struct OldestIp {
    #[serde(with = "network_text")]
    ip: IpNet,
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    routes: Vec<OldRoute>,
}

/// The form that a foreign plugin may print in the oldest versions.
#[derive(Deserialize)]
struct OldestRead {
    ip4: Option<OldestIpRead>,
    ip6: Option<OldestIpRead>,
    #[serde(default)]
    dns: Dns,
}

#[derive(Deserialize)]
struct OldestIpRead {
    #[serde(with = "network_text")]
    ip: IpNet,
    gateway: Option<IpAddr>,
    #[serde(default)]
    routes: Vec<Route>,
}

impl From<&Route> for OldRoute {
    fn from(route: &Route) -> Self {
        let Route { advmss, dst, gw, mtu, priority, scope, table } = route.clone();
        Self { dst, gw, mtu, advmss, priority, table, scope }
    }
}

impl CniResult {
    /// The result in the form for the runtime.
    ///
    /// # Errors
    /// When the version cannot express it: the oldest ones allow one address of each family.
    pub fn render(&self, version: CniVersion) -> Result<Vec<u8>> {
        let text = version.as_str();
        Ok(if text >= "1.0.0" {
            pretty(&Newest {
                cni_version: text.to_owned(),
                dns: self.dns.clone(),
                interfaces: self.interfaces.clone(),
                ips: self.ips.clone(),
                routes: self.routes.clone(),
            })
        } else if text >= "0.3.0" {
            pretty(&self.middle(text))
        } else {
            pretty(&self.oldest(text)?)
        })
    }

    fn middle<'a>(&'a self, cni_version: &'a str) -> Middle<'a> {
        let interface =
            |it: &'a Interface| MiddleInterface { name: &it.name, mac: &it.mac, sandbox: &it.sandbox };
        let ip = |it: &Ip| MiddleIp {
            version: if it.address.addr().is_ipv4() { "4" } else { "6" },
            interface: it.interface,
            address: it.address,
            gateway: it.gateway,
        };
        Middle {
            cni_version,
            interfaces: self.interfaces.iter().map(interface).collect(),
            ips: self.ips.iter().map(ip).collect(),
            routes: self.routes.iter().map(OldRoute::from).collect(),
            dns: &self.dns,
        }
    }

    fn oldest<'a>(&'a self, cni_version: &'a str) -> Result<Oldest<'a>> {
        let of_family = |is_v4: bool| {
            let ip = self.ips.iter().find(|ip| ip.address.addr().is_ipv4() == is_v4)?;
            let routes = self.routes.iter().filter(|route| route.dst.addr().is_ipv4() == is_v4);
            Some(OldestIp {
                ip: ip.address,
                gateway: ip.gateway,
                routes: routes.map(OldRoute::from).collect(),
            })
        };
        let (ip4, ip6) = (of_family(true), of_family(false));
        if ip4.is_none() && ip6.is_none() {
            return Err(CniError::new(code::INCOMPATIBLE_VERSION, "cannot convert: no valid IP addresses"));
        }
        Ok(Oldest { cni_version, ip4, ip6, dns: &self.dns })
    }

    /// Parses a result of any version: the output of another plugin, or the `prevResult` of a chain.
    ///
    /// # Errors
    /// When it is not a result.
    pub fn parse(value: &Value) -> std::result::Result<Self, String> {
        if value.get("ip4").is_some() || value.get("ip6").is_some() {
            let old: OldestRead =
                Deserialize::deserialize(value).map_err(|error: serde_json::Error| error.to_string())?;
            let mut result = Self { dns: old.dns, ..Self::default() };
            for part in [old.ip4, old.ip6].into_iter().flatten() {
                result.ips.push(Ip { address: part.ip, gateway: part.gateway, interface: None });
                // A route without a gateway uses the address's own.
                let gateway = part.gateway;
                result
                    .routes
                    .extend(part.routes.into_iter().map(|route| Route { gw: route.gw.or(gateway), ..route }));
            }
            return Ok(result);
        }
        let new: Newest =
            Deserialize::deserialize(value).map_err(|error: serde_json::Error| error.to_string())?;
        Ok(Self { interfaces: new.interfaces, ips: new.ips, routes: new.routes, dns: new.dns })
    }
}

/// JSON indented by four spaces without a final newline, as Go's plugins print it.
#[must_use]
pub fn pretty(value: &impl Serialize) -> Vec<u8> {
    let mut text = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    // Our own types contain text, numbers and lists; nothing that JSON cannot express.
    match value.serialize(&mut serializer) {
        Ok(()) => text,
        Err(error) => format!("{{\"code\": 999, \"msg\": \"{error}\"}}").into_bytes(),
    }
}

#[cfg(test)]
mod tests;
