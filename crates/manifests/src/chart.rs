//! The Helm chart, generated from the same objects: they are rendered with marks where values are inserted, and the
//! marks become actions of Go's templates. Values have the names of Calico's own charts.
//!
//! A mark is text between two `@`. [`action`] decides what it becomes; an unknown mark is left in place, and a test
//! finds it.

mod values;

use crate::objects::{Object, without_crds};
use crate::options::{Like, Options};
use crate::parts::Variable;
use crate::{apiserver, flows, webhooks};
use api::yaml;
use serde_json::{Value, json};
use std::fmt::Write as _;
use values::values;

/// The kinds of installation that values can select, and the condition of each.
const FLAVOURS: [(Like, &str); 5] = [
    (
        Like::Calico,
        "and (eq .Values.network \"calico\") (eq .Values.datastore \"kubernetes\") (not .Values.vxlan)",
    ),
    (
        Like::CalicoVxlan,
        "and (eq .Values.network \"calico\") (eq .Values.datastore \"kubernetes\") .Values.vxlan",
    ),
    (Like::CalicoPolicyOnly, "and (eq .Values.network \"none\") (eq .Values.datastore \"kubernetes\")"),
    (Like::Canal, "and (eq .Values.network \"flannel\") (eq .Values.datastore \"kubernetes\")"),
    (Like::CalicoEtcd, "and (eq .Values.network \"calico\") (eq .Values.datastore \"etcd\")"),
];

/// Placeholders for values that must be numbers in the objects.
const MTU: u32 = 424_242;
const REPLICAS: u32 = 424_243;

/// The files of the chart: path and contents.
#[must_use]
pub fn files(version: &str, registry: &str) -> Vec<(String, String)> {
    let mut files = vec![
        ("Chart.yaml".to_owned(), description(version)),
        ("values.yaml".to_owned(), values(version, registry)),
        ("templates/checks.yaml".to_owned(), CHECKS.to_owned()),
    ];
    for (name, condition, definitions) in [
        ("crds", "and .Values.includeCRDs (not .Values.useV3CRDs)", api::crds::to_yaml()),
        ("crds-v3", "and .Values.includeCRDs .Values.useV3CRDs", api::crds::to_yaml_v3()),
    ] {
        let text = format!("{{{{- if {condition} }}}}\n{definitions}{{{{- end }}}}\n");
        files.push((format!("templates/{name}.yaml"), text));
    }
    for (like, condition) in FLAVOURS {
        let options = options(like);
        let text = template(condition, without_crds(&options), &options);
        files.push((format!("templates/{}.yaml", like.name()), text));
    }
    for (name, condition, objects, options) in parts() {
        files.push((format!("templates/{name}.yaml"), template(condition, objects, &options)));
    }
    files
}

/// Optional components beside the network: name, condition, objects.
fn parts() -> Vec<(&'static str, &'static str, Vec<Object>, Options)> {
    let mut parts = Vec::new();
    for (like, name, condition) in [
        (Like::Calico, "apiserver", "and .Values.apiServer.enabled (eq .Values.datastore \"kubernetes\")"),
        (Like::CalicoEtcd, "apiserver-etcd", "and .Values.apiServer.enabled (eq .Values.datastore \"etcd\")"),
    ] {
        let options = options(like);
        parts.push((name, condition, apiserver::objects(&options, "@v:apiServer.caBundle@"), options));
    }
    let options = options(Like::Calico);
    let address = "@v:goldmane.clusterIP@";
    for (name, condition, objects) in [
        ("webhooks", ".Values.useV3CRDs", webhooks::objects(&options, "@v:webhooks.caBundle@")),
        ("goldmane", ".Values.goldmane.enabled", flows::goldmane(&options, address)),
        ("whisker", ".Values.whisker.enabled", flows::whisker(&options, address)),
    ] {
        parts.push((name, condition, objects, options.clone()));
    }
    parts
}

fn description(version: &str) -> String {
    format!(
        "# Made by `cargo xtask generate`.\napiVersion: v2\nname: tortie\ndescription: Calico's networking and network security \
         as one small program, without an operator.\ntype: application\nversion: {}\nappVersion: {version}\n",
        version.trim_start_matches('v')
    )
}

/// Invalid combinations of values are refused before anything is installed.
const CHECKS: &str = r#"{{- /* Made by `cargo xtask generate`. Values that mean nothing are refused. */ -}}
{{- if not (or (eq .Values.network "calico") (eq .Values.network "flannel") (eq .Values.network "none")) }}
{{- fail (printf "network: %s is unknown; calico, flannel and none are known" .Values.network) }}
{{- end }}
{{- if not (or (eq .Values.datastore "kubernetes") (eq .Values.datastore "etcd")) }}
{{- fail (printf "datastore: %s is unknown; kubernetes and etcd are known" .Values.datastore) }}
{{- end }}
{{- if and (eq .Values.datastore "etcd") (ne .Values.network "calico") }}
{{- fail "datastore: etcd needs network: calico" }}
{{- end }}
{{- if and (eq .Values.datastore "etcd") (not .Values.etcd.endpoints) }}
{{- fail "etcd.endpoints: say where the etcd is" }}
{{- end }}
{{- if and (not .Values.ipv4) (not .Values.ipv6) }}
{{- fail "ipv4: without IPv4 pods need IPv6 addresses: ipv6: true" }}
{{- end }}
{{- if and (not .Values.ipv4) (ne .Values.network "calico") }}
{{- fail "ipv4: without IPv4 pods need addresses of Calico's: network: calico" }}
{{- end }}
{{- if and .Values.apiServer.enabled (not .Values.apiServer.caBundle) }}
{{- fail "apiServer.caBundle: say who signed the certificate in the secret calico-apiserver/calico-apiserver-certs, in base64" }}
{{- end }}
{{- if and .Values.apiServer.enabled .Values.etcd.tls.ca }}
{{- fail "apiServer.enabled: the API server's pod has no certificates for etcd" }}
{{- end }}
{{- if and .Values.useV3CRDs (or .Values.apiServer.enabled (eq .Values.datastore "etcd")) }}
{{- fail "useV3CRDs: projectcalico.org/v3 is either served by the API server or as custom resources, and an etcd has no custom resources" }}
{{- end }}
{{- if and .Values.useV3CRDs (not .Values.webhooks.caBundle) }}
{{- fail "webhooks.caBundle: say who signed the certificate in the secret kube-system/calico-webhooks-tls, in base64" }}
{{- end }}
{{- if and .Values.goldmane.enabled (not .Values.goldmane.clusterIP) }}
{{- fail "goldmane.clusterIP: say which address of the service range Goldmane has" }}
{{- end }}
{{- if and .Values.goldmane.enabled .Values.typha.enabled }}
{{- fail "goldmane.enabled: Felix shows Goldmane the certificate that it has for Typha, and this chart's Typha takes none" }}
{{- end }}
{{- if and .Values.whisker.enabled (not .Values.goldmane.enabled) }}
{{- fail "whisker.enabled: the page shows what Goldmane collects: goldmane.enabled" }}
{{- end }}
"#;

/// The options, with marks where values are inserted.
fn options(like: Like) -> Options {
    let mut options = Options::new(like, "@v:registry@", "@v:version@");
    options.pull_policy = "@v:imagePullPolicy@".to_owned();
    options.mtu = MTU;
    options.typha = like != Like::Canal && like != Like::CalicoEtcd;
    options.typha_replicas = REPLICAS;
    options.cni_bin_dir = "@v:cni.binDir@".to_owned();
    options.cni_conf_dir = "@v:cni.confDir@".to_owned();
    options.api_host = Some("@v:kubernetesServiceEndpoint.host@".to_owned());
    options.flannel_image = "@v:flannel.image@".to_owned();
    options.flannel_network = "@v:flannel.network@".to_owned();
    options.etcd.endpoints = "@v:etcd.endpoints@".to_owned();
    options.etcd.ca = "@v:etcd.tls.ca@".to_owned();
    options.etcd.cert = "@v:etcd.tls.crt@".to_owned();
    options.etcd.key = "@v:etcd.tls.key@".to_owned();
    options
}

fn template(condition: &str, objects: Vec<Object>, options: &Options) -> String {
    let mut text = format!("{{{{- /* Made by `cargo xtask generate`. */ -}}}}\n{{{{- if {condition} }}}}\n");
    for mut object in objects {
        let guard = match (object.kind(), object.name()) {
            (_, "calico-typha") => Some(".Values.typha.enabled"),
            (_, "kubernetes-services-endpoint") => Some(".Values.kubernetesServiceEndpoint.host"),
            _ => None,
        };
        mark(&mut object, options);
        let body = filled(&yaml::to_string(&object.value));
        // Writing to a string does not fail.
        let _ = match guard {
            Some(guard) => write!(text, "{{{{- if {guard} }}}}\n---\n{body}{{{{- end }}}}\n"),
            None => write!(text, "---\n{body}"),
        };
    }
    text.push_str("{{- end }}\n");
    text
}

/// Puts marks where values are inserted.
fn mark(object: &mut Object, options: &Options) {
    let path = match (object.kind(), object.name()) {
        ("DaemonSet", _) => "node",
        ("Deployment", "calico-typha") => "typha",
        ("Deployment", "calico-kube-controllers") => "kubeControllers",
        ("Deployment", "calico-apiserver") => "apiServer",
        ("Deployment", "calico-webhooks") => "webhooks",
        ("Deployment", "goldmane") => "goldmane",
        ("Deployment", _) => "whisker",
        ("ConfigMap", name) if name == options.like.config_map() => {
            mark_config(&mut object.value["data"], options);
            return;
        }
        ("ConfigMap", _) => {
            object.value["data"]["KUBERNETES_SERVICE_PORT"] = json!("@v:kubernetesServiceEndpoint.port@");
            return;
        }
        _ => return,
    };
    if path == "node" {
        object.value["spec"]["updateStrategy"] = json!("@block:node.updateStrategy@");
        mark_flows(&mut object.value["spec"]["template"]["spec"]);
    }
    let pod = &mut object.value["spec"]["template"]["spec"];
    for name in ["affinity", "nodeSelector", "tolerations"] {
        pod[name] = json!(format!("@block:{path}.{name}@"));
    }
    pod["imagePullSecrets"] = json!("@block:imagePullSecrets@");
    let Some(container) = pod["containers"].get_mut(0) else { return };
    container["resources"] = json!(format!("@block:{path}.resources@"));
    let port = match path {
        "node" => 9091,
        "typha" => 9093,
        "kubeControllers" => 9094,
        _ => return,
    };
    match container.get_mut("ports").and_then(Value::as_array_mut) {
        Some(ports) => ports.push(json!(format!("@port:{port}@"))),
        None => container["ports"] = json!(format!("@ports:{port}@")),
    }
    let Some(variables) = container["env"].as_array_mut() else { return };
    for variable in variables.iter_mut() {
        let value = match variable["name"].as_str().unwrap_or_default() {
            "CALICO_IPV4POOL_IPIP" => format!("@or:ipv4Pool.ipipMode:{}@", options.encapsulation().ipip),
            "CALICO_IPV4POOL_VXLAN" => format!("@or:ipv4Pool.vxlanMode:{}@", options.encapsulation().vxlan),
            "IP" if options.like.has_ipam() => "@ip@".to_owned(),
            "FELIX_IPV6SUPPORT" => "@v:ipv6@".to_owned(),
            _ => continue,
        };
        variable["value"] = json!(value);
    }
    match path {
        "node" => {
            variables.push(json!({"name": "FELIX_PROMETHEUSMETRICSENABLED", "value": "@v:metrics.enabled@"}));
            if options.like.has_ipam() {
                variables.push(json!("@ipv4@"));
                variables.push(json!("@variable:ipAutodetectionMethod:IP_AUTODETECTION_METHOD@"));
                variables.push(json!("@ipv6@"));
            }
            variables.push(json!("@flows@"));
        }
        "typha" => {
            variables.push(json!({"name": "TYPHA_PROMETHEUSMETRICSENABLED", "value": "@v:metrics.enabled@"}));
        }
        _ => {}
    }
    variables.push(json!(format!("@items:{path}.env@")));
}

/// Adds the certificate for Goldmane, and its name, to a node's pod.
fn mark_flows(pod: &mut Value) {
    pod["hostAliases"] = json!("@alias@");
    for list in ["/volumes", "/containers/0/volumeMounts"] {
        if let Some(list) = pod.pointer_mut(list).and_then(Value::as_array_mut) {
            let mark = if list.iter().any(|one| one.get("mountPath").is_some()) { "mount" } else { "volume" };
            list.push(json!(format!("@{mark}@")));
        }
    }
}

/// A part of a document that is only present with Goldmane.
fn if_flows(pad: &str, part: &Value) -> String {
    let text = yaml::to_string(part);
    let mut out = format!("{pad}{{{{- if .Values.goldmane.enabled }}}}\n");
    for line in text.lines() {
        // Writing to a string does not fail.
        let _ = writeln!(out, "{pad}{}", inline(line));
    }
    let _ = writeln!(out, "{pad}{{{{- end }}}}");
    out
}

fn mark_config(data: &mut Value, options: &Options) {
    data["veth_mtu"] = json!("@v:mtu@");
    if options.typha {
        data["typha_service_name"] = json!("@typha@");
    }
    if options.like.has_ipam() {
        let text = data["cni_network_config"].as_str().unwrap_or_default();
        data["cni_network_config"] =
            json!(text.replace("\"type\": \"calico-ipam\"", "@assign@\"type\": \"calico-ipam\""));
    }
    for (name, value) in [("etcd_ca", "ca"), ("etcd_cert", "crt"), ("etcd_key", "key")] {
        if let Some(path) = data.get(name).and_then(Value::as_str).map(str::to_owned) {
            data[name] = json!(format!("@when:etcd.tls.{value}:{path}@"));
        }
    }
}

/// Replaces marks: a mark that is a whole line may become several lines, others become an action in place.
fn filled(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        match whole_line(trimmed, indent) {
            Some(lines) => out.push_str(&lines),
            None => {
                out.push_str(&inline(line));
                out.push('\n');
            }
        }
    }
    out.replace(&REPLICAS.to_string(), "{{ .Values.typha.replicas }}")
}

fn marked(text: &str) -> Option<&str> {
    let text = text.trim_matches('\'');
    let inner = text.strip_prefix('@')?.strip_suffix('@')?;
    (!inner.contains('@')).then_some(inner)
}

fn whole_line(line: &str, indent: usize) -> Option<String> {
    let pad = " ".repeat(indent);
    if let Some(item) = line.strip_prefix("- ").and_then(marked) {
        return match item.split(':').collect::<Vec<_>>().as_slice() {
            ["items", path] => Some(format!(
                "{pad}{{{{- with .Values.{path} }}}}\n{{{{ toYaml . | indent {indent} }}}}\n{pad}{{{{- end }}}}\n"
            )),
            ["variable", path, name] => Some(format!(
                "{pad}{{{{- with .Values.{path} }}}}\n{pad}- name: {name}\n{pad}  value: {{{{ . | quote }}}}\n{pad}{{{{- end }}}}\n"
            )),
            ["ipv4"] => Some(format!(
                "{pad}{{{{- if not .Values.ipv4 }}}}\n{pad}- name: CALICO_IPV4POOL_CIDR\n{pad}  value: none\n\
                 {pad}- name: CALICO_ROUTER_ID\n{pad}  value: hash\n{pad}{{{{- else }}}}{{{{- with .Values.ipv4Pool.cidr }}}}\n\
                 {pad}- name: CALICO_IPV4POOL_CIDR\n{pad}  value: {{{{ . | quote }}}}\n{pad}{{{{- end }}}}\n{pad}{{{{- end }}}}\n"
            )),
            ["flows"] => {
                let variables: Vec<Value> = flows::node_variables().iter().map(Variable::value).collect();
                Some(if_flows(&pad, &json!(variables)))
            }
            ["volume"] => Some(if_flows(&pad, &json!([flows::volume()]))),
            ["mount"] => Some(if_flows(&pad, &json!([flows::CERTIFICATES.value()]))),
            ["ipv6"] => Some(format!(
                "{pad}{{{{- if .Values.ipv6 }}}}\n{pad}- name: IP6\n{pad}  value: autodetect\n{pad}{{{{- with .Values.ipv6Pool.cidr }}}}\n\
                 {pad}- name: CALICO_IPV6POOL_CIDR\n{pad}  value: {{{{ . | quote }}}}\n{pad}{{{{- end }}}}\n{pad}{{{{- end }}}}\n"
            )),
            ["port", port] => Some(metrics_port(&pad, "", port)),
            _ => None,
        };
    }
    let (dash, rest) = match line.strip_prefix("- ") {
        Some(rest) => ("- ", rest),
        None => ("", line),
    };
    let (key, value) = rest.split_once(": ")?;
    if marked(value)? == "alias" {
        return Some(if_flows(&pad, &json!({key: flows::alias("@v:goldmane.clusterIP@")})));
    }
    let inner = indent + dash.len() + 2;
    match marked(value)?.split_once(':')? {
        ("block", path) => {
            Some(format!("{pad}{dash}{key}:\n{{{{ toYaml .Values.{path} | indent {inner} }}}}\n"))
        }
        ("ports", port) => Some(metrics_port(&pad, &format!("{pad}{key}:\n"), port)),
        _ => None,
    }
}

/// A port that is only present with metrics, after the key of its list if it is the only entry.
fn metrics_port(pad: &str, key: &str, port: &str) -> String {
    format!(
        "{pad}{{{{- if .Values.metrics.enabled }}}}\n{key}{pad}- containerPort: {port}\n{pad}  name: metrics\n{pad}  protocol: TCP\n\
         {pad}{{{{- end }}}}\n"
    )
}

fn inline(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        let found = after.split_once('@').and_then(|(name, tail)| Some((action(name)?, tail)));
        let Some((action, tail)) = found else {
            out.push('@');
            rest = after;
            continue;
        };
        out.push_str(&action);
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// The action for a mark inside a line. Text is in single quotes there, so that inserted values remain strings.
fn action(name: &str) -> Option<String> {
    match name.split(':').collect::<Vec<_>>().as_slice() {
        ["v", path] => Some(format!("{{{{ .Values.{path} }}}}")),
        ["or", path, default] => Some(format!("{{{{ .Values.{path} | default \"{default}\" }}}}")),
        ["when", path, text] => Some(format!("{{{{ if .Values.{path} }}}}{text}{{{{ end }}}}")),
        ["typha"] => Some("{{ if .Values.typha.enabled }}calico-typha{{ else }}none{{ end }}".to_owned()),
        ["ip"] => Some("{{ if .Values.ipv4 }}autodetect{{ else }}none{{ end }}".to_owned()),
        ["assign"] => Some(
            "{{ if .Values.ipv6 }}\"assign_ipv4\": \"{{ .Values.ipv4 }}\", \"assign_ipv6\": \"true\", {{ end }}".to_owned(),
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
