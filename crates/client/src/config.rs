//! Where the datastore is and how to reach it: from `/etc/calico/calicoctl.cfg`, or the environment, with Calico's
//! names.
//!
//! One table ([`parameters::PARAMETERS`]) declares the settings; the file reader, the environment reader and the
//! reference page all walk it. Sources are injected ([`Environment`]), so nothing here touches the process, and all
//! mistakes of a source are reported at once.
//!
//! As in Calico, file and environment are never mixed: an existing file is the whole configuration. Does not guess: an
//! unknown field is an error that names the nearest known one.

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

/// The file that is read unless another is named.
pub const DEFAULT_CONFIG_PATH: &str = "/etc/calico/calicoctl.cfg";

/// The kind of object that a configuration file holds.
pub const CONFIG_KIND: &str = "CalicoAPIConfig";

/// Felix's variable for the prefix of interface names, from which the interface of a pod's endpoint is computed.
const INTERFACE_PREFIX: &str = "FELIX_INTERFACEPREFIX";

/// Everything needed to open a datastore. Secrets are of a type that cannot be printed.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientConfig {
    /// The type of store.
    pub datastore_type: DatastoreType,
    /// How to reach etcd.
    pub etcd: EtcdSettings,
    /// How to reach the Kubernetes API.
    pub kubernetes: KubernetesSettings,
    /// The data directory of the embedded store; empty if there is none.
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
    /// Whether `kubeconfig` is the one in the home directory, which no setting names.
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
    /// Whether blocks and affinities are derived from the nodes' pod ranges.
    pub use_pod_cidr: bool,
    /// Requests per second; 0 for the default.
    pub client_qps: f32,
    /// Requests at once above that rate; 0 for the default.
    pub client_burst: i64,
    /// The context of the kubeconfig to use instead of its current one.
    pub current_context: String,
    /// `projectcalico.org/v3` to use that group's custom resources; otherwise the API is queried.
    pub calico_api_group: String,
    /// Whether Kubernetes' variables give the address of its API, as in every container.
    pub is_pod: bool,
    /// The prefix of host-side interface names; always from felix's own variable, whatever the source of the rest.
    pub interface_prefix: String,
}

/// Why a configuration is invalid. All mistakes of a source are reported together.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A named file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Read {
        /// The path that was tried.
        path: PathBuf,
        /// The operating system's error.
        #[source]
        source: std::io::Error,
    },
    /// A source contains mistakes.
    #[error("{}", Mistakes(.0))]
    Mistakes(Vec<Mistake>),
}

/// One mistake and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// Where: `file:line:column` or the name of a variable.
    pub place: String,
    /// What is wrong, in one sentence.
    pub message: String,
    /// The line that contains it, with a caret below the place; empty where there is no line.
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

/// The settings as given by a source, before the type of store is decided.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The type of store, if the source names one.
    pub datastore_type: Option<DatastoreType>,
    /// How to reach etcd.
    pub etcd: EtcdSettings,
    /// How to reach the Kubernetes API.
    pub kubernetes: KubernetesSettings,
    /// The data directory of the embedded store.
    pub embedded_path: String,
}

impl ClientConfig {
    /// Loads a program's configuration: from the named file, which must then exist, or the default file, or the
    /// environment.
    ///
    /// # Errors
    /// When a named file cannot be read, or the chosen source contains mistakes.
    pub fn load(named_file: Option<&Path>, environment: &dyn Environment) -> Result<Self, ConfigError> {
        let path = named_file.unwrap_or(Path::new(DEFAULT_CONFIG_PATH));
        match environment.read_file(path) {
            Ok(text) => Self::from_text(&path.display().to_string(), &text, environment),
            // Only a missing default file means "none": one that exists and cannot be read is an error.
            Err(error) if path == Path::new(DEFAULT_CONFIG_PATH) && is_missing(&error) => {
                tracing::debug!(%error, "no {DEFAULT_CONFIG_PATH}: reading the environment");
                Self::from_environment(environment)
            }
            Err(source) => Err(ConfigError::Read { path: path.to_owned(), source }),
        }
    }

    /// Loads the configuration from the file or the environment of this process.
    ///
    /// # Errors
    /// As [`ClientConfig::load`].
    pub fn load_from_system(named_file: Option<&Path>) -> Result<Self, ConfigError> {
        Self::load(named_file, &SystemEnvironment)
    }

    /// Reads the configuration from a YAML or JSON text. `origin` names it in messages; the environment is only needed
    /// to find the home directory, which may contain a default kubeconfig.
    ///
    /// # Errors
    /// All mistakes of the text.
    pub fn from_text(origin: &str, text: &str, environment: &dyn Environment) -> Result<Self, ConfigError> {
        file::read(origin, text)
            .and_then(|settings| settings.finish(environment))
            .map_err(ConfigError::Mistakes)
    }

    /// The configured datastore and the setting that selects it, for messages; never a secret.
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

    /// Reads the configuration from the environment.
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

    /// Calico's rule, with our own store between its two choices.
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
