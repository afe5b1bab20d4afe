//! What annotations of the pod and its namespace request, as values. No IO.

use crate::config::NetConf;
use crate::error::{CniError, Result, code};
use crate::wiring::Families;
use api::meta::StringMap;
use api::words::{
    FLOATING_IPS, HARDWARE_ADDRESS, IP_ADDRESSES, IP_ADDRESSES_NO_IPAM, IP_FAMILIES, IPV4_POOLS, IPV6_POOLS,
};
use netlink::MacAddress;
use std::net::IpAddr;

/// Where a pod's addresses come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AddressSource {
    /// The IPAM plugin chooses.
    Plugin,
    /// The IPAM plugin is asked for these addresses.
    Requested(Vec<IpAddr>),
    /// These addresses are used without asking an IPAM plugin.
    Unmanaged(Vec<IpAddr>),
}

/// Changes to the `ipam` part of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PoolChoice {
    /// Only from these IPv4 pools.
    pub(crate) ipv4_pools: Option<Vec<String>>,
    /// Only from these IPv6 pools.
    pub(crate) ipv6_pools: Option<Vec<String>>,
    /// Of these families.
    pub(crate) families: Option<Families>,
}

/// The pools and families that the pod, or else its namespace, requests.
///
/// # Errors
/// An annotation that is not a JSON list of strings, or names an unknown family.
pub(crate) fn pool_choice(pod: &StringMap, namespace: &StringMap) -> Result<PoolChoice> {
    let list = |name: &'static str| {
        let own = pod.get(name).filter(|text| !text.is_empty());
        match own.or_else(|| namespace.get(name).filter(|text| !text.is_empty())) {
            Some(text) => text_list(name, text).map(Some),
            None => Ok(None),
        }
    };
    let families = match list(IP_FAMILIES)? {
        None => None,
        Some(names) => {
            let unknown = names.iter().find(|name| *name != "IPv4" && *name != "IPv6");
            if let Some(unknown) = unknown {
                return Err(wrong(
                    IP_FAMILIES,
                    format!("error parsing ipFamilies: unknown family {unknown:?}"),
                ));
            }
            let has = |family: &str| names.iter().any(|name| name == family);
            Some(Families { v4: has("IPv4"), v6: has("IPv6") })
        }
    };
    Ok(PoolChoice { ipv4_pools: list(IPV4_POOLS)?, ipv6_pools: list(IPV6_POOLS)?, families })
}

/// Where the pod's addresses come from.
///
/// # Errors
/// Annotations that exclude each other, need a feature that is off, or do not name at most one address per family.
pub(crate) fn address_source(pod: &StringMap, conf: &NetConf) -> Result<AddressSource> {
    let given = |name: &str| pod.get(name).filter(|text| !text.is_empty());
    let (requested, unmanaged) = (given(IP_ADDRESSES), given(IP_ADDRESSES_NO_IPAM));
    let needs_calico_ipam = |short: &str, name: &'static str| {
        if conf.is_calico_ipam() {
            return Ok(());
        }
        Err(wrong(name, format!("{short} is not compatible with configured IPAM: {}", conf.ipam.kind)))
    };
    match (requested, unmanaged) {
        (None, None) => Ok(AddressSource::Plugin),
        (Some(_), Some(_)) => Err(wrong(
            IP_ADDRESSES,
            "can't have both annotations: 'ipAddrs' and 'ipAddrsNoIpam' in use at the same time".to_owned(),
        )),
        (Some(text), None) => {
            needs_calico_ipam("ipAddrs", IP_ADDRESSES)?;
            address_list(IP_ADDRESSES, text).map(AddressSource::Requested)
        }
        (None, Some(text)) => {
            needs_calico_ipam("ipAddrsNoIpam", IP_ADDRESSES_NO_IPAM)?;
            if !conf.feature_control.ip_addrs_no_ipam {
                return Err(wrong(
                    IP_ADDRESSES_NO_IPAM,
                    "requested feature is not enabled: ip_addrs_no_ipam".to_owned(),
                ));
            }
            address_list(IP_ADDRESSES_NO_IPAM, text).map(AddressSource::Unmanaged)
        }
    }
}

/// The hardware address that the pod requests.
///
/// # Errors
/// When the annotation is not a hardware address.
pub(crate) fn hardware_address(pod: &StringMap) -> Result<Option<MacAddress>> {
    let Some(text) = pod.get(HARDWARE_ADDRESS) else { return Ok(None) };
    let mac = text.parse().map_err(|error| {
        wrong(
            HARDWARE_ADDRESS,
            format!("failed to parse MAC address {text} provided via {HARDWARE_ADDRESS}: {error}"),
        )
    })?;
    Ok(Some(mac))
}

/// The floating addresses that the pod requests, as written.
///
/// # Errors
/// When the feature is off, or the annotation is not a list.
pub(crate) fn floating_ips(pod: &StringMap, conf: &NetConf) -> Result<Vec<String>> {
    let Some(text) = pod.get(FLOATING_IPS).filter(|text| !text.is_empty()) else { return Ok(Vec::new()) };
    if !conf.feature_control.floating_ips {
        return Err(wrong(FLOATING_IPS, "requested feature is not enabled: floating_ips".to_owned()));
    }
    text_list(FLOATING_IPS, text)
}

fn address_list(name: &'static str, text: &str) -> Result<Vec<IpAddr>> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for entry in text_list(name, text)? {
        let address: IpAddr =
            entry.parse().map_err(|_| wrong(name, format!("invalid IP format: {entry}")))?;
        if addresses.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
            let version = if address.is_ipv4() { "IPv4" } else { "IPv6" };
            return Err(wrong(
                name,
                format!("cannot have more than one {version} address for \"{name}\" annotation"),
            ));
        }
        addresses.push(address);
    }
    if addresses.is_empty() {
        return Err(wrong(name, format!("annotation \"{name}\" specified but empty")));
    }
    Ok(addresses)
}

fn text_list(name: &'static str, text: &str) -> Result<Vec<String>> {
    // Go reads `null` as the empty list.
    serde_json::from_str::<Option<Vec<String>>>(text)
        .map(Option::unwrap_or_default)
        .map_err(|error| wrong(name, format!("failed to parse '{text}' as JSON: {error}")))
}

fn wrong(name: &str, message: String) -> CniError {
    CniError::new(code::ANNOTATION, message)
        .with_details(format!("correct the annotation {name}, or allow it in the CNI configuration"))
}

#[cfg(test)]
mod tests {
    use super::{AddressSource, address_source, floating_ips, hardware_address, pool_choice};
    use crate::config::NetConf;
    use crate::wiring::Families;
    use api::meta::StringMap;
    use serde_json::json;

    fn map(pairs: &[(&str, &str)]) -> StringMap {
        pairs
            .iter()
            .map(|(name, value)| (format!("cni.projectcalico.org/{name}"), (*value).to_owned()))
            .collect()
    }

    fn conf(value: &serde_json::Value) -> NetConf {
        NetConf::parse(value).unwrap()
    }

    #[test]
    fn pools_of_the_pod_override_those_of_its_namespace() {
        let namespace = map(&[
            ("ipv4pools", r#"["a"]"#),
            ("ipv6pools", r#"["b"]"#),
            ("ipFamilies", r#"["IPv4","IPv6"]"#),
        ]);
        let pod = map(&[("ipv4pools", r#"["c"]"#), ("ipFamilies", r#"["IPv6"]"#)]);
        let choice = pool_choice(&pod, &namespace).unwrap();
        assert_eq!(choice.ipv4_pools, Some(vec!["c".to_owned()]));
        assert_eq!(choice.ipv6_pools, Some(vec!["b".to_owned()]));
        assert_eq!(choice.families, Some(Families { v4: false, v6: true }));
        assert!(pool_choice(&map(&[("ipFamilies", r#"["IPX"]"#)]), &StringMap::new()).is_err());
        assert!(pool_choice(&map(&[("ipv4pools", "a")]), &StringMap::new()).is_err());
    }

    #[test]
    fn where_addresses_come_from() {
        let calico = conf(&json!({"ipam": {"type": "calico-ipam"}}));
        let free =
            conf(&json!({"ipam": {"type": "calico-ipam"}, "feature_control": {"ip_addrs_no_ipam": true}}));
        let other = conf(&json!({"ipam": {"type": "host-local"}}));
        assert_eq!(address_source(&StringMap::new(), &other).unwrap(), AddressSource::Plugin);
        let requested = map(&[("ipAddrs", r#"["10.0.0.1", "fd00::1"]"#)]);
        assert_eq!(
            address_source(&requested, &calico).unwrap(),
            AddressSource::Requested(vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()])
        );
        let unmanaged = map(&[("ipAddrsNoIpam", r#"["10.0.0.1"]"#)]);
        assert!(matches!(address_source(&unmanaged, &free).unwrap(), AddressSource::Unmanaged(_)));
        for (annotations, conf, message) in [
            (&unmanaged, &calico, "requested feature is not enabled: ip_addrs_no_ipam"),
            (&requested, &other, "ipAddrs is not compatible with configured IPAM: host-local"),
            (
                &map(&[("ipAddrs", "[]")]),
                &calico,
                "annotation \"cni.projectcalico.org/ipAddrs\" specified but empty",
            ),
            (&map(&[("ipAddrs", r#"["x"]"#)]), &calico, "invalid IP format: x"),
            (&map(&[("ipAddrs", r#"["1.1.1.1","1.1.1.2"]"#)]), &calico, "cannot have more than one IPv4"),
            (&map(&[("ipAddrs", "[]"), ("ipAddrsNoIpam", "[]")]), &calico, "can't have both annotations"),
        ] {
            let error = address_source(annotations, conf).unwrap_err();
            assert!(error.msg.starts_with(message), "{error}");
        }
    }

    #[test]
    fn hardware_and_floating_addresses() {
        assert_eq!(
            hardware_address(&map(&[("hwAddr", "1c:0c:0a:c0:ff:ee")])).unwrap().unwrap().to_string(),
            "1c:0c:0a:c0:ff:ee"
        );
        assert!(hardware_address(&map(&[("hwAddr", "x")])).is_err());
        let on = conf(&json!({"feature_control": {"floating_ips": true}}));
        let annotations = map(&[("floatingIPs", r#"["1.2.3.4"]"#)]);
        assert_eq!(floating_ips(&annotations, &on).unwrap(), ["1.2.3.4"]);
        assert!(floating_ips(&annotations, &conf(&json!({}))).is_err());
    }
}
