//! What Calico adds to `host-local`: the node's ranges from Kubernetes (`usePodCidr`), and custom routes. No IO.

use crate::error::{CniError, Result, code};
use ipnet::IpNet;
use serde_json::Value;

const USE_POD_CIDR: &str = "usePodCidr";
const USE_POD_CIDR_V6: &str = "usePodCidrIPv6";

/// The node's ranges, at most one per family.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodCidrs {
    /// IPv4.
    pub(crate) v4: Option<String>,
    /// IPv6.
    pub(crate) v6: Option<String>,
}

impl PodCidrs {
    /// Placeholder ranges for DEL: `host-local` finds addresses by the container.
    #[must_use]
    pub(crate) fn placeholder() -> Self {
        Self { v4: Some("0.0.0.0/0".to_owned()), v6: Some("::/0".to_owned()) }
    }

    /// Sorts a node's ranges by family.
    ///
    /// # Errors
    /// When a range is not valid, or there are two of one family.
    pub(crate) fn of(ranges: &[String]) -> Result<Self> {
        let mut found = Self::default();
        for range in ranges {
            let net: IpNet = range.parse().map_err(|_| {
                CniError::new(code::NODE_NOT_READY, format!("the node's pod range {range:?} is not a range"))
            })?;
            let slot = if net.addr().is_ipv4() { &mut found.v4 } else { &mut found.v6 };
            *slot = Some(range.clone());
        }
        if ranges.len() > 1 && (found.v4.is_none() || found.v6.is_none()) {
            return Err(CniError::new(
                code::NODE_NOT_READY,
                "ClusterCIDR contains two ranges of the same type",
            ));
        }
        Ok(found)
    }
}

/// Whether the configuration requires the node's ranges.
#[must_use]
pub(crate) fn needs_pod_cidrs(document: &Value) -> bool {
    subnets(document).any(|subnet| {
        subnet.eq_ignore_ascii_case(USE_POD_CIDR) || subnet.eq_ignore_ascii_case(USE_POD_CIDR_V6)
    })
}

fn subnets(document: &Value) -> impl Iterator<Item = &str> {
    let ipam = document.get("ipam");
    let ranges = ipam.and_then(|ipam| ipam.get("ranges")).and_then(Value::as_array);
    let nested = ranges.into_iter().flatten().filter_map(Value::as_array).flatten();
    ipam.into_iter().chain(nested).filter_map(|part| part.get("subnet")?.as_str())
}

/// Inserts the node's ranges.
///
/// # Errors
/// When a part has an unexpected type, or the node has no range of a required family.
pub(crate) fn replace_pod_cidrs(document: &mut Value, cidrs: &PodCidrs) -> Result<()> {
    let wrong = |what: &str, value: &Value| {
        let message = format!("failed to parse host-local IPAM {what}, not: {value}");
        CniError::new(code::INVALID_CONFIGURATION, message)
    };
    let Some(ipam) = document.get_mut("ipam").filter(|ipam| ipam.is_object()) else {
        return Err(wrong("data; was expecting a dict", &Value::Null));
    };
    replace_one(ipam, cidrs)?;
    let Some(ranges) = ipam.get_mut("ranges").filter(|ranges| !ranges.is_null()) else { return Ok(()) };
    let shown = ranges.clone();
    let sets = ranges.as_array_mut().ok_or_else(|| wrong("ranges section; was expecting a list", &shown))?;
    for set in sets {
        let shown = set.clone();
        let set = set.as_array_mut().ok_or_else(|| wrong("range set; was expecting a list", &shown))?;
        for range in set {
            if !range.is_object() {
                return Err(wrong("data; was expecting a dict", range));
            }
            replace_one(range, cidrs)?;
        }
    }
    Ok(())
}

fn replace_one(part: &mut Value, cidrs: &PodCidrs) -> Result<()> {
    let Some(subnet) = part.get("subnet").and_then(Value::as_str) else { return Ok(()) };
    let missing = |word: &str, family: &str| {
        CniError::new(code::NODE_NOT_READY, format!("{word} found but there is no {family} CIDR configured"))
    };
    let replacement = if subnet.eq_ignore_ascii_case(USE_POD_CIDR) {
        cidrs.v4.clone().ok_or_else(|| missing(USE_POD_CIDR, "IPv4"))?
    } else if subnet.eq_ignore_ascii_case(USE_POD_CIDR_V6) {
        cidrs.v6.clone().ok_or_else(|| missing(USE_POD_CIDR_V6, "IPv6"))?
    } else {
        return Ok(());
    };
    if let Some(fields) = part.as_object_mut() {
        fields.insert("subnet".to_owned(), replacement.into());
    }
    Ok(())
}

/// The custom routes of the configuration; gateways are ignored, because there is only one.
///
/// # Errors
/// When the routes have an unexpected form.
pub(crate) fn custom_routes(document: &Value) -> Result<Vec<IpNet>> {
    let Some(routes) =
        document.get("ipam").and_then(|ipam| ipam.get("routes")).filter(|routes| !routes.is_null())
    else {
        return Ok(Vec::new());
    };
    let wrong = |message: String| CniError::new(code::INVALID_CONFIGURATION, message);
    let Some(routes) = routes.as_array() else {
        let message =
            format!("failed to parse host-local IPAM routes section; expecting list, not: {routes}");
        return Err(wrong(message));
    };
    let mut found = Vec::new();
    for route in routes {
        let Some(destination) = route.get("dst") else { continue };
        let Some(text) = destination.as_str() else {
            let message =
                format!("invalid IPAM routes section; expecting 'dst' to be a string, not: {destination}");
            return Err(wrong(message));
        };
        let net: IpNet =
            text.parse().map_err(|error| wrong(format!("route {text:?} of the IPAM section: {error}")))?;
        found.push(net.trunc());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{PodCidrs, custom_routes, needs_pod_cidrs, replace_pod_cidrs};
    use serde_json::json;

    #[test]
    fn ranges_are_inserted_everywhere() {
        let mut document = json!({"name": "n", "ipam": {"type": "host-local", "subnet": "usePodCidr",
            "ranges": [[{"subnet": "USEPODCIDR", "x": 1}], [{"subnet": "usePodCidrIPv6"}], [{"subnet": "10.9.0.0/24"}]]}});
        assert!(needs_pod_cidrs(&document));
        let cidrs = PodCidrs::of(&["10.1.0.0/24".to_owned(), "fd00::/64".to_owned()]).unwrap();
        replace_pod_cidrs(&mut document, &cidrs).unwrap();
        assert_eq!(
            document["ipam"],
            json!({"type": "host-local", "subnet": "10.1.0.0/24",
                "ranges": [[{"subnet": "10.1.0.0/24", "x": 1}], [{"subnet": "fd00::/64"}], [{"subnet": "10.9.0.0/24"}]]})
        );
        assert!(!needs_pod_cidrs(&document));
    }

    #[test]
    fn mistakes_are_reported() {
        let v4_only = PodCidrs::of(&["10.1.0.0/24".to_owned()]).unwrap();
        for (mut document, message) in [
            (
                json!({"ipam": {"subnet": "usePodCidrIPv6"}}),
                "usePodCidrIPv6 found but there is no IPv6 CIDR configured",
            ),
            (json!({"ipam": 1}), "failed to parse host-local IPAM data; was expecting a dict"),
            (
                json!({"ipam": {"ranges": {}}}),
                "failed to parse host-local IPAM ranges section; was expecting a list",
            ),
            (
                json!({"ipam": {"ranges": [1]}}),
                "failed to parse host-local IPAM range set; was expecting a list",
            ),
        ] {
            let error = replace_pod_cidrs(&mut document, &v4_only).unwrap_err();
            assert!(error.msg.starts_with(message), "{error}");
        }
        let two = ["10.1.0.0/24".to_owned(), "10.2.0.0/24".to_owned()];
        assert!(PodCidrs::of(&two).unwrap_err().msg.contains("two ranges of the same type"));
    }

    #[test]
    fn routes_of_the_configuration() {
        let document =
            json!({"ipam": {"routes": [{"dst": "10.1.2.3/16", "gw": "1.1.1.1"}, {"gw": "1.1.1.1"}]}});
        assert_eq!(custom_routes(&document).unwrap(), ["10.1.0.0/16".parse().unwrap()]);
        assert!(custom_routes(&json!({"ipam": {"routes": {}}})).is_err());
        assert!(custom_routes(&json!({"ipam": {"routes": [{"dst": 5}]}})).is_err());
        assert!(custom_routes(&json!({"ipam": {}})).unwrap().is_empty());
    }
}
