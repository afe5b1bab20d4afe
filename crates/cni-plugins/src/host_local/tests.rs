//! The whole plugin on a folder of its own: what is assigned, stored and refused.

use super::{add, check, delete, resolver};
use cni_protocol::{Call, Environment};
use serde_json::{Value, json};
use std::path::Path;

fn call(command: &str, container: &str, args: &str, document: &Value) -> Call {
    let variables = [
        ("CNI_COMMAND", command),
        ("CNI_CONTAINERID", container),
        ("CNI_NETNS", "/var/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
        ("CNI_PATH", "/opt/cni/bin"),
        ("CNI_ARGS", args),
    ];
    let environment: Environment =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Call::read(&environment, document.to_string().as_bytes()).unwrap()
}

fn document(folder: &Path, ranges: &Value) -> Value {
    json!({
        "name": "net", "cniVersion": "1.0.0", "type": "bridge",
        "ipam": {"type": "host-local", "dataDir": folder, "ranges": ranges},
    })
}

fn addresses(container: &str, args: &str, document: &Value) -> Result<Vec<String>, String> {
    let result = add(&call("ADD", container, args, document)).map_err(|error| error.msg)?;
    Ok(result.ips.iter().map(|ip| ip.address.to_string()).collect())
}

#[test]
fn one_address_of_each_set_in_the_files_of_the_reference_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let mut conf = document(
        folder.path(),
        &json!([
            [{"subnet": "10.1.2.0/24"}, {"subnet": "10.2.2.0/24"}],
            [{"subnet": "2001:db8:1::/64", "rangeStart": "2001:db8:1::10"}]
        ]),
    );
    conf["ipam"]["routes"] = json!([{"dst": "0.0.0.0/0"}, {"dst": "192.168.0.0/16", "gw": "1.1.1.1"}]);
    let result = add(&call("ADD", "c1", "", &conf)).unwrap();
    let shown: Vec<_> =
        result.ips.iter().map(|ip| (ip.address.to_string(), ip.gateway.unwrap().to_string())).collect();
    assert_eq!(
        shown,
        [
            ("10.1.2.2/24".to_owned(), "10.1.2.1".to_owned()),
            ("2001:db8:1::10/64".to_owned(), "2001:db8:1::1".to_owned())
        ]
    );
    assert_eq!(result.routes.len(), 2);
    let file = |name: &str| std::fs::read_to_string(folder.path().join("net").join(name));
    assert_eq!(file("10.1.2.2").unwrap(), "c1\r\neth0");
    assert_eq!(file("last_reserved_ip.0").unwrap(), "10.1.2.2");
    assert_eq!(file("last_reserved_ip.1").unwrap(), "2001:db8:1::10");
    check(&call("CHECK", "c1", "", &conf)).unwrap();
    delete(&call("DEL", "c1", "", &conf)).unwrap();
    assert!(file("10.1.2.2").is_err() && file("2001:db8:1::10").is_err());
    let error = check(&call("CHECK", "c1", "", &conf)).unwrap_err();
    assert_eq!(error.msg, "host-local: Failed to find address added by container c1");
    // A second DEL finds nothing, which is not an error.
    delete(&call("DEL", "c1", "", &conf)).unwrap();
}

#[test]
fn addresses_are_assigned_in_a_circle_until_exhausted() {
    let folder = tempfile::tempdir().unwrap();
    // Two ranges of two addresses each; the gateway of the first is one of them.
    let conf = document(
        folder.path(),
        &json!([[
            {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.1", "rangeEnd": "10.1.0.2"},
            {"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.8", "rangeEnd": "10.2.0.9"}
        ]]),
    );
    assert_eq!(addresses("a", "", &conf).unwrap(), ["10.1.0.2/24"]);
    assert_eq!(addresses("b", "", &conf).unwrap(), ["10.2.0.8/24"]);
    delete(&call("DEL", "a", "", &conf)).unwrap();
    // The address after the last one, not the one that is free again.
    assert_eq!(addresses("c", "", &conf).unwrap(), ["10.2.0.9/24"]);
    assert_eq!(addresses("d", "", &conf).unwrap(), ["10.1.0.2/24"]);
    let error = addresses("e", "", &conf).unwrap_err();
    assert!(
        error.starts_with("failed to allocate for range 0: no IP addresses available in range set: "),
        "{error}"
    );
    let error = addresses("d", "", &conf).unwrap_err();
    assert!(
        error.contains("10.1.0.2 has been allocated to d, duplicate allocation is not allowed"),
        "{error}"
    );
}

#[test]
fn requested_addresses_from_all_three_places() {
    let folder = tempfile::tempdir().unwrap();
    let mut conf =
        document(folder.path(), &json!([[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]));
    assert_eq!(addresses("a", "IP=10.1.2.88", &conf).unwrap(), ["10.1.2.88/24", "10.1.3.2/24"]);
    conf["args"] = json!({"cni": {"ips": ["10.1.2.99/24"]}});
    conf["runtimeConfig"] = json!({"ips": ["10.1.3.77"]});
    assert_eq!(addresses("b", "", &conf).unwrap(), ["10.1.2.99/24", "10.1.3.77/24"]);
    let taken = addresses("c", "", &conf).unwrap_err();
    assert!(
        taken.contains("requested IP address 10.1.2.99 is not available in range set 10.1.2.1-10.1.2.254"),
        "{taken}"
    );
    let conf = document(folder.path(), &json!([[{"subnet": "10.1.2.0/24"}]]));
    let gateway = addresses("d", "IP=10.1.2.1", &conf).unwrap_err();
    assert!(gateway.contains("requested ip 10.1.2.1 is subnet's gateway"), "{gateway}");
    let elsewhere = addresses("e", "IP=10.9.9.9", &conf).unwrap_err();
    assert_eq!(elsewhere, "failed to allocate all requested IPs: 10.9.9.9");
    // What was assigned before the failure has been released.
    assert!(check(&call("CHECK", "e", "", &conf)).is_err());
}

#[test]
fn invalid_configurations_are_reported_like_in_the_reference_plugin() {
    let folder = tempfile::tempdir().unwrap();
    for (ranges, message) in [
        (json!([]), "no IP ranges specified"),
        (json!([[]]), "invalid range set 0: empty range set"),
        (json!([[{"subnet": "10.1.2.0/31"}]]), "Network 10.1.2.0/31 too small to allocate from"),
        (json!([[{"subnet": "10.1.2.3/24"}]]), "Network has host bits set."),
        (
            json!([[{"subnet": "10.1.2.0/24", "rangeStart": "10.1.3.1"}]]),
            "RangeStart 10.1.3.1 not in network 10.1.2.0/24",
        ),
        (
            json!([[{"subnet": "10.1.2.0/24", "rangeEnd": "10.1.3.1"}]]),
            "RangeEnd 10.1.3.1 not in network 10.1.2.0/24",
        ),
        (json!([[{"subnet": "10.1.2.0/24"}, {"subnet": "fd00::/64"}]]), "mixed address families"),
        (json!([[{"subnet": "10.1.2.0/24"}, {"subnet": "10.1.0.0/16"}]]), "overlap"),
        (json!([[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.0.0/16"}]]), "range set 0 overlaps with 1"),
    ] {
        let error = addresses("a", "", &document(folder.path(), &ranges)).unwrap_err();
        assert!(error.contains(message), "{error}, not {message}");
    }
    let mut old = document(folder.path(), &json!([[{"subnet": "10.1.2.0/24"}], [{"subnet": "10.1.3.0/24"}]]));
    old["cniVersion"] = json!("0.2.0");
    let error = addresses("a", "", &old).unwrap_err();
    assert_eq!(error, "CNI version 0.2.0 does not support more than 1 address per family");
    let missing = addresses("a", "", &json!({"name": "net", "cniVersion": "1.0.0"})).unwrap_err();
    assert_eq!(missing, "IPAM config missing 'ipam' key");
}

#[test]
fn an_old_style_range_and_a_file_without_an_interface() {
    let folder = tempfile::tempdir().unwrap();
    let conf = json!({
        "name": "net", "cniVersion": "0.2.0",
        "ipam": {"type": "host-local", "dataDir": folder.path(), "subnet": "10.1.2.0/24", "gateway": "10.1.2.9"},
    });
    assert_eq!(addresses("a", "", &conf).unwrap(), ["10.1.2.1/24"]);
    std::fs::write(folder.path().join("net/10.1.2.50"), "old").unwrap();
    check(&call("ADD", "old", "", &conf)).unwrap();
    delete(&call("DEL", "old", "", &conf)).unwrap();
    assert!(!folder.path().join("net/10.1.2.50").exists());
}

#[test]
fn a_resolver_configuration() {
    let dns = resolver(
        "# comment\n; another\nnameserver 192.0.2.1\nnameserver 192.0.2.2\ndomain example.com\nsearch a b\noptions x y\nnonsense\n",
    );
    assert_eq!(dns.nameservers, ["192.0.2.1", "192.0.2.2"]);
    assert_eq!(dns.domain, "example.com");
    assert_eq!(
        (dns.search, dns.options),
        (vec!["a".to_owned(), "b".to_owned()], vec!["x".to_owned(), "y".to_owned()])
    );
}
