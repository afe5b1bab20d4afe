//! Combines the configured, the stored and the detected addresses of the node.
//!
//! | `IP` / `IP6` | IPv4 | IPv6 |
//! | --- | --- | --- |
//! | not set | the stored one, else detected | the stored one |
//! | `autodetect` | detected; the stored one if that fails | the same |
//! | `none` | the stored one | the same |
//! | an address | that one, with its interface's network | that one as given |

use crate::autodetect::{DetectError, Facts, Interface, Method, detect, reported, with_network};
use crate::environment::{AddressSetting, FamilySettings, Settings};
use api::scalars::IpOrCidr;
use api::{Node, NodeInterface};
use model::IpVersion;

/// Facts from the host and Kubernetes, for both families.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostFacts<'a> {
    /// For detecting IPv4.
    pub ipv4: Facts<'a>,
    /// For detecting IPv6.
    pub ipv6: Facts<'a>,
}

/// The addresses that the node should have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Addresses {
    /// IPv4, with its network; empty for none.
    pub ipv4: IpOrCidr,
    /// IPv6, with its network; empty for none.
    pub ipv6: IpOrCidr,
    /// Problems to report to the user that do not stop the node.
    pub warnings: Vec<String>,
}

/// Why the addresses could not be determined.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Autodetection failed, and nothing is stored.
    #[error(
        "failed to autodetect an IPv{family} address with {variable}={method}: {source}. Choose another method in {variable}, \
         or set {address_variable} to the address itself"
    )]
    NotDetected {
        /// The address family.
        family: IpVersion,
        /// The variable of the method.
        variable: &'static str,
        /// The method as written.
        method: String,
        /// The variable of the address.
        address_variable: &'static str,
        /// The reason.
        #[source]
        source: Box<DetectError>,
    },
    /// The configured value is not an address of the family.
    #[error("{variable}={value} is not an IPv{family} address or CIDR: {reason}")]
    Given {
        /// The address family.
        family: IpVersion,
        /// The name of the variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The stored value is not an address.
    #[error(
        "the stored IPv{family} address of the node, '{value}', cannot be read: {reason}. Set {variable} to replace it"
    )]
    Stored {
        /// The address family.
        family: IpVersion,
        /// The stored value.
        value: String,
        /// What is wrong with it.
        reason: String,
        /// The variable that could replace it.
        variable: &'static str,
    },
    /// Networking requires an address.
    #[error(
        "no IPv4 or IPv6 addresses configured or detected, required for Calico networking: set IP or IP6 to an address or \
         to autodetect, or CALICO_NETWORKING_BACKEND=none if Calico only enforces policy"
    )]
    None,
}

/// Determines both addresses.
///
/// # Errors
/// When a required address is missing or invalid.
pub(crate) fn settle(
    settings: &Settings,
    node: &Node,
    facts: &HostFacts<'_>,
) -> Result<Addresses, AddressError> {
    let empty = IpOrCidr::default();
    let stored =
        node.spec.bgp.as_ref().map_or((&empty, &empty), |bgp| (&bgp.ipv4_address, &bgp.ipv6_address));
    let mut addresses = Addresses::default();
    let warnings = &mut addresses.warnings;
    let ipv4 = Choice {
        family: IpVersion::V4,
        settings: settings.family(IpVersion::V4),
        stored: stored.0,
        facts: &facts.ipv4,
    };
    addresses.ipv4 = ipv4.settle(warnings)?;
    let ipv6 = Choice {
        family: IpVersion::V6,
        settings: settings.family(IpVersion::V6),
        stored: stored.1,
        facts: &facts.ipv6,
    };
    addresses.ipv6 = ipv6.settle(warnings)?;
    if addresses.ipv4.is_empty() && addresses.ipv6.is_empty() {
        return Err(AddressError::None);
    }
    Ok(addresses)
}

/// The interfaces that the node's resource lists: of the families whose address is detected or configured.
///
/// # Errors
/// Never: the expressions are ours.
pub(crate) fn interfaces(
    settings: &Settings,
    interfaces: &[Interface],
) -> Result<Vec<NodeInterface>, DetectError> {
    let families: Vec<IpVersion> = IpVersion::BOTH
        .into_iter()
        .filter(|version| settings.family(*version).address.lists_interfaces())
        .collect();
    if families.is_empty() {
        return Ok(Vec::new());
    }
    let told = reported(interfaces, &families)?.into_iter().map(|interface| NodeInterface {
        name: interface.name,
        addresses: interface.addresses.iter().map(|net| net.addr().to_string()).collect(),
        ..NodeInterface::default()
    });
    Ok(told.collect())
}

/// Determines the address of one family.
struct Choice<'a> {
    family: IpVersion,
    settings: FamilySettings<'a>,
    stored: &'a IpOrCidr,
    facts: &'a Facts<'a>,
}

impl Choice<'_> {
    fn settle(&self, warnings: &mut Vec<String>) -> Result<IpOrCidr, AddressError> {
        match self.settings.address {
            AddressSetting::Autodetect => self.detected(warnings),
            // IPv4 is detected even if this is not configured, as long as nothing is stored.
            AddressSetting::Unset if self.family == IpVersion::V4 && self.stored.is_empty() => {
                self.detected(warnings)
            }
            AddressSetting::Unset | AddressSetting::Leave => self.kept(warnings),
            AddressSetting::Given(text) => self.given(text, warnings),
        }
    }

    fn detected(&self, warnings: &mut Vec<String>) -> Result<IpOrCidr, AddressError> {
        let outcome = Method::parse(self.settings.method)
            .map_err(DetectError::from)
            .and_then(|method| detect(&method, self.family, self.facts));
        match outcome {
            Ok(net) => Ok(net.to_string().into()),
            Err(error) => {
                let is_no_method = matches!(&error, DetectError::Method(error) if error.is_unknown());
                if self.stored.is_empty() || is_no_method {
                    let (address_variable, variable) = self.variables();
                    return Err(AddressError::NotDetected {
                        family: self.family,
                        variable,
                        method: self.settings.method.to_owned(),
                        address_variable,
                        source: Box::new(error),
                    });
                }
                warnings.push(format!(
                    "autodetection of the IPv{} address failed, keeping {}: {error}",
                    self.family, self.stored
                ));
                self.kept(warnings)
            }
        }
    }

    fn kept(&self, warnings: &mut Vec<String>) -> Result<IpOrCidr, AddressError> {
        if self.stored.is_empty() {
            return Ok(IpOrCidr::default());
        }
        let network = self.stored.parse().map_err(|reason| AddressError::Stored {
            family: self.family,
            value: self.stored.to_string(),
            reason,
            variable: self.variables().0,
        })?;
        self.confirm(network.address(), warnings);
        Ok(self.stored.clone())
    }

    fn given(&self, text: &str, warnings: &mut Vec<String>) -> Result<IpOrCidr, AddressError> {
        let wrong = |reason: String| AddressError::Given {
            family: self.family,
            variable: self.variables().0,
            value: text.to_owned(),
            reason,
        };
        let network = IpOrCidr::from(text).parse().map_err(wrong)?;
        if !self.family.has(&network.address()) {
            return Err(wrong("it is of the other family".to_owned()));
        }
        self.confirm(network.address(), warnings);
        // A bare IPv4 address gets the network of its interface: without one, every peer would look remote.
        let complete = if self.family == IpVersion::V4 && !text.contains('/') {
            with_network(self.facts.interfaces, network.address())
        } else {
            None
        };
        Ok(complete.unwrap_or_else(|| network.as_written()).to_string().into())
    }

    fn confirm(&self, address: std::net::IpAddr, warnings: &mut Vec<String>) {
        if with_network(self.facts.interfaces, address).is_none() {
            warnings.push(format!("unable to confirm that {address} is an address of this host"));
        }
    }

    /// The variables of the address and of the method.
    fn variables(&self) -> (&'static str, &'static str) {
        match self.family {
            IpVersion::V4 => ("IP", "IP_AUTODETECTION_METHOD"),
            IpVersion::V6 => ("IP6", "IP6_AUTODETECTION_METHOD"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::node_with;
    use daemon::Variables;

    fn host() -> Vec<Interface> {
        let net = |text: &str| text.parse().expect("a network");
        vec![
            Interface { index: 1, name: "lo".into(), addresses: vec![net("127.0.0.1/8")] },
            Interface {
                index: 2,
                name: "eth0".into(),
                addresses: vec![net("10.0.0.5/24"), net("fd00::5/64")],
            },
        ]
    }

    fn decide(
        variables: &[(&str, &str)],
        stored: (&str, &str),
        interfaces: &[Interface],
    ) -> Result<Addresses, AddressError> {
        let settings = Settings::read(&Variables::new(variables.iter().copied())).expect("usable variables");
        let facts = Facts { interfaces, ..Facts::default() };
        settle(&settings, &node_with(stored.0, stored.1), &HostFacts { ipv4: facts.clone(), ipv6: facts })
    }

    #[test]
    fn every_setting_works_with_and_without_a_stored_address() {
        let interfaces = host();
        for (variables, stored, expected) in [
            (vec![], ("", ""), ("10.0.0.5/24", "")),
            (vec![], ("10.0.0.7/24", "fd00::7/64"), ("10.0.0.7/24", "fd00::7/64")),
            (vec![("IP", "autodetect")], ("10.0.0.7/24", ""), ("10.0.0.5/24", "")),
            (vec![("IP6", "autodetect")], ("10.0.0.7/24", ""), ("10.0.0.7/24", "fd00::5/64")),
            (vec![("IP", "none"), ("IP6", "autodetect")], ("", ""), ("", "fd00::5/64")),
            (vec![("IP", "none")], ("10.0.0.7/24", ""), ("10.0.0.7/24", "")),
            // A bare address gets its interface's network; one with a network keeps it.
            (vec![("IP", "10.0.0.5")], ("", ""), ("10.0.0.5/24", "")),
            (vec![("IP", "10.0.0.5/16")], ("10.0.0.7/24", ""), ("10.0.0.5/16", "")),
            (vec![("IP", "10.9.9.9")], ("", ""), ("10.9.9.9/32", "")),
            (vec![("IP6", "fd00::5")], ("", ""), ("10.0.0.5/24", "fd00::5/128")),
            // A failed detection keeps the stored address.
            (
                vec![("IP", "autodetect"), ("IP_AUTODETECTION_METHOD", "interface=wlan0")],
                ("10.0.0.7/24", ""),
                ("10.0.0.7/24", ""),
            ),
        ] {
            let found = decide(&variables, stored, &interfaces).expect("addresses");
            assert_eq!((found.ipv4.as_str(), found.ipv6.as_str()), expected, "{variables:?} {stored:?}");
        }
    }

    #[test]
    fn an_unconfirmed_address_is_reported() {
        let interfaces = host();
        let found = decide(&[("IP", "10.9.9.9/24")], ("", ""), &interfaces).expect("addresses");
        assert_eq!(found.warnings, ["unable to confirm that 10.9.9.9 is an address of this host"]);
        let found = decide(&[("IP", "10.0.0.5")], ("", ""), &interfaces).expect("addresses");
        assert_eq!(found.warnings, Vec::<String>::new());
    }

    #[test]
    fn errors_name_the_variable_and_the_remedy() {
        let interfaces = host();
        for (variables, stored, expected) in [
            (vec![("IP", "ten")], ("", ""), "IP=ten is not an IPv4 address"),
            (vec![("IP", "fd00::5")], ("", ""), "other family"),
            (vec![("IP6", "10.0.0.5")], ("", ""), "IP6=10.0.0.5 is not an IPv6 address"),
            (vec![("IP", "none")], ("", ""), "no IPv4 or IPv6 addresses configured or detected"),
            (
                vec![("IP", "autodetect"), ("IP_AUTODETECTION_METHOD", "interface=wlan0")],
                ("", ""),
                "with IP_AUTODETECTION_METHOD=interface=wlan0",
            ),
            // An invalid method stops even a node that has an address.
            (
                vec![("IP", "autodetect"), ("IP_AUTODETECTION_METHOD", "guess")],
                ("10.0.0.7/24", ""),
                "there is no autodetection method 'guess'",
            ),
            (vec![], ("10.0.0.300", ""), "cannot be read"),
        ] {
            let error = decide(&variables, stored, &interfaces).expect_err("a refusal").to_string();
            assert!(error.contains(expected), "{variables:?}: {error}");
        }
    }

    #[test]
    fn interfaces_of_configured_families_are_listed() {
        let interfaces = host();
        let told = |variables: &[(&str, &str)]| {
            let settings =
                Settings::read(&Variables::new(variables.iter().copied())).expect("usable variables");
            let told = super::interfaces(&settings, &interfaces).expect("interfaces");
            told.into_iter().map(|interface| interface.addresses.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(told(&[]), Vec::<String>::new());
        assert_eq!(told(&[("IP", "none")]), Vec::<String>::new());
        assert_eq!(told(&[("IP", "autodetect")]), ["10.0.0.5"]);
        assert_eq!(told(&[("IP6", "fd00::5")]), ["fd00::5"]);
        assert_eq!(told(&[("IP", "10.0.0.5"), ("IP6", "autodetect")]), ["10.0.0.5 fd00::5"]);
    }
}
