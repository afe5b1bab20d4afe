//! The settings of a FelixConfiguration, text by text.

use super::*;
use api::{Kind, Resource};
use serde_json::json;

#[test]
fn fields_and_annotations_become_settings() {
    let object = json!({
        "metadata": {"name": "default", "annotations": {
            "config.projectcalico.org/LogPrefix": "from-annotation", "config.projectcalico.org/NotAField": "x", "other/a": "b"}},
        "spec": {
            "ipv6Support": false, "routeRefreshInterval": "1m30s", "iptablesLockProbeInterval": "500us",
            "netlinkTimeout": "1.25s", "usageReportingInterval": "2000000s", "interfacePrefix": "cali,tap", "logPrefix": "from-field",
            "failsafeInboundHostPorts": [{"protocol": "TCP", "port": 22}, {"protocol": "UDP", "port": 53, "net": "10.0.0.0/8"}, {"protocol": "TCP", "port": 1, "net": "fd00::/8"}],
            "failsafeOutboundHostPorts": [],
            "routeTableRange": {"min": 1, "max": 250}, "routeTableRanges": [{"min": 1, "max": 2}, {"min": 5, "max": 9}],
            "healthTimeoutOverrides": [{"name": "InternalDataplaneMainLoop", "timeout": "5m"}],
            "bpfConntrackTimeouts": {"tcpEstablished": "1h", "creationGracePeriod": "Auto"},
            "externalNodesList": ["1.1.1.1", "2.2.2.2"], "bpfLogFilters": {"eth0": "tcp", "all": "udp"},
            "natPortRange": "32768:65535", "kubeNodePortRanges": ["30000:32767", 80], "istioDSCPMark": 23,
            "ipipEnabled": true, "ipipMTU": 1440, "bpfPSNATPorts": "20000:29999", "iptablesMarkMask": 4294901760_u32,
            "wireguardKeepAlive": "0s", "nodeSelector": "all()",
        },
    });
    let Resource::FelixConfiguration(configuration) =
        Resource::from_value(Kind::FelixConfiguration, object).unwrap()
    else {
        panic!()
    };
    let mut faults = Faults::new();
    let settings = felix(&configuration, &mut faults);
    assert!(faults.is_empty(), "{faults}");
    let expected = [
        ("BPFConntrackTimeouts", "CreationGracePeriod=Auto,TCPEstablished=1h"),
        ("BPFLogFilters", "all=udp,eth0=tcp,"),
        ("BPFPSNATPorts", "20000:29999"),
        ("ExternalNodesCIDRList", "1.1.1.1,2.2.2.2"),
        ("FailsafeInboundHostPorts", "tcp:22,udp:10.0.0.0/8:53,tcp:[fd00::/8]:1"),
        ("FailsafeOutboundHostPorts", "none"),
        ("HealthTimeoutOverrides", "InternalDataplaneMainLoop=5m0s"),
        ("InterfacePrefix", "cali,tap"),
        ("IpInIpEnabled", "true"),
        ("IpInIpMtu", "1440"),
        ("IptablesLockProbeIntervalMillis", "0.5"),
        ("IptablesMarkMask", "4294901760"),
        ("Ipv6Support", "false"),
        ("IstioDSCPMark", "23"),
        ("KubeNodePortRanges", "30000:32767,80"),
        ("LogPrefix", "from-annotation"),
        ("NATPortRange", "32768:65535"),
        ("NetlinkTimeoutSecs", "1.25"),
        ("NotAField", "x"),
        ("RouteRefreshInterval", "90"),
        ("RouteTableRange", "1-250"),
        ("RouteTableRanges", "1-2,5-9"),
        ("UsageReportingIntervalSecs", "2e+06"),
        ("WireguardPersistentKeepAlive", "0"),
    ];
    let settings: Vec<(&str, &str)> =
        settings.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
    assert_eq!(settings, expected);
}

#[test]
fn every_field_of_felix_has_a_setting() {
    let schema = api::schema::for_kind(Kind::FelixConfiguration);
    let spec = schema["properties"]["spec"]["properties"].as_object().unwrap();
    let known: std::collections::BTreeSet<&str> =
        fields().map(|field| field.json).chain(["nodeSelector"]).collect();
    let fields: std::collections::BTreeSet<&str> = spec.keys().map(String::as_str).collect();
    assert_eq!(known, fields);
}

#[test]
fn names_of_configurations_determine_their_scope() {
    for (name, expected) in [
        ("default", Scope::Global),
        ("node.n1", Scope::Host("n1")),
        ("gpu-nodes", Scope::Selected),
        ("nodes", Scope::Selected),
    ] {
        assert_eq!(scope(name), expected);
    }
}
