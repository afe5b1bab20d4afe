//! A Service, reduced to the fields that determine its addresses, and the addresses that it requests.

use crate::informer::kinds::null_as_default;
use crate::informer::{ObjectKey, Slim, Strings, Taken};
use api::AssignIPs;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ipnet::IpNet;
use kube_access::cluster::Collection;
use model::{HandleId, IpVersion};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use std::net::IpAddr;
use std::sync::Arc;

/// The class by which a service selects us.
const CLASS: &str = "calico";
/// The type of services that get addresses.
pub(crate) const LOAD_BALANCER: &str = "LoadBalancer";

/// The longest handle.
const HANDLE_LIMIT: usize = 253;

/// The fields of a Service that are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Service {
    /// The uid of the Service.
    pub uid: Box<str>,
    /// `spec.type`.
    pub kind: Arc<str>,
    /// `spec.loadBalancerClass`.
    pub class: Option<Arc<str>>,
    /// `spec.loadBalancerIP`.
    pub address: Box<str>,
    /// `spec.ipFamilies`.
    pub families: Box<[IpVersion]>,
    /// The annotation `projectcalico.org/ipv4pools`.
    pub pools4: Option<Box<str>>,
    /// The annotation `projectcalico.org/ipv6pools`.
    pub pools6: Option<Box<str>>,
    /// The annotation `projectcalico.org/loadBalancerIPs`.
    pub addresses: Option<Box<str>>,
    /// The addresses in `status.loadBalancer.ingress`; empty for entries without one.
    pub ingress: Box<[Box<str>]>,
}

/// The fields of a Service that are decoded.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WireService {
    metadata: WireMeta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireMeta {
    namespace: String,
    name: String,
    uid: String,
    #[serde(rename = "resourceVersion")]
    revision: String,
    #[serde(deserialize_with = "null_as_default")]
    annotations: WireAnnotations,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireAnnotations {
    #[serde(rename = "projectcalico.org/ipv4pools")]
    pools4: Option<String>,
    #[serde(rename = "projectcalico.org/ipv6pools")]
    pools6: Option<String>,
    #[serde(rename = "projectcalico.org/loadBalancerIPs")]
    addresses: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    #[serde(rename = "type")]
    kind: String,
    #[serde(rename = "loadBalancerClass")]
    class: Option<String>,
    #[serde(rename = "loadBalancerIP")]
    address: String,
    #[serde(rename = "ipFamilies", deserialize_with = "null_as_default")]
    families: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireStatus {
    #[serde(rename = "loadBalancer", deserialize_with = "null_as_default")]
    load_balancer: WireLoadBalancer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireLoadBalancer {
    #[serde(deserialize_with = "null_as_default")]
    ingress: Vec<WireIngress>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct WireIngress {
    ip: String,
}

impl Slim for Service {
    const COLLECTION: Collection = Collection { prefix: "/api/v1", plural: "services" };
    type Wire = WireService;

    fn take(wire: WireService, strings: &mut Strings) -> Taken<Self> {
        let WireService { metadata, spec, status } = wire;
        let boxed = |text: Option<String>| text.map(String::into_boxed_str);
        let family = |text: &String| match text.as_str() {
            "IPv4" => Some(IpVersion::V4),
            "IPv6" => Some(IpVersion::V6),
            _ => None,
        };
        let object = Self {
            uid: metadata.uid.into_boxed_str(),
            kind: strings.share(&spec.kind),
            class: spec.class.map(|class| strings.share(&class)),
            address: spec.address.into_boxed_str(),
            families: spec.families.iter().filter_map(family).collect(),
            pools4: boxed(metadata.annotations.pools4),
            pools6: boxed(metadata.annotations.pools6),
            addresses: boxed(metadata.annotations.addresses),
            ingress: status
                .load_balancer
                .ingress
                .into_iter()
                .map(|entry| entry.ip.into_boxed_str())
                .collect(),
        };
        let key =
            ObjectKey { namespace: strings.share(&metadata.namespace), name: metadata.name.as_str().into() };
        Taken { key, revision: metadata.revision, object }
    }
}

impl Service {
    /// Whether Calico assigns this service's addresses.
    #[must_use]
    pub(crate) fn is_ours(&self, assign: &AssignIPs) -> bool {
        if &*self.kind != LOAD_BALANCER {
            return false;
        }
        let is_other = self.class.as_deref().is_some_and(|class| class != CLASS);
        match assign {
            AssignIPs::RequestedServicesOnly => {
                let asks = |text: &Option<Box<str>>| text.as_deref().is_some_and(|text| !text.is_empty());
                let has_request = asks(&self.pools4)
                    || asks(&self.pools6)
                    || asks(&self.addresses)
                    || !self.address.is_empty();
                !is_other && (self.class.is_some() || has_request)
            }
            AssignIPs::AllServices | AssignIPs::Unset => !is_other,
            // Nothing is assigned because of an unknown word.
            _ => false,
        }
    }

    /// The handle of the service's addresses. It includes the uid, so that a later service of the same name is a
    /// different one.
    #[must_use]
    pub(crate) fn handle(&self, key: &ObjectKey) -> HandleId {
        let name = format!("{}-{}-{}", key.name, key.namespace, self.uid).to_lowercase();
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(name.as_bytes()));
        let mut handle = format!("lb-{}", hash.replace(['-', '_', '.'], ""));
        handle.truncate(HANDLE_LIMIT);
        handle.into()
    }

    /// The addresses that the service requests.
    ///
    /// # Errors
    /// When an annotation cannot be parsed: then nothing is assigned or released.
    pub(crate) fn wish(&self, pools: &[LoadBalancerPool]) -> Result<Wish, WishError> {
        let pools4 = self.pools4.as_deref().map(|text| resolve(text, "ipv4pools", pools, IpVersion::V4));
        let pools6 = self.pools6.as_deref().map(|text| resolve(text, "ipv6pools", pools, IpVersion::V6));
        let (pools4, pools6) = (pools4.transpose()?, pools6.transpose()?);
        let mut addresses = match self.addresses.as_deref() {
            Some(text) => addresses_of(text)?,
            None => Vec::new(),
        };
        if addresses.is_empty() && !self.address.is_empty() {
            let address = self.address.parse().map_err(|_| WishError::Address(self.address.to_string()))?;
            addresses.push(address);
        }
        Ok(if !addresses.is_empty() {
            Wish::These(addresses)
        } else if pools4.is_some() || pools6.is_some() {
            Wish::From { pools4: pools4.unwrap_or_default(), pools6: pools6.unwrap_or_default() }
        } else {
            Wish::Any
        })
    }
}

/// A pool for load balancers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoadBalancerPool {
    /// Its name.
    pub name: String,
    /// Its addresses.
    pub cidr: IpNet,
    /// Whether it is used only on request.
    pub is_manual: bool,
}

/// What a service asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// These addresses.
    These(Vec<IpAddr>),
    /// Any address of these pools; of all pools in a family without any.
    From {
        /// IPv4 pools.
        pools4: Vec<IpNet>,
        /// IPv6 pools.
        pools6: Vec<IpNet>,
    },
    /// Any address of a pool that is not only for requests.
    Any,
}

/// Why a request cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WishError {
    /// An annotation is not a JSON list of texts.
    #[error("the annotation projectcalico.org/{annotation} is not a JSON list of texts: {reason}")]
    NotAList {
        /// The annotation.
        annotation: &'static str,
        /// The parser's error.
        reason: String,
    },
    /// A pool is neither a range nor a known name.
    #[error(
        "the annotation projectcalico.org/{annotation} names {pool:?}, which is not a pool for load balancers"
    )]
    NoPool {
        /// The annotation.
        annotation: &'static str,
        /// Its value.
        pool: String,
    },
    /// A pool is of the other family.
    #[error("the annotation projectcalico.org/{annotation} names {pool}, which is not IPv{version}")]
    OtherFamily {
        /// The annotation.
        annotation: &'static str,
        /// The pool.
        pool: IpNet,
        /// The required family.
        version: IpVersion,
    },
    /// An address cannot be parsed.
    #[error("{0:?} is not an address")]
    Address(String),
    /// There are too many addresses.
    #[error("at most one IPv4 and one IPv6 address can be requested, not {0} and {1}")]
    TooMany(usize, usize),
}

fn list(text: &str, annotation: &'static str) -> Result<Vec<String>, WishError> {
    let read = serde_json::from_str::<Option<Vec<String>>>(text).map(Option::unwrap_or_default);
    read.map_err(|error| WishError::NotAList { annotation, reason: error.to_string() })
}

fn resolve(
    text: &str,
    annotation: &'static str,
    pools: &[LoadBalancerPool],
    version: IpVersion,
) -> Result<Vec<IpNet>, WishError> {
    let mut ranges = Vec::new();
    for name in list(text, annotation)? {
        let range = match name.parse::<IpNet>() {
            Ok(range) => range.trunc(),
            Err(_) => match pools.iter().find(|pool| pool.name == name) {
                Some(pool) => pool.cidr,
                None => return Err(WishError::NoPool { annotation, pool: name }),
            },
        };
        if IpVersion::of(&range) != version {
            return Err(WishError::OtherFamily { annotation, pool: range, version });
        }
        ranges.push(range);
    }
    Ok(ranges)
}

fn addresses_of(text: &str) -> Result<Vec<IpAddr>, WishError> {
    let parse = |text: String| text.parse::<IpAddr>().map_err(|_| WishError::Address(text));
    let addresses: Vec<IpAddr> =
        list(text, "loadBalancerIPs")?.into_iter().map(parse).collect::<Result<_, _>>()?;
    let six = addresses.iter().filter(|address| address.is_ipv6()).count();
    let four = addresses.len() - six;
    if six > 1 || four > 1 {
        return Err(WishError::TooMany(four, six));
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(change: impl FnOnce(&mut Service)) -> Service {
        let mut service = Service { kind: LOAD_BALANCER.into(), ..Service::default() };
        change(&mut service);
        service
    }

    #[test]
    fn handles_are_calicos() {
        let service = Service { uid: "UID-1".into(), ..Service::default() };
        let handle = service.handle(&ObjectKey::new("Default", "Web"));
        let hash = URL_SAFE_NO_PAD.encode(Sha256::digest(b"web-default-uid-1")).replace(['-', '_'], "");
        assert_eq!(*handle, format!("lb-{hash}"));
        assert!(handle.len() > 30 && !handle[3..].contains('-'));
    }

    #[test]
    fn it_is_determined_which_services_are_ours() {
        let all = AssignIPs::AllServices;
        let requested = AssignIPs::RequestedServicesOnly;
        for (service, in_all, in_requested) in [
            (service(|_| {}), true, false),
            (service(|service| service.kind = "ClusterIP".into()), false, false),
            (service(|service| service.class = Some("calico".into())), true, true),
            (service(|service| service.class = Some("other".into())), false, false),
            (service(|service| service.pools4 = Some("[\"p\"]".into())), true, true),
            (service(|service| service.addresses = Some("".into())), true, false),
            (service(|service| service.address = "10.0.0.1".into()), true, true),
            (
                service(|service| {
                    service.class = Some("other".into());
                    service.address = "10.0.0.1".into();
                }),
                false,
                false,
            ),
        ] {
            assert_eq!(
                (service.is_ours(&all), service.is_ours(&requested)),
                (in_all, in_requested),
                "{service:?}"
            );
        }
        assert!(!service(|_| {}).is_ours(&AssignIPs::from("Later")));
    }

    #[test]
    fn requests_are_parsed_strictly() {
        let pools = [
            LoadBalancerPool {
                name: "four".into(),
                cidr: "10.0.0.0/24".parse().expect("a range"),
                is_manual: false,
            },
            LoadBalancerPool {
                name: "six".into(),
                cidr: "fd00::/64".parse().expect("a range"),
                is_manual: true,
            },
        ];
        let with = |pools4: &str, pools6: &str, addresses: &str, address: &str| {
            let text = |text: &str| (!text.is_empty()).then(|| text.into());
            let service = Service {
                pools4: text(pools4),
                pools6: text(pools6),
                addresses: text(addresses),
                address: address.into(),
                ..Service::default()
            };
            service.wish(&pools).map_err(|error| error.to_string())
        };
        let range = |text: &str| text.parse().expect("a range");
        let address = |text: &str| text.parse().expect("an address");
        assert_eq!(with("", "", "", ""), Ok(Wish::Any));
        assert_eq!(
            with("[\"four\",\"10.9.0.7/16\"]", "[\"six\"]", "", ""),
            Ok(Wish::From {
                pools4: vec![range("10.0.0.0/24"), range("10.9.0.0/16")],
                pools6: vec![range("fd00::/64")]
            })
        );
        assert_eq!(
            with("", "", "[\"10.0.0.1\",\"fd00::1\"]", "9.9.9.9"),
            Ok(Wish::These(vec![address("10.0.0.1"), address("fd00::1")]))
        );
        assert_eq!(with("", "", "[]", "9.9.9.9"), Ok(Wish::These(vec![address("9.9.9.9")])));
        for (outcome, words) in [
            (with("[\"six\"]", "", "", ""), "not IPv4"),
            (with("[\"none\"]", "", "", ""), "not a pool for load balancers"),
            (with("four", "", "", ""), "not a JSON list"),
            (with("", "", "[\"x\"]", ""), "not an address"),
            (with("", "", "[\"10.0.0.1\",\"10.0.0.2\"]", ""), "at most one"),
            (with("", "", "", "nine"), "not an address"),
        ] {
            let error = outcome.expect_err(words);
            assert!(error.contains(words), "{error}");
        }
    }
}
