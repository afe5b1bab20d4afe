//! Checks for every container of every manifest that this program provides what the manifest starts, and knows its
//! variables. The check uses the dispatch itself.

use crate::Arguments;
use crate::names::{Entry, choose};
use clap::Parser as _;
use manifests::options::REGISTRY;
use manifests::{Like, Options, all};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsString;

/// The program that an image starts if the container names none.
fn image_default(image: &str) -> &'static str {
    let name = image.rsplit('/').next().and_then(|last| last.split(':').next());
    match name {
        Some("node") => "start_runit",
        Some("kube-controllers") => "/usr/bin/kube-controllers",
        Some("typha") => "/usr/bin/calico-typha",
        Some("cni") => "/opt/cni/bin/install",
        Some("calico") => "/usr/bin/calico",
        other => panic!("an unknown image: {other:?}"),
    }
}

/// All manifests, with all options enabled.
fn manifests() -> Vec<(Like, Vec<manifests::Object>)> {
    let manifest = |like| {
        let mut options = Options::new(like, REGISTRY, "v1");
        options.crds = false;
        options.typha = like != Like::CalicoEtcd;
        for (key, value) in [
            ("metrics", "true"),
            ("ipv6", "true"),
            ("apiServer.enabled", "true"),
            ("apiServer.caBundle", "Y2VydGlmaWNhdGU="),
            ("cni.confDir", "/etc/other"),
            ("ipAutodetectionMethod", "kubernetes-internal-ip"),
            ("etcd.endpoints", "http://10.0.0.5:2379"),
        ] {
            options.set(key, value).unwrap();
        }
        if like.has_ipam() {
            options.set("ipv4Pool.cidr", "10.1.0.0/16").unwrap();
            options.set("ipv6Pool.cidr", "fd00:1::/48").unwrap();
        }
        options.check().unwrap();
        (like, all(&options))
    };
    Like::ALL.into_iter().map(manifest).collect()
}

fn is_understood(words: &[String]) {
    let line = words.join(" ");
    let arguments: Vec<OsString> = words.iter().map(OsString::from).collect();
    match choose(&arguments, None) {
        Entry::OldNode(flags) => {
            ::node::cli::parse_old(&flags).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        Entry::Tree(arguments) => {
            Arguments::try_parse_from(&arguments).map(drop).unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        Entry::CheckStatus => {
            kube_controllers::cli::CheckArguments::try_parse_from(&arguments)
                .map(drop)
                .unwrap_or_else(|error| panic!("{line}: {error}"));
        }
        Entry::Node | Entry::Installer | Entry::IpamPlugin => {}
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn every_command_of_every_container_is_one_of_ours() {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let mut count = 0;
    for (_, objects) in manifests() {
        for container in objects.iter().flat_map(manifests::Object::containers) {
            if container["name"] == "kube-flannel" {
                continue;
            }
            let mut words = texts(&container["command"]);
            if words.is_empty() {
                words.push(image_default(container["image"].as_str().unwrap()).to_owned());
            }
            words.extend(texts(&container["args"]));
            is_understood(&words);
            for place in [
                "/livenessProbe/exec/command",
                "/readinessProbe/exec/command",
                "/lifecycle/preStop/exec/command",
            ] {
                if let Some(command) = container.pointer(place) {
                    is_understood(&texts(command));
                    count += 1;
                }
            }
            count += 1;
        }
    }
    assert!(count > 40, "{count}");
}

#[test]
fn every_variable_of_every_container_is_known_to_its_component() {
    // Pages of the reference are generated from the tables that components read.
    let words = |page: String| -> BTreeSet<String> { page.split('`').map(str::to_owned).collect() };
    let client = words(client::config::parameters::reference_page());
    let node = words(settings::page(::node::VARIABLES));
    let controllers = words(settings::page(kube_controllers::VARIABLES));
    let typha = words(typha::config::reference_page());
    let felix: BTreeSet<String> =
        felix_config::PARAMETERS.iter().map(|row| format!("FELIX_{}", row.name.to_uppercase())).collect();
    let installer = words(cni_install::reference_page());
    for (like, objects) in manifests() {
        for container in objects.iter().flat_map(manifests::Object::containers) {
            let title = container["name"].as_str().unwrap();
            for variable in container["env"].as_array().into_iter().flatten() {
                let name = variable["name"].as_str().unwrap();
                let is_known = match title {
                    "calico-node" => node.contains(name) || felix.contains(name) || client.contains(name),
                    "calico-kube-controllers" => controllers.contains(name) || client.contains(name),
                    "calico-apiserver" => client.contains(name),
                    "calico-typha" => typha.contains(name) || client.contains(name),
                    // Calico's manifests contain it, although Calico's program does not read it either.
                    "upgrade-ipam" if name == "CALICO_NETWORKING_BACKEND" => true,
                    // The upgrade reads the node's name, as the installer does, and the datastore's settings.
                    "install-cni" | "upgrade-ipam" => installer.contains(name) || client.contains(name),
                    "kube-flannel" => true,
                    other => panic!("a container {other}"),
                };
                assert!(is_known, "{}: {title} does not know {name}", like.name());
            }
        }
    }
}
