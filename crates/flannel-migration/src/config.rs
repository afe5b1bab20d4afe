//! The settings of the migration: variables of the environment, and flannel's own `subnet.env`.

use daemon::Environment;
use ipnet::IpNet;
use model::IpVersion;
use settings::kinds::{Number, Of, go_bool, text};

/// The DaemonSet of Canal: flannel's network with Calico's policy.
pub const CANAL: &str = "canal";

settings::settings! {
    /// The migration's variables.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct FlannelVariables, VARIABLES {
        /// The DaemonSet of Calico.
        calico_daemonset: String = text(), "CALICO_DAEMONSET_NAME", "calico-node";
        /// The namespace of Calico's DaemonSet.
        calico_namespace: String = text(), "CALICO_DAEMONSET_NAMESPACE", "kube-system";
        /// The folder of CNI configurations on a node.
        cni_directory: String = text(), "CNI_CONFIG_DIR", "/etc/cni/net.d";
        /// How many seconds to wait before the end, for debugging.
        wait_before_exit: u64 = Of(Number::parse), "DEBUG_WAIT_BEFORE_EXIT", "0";
        /// How many seconds to wait before the start, for debugging.
        wait_before_start: u64 = Of(Number::parse), "DEBUG_WAIT_BEFORE_START", "0";
        /// The prefix length of IPv4 blocks.
        block_size: u8 = Of(Number::parse), "DEFAULT_IPPOOL_SIZE", "26";
        /// The prefix length of IPv6 blocks.
        block_size6: u8 = Of(Number::parse), "DEFAULT_IPPOOL_SIZE_V6", "122";
        /// The prefix of flannel's annotations on nodes.
        annotation_prefix: String = text(), "FLANNEL_ANNOTATION_PREFIX", "flannel.alpha.coreos.com";
        /// The DaemonSet of flannel; `canal` for Canal.
        flannel_daemonset: String = text(), "FLANNEL_DAEMONSET_NAME", "kube-flannel-ds";
        /// The namespace of flannel's DaemonSet.
        flannel_namespace: String = text(), "FLANNEL_DAEMONSET_NAMESPACE", "kube-flannel";
        /// The IPv6 range of all pods, used with `FLANNEL_NETWORK`.
        network6: String = text(), "FLANNEL_IPV6_NETWORK", "";
        /// The prefix length of each node's IPv6 range.
        subnet_length6: u8 = Of(Number::parse), "FLANNEL_IPV6_SUBNET_LEN", "64";
        /// Whether traffic that leaves the network gets the node's address, used with `FLANNEL_NETWORK`.
        masquerades: String = text(), "FLANNEL_IP_MASQ", "true";
        /// The MTU of the tunnel, used with `FLANNEL_NETWORK`.
        mtu: String = text(), "FLANNEL_MTU", "0";
        /// The IPv4 range of all pods. If this and `FLANNEL_MTU` are set, flannel's pods are not queried.
        network: String = text(), "FLANNEL_NETWORK", "";
        /// flannel's VXLAN port.
        port: u16 = Of(Number::parse), "FLANNEL_PORT", "8472";
        /// flannel's `subnet.env` on one line, separated by semicolons; the controller keeps it in its ConfigMap.
        subnet_env: String = text(), "FLANNEL_SUBNET_ENV", "";
        /// The prefix length of each node's IPv4 range.
        subnet_length: u8 = Of(Number::parse), "FLANNEL_SUBNET_LEN", "24";
        /// flannel's VXLAN identifier.
        vni: u32 = Of(Number::parse), "FLANNEL_VNI", "1";
        /// The node that this controller runs on. Required.
        own_node: String = text(), "POD_NODE_NAME", "";
    }
}

/// The settings of the migration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlannelConfig {
    /// The values of the variables.
    pub variables: FlannelVariables,
    /// flannel's own network settings; `None` until they are known.
    pub network: Option<FlannelNetwork>,
}

impl std::ops::Deref for FlannelConfig {
    type Target = FlannelVariables;

    fn deref(&self) -> &FlannelVariables {
        &self.variables
    }
}

/// flannel's own network settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlannelNetwork {
    /// The IPv4 range of all pods.
    pub cidr: IpNet,
    /// The IPv6 range of all pods.
    pub cidr6: Option<IpNet>,
    /// The MTU of the tunnel.
    pub mtu: u32,
    /// Whether traffic that leaves the network gets the node's address.
    pub masquerades: bool,
}

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlannelConfigError {
    /// Variables have unusable values.
    #[error(transparent)]
    Variables(#[from] settings::Mistakes),
    /// The controller's node is not named.
    #[error("POD_NODE_NAME is not set: it must name the node that this controller runs on")]
    NoNode,
    /// flannel's file lacks a setting.
    #[error("flannel's subnet.env has no {0}")]
    Missing(&'static str),
    /// A setting in flannel's file has an unusable value.
    #[error("flannel's subnet.env: {name}: {reason}: {value:?}")]
    Subnet {
        /// The setting.
        name: &'static str,
        /// What is wrong.
        reason: &'static str,
        /// Its value.
        value: String,
    },
}

impl FlannelConfig {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    /// When a variable cannot be used.
    pub fn read(environment: &dyn Environment) -> Result<Self, FlannelConfigError> {
        let (variables, reading) =
            FlannelVariables::read_from(|name| settings::utf8(environment.variable(name)));
        if !reading.mistakes.0.is_empty() {
            return Err(reading.mistakes.into());
        }
        if variables.own_node.is_empty() {
            return Err(FlannelConfigError::NoNode);
        }
        let network = match variables.subnet_env.as_str() {
            "" => variables.network()?,
            // The ConfigMap holds the file as one line.
            text => Some(FlannelNetwork::parse(&text.replace(';', "\n"))?),
        };
        Ok(Self { variables, network })
    }

    /// Whether flannel runs as part of Canal.
    #[must_use]
    pub fn is_canal(&self) -> bool {
        self.flannel_daemonset == CANAL
    }

    /// The prefix length of a pool's blocks: a block is never larger than the range that flannel gave a node.
    #[must_use]
    pub fn block_size_of(&self, version: IpVersion) -> u8 {
        match version {
            IpVersion::V4 => self.subnet_length.max(self.block_size),
            IpVersion::V6 => self.subnet_length6.max(self.block_size6),
        }
    }
}

impl FlannelVariables {
    /// The network as given by variables, for users who do not let the controller query flannel.
    fn network(&self) -> Result<Option<FlannelNetwork>, FlannelConfigError> {
        let Self { network, network6, mtu, masquerades, .. } = self;
        if network.is_empty() || mtu == "0" {
            return Ok(None);
        }
        let text = format!(
            "FLANNEL_NETWORK={network}\nFLANNEL_IPV6_NETWORK={network6}\nFLANNEL_MTU={mtu}\nFLANNEL_IPMASQ={masquerades}\n"
        );
        FlannelNetwork::parse(&text).map(Some)
    }
}

impl FlannelNetwork {
    /// Parses `subnet.env`.
    ///
    /// # Errors
    /// When a setting is missing or invalid.
    pub fn parse(text: &str) -> Result<Self, FlannelConfigError> {
        let value = |name: &str| {
            text.lines().rev().find_map(|line| {
                let line = line.trim();
                let (key, value) = line.strip_prefix("export ").unwrap_or(line).split_once('=')?;
                (key.trim() == name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
            })
        };
        let needed = |name: &'static str| value(name).ok_or(FlannelConfigError::Missing(name));
        let wrong = |name, reason, value| FlannelConfigError::Subnet { name, reason, value };
        let range = |name: &'static str, text: String| match text.parse::<IpNet>() {
            Ok(range) => Ok(range.trunc()),
            Err(_) => Err(wrong(name, "not a range", text)),
        };
        let cidr = range("FLANNEL_NETWORK", needed("FLANNEL_NETWORK")?)?;
        let cidr6 = value("FLANNEL_IPV6_NETWORK").filter(|text| !text.is_empty());
        let cidr6 = cidr6.map(|text| range("FLANNEL_IPV6_NETWORK", text)).transpose()?;
        let masquerades = needed("FLANNEL_IPMASQ")?;
        let masquerades = go_bool(&masquerades)
            .map_err(|_| wrong("FLANNEL_IPMASQ", "neither true nor false", masquerades.clone()))?;
        let mtu = needed("FLANNEL_MTU")?;
        match mtu.parse() {
            Ok(number) if number > 0 => Ok(Self { cidr, cidr6, mtu: number, masquerades }),
            _ => Err(wrong("FLANNEL_MTU", "not a number above zero", mtu)),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn defaults_are_flannels_own() {
        let config = FlannelConfig::read(&Variables::new([("POD_NODE_NAME", "n1")])).expect("settings");
        assert_eq!((config.vni, config.port, config.subnet_length), (1, 8472, 24));
        assert_eq!(
            (config.flannel_daemonset.as_str(), config.flannel_namespace.as_str()),
            ("kube-flannel-ds", "kube-flannel")
        );
        assert_eq!((config.block_size_of(IpVersion::V4), config.block_size_of(IpVersion::V6)), (26, 122));
        assert_eq!(config.network, None);
        assert_eq!(FlannelConfig::read(&Variables::default()), Err(FlannelConfigError::NoNode));
        let wrong =
            FlannelConfig::read(&Variables::new([("POD_NODE_NAME", "n1"), ("FLANNEL_PORT", "99999")]));
        assert!(wrong.expect_err("no port").to_string().contains("FLANNEL_PORT"));
    }

    #[test]
    fn the_network_is_restored_from_one_line() {
        let stored = "FLANNEL_NETWORK=10.244.0.0/16;FLANNEL_SUBNET=10.244.1.1/24;FLANNEL_MTU=1450;FLANNEL_IPMASQ=true;";
        let config =
            FlannelConfig::read(&Variables::new([("POD_NODE_NAME", "n1"), ("FLANNEL_SUBNET_ENV", stored)]));
        let network = config.expect("settings").network.expect("a network");
        assert_eq!(
            (network.cidr.to_string().as_str(), network.mtu, network.masquerades),
            ("10.244.0.0/16", 1450, true)
        );
        assert_eq!(network.cidr6, None);
    }

    #[test]
    fn subnet_files_are_read_strictly() {
        let six = "FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_IPV6_NETWORK=fd00::/56\nFLANNEL_MTU=1400\nFLANNEL_IPMASQ=False\n";
        let network = FlannelNetwork::parse(six).expect("a network");
        assert_eq!(network.cidr6.map(|cidr| cidr.to_string()).as_deref(), Some("fd00::/56"));
        assert!(!network.masquerades);
        for (text, words) in [
            ("", "no FLANNEL_NETWORK"),
            ("FLANNEL_NETWORK=ten\n", "not a range"),
            ("FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_MTU=1400\n", "no FLANNEL_IPMASQ"),
            ("FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_MTU=0\nFLANNEL_IPMASQ=true\n", "above zero"),
            ("FLANNEL_NETWORK=10.0.0.0/8\nFLANNEL_MTU=1\nFLANNEL_IPMASQ=maybe\n", "neither true nor false"),
        ] {
            let error = FlannelNetwork::parse(text).expect_err(words).to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
