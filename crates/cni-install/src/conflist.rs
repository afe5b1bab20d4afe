//! The network configuration: a template whose `__NAME__` tokens are replaced, and which is checked to be JSON and then
//! installed.

use crate::layout::Layout;
use crate::settings::Settings;
use daemon::Environment;
use settings::{Reading, Row};
use std::path::PathBuf;

/// The mode of the file, which may contain a token.
const MODE: u32 = 0o600;

/// Calico's own configuration, the template for a container.
const DEFAULT_TEMPLATE: &str = r#"{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "calico",
      "log_level": "__LOG_LEVEL__",
      "log_file_path": "__LOG_FILE_PATH__",
      "datastore_type": "__DATASTORE_TYPE__",
      "nodename": "__KUBERNETES_NODE_NAME__",
      "mtu": __CNI_MTU__,
      "ipam": {"type": "calico-ipam"},
      "policy": {"type": "k8s"},
      "kubernetes": {"kubeconfig": "__KUBECONFIG_FILEPATH__"},
      "require_mtu_file": __REQUIRE_MTU_FILE__,
      "calico_api_group": "__CALICO_API_GROUP__"
    },
    {
      "type": "portmap",
      "snat": true,
      "capabilities": {"portMappings": true}
    }
  ]
}"#;

/// The configuration of a host without Kubernetes: the datastore that this program's own variables name. The node's
/// name and its MTU are in files that the node writes.
const HOST_TEMPLATE: &str = r#"{
  "name": "k8s-pod-network",
  "cniVersion": "1.0.0",
  "plugins": [
    {
      "type": "calico",
      "log_level": "__LOG_LEVEL__",
      "log_file_path": "__LOG_FILE_PATH__",
      "datastore_type": "__DATASTORE_TYPE__",
      "etcd_endpoints": "__ETCD_ENDPOINTS__",
      "etcd_discovery_srv": "__ETCD_DISCOVERY_SRV__",
      "etcd_key_file": "__ETCD_KEY_FILE__",
      "etcd_cert_file": "__ETCD_CERT_FILE__",
      "etcd_ca_cert_file": "__ETCD_CA_CERT_FILE__",
      "embedded_path": "__EMBEDDED_PATH__",
      "ipam": {"type": "calico-ipam"},
      "require_mtu_file": __REQUIRE_MTU_FILE__
    },
    {
      "type": "portmap",
      "snat": true,
      "capabilities": {"portMappings": true}
    }
  ]
}"#;

/// Tokens that stand for the variable of the same name.
pub(crate) const TOKENS: &[Row] = &[
    token(
        "CALICO_API_GROUP",
        "crd.projectcalico.org/v1",
        "The group of Calico's objects in the Kubernetes datastore.",
    ),
    token("CNI_MTU", "1500", "The MTU of pods, where Felix has not written another one."),
    DATASTORE_TYPE,
    token("EMBEDDED_PATH", "", "The folder of the embedded datastore. Not one of Calico's."),
    token(
        CERTIFICATES[1].0,
        "",
        "The authority of etcd's certificates; the file from `TLS_ASSETS_DIR` if there is one.",
    ),
    token(
        CERTIFICATES[0].0,
        "",
        "The client's certificate for etcd; the file from `TLS_ASSETS_DIR` if there is one.",
    ),
    token("ETCD_DISCOVERY_SRV", "", "The domain whose SRV records list etcd's servers."),
    token("ETCD_ENDPOINTS", "", "The addresses of etcd's servers, separated by commas."),
    token(
        CERTIFICATES[2].0,
        "",
        "The key of the client's certificate for etcd; the file from `TLS_ASSETS_DIR` if there is one.",
    ),
    token("KUBERNETES_SERVICE_HOST", "", "The address of the Kubernetes API."),
    token("KUBERNETES_SERVICE_PORT", "", "The port of the Kubernetes API."),
    token("LOG_FILE_MAX_AGE", "30", "How many days old log files of the plugin are kept."),
    token("LOG_FILE_MAX_COUNT", "10", "How many old log files of the plugin are kept."),
    token("LOG_FILE_MAX_SIZE", "100", "The largest size of a log file of the plugin, in megabytes."),
    token("LOG_FILE_PATH", "/var/log/calico/cni/cni.log", "The log file of the plugin."),
    token("LOG_LEVEL", "info", "The least severe message that the plugin logs."),
    token("REQUIRE_MTU_FILE", "false", "Whether the plugin waits for the MTU that Felix writes."),
];

/// Tokens that stand for the path of a certificate on the host, if there is one.
const CERTIFICATES: [(&str, &str); 3] =
    [("ETCD_CERT_FILE", "etcd-cert"), ("ETCD_CA_CERT_FILE", "etcd-ca"), ("ETCD_KEY_FILE", "etcd-key")];

const DATASTORE_TYPE: Row = token("DATASTORE_TYPE", "kubernetes", "The datastore of the plugin.");

const fn token(name: &'static str, default: &'static str, doc: &'static str) -> Row {
    Row { name, default, beats: "", doc }
}

/// The value of a token's variable, or its default. A value that is not UTF-8 counts as unset.
fn value(environment: &dyn Environment, row: &Row) -> String {
    Reading::default().value(
        &settings::kinds::text::<String>(),
        row,
        settings::utf8(environment.variable(row.name)),
    )
}

/// Why the configuration was not installed.
#[derive(Debug, thiserror::Error)]
pub enum ConflistError {
    /// The template cannot be read.
    #[error("cannot read the template {} that CNI_NETWORK_CONFIG_FILE names: {source}", path.display())]
    Template {
        /// The path of the template.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
    /// The result is not JSON. Its text is not shown: it may hold a token.
    #[error(
        "CNI config is not valid JSON: {reason}. Check CNI_NETWORK_CONFIG (or the file) and the variables that it uses"
    )]
    NotJson {
        /// The parser's error.
        reason: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

/// Installs the configuration and removes the file of its previous name.
///
/// # Errors
/// When the template cannot be read or used, or the file cannot be written.
pub(crate) fn install(
    settings: &Settings,
    environment: &dyn Environment,
    layout: &Layout,
    own_token: &str,
) -> Result<(), ConflistError> {
    let net_folder = layout.net_folder.as_path();
    let path = net_folder.join(&settings.conf_name);
    let is_given = !settings.template.is_empty() || !settings.template_file.is_empty();
    if layout.is_host && !is_given && path.exists() {
        tracing::info!(
            path = %path.display(),
            "kept the existing CNI configuration; remove it, or set CNI_NETWORK_CONFIG, to replace it"
        );
        return Ok(());
    }
    let template = template(settings, environment, layout)?;
    let certificate = |variable: &'static str, name: &str| {
        let named = value(environment, &token(variable, "", ""));
        let file = format!("{}/{}/{name}", settings.net_folder, crate::secrets::FOLDER);
        match net_folder.join(crate::secrets::FOLDER).join(name).is_file() {
            true => file,
            // On the host itself a variable names a file that the plugin sees, too.
            false if layout.is_host => named,
            false => String::new(),
        }
    };
    let filled = fill(&template, settings, environment, own_token, &certificate)?;
    daemon::files::write(&path, filled.as_bytes(), MODE)
        .map_err(|source| ConflistError::Write { path: path.clone(), source })?;
    tracing::info!(path = %path.display(), "installed the CNI configuration");
    if settings.conf_name != settings.old_conf_name {
        let old = net_folder.join(&settings.old_conf_name);
        match std::fs::remove_file(&old) {
            Ok(()) => tracing::info!(path = %old.display(), "removed the old CNI configuration"),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, path = %old.display(), "could not remove the old CNI configuration");
            }
        }
    }
    Ok(())
}

fn template(
    settings: &Settings,
    environment: &dyn Environment,
    layout: &Layout,
) -> Result<String, ConflistError> {
    if !settings.template_file.is_empty() {
        let path = PathBuf::from(&settings.template_file);
        return environment.read_file(&path).map_err(|source| ConflistError::Template { path, source });
    }
    if !settings.template.is_empty() {
        return Ok(settings.template.clone());
    }
    let is_kubernetes = value(environment, &DATASTORE_TYPE).eq_ignore_ascii_case("kubernetes");
    let built_in = if layout.is_host && !is_kubernetes { HOST_TEMPLATE } else { DEFAULT_TEMPLATE };
    Ok(built_in.to_owned())
}

/// Replaces the tokens and checks the result.
fn fill(
    template: &str,
    settings: &Settings,
    environment: &dyn Environment,
    own_token: &str,
    certificate: &dyn Fn(&'static str, &str) -> String,
) -> Result<String, ConflistError> {
    let mut filled = template.to_owned();
    let mut replace = |token: &str, value: &str| filled = filled.replace(&format!("__{token}__"), value);
    // Before the other tokens: in a container these are always files of the secret, whatever the variable says.
    for (token, file) in CERTIFICATES {
        replace(token, &certificate(token, file));
    }
    for row in TOKENS {
        replace(row.name, &value(environment, row));
    }
    replace("KUBERNETES_NODE_NAME", &settings.node_name);
    replace("KUBECONFIG_FILEPATH", &format!("{}/{}", settings.net_folder, crate::credentials::FILE));
    replace("SERVICEACCOUNT_TOKEN", own_token);
    match serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&filled) {
        Ok(_) => Ok(filled),
        Err(error) => Err(ConflistError::NotJson { reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;
    use serde_json::{Value, json};

    fn filled(
        variables: &[(&str, &str)],
        template: &str,
        certificates: &[&str],
    ) -> Result<Value, ConflistError> {
        let variables = Variables::new(variables.iter().copied());
        let settings = Settings::read(&variables, "host").expect("usable variables");
        let certificate = |_: &str, name: &str| match certificates.contains(&name) {
            true => format!("/etc/cni/net.d/calico-tls/{name}"),
            false => String::new(),
        };
        let text = fill(template, &settings, &variables, "own-token", &certificate)?;
        Ok(serde_json::from_str(&text).expect("JSON"))
    }

    #[test]
    fn the_built_in_template_gives_calicos_configuration() {
        let variables = [("KUBERNETES_NODE_NAME", "n1"), ("CNI_MTU", "1460"), ("CNI_NET_DIR", "/etc/other")];
        let value = filled(&variables, DEFAULT_TEMPLATE, &[]).expect("a configuration");
        assert_eq!((&value["name"], &value["cniVersion"]), (&json!("k8s-pod-network"), &json!("1.0.0")));
        assert_eq!(
            value["plugins"][0],
            json!({
                "type": "calico",
                "log_level": "info",
                "log_file_path": "/var/log/calico/cni/cni.log",
                "datastore_type": "kubernetes",
                "nodename": "n1",
                "mtu": 1460,
                "ipam": {"type": "calico-ipam"},
                "policy": {"type": "k8s"},
                "kubernetes": {"kubeconfig": "/etc/other/calico-kubeconfig"},
                "require_mtu_file": false,
                "calico_api_group": "crd.projectcalico.org/v1"
            })
        );
        assert_eq!(value["plugins"][1]["type"], "portmap");
    }

    #[test]
    fn every_token_is_replaced() {
        let template = r#"{"ca": "__ETCD_CA_CERT_FILE__", "cert": "__ETCD_CERT_FILE__", "key": "__ETCD_KEY_FILE__",
            "etcd": "__ETCD_ENDPOINTS__", "srv": "__ETCD_DISCOVERY_SRV__", "token": "__SERVICEACCOUNT_TOKEN__",
            "host": "__KUBERNETES_SERVICE_HOST__:__KUBERNETES_SERVICE_PORT__", "n": "__KUBERNETES_NODE_NAME__",
            "sizes": [__LOG_FILE_MAX_SIZE__, __LOG_FILE_MAX_AGE__, __LOG_FILE_MAX_COUNT__]}"#;
        let variables = [
            ("ETCD_ENDPOINTS", "https://e:2379"),
            ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", "443"),
        ];
        assert_eq!(
            filled(&variables, template, &["etcd-ca", "etcd-key"]).expect("a configuration"),
            json!({
                "ca": "/etc/cni/net.d/calico-tls/etcd-ca", "cert": "", "key": "/etc/cni/net.d/calico-tls/etcd-key",
                "etcd": "https://e:2379", "srv": "", "token": "own-token", "host": "10.0.0.1:443", "n": "host",
                "sizes": [100, 30, 10]
            })
        );
    }

    #[test]
    fn invalid_json_is_refused_without_showing_it() {
        for template in ["{\"token\": \"__SERVICEACCOUNT_TOKEN__\"", "[]", "{\"mtu\": __UNKNOWN__}"] {
            let error = filled(&[], template, &[]).expect_err("no JSON").to_string();
            assert!(
                error.starts_with("CNI config is not valid JSON") && !error.contains("own-token"),
                "{error}"
            );
        }
    }
}
