//! Compares the objects with Calico's own manifests: kinds, names, containers, volumes and variables.

use super::*;
use crate::options::REGISTRY;

/// The contents of Calico's manifests of v3.33: `KIND NAME`, and below a workload its containers with their variables.
/// Facts, written down by hand.
const CALICOS: &str = include_str!("../../data/calico-manifests.txt");

fn options(like: Like) -> Options {
    Options::new(like, REGISTRY, "v1")
}

#[test]
fn kinds_and_names_are_calicos() {
    for like in Like::ALL {
        let mut expected: BTreeSet<&str> = BTreeSet::new();
        let mut is_wanted = false;
        for line in CALICOS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(title) = line.strip_prefix('[') {
                is_wanted = title.trim_end_matches(']').split(' ').any(|name| name == like.name());
            } else if is_wanted {
                expected.insert(line);
            }
        }
        let found = described(&without_crds(&options(like)));
        let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
        let missing: Vec<_> = expected.difference(&found).collect();
        let new: Vec<_> = found.difference(&expected).collect();
        assert!(missing.is_empty() && new.is_empty(), "{}: missing {missing:#?}, new {new:#?}", like.name());
    }
}

/// The objects as lines in the form of the table.
fn described(objects: &[Object]) -> Vec<String> {
    let mut lines = Vec::new();
    for object in objects {
        let name = object.name();
        lines.push(format!("{} {name}", object.kind()));
        for container in object.containers() {
            let title = container["name"].as_str().unwrap_or_default();
            lines.push(format!("{name}/{title}"));
            for variable in container["env"].as_array().into_iter().flatten() {
                lines.push(format!("{name}/{title} {}", variable["name"].as_str().unwrap_or_default()));
            }
            for mount in container["volumeMounts"].as_array().into_iter().flatten() {
                lines.push(format!("{name}/{title} at {}", mount["mountPath"].as_str().unwrap_or_default()));
            }
        }
        let volumes = object.value.pointer("/spec/template/spec/volumes").and_then(Value::as_array);
        for volume in volumes.into_iter().flatten() {
            let path = volume.pointer("/hostPath/path").and_then(Value::as_str).unwrap_or("-");
            lines.push(format!("{name} volume {} {path}", volume["name"].as_str().unwrap_or_default()));
        }
    }
    lines
}

#[test]
fn settings_reach_the_objects() {
    let mut options = options(Like::CalicoVxlan);
    for (key, value) in [
        ("ipv4Pool.cidr", "10.5.0.0/16"),
        ("ipv6", "true"),
        ("ipv6Pool.cidr", "fd00:5::/48"),
        ("mtu", "1400"),
        ("metrics", "true"),
        ("node.env.FELIX_IPV6SUPPORT", "maybe"),
        ("node.env.FELIX_LOGSEVERITYSCREEN", "Debug"),
        ("kubeControllers.env.LOG_LEVEL", "debug"),
        ("typha.enabled", "true"),
        ("typha.replicas", "3"),
        ("typha.env.TYPHA_MAXCONNECTIONSLOWERLIMIT", "100"),
        ("imagePullSecrets", "mine,yours"),
        ("cni.confDir", "/etc/kubernetes/cni/net.d"),
        ("updateStrategy.type", "OnDelete"),
        ("kubernetesServiceEndpoint.host", "10.0.0.1"),
        ("kubernetesServiceEndpoint.port", "6443"),
    ] {
        options.set(key, value).unwrap();
    }
    options.check().unwrap();
    let text = to_yaml("", &without_crds(&options));
    for line in [
        "value: 10.5.0.0/16",
        "value: fd00:5::/48",
        "veth_mtu: \"1400\"",
        "name: FELIX_PROMETHEUSMETRICSENABLED",
        "value: maybe",
        "value: Debug",
        "name: LOG_LEVEL",
        "replicas: 3",
        "name: TYPHA_MAXCONNECTIONSLOWERLIMIT",
        "- name: yours",
        "path: /etc/kubernetes/cni/net.d",
        "name: CNI_NET_DIR",
        "type: OnDelete",
        "KUBERNETES_SERVICE_PORT: \"6443\"",
        "\"assign_ipv6\": \"true\"",
        "typha_service_name: calico-typha",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert_eq!(text.matches("name: FELIX_IPV6SUPPORT").count(), 1, "a variable of the user's replaces ours");
    assert_eq!(text, to_yaml("", &without_crds(&options)), "the same bytes");
}

#[test]
fn a_cluster_without_ipv4() {
    let mut options = options(Like::CalicoVxlan);
    for (key, value) in [("ipv4", "false"), ("ipv6", "true"), ("ipv6Pool.cidr", "fd00:5::/48")] {
        options.set(key, value).unwrap();
    }
    options.check().unwrap();
    let objects = without_crds(&options);
    let node = objects.iter().find(|object| object.kind() == "DaemonSet").unwrap();
    let container = node.containers().last().unwrap();
    let variable = |name: &str| {
        let mut all = container["env"].as_array().unwrap().iter();
        all.find(|variable| variable["name"] == name).and_then(|variable| variable["value"].as_str())
    };
    assert_eq!(
        ["IP", "IP6", "CALICO_IPV4POOL_CIDR", "CALICO_ROUTER_ID"].map(variable),
        [Some("none"), Some("autodetect"), Some("none"), Some("hash")]
    );
    let text = config::config_map(&options).value["data"]["cni_network_config"].to_string();
    assert!(text.contains(r#"\"assign_ipv4\": \"false\""#), "{text}");
}

#[test]
fn the_plugin_configuration_is_json_after_installation() {
    for like in Like::ALL {
        let object = config::config_map(&options(like));
        let text = object.value["data"]["cni_network_config"].as_str().unwrap();
        let list: Value = serde_json::from_str(&text.replace("__CNI_MTU__", "0")).unwrap();
        assert_eq!(list["plugins"][0]["type"], "calico");
        assert_eq!(text.contains("__CNI_MTU__,"), like != Like::CalicoPolicyOnly, "a number, not text");
    }
}

#[test]
fn images_come_from_the_registry() {
    let mut options = Options::new(Like::CalicoTypha, "registry.example.org:5000/net/", "v2");
    options.typha = true;
    let images: Vec<String> = images(&without_crds(&options)).into_iter().collect();
    let expected = ["cni", "kube-controllers", "node", "typha"];
    assert_eq!(images, expected.map(|name| format!("registry.example.org:5000/net/{name}:v2")));
}
