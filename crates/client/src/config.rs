//! Where the datastore is and how to reach it: `/etc/calico/calicoctl.cfg`, or the environment, with Calico's names.
//!
//! One declared table ([`parameters::PARAMETERS`]) says which settings exist; the file reader, the environment reader and
//! the reference page all walk it. Sources are injected ([`Environment`]), so nothing here touches the process by itself,
//! and every mistake of a source is reported at once.
//!
//! As in Calico, file and environment are never mixed: a file that is there is the whole configuration. What it refuses
//! to do: guess. An unknown field is an error that names the nearest known one.

pub mod environment;
mod file;
pub mod parameters;

#[cfg(test)]
mod tests;

use daemon::{Environment, SystemEnvironment};

use datastore::Secret;
pub use settings::DatastoreType;
use std::fmt;
use std::path::{Path, PathBuf};

/// The file that is read unless another one is named.
pub const DEFAULT_CONFIG_PATH: &str = "/etc/calico/calicoctl.cfg";

/// The kind of object that a configuration file holds.
pub const CONFIG_KIND: &str = "CalicoAPIConfig";

/// Felix's variable for the beginning of interface names, from which the interface of a pod's endpoint is computed.
const INTERFACE_PREFIX: &str = "FELIX_INTERFACEPREFIX";

/// Everything that is needed to open a datastore. Secrets are of a type that does not print.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// Which kind of store.
    pub datastore_type: DatastoreType,
    /// How to reach etcd.
    pub etcd: EtcdSettings,
    /// How to reach the Kubernetes API.
    pub kubernetes: KubernetesSettings,
    /// The data directory of the embedded store; empty when there is none.
    pub embedded_path: String,
}

/// How to reach etcd. Empty text means "not given", as everywhere in Calico's configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EtcdSettings {
    /// Comma-separated addresses.
    pub endpoints: String,
    /// A domain whose SRV records name the addresses.
    pub discovery_srv: String,
    /// The user.
    pub username: String,
    /// The user's password.
    pub password: Secret,
    /// The file of the client's private key.
    pub key_file: String,
    /// The file of the client's certificate.
    pub cert_file: String,
    /// The file of the authority that signed the server's certificate.
    pub ca_cert_file: String,
    /// The client's private key itself, in PEM.
    pub key: Secret,
    /// The client's certificate itself, in PEM.
    pub cert: String,
    /// The authority's certificate itself, in PEM.
    pub ca_cert: String,
}

/// How to reach the Kubernetes API.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KubernetesSettings {
    /// A kubeconfig file, or several separated by colons.
    pub kubeconfig: String,
    /// Whether that is the one of the home directory, which no setting names.
    pub is_default_kubeconfig: bool,
    /// The contents of a kubeconfig file; wins over `kubeconfig`.
    pub kubeconfig_inline: Secret,
    /// The address of the API.
    pub api_endpoint: String,
    /// The file of the client's private key.
    pub key_file: String,
    /// The file of the client's certificate.
    pub cert_file: String,
    /// The file of the authority that signed the server's certificate.
    pub ca_file: String,
    /// A bearer token.
    pub api_token: Secret,
    /// Whether the server's certificate is not checked.
    pub insecure_skip_tls_verify: bool,
    /// Accepted for compatibility; nodes are watched, not polled.
    pub disable_node_poll: bool,
    /// Whether blocks and affinities are made from the nodes' pod ranges.
    pub use_pod_cidr: bool,
    /// Requests per second; 0 for the default.
    pub client_qps: f32,
    /// Requests at once above that rate; 0 for the default.
    pub client_burst: i64,
    /// The context of the kubeconfig to use instead of its current one.
    pub current_context: String,
    /// `projectcalico.org/v3` to use that group's custom resources; otherwise found by asking the API.
    pub calico_api_group: String,
    /// Whether Kubernetes says where its API is, as it does to every container.
    pub is_pod: bool,
    /// What names of host-side interfaces begin with; felix's own variable says so, whatever the source of the rest.
    pub interface_prefix: String,
}

/// What is wrong with a configuration. All mistakes of a source come at once.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The path that was tried.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// A source holds mistakes.
    #[error("{}", Mistakes(.0))]
    Mistakes(Vec<Mistake>),
}

/// One mistake and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where: `file:line:column` or the name of a variable.
    pub place: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The line it is in, with a caret below the place; empty where there is no line.
    pub excerpt: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)?;
        if !self.excerpt.is_empty() {
            write!(f, "\n{}", self.excerpt)?;
        }
        Ok(())
    }
}

struct Mistakes<'a>(&'a [Mistake]);

impl fmt::Display for Mistakes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [only] => write!(f, "mistake in the configuration: {only}"),
            several => {
                write!(f, "{} mistakes in the configuration:", several.len())?;
                several.iter().try_for_each(|mistake| write!(f, "\n{mistake}"))
            }
        }
    }
}

/// The settings as a source gives them, before the type of store is decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// Which kind of store, where the source says so.
    pub datastore_type: Option<DatastoreType>,
    /// How to reach etcd.
    pub etcd: EtcdSettings,
    /// How to reach the Kubernetes API.
    pub kubernetes: KubernetesSettings,
    /// The data directory of the embedded store.
    pub embedded_path: String,
}

impl ClientConfig {
    /// The configuration of a program: the named file, which then must exist, or the default file, or the environment.
    ///
    /// # Errors
    /// When a named file cannot be read, or the chosen source holds mistakes.
    pub fn load(named_file: Option<&Path>, environment: &dyn Environment) -> Result<Self, ConfigError> {
        let path = named_file.unwrap_or(Path::new(DEFAULT_CONFIG_PATH));
        match environment.read_file(path) {
            Ok(text) => Self::from_text(&path.display().to_string(), &text, environment),
            // Only a missing default file means "none": one that is there and cannot be read is worth an error.
            Err(error) if path == Path::new(DEFAULT_CONFIG_PATH) && is_missing(&error) => {
                tracing::debug!(%error, "no {DEFAULT_CONFIG_PATH}: reading the environment");
                Self::from_environment(environment)
            }
            Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }

    /// The configuration of the file or environment of this process.
    ///
    /// # Errors
    /// As [`ClientConfig::load`].
    pub fn load_from_system(named_file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load(named_file, &SystemEnvironment)
    }

    /// The configuration that a YAML or JSON text holds. `origin` names it in messages; the environment is asked only for
    /// the home directory, where a default kubeconfig may be.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn from_text(origin: &str, text: &str, environment: &dyn Environment) -> Result<Self, ConfigError> {
        file::read(origin, text)
            .and_then(|settings| settings.finish(environment))
            .map_err(ConfigError::Mistakes)
    }

    /// Which datastore is meant and which setting says so, for messages; never a secret.
    #[must_use]
    pub fn target(&self) -> String {
        let kubernetes = &self.kubernetes;
        match self.datastore_type {
            DatastoreType::EtcdV3 if self.etcd.endpoints.is_empty() => {
                format!("etcd of the domain {}, set by ETCD_DISCOVERY_SRV", self.etcd.discovery_srv)
            }
            DatastoreType::EtcdV3 => format!("etcd at {}, set by ETCD_ENDPOINTS", self.etcd.endpoints),
            DatastoreType::Embedded => {
                format!("the embedded store in {}, set by EMBEDDED_PATH", self.embedded_path)
            }
            DatastoreType::Kubernetes if !kubernetes.kubeconfig_inline.is_empty() => {
                "the Kubernetes API of kubeconfigInline".to_owned()
            }
            DatastoreType::Kubernetes if !kubernetes.api_endpoint.is_empty() => {
                format!("the Kubernetes API at {}, set by K8S_API_ENDPOINT", kubernetes.api_endpoint)
            }
            DatastoreType::Kubernetes if kubernetes.is_default_kubeconfig => {
                format!("the Kubernetes API of {}, the default; KUBECONFIG is not set", kubernetes.kubeconfig)
            }
            DatastoreType::Kubernetes if kubernetes.kubeconfig.is_empty() => {
                "the Kubernetes API of this pod's cluster".to_owned()
            }
            DatastoreType::Kubernetes => {
                format!("the Kubernetes API of kubeconfig {}, set by KUBECONFIG", kubernetes.kubeconfig)
            }
        }
    }

    /// The configuration that the environment holds.
    ///
    /// # Errors
    /// All mistakes of the variables.
    pub fn from_environment(environment: &dyn Environment) -> Result<Self, ConfigError> {
        environment::read(environment)
            .and_then(|settings| settings.finish(environment))
            .map_err(ConfigError::Mistakes)
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind;
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

impl Settings {
    /// Decides the type of store and fills the default kubeconfig.
    fn finish(self, environment: &dyn Environment) -> Result<ClientConfig, Vec<Mistake>> {
        let datastore_type = self.datastore_type.unwrap_or_else(|| self.detected_type());
        let is_pod = environment.filled("KUBERNETES_SERVICE_HOST").is_some();
        let mut config = ClientConfig {
            datastore_type,
            etcd: self.etcd,
            kubernetes: KubernetesSettings { is_pod, ..self.kubernetes },
            embedded_path: self.embedded_path,
        };
        let kubernetes = &mut config.kubernetes;
        if let Some(prefix) =
            environment.variable(INTERFACE_PREFIX).and_then(|value| value.into_string().ok())
        {
            kubernetes.interface_prefix = prefix;
        }
        if datastore_type == DatastoreType::Kubernetes
            && kubernetes.kubeconfig.is_empty()
            && kubernetes.kubeconfig_inline.is_empty()
            && kubernetes.api_endpoint.is_empty()
            && let Some(home) = environment.variable("HOME").filter(|home| !home.is_empty())
        {
            let default = Path::new(&home).join(".kube/config");
            if environment.exists(&default)
                && let Some(path) = default.to_str()
            {
                path.clone_into(&mut kubernetes.kubeconfig);
                kubernetes.is_default_kubeconfig = true;
            }
        }
        if datastore_type == DatastoreType::Embedded && config.embedded_path.is_empty() {
            return Err(vec![Mistake {
                place: "embeddedPath".into(),
                message: "the datastore type embedded needs the directory of its data: set embeddedPath (or EMBEDDED_PATH)"
                    .into(),
                excerpt: String::new(),
            }]);
        }
        Ok(config)
    }

    /// Calico's rule, with our own store between its two answers.
    fn detected_type(&self) -> DatastoreType {
        if !self.etcd.endpoints.is_empty() {
            DatastoreType::EtcdV3
        } else if !self.embedded_path.is_empty() {
            DatastoreType::Embedded
        } else {
            DatastoreType::Kubernetes
        }
    }
}
