//! Each kind of parameter: which texts it accepts, and Calico's messages for the others.

use super::*;
use crate::parameter::Parameter;
use crate::table::{Config, PARAMETERS};
use crate::values::{Interval, PortProtocol, PortRange, ProtoPort, RouteTableRange};
use api::{FlowLogsPolicyEvaluationMode, IptablesBackend};
use ipnet::IpNet;

/// A machine with one file and one program.
struct Machine;

impl Surroundings for Machine {
    fn hostname(&self) -> String {
        " Node-1 ".to_owned()
    }

    fn file_exists(&self, path: &str) -> bool {
        path == "/etc/key"
    }

    fn find_program(&self, name: &str) -> Option<String> {
        (name == "driver").then(|| "/usr/bin/driver".to_owned())
    }
}

fn read(name: &str, text: &str) -> Result<Config, String> {
    let parameter = Parameter::find(name).expect("a parameter");
    let mut config = Config::default();
    let result = (parameter.set)(&mut config, text, &Machine);
    assert_eq!(result, (parameter.check)(text, &Machine), "a check gives the same result");
    result.map(|()| config).map_err(|refusal| refusal.message(name, text))
}

fn value<T>(name: &str, text: &str, field: impl FnOnce(Config) -> T) -> T {
    field(read(name, text).unwrap_or_else(|message| panic!("{message}")))
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}

#[test]
fn every_default_can_be_parsed() {
    let mut config = Config::default();
    for parameter in PARAMETERS {
        assert_eq!((parameter.set_default)(&mut config), Ok(()), "{parameter:?}");
        assert!(!parameter.description.is_empty() && !parameter.accepts().is_empty(), "{parameter:?}");
    }
    assert_eq!(PARAMETERS.len(), 220);
    let mut names: Vec<&str> = PARAMETERS.iter().map(|parameter| parameter.name).collect();
    names.sort_unstable_by_key(|name| name.to_lowercase());
    names.dedup_by_key(|name| name.to_lowercase());
    assert_eq!(names.len(), 220, "two parameters have the same name");
}

#[test]
fn flags_are_read_from_the_rows() {
    let flags = |name: &str| {
        let parameter = Parameter::find(name).unwrap();
        (parameter.is_local, parameter.is_fatal, parameter.is_mandatory)
    };
    assert_eq!(flags("DatastoreType"), (true, true, true));
    assert_eq!(flags("felixHOSTNAME"), (true, false, true));
    assert_eq!(flags("EtcdAddr"), (true, false, false));
    assert_eq!(flags("MetadataAddr"), (false, true, false));
    assert_eq!(flags("MaxIpsetSize"), (false, false, true));
    assert_eq!(flags("LogPrefix"), (false, false, false));
    let count = |is: fn(&Parameter) -> bool| PARAMETERS.iter().filter(|parameter| is(parameter)).count();
    assert_eq!(count(|parameter| parameter.is_local), 19);
    assert_eq!(count(|parameter| parameter.is_fatal), 22);
    assert_eq!(count(|parameter| parameter.is_mandatory), 40);
}

#[test]
fn settings_of_resources_are_parameters() {
    let without = PARAMETERS.iter().filter(|parameter| parameter.resource_field().is_none());
    let without: Vec<&str> =
        without.filter(|parameter| !parameter.is_local).map(|parameter| parameter.name).collect();
    assert_eq!(
        without,
        [
            "NFTablesPolicyMode",
            "IptablesPolicyMode",
            "IPv4VXLANTunnelAddr",
            "IPv6VXLANTunnelAddr",
            "VXLANTunnelMACAddr",
            "VXLANTunnelMACAddrV6",
            "IpInIpTunnelAddr",
            "ClusterGUID",
            "ClusterType",
            "CalicoVersion",
            "Variant",
            "DebugCPUProfilePath",
            "DebugPanicAfter",
            "DebugSimulateDataRace",
        ]
    );
}

#[test]
fn truth_values_and_numbers_are_parsed() {
    for text in ["true", "TRUE", "1", "yes", "Y", "t"] {
        assert!(value("BPFEnabled", text, |config| config.bpf_enabled), "{text}");
        assert_eq!(value("VXLANEnabled", text, |config| config.vxlan_enabled), Some(true));
    }
    for text in ["false", "0", "No", "n", "F"] {
        assert!(!value("BPFEnabled", text, |config| config.bpf_enabled), "{text}");
        assert_eq!(value("VXLANEnabled", text, |config| config.vxlan_enabled), Some(false));
    }
    assert_eq!(value("VXLANPort", "0x12b5", |config| config.vxlan_port), 4789);
    assert_eq!(value("GoGCThreshold", "-1", |config| config.go_gc_threshold), -1);
    assert_eq!(
        value("LogActionRateLimitBurst", "10000", |config| config.log_action_rate_limit_burst),
        10_000
    );
    assert_eq!(value("IptablesMarkMask", "0xff000000", |config| config.iptables_mark_mask), 0xff00_0000);
    assert_eq!(value("IstioDSCPMark", "ef", |config| config.istio_dscp_mark), 46);
    assert_eq!(value("IstioDSCPMark", "63", |config| config.istio_dscp_mark), 63);
}

#[test]
fn durations_are_parsed() {
    let seconds = |text: &str| value("RouteRefreshInterval", text, |config| config.route_refresh_interval);
    assert_eq!(seconds("90"), Interval::from_secs(90));
    assert_eq!(seconds("0.5"), Interval::from_nanos(500_000_000));
    assert_eq!(seconds("-1"), Interval::from_secs(-1));
    assert_eq!(seconds("-1").positive(), None);
    assert_eq!(seconds("1e+06").to_string(), "277h46m40s");
    assert_eq!(seconds("inf").positive(), None);
    let probe = value("IptablesLockProbeIntervalMillis", "2.5", |config| config.iptables_lock_probe_interval);
    assert_eq!((probe, probe.to_string().as_str()), (Interval::from_nanos(2_500_000), "2.5ms"));
    let overrides =
        value("HealthTimeoutOverrides", "A=1m30s, B= -2s,", |config| config.health_timeout_overrides);
    let expected = [("A", Interval::from_secs(90)), ("B", Interval::from_secs(-2))];
    assert_eq!(overrides, expected.map(|(name, interval)| (name.to_owned(), interval)).into());
}

#[test]
fn choices_are_parsed_in_any_case() {
    assert_eq!(
        value("ChainInsertMode", "Append", |config| config.chain_insert_mode),
        Some(api::ChainInsert::Append)
    );
    let backend = value("IptablesBackend", "NFT", |config| config.iptables_backend);
    assert_eq!(backend, Some(IptablesBackend::NFT));
    let mode =
        value("FlowLogsPolicyEvaluationMode", "continuous", |config| config.flow_logs_policy_evaluation_mode);
    assert_eq!(mode, Some(FlowLogsPolicyEvaluationMode::Continuous));
}

#[test]
fn texts_and_files_are_checked() {
    for (name, text) in [
        ("InterfacePrefix", "cali,tap"),
        ("IptablesNATOutgoingInterfaceFilter", "eth0.100:1+"),
        ("EtcdAddr", "etcd.example:2379"),
        ("FelixHostname", "node_1.example-a"),
        ("HealthHost", "fe80::1"),
        ("LogActionRateLimit", "9999/minute"),
        ("LogPrefix", "anything goes; even =,#"),
        ("OpenstackRegion", "region-1"),
        ("LogFilePath", "/no/such/file"),
        ("EtcdKeyFile", "/etc/key"),
    ] {
        assert!(read(name, text).is_ok(), "{name} {text}");
    }
    assert_eq!(value("DataplaneDriver", "driver", |config| config.dataplane_driver), "/usr/bin/driver");
    assert_eq!(Config::with_defaults(&Machine).dataplane_driver, "calico-iptables-plugin");
    assert_eq!(Config::with_defaults(&Machine).felix_hostname, "node-1");
}

#[test]
fn addresses_are_parsed() {
    let v4 = value("NATOutgoingAddress", "::ffff:10.0.0.1", |config| config.nat_outgoing_address);
    assert_eq!(v4, "10.0.0.1".parse().ok());
    let v6 =
        value("DeviceRouteSourceAddressIPv6", "fd00::1", |config| config.device_route_source_address_ipv6);
    assert_eq!(v6, "fd00::1".parse().ok());
    let cidrs =
        value("ExternalNodesCIDRList", " 10.0.0.1/8,,fd00::1 ", |config| config.external_nodes_cidr_list);
    assert_eq!(cidrs, [net("10.0.0.0/8"), net("fd00::1/128")]);
}

#[test]
fn ports_are_parsed() {
    let ports = value(
        "FailsafeInboundHostPorts",
        "22, UDP:53,tcp:10.0.0.1/8:80,tcp:[fd00::/64]:443,[::1]:9,,",
        |config| config.failsafe_inbound_host_ports,
    );
    use PortProtocol::{Tcp, Udp};
    let port = |protocol, port, net| ProtoPort { protocol, port, net };
    assert_eq!(
        ports,
        [
            port(Tcp, 22, None),
            port(Udp, 53, None),
            port(Tcp, 80, Some(net("10.0.0.0/8"))),
            port(Tcp, 443, Some(net("fd00::/64"))),
            port(Tcp, 9, Some(net("::1/128"))),
        ]
    );
    let range = |min, max| PortRange { min, max };
    assert_eq!(
        value("NATPortRange", "32768:65535", |config| config.nat_port_range),
        Some(range(32_768, 65_535))
    );
    assert_eq!(value("NATPortRange", "7", |config| config.nat_port_range), Some(range(7, 7)));
    let ranges = value("KubeNodePortRanges", "30000:32767,80", |config| config.kube_node_port_ranges);
    assert_eq!(ranges, [range(30_000, 32_767), range(80, 80)]);
}

#[test]
fn route_tables_are_parsed() {
    let range = |min, max| RouteTableRange { min, max };
    assert_eq!(value("RouteTableRange", "1-250", |config| config.route_table_range), Some(range(1, 250)));
    let ranges = value("RouteTableRanges", "1-250, 1000-2000;4294967295-4294967295", |config| {
        config.route_table_ranges
    });
    assert_eq!(ranges, [range(1, 250), range(1000, 2000), range(u32::MAX, u32::MAX)]);
}

#[test]
fn patterns_are_parsed() {
    let excluded = value("InterfaceExclude", "kube-ipvs0,/^veth.*$/", |config| config.interface_exclude);
    let texts: Vec<&str> = excluded.iter().map(crate::Pattern::as_str).collect();
    assert_eq!(texts, ["^kube\\-ipvs0$", "^veth.*$"]);
    assert!(excluded[0].is_match("kube-ipvs0") && !excluded[0].is_match("kube-ipvs01"));
    let pattern = value("MTUIfacePattern", "^eth", |config| config.mtu_iface_pattern).unwrap();
    assert!(pattern.is_match("eth0") && !pattern.is_match("veth0"));
    let default = Config::with_defaults(&NoSurroundings).bpf_data_iface_pattern.unwrap();
    assert!(default.is_match("enp3s0") && default.is_match("bond1") && !default.is_match("lo"));
}

#[test]
fn lists_and_maps_are_parsed() {
    let map = value("FeatureDetectOverride", "A=true, B= x y,C=,", |config| config.feature_detect_override);
    let expected = [("A", "true"), ("B", " x y"), ("C", "")];
    assert_eq!(map, expected.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    let loose = value("FeatureGates", "a b=c=d", |config| config.feature_gates);
    assert_eq!(loose, [("b".to_owned(), "c=d".to_owned())].into());
    assert!(value("FeatureGates", "  ", |config| config.feature_gates).is_empty());
    let endpoints = value("EtcdEndpoints", "HTTPS://a:1, https://[::1]:2/,", |config| config.etcd_endpoints);
    assert_eq!(endpoints, ["https://a:1/", "https://[::1]:2/"]);
    let interfaces = value("BPFForceTrackPacketsFromIfaces", "docker+, eth0.1", |config| {
        config.bpf_force_track_packets_from_ifaces
    });
    assert_eq!(interfaces, ["docker+", "eth0.1"]);
}

#[test]
fn rejections_use_calicos_messages() {
    for (name, text, reason) in [
        ("BPFEnabled", "perhaps", "invalid boolean"),
        ("VXLANEnabled", "2", "invalid boolean"),
        ("VXLANPort", "4789.5", "invalid int"),
        ("MetadataPort", "-1", "value must be at least 0"),
        ("MetadataPort", "65536", "value must be at most 65535"),
        ("GoGCThreshold", "-2", "value must be at least -1"),
        (
            "LogActionRateLimitBurst",
            "-1",
            "value must be one of 0-9223372036854775807 9999-9223372036854775807",
        ),
        ("RouteRefreshInterval", "90s", "invalid float"),
        ("IptablesLockProbeIntervalMillis", "x", "invalid float"),
        ("IptablesMarkMask", "x", "invalid mark: should be 32-bit int"),
        ("IptablesMarkMask", "0x100000000", "invalid mark: should be 32-bit int"),
        ("NftablesMarkMask", "0x1", "invalid mark: needs to have 2 bits set"),
        ("ChainInsertMode", "prepend", "unknown option"),
        ("InterfacePrefix", "a.b", "invalid Linux interface name"),
        ("InterfacePrefix", "cali,", "invalid Linux interface name"),
        ("InterfacePrefix", "sixteen-letters-", "invalid Linux interface name"),
        ("WireguardInterfaceName", "a b", "invalid Linux interface parameter"),
        ("EtcdAddr", "http://a:1", "invalid URL authority"),
        ("MetadataAddr", "a:b", "invalid hostname"),
        ("HealthHost", "a/b", "invalid host address"),
        ("LogActionRateLimit", "0/second", "invalid log rate limit"),
        ("LogPrefix", "two\nlines", "invalid string"),
        ("EtcdKeyFile", "/no/such/file", "failed to access file"),
        ("DataplaneDriver", "unknown", "missing file"),
        ("NATOutgoingAddress", "fd00::1", "not an IPv4 address"),
        ("NATOutgoingAddress", "x", "not an IPv4 address"),
        ("IPv6VXLANTunnelAddr", "10.0.0.1", "not an IPv6 address"),
        ("FailsafeInboundHostPorts", "sctp:1", "unknown protocol: sctp"),
        ("FailsafeInboundHostPorts", "tcp:x", "ports should be integers"),
        ("FailsafeInboundHostPorts", "tcp:65536", "ports must be in range 0-65535"),
        ("FailsafeInboundHostPorts", "tcp:10.0.0.0/33:1", "invalid CIDR or IP 10.0.0.0/33"),
        (
            "FailsafeInboundHostPorts",
            "tcp:a:b:1",
            "ports should be <protocol>:<net>:<number> or <protocol>:<number> or <number>",
        ),
        (
            "FailsafeInboundHostPorts",
            "tcp:[fd00::]1",
            "ports should be <protocol>:<net>:<number> or <protocol>:<number> or <number>",
        ),
        ("NATPortRange", "2:1", "2:1 is not a valid port range"),
        ("NATPortRange", "http", "http has port name set"),
        ("KubeNodePortRanges", "1,70000", "70000 is not a valid port range"),
        ("RouteTableRange", "0-250", "must be a range of route table indices within 1-250"),
        ("RouteTableRange", "1-251", "must be a range of route table indices within 1-250"),
        ("RouteTableRanges", "1", "must be a list of route-table ranges"),
        ("RouteTableRanges", "0-5", "min value is not a valid number"),
        ("RouteTableRanges", "1-99999999999999999999", "max value is not a valid number"),
        ("RouteTableRanges", "9-5", "min value is greater than max value"),
        ("RouteTableRanges", "4294967290-4294967296", "max value is too high"),
        ("RouteTableRanges", "1-65535,70000-70000", "targets too many tables"),
        ("MTUIfacePattern", "(", "invalid regexp"),
        ("InterfaceExclude", "a,/(/", "list contains invalid Linux interface name or regex pattern"),
        ("InterfaceExclude", "a b", "list contains invalid Linux interface name or regex pattern"),
        ("InterfaceExclude", "//", "list contains invalid Linux interface name or regex pattern"),
        (
            "BPFForceTrackPacketsFromIfaces",
            "a b",
            "invalid entry does not match regex ^[a-zA-Z0-9:._+-]{1,15}$",
        ),
        ("EtcdEndpoints", "127.0.0.1:2379", "127.0.0.1:2379 is not a valid URL"),
        (
            "EtcdEndpoints",
            "localhost:2379",
            "endpoint contained unsupported URL part; expected http(s)://hostname:port only.",
        ),
        (
            "EtcdEndpoints",
            "http://me:secret@a:1",
            "endpoint contained unsupported URL part; expected http(s)://hostname:port only.",
        ),
        ("EtcdEndpoints", "http://a:b", "http://a:b is not a valid URL"),
    ] {
        let expected = format!("failed to parse config parameter {name}; value {}: {reason}", GoQuoted(text));
        assert_eq!(read(name, text).err(), Some(expected), "{name}={text}");
    }
}

#[test]
fn rejections_with_other_messages() {
    for (name, text, message) in [
        (
            "ExternalNodesCIDRList",
            "10.0.0.0/8, x",
            "failed to parse config parameter ExternalNodesCIDRList; value \" x\": invalid CIDR or IP x",
        ),
        ("FeatureGates", "a=b, c,d", "invalid items [ c d]"),
        (
            "OpenstackRegion",
            "a-region-with-a-name-that-is-longer-than-allowed",
            "the value of OpenstackRegion must be 46 chars or fewer",
        ),
    ] {
        assert_eq!(read(name, text).err().as_deref(), Some(message), "{name}={text}");
    }
    assert!(read("OpenstackRegion", "My_Region").is_err_and(|message| message.contains("valid DNS label")));
    assert!(read("IstioDSCPMark", "64").is_err());
    assert!(read("HealthTimeoutOverrides", "A=10").is_err());
    assert_eq!(GoQuoted("a\"\\\n\u{1}é").to_string(), "\"a\\\"\\\\\\n\\x01é\"");
}
