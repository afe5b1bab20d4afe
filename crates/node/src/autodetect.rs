//! Chooses the node's address from a list of the host's interfaces, without accessing the host.
//!
//! The methods are Calico's ([`Method`]). `first-found` and `skip-interface` take the first address in Calico's order:
//! interfaces with the highest index first. `interface` and `cidr` name what the user wants, so if several interfaces
//! match, nothing is chosen and the error lists the candidates, unless the node already uses one of them, which it then
//! keeps. There is no fallback from one method to another.

mod method;

pub use method::Method;
pub(crate) use method::MethodError;

use crate::addresses::is_global_unicast;
use ipnet::IpNet;
use model::IpVersion;
use regex::Regex;
use std::fmt;
use std::net::IpAddr;

/// An interface of the host with its addresses, host bits included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its index in the kernel.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its addresses, in the kernel's order.
    pub addresses: Vec<IpNet>,
}

/// The facts that the choice is based on.
#[derive(Clone, Debug, Default)]
pub struct Facts<'a> {
    /// All interfaces of the host.
    pub interfaces: &'a [Interface],
    /// The local address that reaches the destination of `can-reach`, or why none does.
    pub reached: Option<Result<IpAddr, String>>,
    /// The `InternalIP`s of Kubernetes' node; `None` outside Kubernetes.
    pub internal_addresses: Option<Vec<String>>,
    /// The node's present address.
    pub stored: Option<IpAddr>,
}

/// Why no address was chosen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DetectError {
    /// The method's value is invalid.
    #[error(transparent)]
    Method(#[from] MethodError),
    /// No interface has a matching address.
    #[error("no interface of this host has {what}; {}", Seen(interfaces))]
    NothingFits {
        /// The requirement.
        what: String,
        /// The existing addresses, for comparison.
        interfaces: Vec<String>,
    },
    /// Several interfaces match.
    #[error(
        "{what} matches several interfaces: {}; make the expression more specific, or set the address itself",
        candidates.join(", ")
    )]
    Ambiguous {
        /// The requirement.
        what: String,
        /// The addresses with their interfaces.
        candidates: Vec<String>,
    },
    /// No interface has the address that was found.
    #[error("{address} ({origin}) is not an address of any interface of this host")]
    NotHere {
        /// The address.
        address: IpAddr,
        /// Its source.
        origin: String,
    },
    /// The destination cannot be reached.
    #[error("no route to {destination}: {reason}")]
    Unreachable {
        /// The destination.
        destination: String,
        /// The reason.
        reason: String,
    },
    /// The method needs Kubernetes, which is not available.
    #[error(
        "the method kubernetes-internal-ip needs Kubernetes: set KUBECONFIG or run in a pod, or choose another method"
    )]
    NoKubernetes,
    /// Kubernetes has no such address of the node.
    #[error("Kubernetes has no {0} InternalIP for this node")]
    NoInternalAddress(IpVersion),
}

struct Seen<'a>(&'a [String]);

impl fmt::Display for Seen<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("it has no suitable address at all")
        } else {
            write!(f, "there are {}", self.0.join(", "))
        }
    }
}

/// Interfaces that are never the node's own unless they are named: tunnels, bridges and the host ends of pods.
pub(crate) const EXCLUDED_INTERFACES: [&str; 19] = [
    "^docker.*",
    "^cbr.*",
    "^dummy.*",
    "^podman.*",
    "^virbr.*",
    "^lxcbr.*",
    "^veth.*",
    "^lo",
    "^br-.*",
    "^cali.*",
    "^tunl.*",
    "^flannel.*",
    "^kube-ipvs.*",
    "^cni.*",
    r"^vxlan\.calico.*",
    r"^vxlan-v6\.calico.*",
    r"^wireguard\.cali.*",
    r"^wg-v6\.cali.*",
    "^nodelocaldns.*",
];

/// Chooses the address, with its network.
///
/// # Errors
/// When no address matches, or several do and the method does not decide.
pub fn detect(method: &Method, family: IpVersion, facts: &Facts<'_>) -> Result<IpNet, DetectError> {
    match method {
        Method::FirstFound => first(family, facts, &excluded(&[])?, format!("a usable IPv{family} address")),
        Method::SkipInterface(names) => {
            let what = format!("a usable IPv{family} address on an interface that {method} does not skip");
            first(family, facts, &excluded(names)?, what)
        }
        Method::Interface(names) => {
            let wanted = one_of(names)?;
            let fits = |interface: &Interface, _: &IpAddr| wanted.is_match(&interface.name);
            only(family, facts, &method.to_string(), fits)
        }
        Method::Cidr(ranges) => {
            let fits = |_: &Interface, address: &IpAddr| ranges.iter().any(|range| range.contains(address));
            only(family, facts, &method.to_string(), fits)
        }
        Method::CanReach(destination) => match &facts.reached {
            Some(Ok(address)) => local(facts, *address, method.to_string()),
            Some(Err(reason)) => {
                Err(DetectError::Unreachable { destination: destination.clone(), reason: reason.clone() })
            }
            None => Err(DetectError::Unreachable {
                destination: destination.clone(),
                reason: "no route was looked up".to_owned(),
            }),
        },
        Method::KubernetesInternalIp => {
            let known = facts.internal_addresses.as_ref().ok_or(DetectError::NoKubernetes)?;
            let address = known
                .iter()
                .filter_map(|text| api::scalars::Ip::from(text.as_str()).parse().ok())
                .find(|address| family.has(address))
                .ok_or(DetectError::NoInternalAddress(family))?;
            local(facts, address, "Kubernetes' InternalIP".to_owned())
        }
    }
}

/// The address with its network, if an interface of the host has it.
#[must_use]
pub(crate) fn with_network(interfaces: &[Interface], address: IpAddr) -> Option<IpNet> {
    in_order(interfaces).flat_map(|interface| &interface.addresses).find(|net| net.addr() == address).copied()
}

/// The interfaces that the node's resource lists: all except those that are never the node's own, by name, with their
/// addresses of these families.
///
/// # Errors
/// Never: the expressions are ours.
pub(crate) fn reported(
    interfaces: &[Interface],
    families: &[IpVersion],
) -> Result<Vec<Interface>, DetectError> {
    let excluded = excluded(&[])?;
    let mut reported: Vec<Interface> = in_order(interfaces)
        .filter(|interface| !excluded.is_match(&interface.name))
        .map(|interface| {
            let fits = |net: &&IpNet| families.iter().any(|family| family.has_net(net));
            let addresses = interface.addresses.iter().filter(fits).copied().collect();
            Interface { addresses, ..interface.clone() }
        })
        .collect();
    reported.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(reported)
}

/// Calico's order: the newest interface first.
fn in_order(interfaces: &[Interface]) -> impl Iterator<Item = &Interface> {
    let mut ordered: Vec<&Interface> = interfaces.iter().collect();
    ordered.sort_by_key(|interface| std::cmp::Reverse(interface.index));
    ordered.into_iter()
}

fn first(family: IpVersion, facts: &Facts<'_>, excluded: &Regex, what: String) -> Result<IpNet, DetectError> {
    in_order(facts.interfaces)
        .filter(|interface| !excluded.is_match(&interface.name))
        .flat_map(|interface| &interface.addresses)
        .find(|net| family.has_net(net) && is_global_unicast(&net.addr()))
        .copied()
        .ok_or_else(|| DetectError::NothingFits { what, interfaces: seen(family, facts.interfaces) })
}

/// The first matching address of the only interface that has any.
fn only(
    family: IpVersion,
    facts: &Facts<'_>,
    what: &str,
    fits: impl Fn(&Interface, &IpAddr) -> bool,
) -> Result<IpNet, DetectError> {
    let usable = |interface: &Interface, net: &IpNet| {
        family.has_net(net) && is_global_unicast(&net.addr()) && fits(interface, &net.addr())
    };
    // Further addresses of an interface are secondary ones, not further candidates.
    let candidates: Vec<(&Interface, IpNet)> = in_order(facts.interfaces)
        .filter_map(|interface| {
            let net = interface.addresses.iter().find(|net| usable(interface, net))?;
            Some((interface, *net))
        })
        .collect();
    let Some(&(_, chosen)) = candidates.first() else {
        let what = format!("a usable IPv{family} address that matches {what}");
        return Err(DetectError::NothingFits { what, interfaces: seen(family, facts.interfaces) });
    };
    if candidates.iter().all(|(_, net)| net.addr() == chosen.addr()) {
        return Ok(chosen);
    }
    // If the node already uses a candidate, that decides, so that a restart changes nothing.
    let stored = facts.interfaces.iter().find_map(|interface| {
        let is_stored = |net: &&IpNet| Some(net.addr()) == facts.stored && usable(interface, net);
        interface.addresses.iter().find(is_stored)
    });
    match stored {
        Some(net) => Ok(*net),
        None => Err(DetectError::Ambiguous {
            what: what.to_owned(),
            candidates: candidates
                .iter()
                .map(|(interface, net)| format!("{net} on {}", interface.name))
                .collect(),
        }),
    }
}

fn local(facts: &Facts<'_>, address: IpAddr, origin: String) -> Result<IpNet, DetectError> {
    with_network(facts.interfaces, address).ok_or(DetectError::NotHere { address, origin })
}

/// The addresses that a user would compare the expression with.
fn seen(family: IpVersion, interfaces: &[Interface]) -> Vec<String> {
    in_order(interfaces)
        .flat_map(|interface| interface.addresses.iter().map(move |net| (interface, net)))
        .filter(|(_, net)| family.has_net(net) && is_global_unicast(&net.addr()))
        .map(|(interface, net)| format!("{net} on {}", interface.name))
        .collect()
}

fn excluded(more: &[String]) -> Result<Regex, MethodError> {
    let names: Vec<String> =
        EXCLUDED_INTERFACES.iter().map(|name| (*name).to_owned()).chain(more.iter().cloned()).collect();
    one_of(&names)
}

/// Builds one expression that matches if any of these matches. Each is compiled alone first, so that an error quotes it
/// as written.
fn one_of(names: &[String]) -> Result<Regex, MethodError> {
    let wrong = |name: &str, error: &regex::Error| MethodError::Expression {
        expression: name.to_owned(),
        reason: error.to_string().lines().last().unwrap_or_default().trim().to_owned(),
    };
    for name in names {
        Regex::new(name).map_err(|error| wrong(name, &error))?;
    }
    let joined = names.iter().map(|name| format!("(?:{name})")).collect::<Vec<_>>().join("|");
    Regex::new(&joined).map_err(|error| wrong(&joined, &error))
}

#[cfg(test)]
mod tests;
