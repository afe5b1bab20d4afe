//! The options: the manifest of Calico's to follow, the source of images, and settings, each of which is a row in one
//! table with its key, its meaning and its parser.
//!
//! Refuses unknown keys, suggesting the nearest known one, and unusable values.

mod settings;

pub use settings::{SETTINGS, Setting, reference_page};

/// The default registry of images.
pub const REGISTRY: &str = "quay.io/tortie";

/// Which of Calico's manifests the objects are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Like {
    /// `calico.yaml`: BGP, IP in IP.
    Calico,
    /// `calico-vxlan.yaml`: VXLAN, no BGP.
    CalicoVxlan,
    /// `calico-typha.yaml`: like `calico.yaml`, with Typha.
    CalicoTypha,
    /// `calico-policy-only.yaml`: policy beside another network, host-local addresses.
    CalicoPolicyOnly,
    /// `canal.yaml`: policy beside flannel.
    Canal,
    /// `calico-etcd.yaml`: Calico's data in an etcd.
    CalicoEtcd,
}

impl Like {
    /// Every manifest.
    pub const ALL: [Self; 6] = [
        Self::Calico,
        Self::CalicoVxlan,
        Self::CalicoTypha,
        Self::CalicoPolicyOnly,
        Self::Canal,
        Self::CalicoEtcd,
    ];

    /// The name of the manifest, without its extension.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Calico => "calico",
            Self::CalicoVxlan => "calico-vxlan",
            Self::CalicoTypha => "calico-typha",
            Self::CalicoPolicyOnly => "calico-policy-only",
            Self::Canal => "canal",
            Self::CalicoEtcd => "calico-etcd",
        }
    }

    /// The manifest with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|like| like.name() == name)
    }

    /// What distributes routes: the value of `CALICO_NETWORKING_BACKEND`.
    #[must_use]
    pub fn backend(self) -> &'static str {
        match self {
            Self::Calico | Self::CalicoTypha | Self::CalicoEtcd => "bird",
            Self::CalicoVxlan => "vxlan",
            Self::CalicoPolicyOnly | Self::Canal => "none",
        }
    }

    /// Whether addresses are managed by Calico's IPAM.
    #[must_use]
    pub fn has_ipam(self) -> bool {
        self.backend() != "none"
    }

    /// The name shared by the daemon set, its account and its label.
    #[must_use]
    pub fn node_name(self) -> &'static str {
        if self == Self::Canal { "canal" } else { "calico-node" }
    }

    /// The name of the config map.
    #[must_use]
    pub fn config_map(self) -> &'static str {
        if self == Self::Canal { "canal-config" } else { "calico-config" }
    }
}

/// The etcd that holds Calico's data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// Endpoints, separated by commas.
    pub endpoints: String,
    /// The certificate authority, in base64; empty for none.
    pub ca: String,
    /// The client certificate, in base64.
    pub cert: String,
    /// The client key, in base64.
    pub key: String,
}

/// All options of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The manifest to follow.
    pub like: Like,
    /// The registry and path before the names of images.
    pub registry: String,
    /// The tag of images.
    pub tag: String,
    /// When images are pulled.
    pub pull_policy: String,
    /// The secrets that images are pulled with.
    pub pull_secrets: Vec<String>,
    /// Whether the objects include the custom resource definitions.
    pub crds: bool,
    /// Whether Typha runs.
    pub typha: bool,
    /// The number of Typha's replicas.
    pub typha_replicas: u32,
    /// The MTU of pods and tunnels; 0 to detect it.
    pub mtu: u32,
    /// The range of the IPv4 default pool; `None` for kubeadm's, or Calico's default.
    pub ipv4_pool: Option<String>,
    /// Encapsulation of the IPv4 default pool, if it differs from the manifest's: `IPIP`, `VXLAN`, `None` with or
    /// without `CrossSubnet`.
    pub encapsulation: Option<Encapsulation>,
    /// Whether pods get IPv4 addresses.
    pub ipv4: bool,
    /// Whether pods get IPv6 addresses.
    pub ipv6: bool,
    /// The range of the IPv6 default pool.
    pub ipv6_pool: Option<String>,
    /// How the node's address is detected.
    pub autodetection: Option<String>,
    /// Whether components serve figures for Prometheus.
    pub metrics: bool,
    /// How the daemon set is updated.
    pub on_delete: bool,
    /// How many nodes may be without a ready pod during an update.
    pub max_unavailable: String,
    /// Where the host keeps CNI plugins.
    pub cni_bin_dir: String,
    /// Where the host keeps CNI configurations.
    pub cni_conf_dir: String,
    /// The CPU request of each node's pod.
    pub node_cpu: String,
    /// Variables of calico-node.
    pub node_variables: Vec<(String, String)>,
    /// Variables of Typha.
    pub typha_variables: Vec<(String, String)>,
    /// Variables of kube-controllers.
    pub controllers_variables: Vec<(String, String)>,
    /// The address of the API if its service's cannot be used.
    pub api_host: Option<String>,
    /// Its port.
    pub api_port: u16,
    /// Whether the aggregated API server runs.
    pub apiserver: bool,
    /// The signer of its certificate, in base64.
    pub apiserver_authority: Option<String>,
    /// Whether definitions are those of `projectcalico.org/v3`, with admission webhooks instead of the API server.
    pub v3_definitions: bool,
    /// The signer of the webhooks' certificate, in base64.
    pub webhooks_authority: Option<String>,
    /// Whether Goldmane collects flows.
    pub goldmane: bool,
    /// The address of its service.
    pub goldmane_address: Option<String>,
    /// Whether the page that shows flows runs.
    pub whisker: bool,
    /// Etcd, for [`Like::CalicoEtcd`].
    pub etcd: Etcd,
    /// flannel's image, for [`Like::Canal`].
    pub flannel_image: String,
    /// flannel's network, for [`Like::Canal`].
    pub flannel_network: String,
}

/// The encapsulation of packets between pods of different nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encapsulation {
    /// The value of `CALICO_IPV4POOL_IPIP`.
    pub ipip: &'static str,
    /// The value of `CALICO_IPV4POOL_VXLAN`.
    pub vxlan: &'static str,
}

impl Options {
    /// The defaults of this manifest, with images of this registry and tag.
    #[must_use]
    pub fn new(like: Like, registry: &str, tag: &str) -> Self {
        Self {
            like,
            registry: registry.trim_end_matches('/').to_owned(),
            tag: tag.to_owned(),
            pull_policy: "IfNotPresent".to_owned(),
            pull_secrets: Vec::new(),
            crds: like != Like::CalicoEtcd,
            typha: matches!(like, Like::CalicoTypha | Like::CalicoPolicyOnly),
            typha_replicas: 1,
            mtu: 0,
            ipv4_pool: None,
            encapsulation: None,
            ipv4: true,
            ipv6: false,
            ipv6_pool: None,
            autodetection: None,
            metrics: false,
            on_delete: false,
            max_unavailable: "1".to_owned(),
            cni_bin_dir: "/opt/cni/bin".to_owned(),
            cni_conf_dir: "/etc/cni/net.d".to_owned(),
            node_cpu: "250m".to_owned(),
            node_variables: Vec::new(),
            typha_variables: Vec::new(),
            controllers_variables: Vec::new(),
            api_host: None,
            api_port: 443,
            apiserver: false,
            apiserver_authority: None,
            v3_definitions: false,
            webhooks_authority: None,
            goldmane: false,
            goldmane_address: None,
            whisker: false,
            etcd: Etcd {
                endpoints: "http://<ETCD_IP>:<ETCD_PORT>".to_owned(),
                ca: String::new(),
                cert: String::new(),
                key: String::new(),
            },
            flannel_image: "docker.io/flannel/flannel:v0.24.4".to_owned(),
            flannel_network: "10.244.0.0/16".to_owned(),
        }
    }

    /// The reference of an image.
    #[must_use]
    pub fn image(&self, name: &str) -> String {
        format!("{}/{name}:{}", self.registry, self.tag)
    }

    /// The encapsulation of the IPv4 default pool.
    #[must_use]
    pub fn encapsulation(&self) -> Encapsulation {
        let own = match self.like {
            Like::CalicoVxlan => Encapsulation { ipip: "Never", vxlan: "CrossSubnet" },
            _ => Encapsulation { ipip: "Always", vxlan: "Never" },
        };
        self.encapsulation.unwrap_or(own)
    }

    /// Changes one setting.
    ///
    /// # Errors
    /// When the key is unknown or the value cannot be used.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), OptionsError> {
        for (prefix, variables) in [
            ("node.env.", &mut self.node_variables),
            ("typha.env.", &mut self.typha_variables),
            ("kubeControllers.env.", &mut self.controllers_variables),
        ] {
            if let Some(name) = key.strip_prefix(prefix) {
                if !is_variable(name) {
                    return Err(OptionsError::Value {
                        key: key.to_owned(),
                        value: value.to_owned(),
                        reason: format!("{name:?} is not the name of a variable"),
                    });
                }
                variables.retain(|(known, _)| known != name);
                variables.push((name.to_owned(), value.to_owned()));
                return Ok(());
            }
        }
        let Some(setting) = SETTINGS.iter().find(|setting| setting.key == key) else {
            return Err(OptionsError::unknown(key));
        };
        (setting.set)(self, value).map_err(|reason| OptionsError::Value {
            key: key.to_owned(),
            value: value.to_owned(),
            reason,
        })
    }

    /// Checks that the options fit together.
    ///
    /// # Errors
    /// The first conflict.
    pub fn check(&self) -> Result<(), OptionsError> {
        let problem = if self.typha && self.like == Like::CalicoEtcd {
            Some("typha.enabled: Typha spares the Kubernetes API, and has nothing to do before an etcd")
        } else if self.like == Like::CalicoEtcd && self.etcd.endpoints.contains('<') {
            Some("etcd.endpoints: say where the etcd is, as --set etcd.endpoints=http://10.0.0.5:2379")
        } else if self.apiserver && self.apiserver_authority.is_none() {
            Some(
                "apiServer.caBundle: say who signed the certificate in the secret calico-apiserver/calico-apiserver-certs \
                 (apiserver.crt, apiserver.key), in base64",
            )
        } else if self.apiserver && self.like == Like::CalicoEtcd && !self.etcd.ca.is_empty() {
            Some(
                "apiServer.enabled: the API server's pod has no certificates for etcd; it can be run beside the etcd",
            )
        } else if self.v3_definitions && (self.apiserver || self.like == Like::CalicoEtcd) {
            Some(
                "useV3CRDs: projectcalico.org/v3 is either served by the API server or as custom resources, and an etcd has no \
                 custom resources",
            )
        } else if self.v3_definitions && self.webhooks_authority.is_none() {
            Some(
                "webhooks.caBundle: say who signed the certificate in the secret kube-system/calico-webhooks-tls (tls.crt, \
                 tls.key; for calico-webhooks.kube-system.svc), in base64",
            )
        } else if self.goldmane && self.goldmane_address.is_none() {
            Some(
                "goldmane.clusterIP: say which address of the service range Goldmane has; nodes find it there without the cluster's DNS",
            )
        } else if self.goldmane && self.typha {
            Some(
                "goldmane.enabled: Felix shows Goldmane the certificate that it has for Typha, and the Typha of these manifests takes none",
            )
        } else if self.whisker && !self.goldmane {
            Some("whisker.enabled: the page shows what Goldmane collects: --set goldmane.enabled=true")
        } else if !self.ipv4 && (!self.ipv6 || !self.like.has_ipam()) {
            Some("ipv4: without IPv4 pods need IPv6 addresses of Calico's: --set ipv6=true")
        } else if !self.ipv4 && self.ipv4_pool.is_some() {
            Some("ipv4Pool.cidr: an IPv4 pool needs --set ipv4=true")
        } else if self.ipv6_pool.is_some() && !self.ipv6 {
            Some("ipv6Pool.cidr: an IPv6 pool needs --set ipv6=true")
        } else if !self.like.has_ipam() && (self.ipv4_pool.is_some() || self.encapsulation.is_some()) {
            Some("ipv4Pool: addresses are not Calico's in this manifest, so no pool is created")
        } else {
            None
        };
        problem.map_or(Ok(()), |text| Err(OptionsError::Together(text)))
    }
}

/// Why an option cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// An unknown key.
    #[error("unknown setting {key:?}{hint}")]
    Unknown {
        /// The key.
        key: String,
        /// A suggestion.
        hint: String,
    },
    /// An unusable value.
    #[error("{key}={value}: {reason}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The reason.
        reason: String,
    },
    /// Options that conflict.
    #[error("{0}")]
    Together(&'static str),
}

impl OptionsError {
    fn unknown(key: &str) -> Self {
        let near = SETTINGS
            .iter()
            .map(|setting| (strsim::jaro_winkler(key, setting.key), setting.key))
            .filter(|(likeness, _)| *likeness > 0.8)
            .max_by(|left, right| left.0.total_cmp(&right.0));
        let hint = match near {
            Some((_, near)) => format!("; did you mean {near:?}?"),
            None => {
                let keys: Vec<&str> = SETTINGS.iter().map(|setting| setting.key).collect();
                format!("; known keys are {}", keys.join(", "))
            }
        };
        Self::Unknown { key: key.to_owned(), hint }
    }
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_validated() {
        let cases = [
            ("mtu", "1400", ""),
            ("mtu", "big", "mtu=big: expected a number"),
            ("ipv4Pool.cidr", "10.1.0.0/16", ""),
            (
                "ipv4Pool.cidr",
                "10.1.2.0/16",
                "ipv4Pool.cidr=10.1.2.0/16: it has bits outside its prefix; did you mean 10.1.0.0/16?",
            ),
            ("ipv4Pool.cidr", "fd00::/48", "ipv4Pool.cidr=fd00::/48: expected an IPv4 range"),
            (
                "ipv4pool.cidr",
                "10.1.0.0/16",
                "unknown setting \"ipv4pool.cidr\"; did you mean \"ipv4Pool.cidr\"?",
            ),
            ("node.env.FELIX_LOGSEVERITYSCREEN", "Debug", ""),
            ("node.env.1X", "a", "node.env.1X=a: \"1X\" is not the name of a variable"),
            ("cni.binDir", "opt", "cni.binDir=opt: a path begins with /"),
            (
                "updateStrategy.type",
                "Never",
                "updateStrategy.type=Never: expected one of RollingUpdate, OnDelete",
            ),
        ];
        for (key, value, expected) in cases {
            let mut options = Options::new(Like::Calico, REGISTRY, "v1");
            let answer = options.set(key, value).map_err(|error| error.to_string());
            assert_eq!(answer.err().unwrap_or_default(), expected, "{key}={value}");
        }
        let mut options = Options::new(Like::Calico, REGISTRY, "v1");
        let error = options.set("zzz", "1").unwrap_err().to_string();
        assert!(error.contains("known keys are apiServer.caBundle"), "{error}");
        assert!(SETTINGS.is_sorted_by_key(|setting| setting.key));
    }

    #[test]
    fn options_must_fit_together() {
        let mut options = Options::new(Like::CalicoEtcd, REGISTRY, "v1");
        assert!(options.check().unwrap_err().to_string().starts_with("etcd.endpoints"));
        options.set("etcd.endpoints", "http://10.0.0.5:2379").unwrap();
        assert_eq!(options.check(), Ok(()));
        options.typha = true;
        assert!(options.check().is_err());
        let mut options = Options::new(Like::Canal, REGISTRY, "v1");
        options.set("ipv4Pool.cidr", "10.0.0.0/16").unwrap();
        assert!(options.check().is_err());
        let mut options = Options::new(Like::Calico, REGISTRY, "v1");
        options.set("ipv4", "false").unwrap();
        assert!(options.check().unwrap_err().to_string().starts_with("ipv4: "));
        options.set("ipv6", "true").unwrap();
        assert_eq!(options.check(), Ok(()));
        options.set("ipv4Pool.cidr", "10.0.0.0/16").unwrap();
        assert!(options.check().is_err());
    }
}
