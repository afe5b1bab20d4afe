//! The options of this node's BGP backend, from the environment.

use bgp::Settings;
use bgp::intent::LogLevel;
use client::config::{ClientConfig, ConfigError};
use daemon::Environment;
use daemon::log::{LevelFilter, Log};
use settings::kinds::{Of, OnlyIf, Trouble};
use settings::{Kind, Mistake, Mistakes};
use std::path::{Path, PathBuf};

/// The folder of the endpoints' status files.
const STATUS_FOLDER: &str = "endpoint-status";

settings::settings! {
    /// The variables of both BGP backends.
    #[derive(Clone, Debug)]
    pub struct Variables, VARIABLES {
        /// The least severe level that is logged; that of the BGPConfiguration if not set.
        log_level: String = Word, "BGP_LOGSEVERITYSCREEN", "";
        /// The range of services' cluster addresses to announce, replacing those of the BGPConfiguration.
        advertise_cluster_ips: String = Word, "CALICO_ADVERTISE_CLUSTER_IPS", "";
        /// The folder that contains Felix's folder of endpoint status files.
        status_prefix: String = Word, "CALICO_ENDPOINT_STATUS_PATH_PREFIX", "/var/run/calico";
        /// The node's name in Kubernetes, if different from the node's name.
        kubernetes_node: String = Word, "CALICO_K8S_NODE_REF", "";
        /// The file in which the node's name is stored once known.
        nodename_file: String = Word, "CALICO_NODENAME_FILE", "/var/lib/calico/nodename";
        /// The router id: an IPv4 address, or `hash` for one derived from the node's name; by default, the node's IPv4
        /// address.
        router_id: String = Word, "CALICO_ROUTER_ID", "";
        /// `false`: confd does not start BIRD for IPv6.
        no_ipv6: bool = OnlyIf("false"), "FELIX_IPV6SUPPORT", "true";
        /// The node's name, if neither `NODENAME` nor the file has it; by default, the machine's.
        hostname: String = Word, "HOSTNAME", "";
        /// The namespace of the secrets with passwords.
        namespace: String = Word, "NAMESPACE", "kube-system";
        /// The node's name.
        nodename: String = Word, "NODENAME", "";
        /// The port on which the native speaker serves metrics; 0 for none. Not one of Calico's.
        metrics_port: u16 = Of(port), "TORTIE_BGP_METRICS_PORT", "0";
    }
}

/// A text without surrounding blanks; an empty one counts as not set.
#[derive(Clone, Copy, Debug)]
struct Word;

impl Kind for Word {
    type Value = String;

    fn read(&self, found: Option<&str>, default: &str) -> Result<String, Trouble> {
        let word = found.map(str::trim).filter(|word| !word.is_empty());
        Ok(word.unwrap_or(default).to_owned())
    }

    fn nothing(&self) -> String {
        String::new()
    }
}

fn port(text: &str) -> Result<u16, Trouble> {
    text.parse().map_err(|_| Trouble::Ignored("is not a port: no metrics are served".to_owned()))
}

/// The options from the environment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node, and its settings from the environment.
    pub settings: Settings,
    /// The store.
    pub client: ClientConfig,
    /// The namespace of the secrets with passwords.
    pub namespace: String,
    /// The folder of Felix's endpoint status files.
    pub status_folder: PathBuf,
    /// The folder in which the state of the connection to Typha is recorded, if one is followed.
    pub typha_folder: PathBuf,
    /// The port on which the native speaker serves metrics, if any.
    pub metrics_port: Option<u16>,
    /// Whether confd starts BIRD for IPv6.
    pub ipv6: bool,
    /// The log level, overriding the cluster's.
    log_level: Option<LevelFilter>,
    warnings: Vec<Mistake>,
}

/// Why the environment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OptionsError {
    /// A variable cannot be used.
    #[error(transparent)]
    Variables(#[from] Mistakes),
    /// The store's settings cannot be used.
    #[error("reading the datastore's configuration")]
    Client(#[source] ConfigError),
    /// The name of this node is unknown.
    #[error("the name of this node is not known: set NODENAME")]
    NoName,
}

impl Options {
    /// Reads the environment. `calico_config` is a file with the store's settings, if one is named.
    ///
    /// # Errors
    /// When a variable or the store's settings cannot be used, or the node has no name.
    pub fn read(environment: &dyn Environment, calico_config: Option<&Path>) -> Result<Self, OptionsError> {
        let (variables, reading) = Variables::read_from(|name| settings::utf8(environment.variable(name)));
        if !reading.mistakes.0.is_empty() {
            return Err(reading.mistakes.into());
        }
        let client = ClientConfig::load(calico_config, environment).map_err(OptionsError::Client)?;
        let set = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Ok(Self {
            settings: Settings {
                node: node_name(environment, &variables).ok_or(OptionsError::NoName)?.into(),
                kubernetes_node: set(&variables.kubernetes_node),
                router_id: variables.router_id,
                advertise_cluster_ips: set(&variables.advertise_cluster_ips),
                use_pod_cidr: client.kubernetes.use_pod_cidr,
            },
            client,
            namespace: variables.namespace,
            status_folder: Path::new(&variables.status_prefix).join(STATUS_FOLDER),
            typha_folder: PathBuf::from(typha_client::state_file::FOLDER),
            metrics_port: Some(variables.metrics_port).filter(|port| *port != 0),
            ipv6: !variables.no_ipv6,
            log_level: daemon::log::level(&variables.log_level),
            warnings: reading.warnings,
        })
    }

    /// Starts the log, and reports the settings of the environment that are ignored.
    #[must_use]
    pub fn start_log(&self) -> BgpLog {
        let log = Log::start(self.log_level.unwrap_or(LevelFilter::INFO));
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
        BgpLog { log, follows: self.log_level.is_none() }
    }
}

/// The log of a BGP backend.
pub struct BgpLog {
    log: Log,
    /// Whether the log level follows the cluster's.
    follows: bool,
}

impl BgpLog {
    /// Applies the intent's log level, unless the environment sets one.
    pub fn follow(&self, level: LogLevel) {
        if self.follows {
            self.log.set_screen(match level {
                LogLevel::None => LevelFilter::WARN,
                LogLevel::Info => LevelFilter::INFO,
                LogLevel::Debug => LevelFilter::DEBUG,
            });
        }
    }
}

/// The node's name, determined like at the node's start-up: its configured name, its previous name, or the machine's.
fn node_name(environment: &dyn Environment, variables: &Variables) -> Option<String> {
    let name = |text: &str| Some(text.trim().to_owned()).filter(|name| !name.is_empty());
    let kept = || name(&environment.read_file(Path::new(&variables.nodename_file)).ok()?);
    let machine = || name(&rustix::system::uname().nodename().to_string_lossy().to_lowercase());
    let hostname = || name(&variables.hostname.to_lowercase());
    name(&variables.nodename).or_else(kept).or_else(hostname).or_else(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables as Given;

    fn read(variables: &[(&str, &str)]) -> Options {
        let files = [("/var/lib/calico/nodename", "kept\n")];
        let environment = Given::new(variables.iter().copied()).with_files(files);
        Options::read(&environment, None).expect("options")
    }

    #[test]
    fn variables_and_their_defaults() {
        let options = read(&[]);
        assert_eq!(options.settings.node.as_str(), "kept");
        assert_eq!(options.namespace, "kube-system");
        assert_eq!(options.status_folder, Path::new("/var/run/calico/endpoint-status"));
        assert_eq!(options.settings.router_id, "");
        assert_eq!((options.metrics_port, options.ipv6, options.log_level), (None, true, None));
        let options = read(&[
            ("NODENAME", " n1 "),
            ("NAMESPACE", "calico-system"),
            ("CALICO_K8S_NODE_REF", "kube-n1"),
            ("CALICO_ROUTER_ID", "hash"),
            ("CALICO_ADVERTISE_CLUSTER_IPS", "10.96.0.0/12"),
            ("CALICO_ENDPOINT_STATUS_PATH_PREFIX", "/elsewhere"),
            ("USE_POD_CIDR", "true"),
            ("TORTIE_BGP_METRICS_PORT", "9900"),
            ("FELIX_IPV6SUPPORT", "false"),
            ("BGP_LOGSEVERITYSCREEN", "debug"),
        ]);
        let expected = Settings {
            node: "n1".into(),
            kubernetes_node: Some("kube-n1".to_owned()),
            router_id: "hash".to_owned(),
            advertise_cluster_ips: Some("10.96.0.0/12".to_owned()),
            use_pod_cidr: true,
        };
        assert_eq!(options.settings, expected);
        assert_eq!(options.namespace, "calico-system");
        assert_eq!(options.status_folder, Path::new("/elsewhere/endpoint-status"));
        assert_eq!((options.metrics_port, options.ipv6), (Some(9900), false));
        assert_eq!(options.log_level, Some(LevelFilter::DEBUG));
    }

    #[test]
    fn an_invalid_port_is_a_warning() {
        let options = read(&[("TORTIE_BGP_METRICS_PORT", "many"), ("NAMESPACE", " ")]);
        assert_eq!((options.metrics_port, options.namespace.as_str()), (None, "kube-system"));
        let told: Vec<String> = options.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["TORTIE_BGP_METRICS_PORT=many: is not a port: no metrics are served"]);
    }
}
