//! Results in all versions, compared with the output of Calico's plugin.

use super::{CniResult, Interface, Ip, Route};
use crate::version::{CniVersion, SUPPORTED};
use serde_json::Value;

fn sample() -> CniResult {
    CniResult {
        interfaces: vec![
            Interface { name: "calic1".into(), ..Interface::default() },
            Interface {
                name: "eth0".into(),
                mac: "22:ad:ae:e3:b4:9b".into(),
                mtu: 1450,
                sandbox: "/var/run/netns/cap-c1".into(),
                ..Interface::default()
            },
        ],
        ips: vec![Ip { address: "172.16.165.136/32".parse().unwrap(), gateway: None, interface: Some(1) }],
        routes: vec![Route::to("172.16.165.136/29".parse().unwrap())],
        dns: super::Dns::default(),
    }
}

fn rendered(result: &CniResult, version: &str) -> String {
    String::from_utf8(result.render(CniVersion::of_result(version)).unwrap()).unwrap()
}

#[test]
fn the_newest_form_is_calicos_byte_for_byte() {
    assert_eq!(rendered(&sample(), "1.0.0"), include_str!("../../tests/data/add-c1.json"));
}

#[test]
fn older_forms() {
    let expected = r#"{
    "cniVersion": "0.3.1",
    "interfaces": [
        {
            "name": "calic1"
        },
        {
            "name": "eth0",
            "mac": "22:ad:ae:e3:b4:9b",
            "sandbox": "/var/run/netns/cap-c1"
        }
    ],
    "ips": [
        {
            "version": "4",
            "interface": 1,
            "address": "172.16.165.136/32"
        }
    ],
    "routes": [
        {
            "dst": "172.16.165.136/29"
        }
    ],
    "dns": {}
}"#;
    assert_eq!(rendered(&sample(), "0.3.1"), expected);
    let expected = r#"{
    "cniVersion": "0.2.0",
    "ip4": {
        "ip": "172.16.165.136/32",
        "routes": [
            {
                "dst": "172.16.165.136/29"
            }
        ]
    },
    "dns": {}
}"#;
    assert_eq!(rendered(&sample(), ""), expected);
    assert!(CniResult::default().render(CniVersion::of_result("0.1.0")).is_err());
}

#[test]
fn every_version_is_read_back() {
    for version in SUPPORTED {
        let value: Value = serde_json::from_str(&rendered(&sample(), version)).unwrap();
        let read = CniResult::parse(&value).unwrap();
        assert_eq!(read.ips[0].address, sample().ips[0].address, "{version}");
        assert_eq!(read.routes, sample().routes, "{version}");
        if version >= "0.3.0" {
            assert_eq!(read.interfaces[1].mac, sample().interfaces[1].mac);
        }
    }
    assert!(CniResult::parse(&serde_json::json!({"ips": [{"address": "nonsense"}]})).is_err());
}
