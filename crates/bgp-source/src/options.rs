//! What the environment says about this node's part in BGP.

use bgp::Settings;
use client::config::{ClientConfig, ConfigError};
use daemon::Environment;
use std::path::{Path, PathBuf};

/// Where the node's name is kept once it is known.
const NODENAME_FILE: &str = "/var/lib/calico/nodename";
/// Where Felix writes its status files.
const STATUS_PREFIX: &str = "/var/run/calico";
/// The folder of the files about endpoints.
const STATUS_FOLDER: &str = "endpoint-status";
/// Where secrets are looked for if the pod's namespace is not known.
const NAMESPACE: &str = "kube-system";

/// What the environment says.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node, and what it was told.
    pub settings: Settings,
    /// The store.
    pub client: ClientConfig,
    /// The namespace of the secrets with passwords.
    pub namespace: String,
    /// The folder with Felix's files about endpoints.
    pub status_folder: PathBuf,
    /// Where it is said whether Typha is connected, if one is followed.
    pub typha_folder: PathBuf,
}

/// The environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// The store's settings cannot be used.
    #[error("reading the datastore's configuration")]
    Client(#[source] ConfigError),
    /// Nothing says which node this is.
    #[error("the name of this node is not known: set NODENAME")]
    NoName,
}

impl Options {
    /// Reads the environment. `calico_config` is a file with the store's settings, if one is named.
    ///
    /// # Errors
    /// When the store's settings cannot be used, or the node has no name.
    pub fn read(environment: &dyn Environment, calico_config: Option<&Path>) -> Result<Self, OptionsError> {
        let text = |name: &str| {
            let value = environment.variable(name)?.into_string().ok()?;
            Some(value.trim().to_owned()).filter(|value| !value.is_empty())
        };
        let client = ClientConfig::load(calico_config, environment).map_err(OptionsError::Client)?;
        let settings = Settings {
            node: node_name(environment, &text).ok_or(OptionsError::NoName)?,
            kubernetes_node: text("CALICO_K8S_NODE_REF"),
            router_id: text("CALICO_ROUTER_ID").unwrap_or_default(),
            advertise_cluster_ips: text("CALICO_ADVERTISE_CLUSTER_IPS"),
            use_pod_cidr: client.kubernetes.use_pod_cidr,
        };
        let prefix = text("CALICO_ENDPOINT_STATUS_PATH_PREFIX").unwrap_or_else(|| STATUS_PREFIX.to_owned());
        Ok(Self {
            settings,
            client,
            namespace: text("NAMESPACE").unwrap_or_else(|| NAMESPACE.to_owned()),
            status_folder: Path::new(&prefix).join(STATUS_FOLDER),
            typha_folder: PathBuf::from(typha_client::state_file::FOLDER),
        })
    }
}

/// As the node's start-up decides it: what it is called, what it was called, what the machine is called.
fn node_name(environment: &dyn Environment, text: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let kept = || {
        let file = text("CALICO_NODENAME_FILE").unwrap_or_else(|| NODENAME_FILE.to_owned());
        let name = environment.read_file(Path::new(&file)).ok()?;
        Some(name.trim().to_owned()).filter(|name| !name.is_empty())
    };
    let machine = || {
        let name = rustix::system::uname().nodename().to_string_lossy().to_lowercase();
        Some(name).filter(|name| !name.is_empty())
    };
    let hostname = || text("HOSTNAME").map(|name| name.to_lowercase());
    text("NODENAME").or_else(kept).or_else(hostname).or_else(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    fn read(variables: &[(&str, &str)]) -> Options {
        let files = [("/var/lib/calico/nodename", "kept\n")];
        let environment = Variables::new(variables.iter().copied()).with_files(files);
        Options::read(&environment, None).expect("options")
    }

    #[test]
    fn variables_and_their_defaults() {
        let options = read(&[]);
        assert_eq!(options.settings.node, "kept");
        assert_eq!(options.namespace, "kube-system");
        assert_eq!(options.status_folder, Path::new("/var/run/calico/endpoint-status"));
        assert_eq!(options.settings.router_id, "");
        let options = read(&[
            ("NODENAME", " n1 "),
            ("NAMESPACE", "calico-system"),
            ("CALICO_K8S_NODE_REF", "kube-n1"),
            ("CALICO_ROUTER_ID", "hash"),
            ("CALICO_ADVERTISE_CLUSTER_IPS", "10.96.0.0/12"),
            ("CALICO_ENDPOINT_STATUS_PATH_PREFIX", "/elsewhere"),
            ("USE_POD_CIDR", "true"),
        ]);
        let expected = Settings {
            node: "n1".to_owned(),
            kubernetes_node: Some("kube-n1".to_owned()),
            router_id: "hash".to_owned(),
            advertise_cluster_ips: Some("10.96.0.0/12".to_owned()),
            use_pod_cidr: true,
        };
        assert_eq!(options.settings, expected);
        assert_eq!(options.namespace, "calico-system");
        assert_eq!(options.status_folder, Path::new("/elsewhere/endpoint-status"));
    }
}
