//! The variables that a node is started with, parsed once into types: one row each in [`Settings`].
//!
//! Sources are injected, so nothing here reads the process's own environment. All mistakes are reported at once, each
//! with the variable's name and a remedy.
//!
//! The pool variables are interpreted where a pool is created ([`crate::startup::pools`]): as in Calico, a mistake in
//! them stops a node only when they are needed.

use api::scalars::ASNumber;
use daemon::Environment;
use daemon::log::LevelFilter;
use model::IpVersion;
use settings::kinds::{Number, Of, OnlyIf, OnlyIfAnyCase, UnlessDenied, go_duration, text};
use settings::{Mistakes, Trouble};
use std::path::PathBuf;
use std::time::Duration;

/// What distributes routes between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A BGP daemon. Also the meaning of an unset or unknown value.
    Bird,
    /// Felix alone, with VXLAN.
    Vxlan,
    /// Nothing of ours: Calico enforces policy on another provider's network.
    None,
}

/// What speaks BGP if the backend is [`Backend::Bird`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BgpSpeaker {
    /// This program.
    #[default]
    Native,
    /// BIRD, with files that this program renders.
    Bird,
}

/// The value of `IP` or `IP6`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AddressSetting {
    /// No value.
    #[default]
    Unset,
    /// Detect the address.
    Autodetect,
    /// Keep the stored address.
    Leave,
    /// Use this address, with or without its network.
    Given(String),
}

impl From<String> for AddressSetting {
    fn from(text: String) -> Self {
        match text.as_str() {
            "" => Self::Unset,
            "autodetect" => Self::Autodetect,
            "none" => Self::Leave,
            _ => Self::Given(text),
        }
    }
}

impl AddressSetting {
    /// Whether the node's interfaces of this family are listed in its resource.
    #[must_use]
    pub fn lists_interfaces(&self) -> bool {
        matches!(self, Self::Autodetect | Self::Given(_))
    }
}

/// The settings of one IP version's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FamilySettings<'a> {
    /// `IP` or `IP6`.
    pub address: &'a AddressSetting,
    /// `IP_AUTODETECTION_METHOD` or `IP6_AUTODETECTION_METHOD`, as written.
    pub method: &'a str,
}

/// The settings of one IP version's default pool, as written; empty means unset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings<'a> {
    /// `CALICO_IPV*POOL_CIDR`.
    pub cidr: &'a str,
    /// `CALICO_IPV4POOL_IPIP`.
    pub ipip: &'a str,
    /// `CALICO_IPV*POOL_VXLAN`.
    pub vxlan: &'a str,
    /// `CALICO_IPV*POOL_BLOCK_SIZE`.
    pub block_size: &'a str,
    /// `CALICO_IPV*POOL_NODE_SELECTOR`.
    pub node_selector: &'a str,
    /// `CALICO_IPV*POOL_NAT_OUTGOING`.
    pub nat_outgoing: bool,
    /// `CALICO_IPV*POOL_DISABLE_BGP_EXPORT`.
    pub disable_bgp_export: bool,
}

settings::settings! {
    /// The settings of the node's own agent. Those of the datastore are in the client's table.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Settings, VARIABLES {
        /// The node's AS number; if unset, the cluster's.
        as_number: Option<ASNumber> = Of(as_number), "AS", "";
        /// How often the node's addresses are checked.
        poll_interval: Duration = Of(interval), "AUTODETECT_POLL_INTERVAL", "60s";
        /// The service account whose tokens are in the CNI plugin's kubeconfig.
        cni_service_account: String = text(), "CALICO_CNI_SERVICE_ACCOUNT", "calico-cni-plugin";
        /// Any value: Felix runs elsewhere and is not started.
        disable_felix: bool = Of(is_set), "CALICO_DISABLE_FELIX", "";
        /// `true`: no folder for log files is created.
        disable_file_logging: bool = OnlyIfAnyCase("true"), "CALICO_DISABLE_FILE_LOGGING", "";
        /// The prefix length of the IPv4 default pool's blocks, 20 to 32.
        ipv4_pool_block_size: String = text(), "CALICO_IPV4POOL_BLOCK_SIZE", "26";
        /// The range of the IPv4 default pool, or `none`. If unset: kubeadm's, or 192.168.0.0/16, or one of
        /// 172.16.0.0/16 to 172.31.0.0/16 if the host has an address in the former.
        ipv4_pool_cidr: String = text(), "CALICO_IPV4POOL_CIDR", "";
        /// Whether routes of the IPv4 default pool stay out of BGP.
        ipv4_pool_disable_bgp_export: bool = UnlessDenied, "CALICO_IPV4POOL_DISABLE_BGP_EXPORT", "false";
        /// IPIP in the IPv4 default pool: `never`, `always` or `cross-subnet`.
        ipv4_pool_ipip: String = text(), "CALICO_IPV4POOL_IPIP", "never";
        /// Whether traffic that leaves the IPv4 default pool is masqueraded.
        ipv4_pool_nat_outgoing: bool = UnlessDenied, "CALICO_IPV4POOL_NAT_OUTGOING", "true";
        /// The nodes that may use the IPv4 default pool; if unset, all.
        ipv4_pool_node_selector: String = text(), "CALICO_IPV4POOL_NODE_SELECTOR", "";
        /// VXLAN in the IPv4 default pool: `never`, `always` or `cross-subnet`.
        ipv4_pool_vxlan: String = text(), "CALICO_IPV4POOL_VXLAN", "never";
        /// The prefix length of the IPv6 default pool's blocks, 116 to 128.
        ipv6_pool_block_size: String = text(), "CALICO_IPV6POOL_BLOCK_SIZE", "122";
        /// The range of the IPv6 default pool, or `none`. If unset: kubeadm's, or a random range of fd00::/8.
        ipv6_pool_cidr: String = text(), "CALICO_IPV6POOL_CIDR", "";
        /// Whether routes of the IPv6 default pool stay out of BGP.
        ipv6_pool_disable_bgp_export: bool = UnlessDenied, "CALICO_IPV6POOL_DISABLE_BGP_EXPORT", "false";
        /// Whether traffic that leaves the IPv6 default pool is masqueraded.
        ipv6_pool_nat_outgoing: bool = UnlessDenied, "CALICO_IPV6POOL_NAT_OUTGOING", "false";
        /// The nodes that may use the IPv6 default pool; if unset, all.
        ipv6_pool_node_selector: String = text(), "CALICO_IPV6POOL_NODE_SELECTOR", "";
        /// VXLAN in the IPv6 default pool: `never`, `always` or `cross-subnet`.
        ipv6_pool_vxlan: String = text(), "CALICO_IPV6POOL_VXLAN", "never";
        /// Kubernetes' name of this node, if it differs from the node's name.
        kubernetes_node: Option<String> = Of(name), "CALICO_K8S_NODE_REF", "";
        /// `false`: the CNI plugin's kubeconfig is not kept fresh.
        manage_cni: bool = Of(is_not_false), "CALICO_MANAGE_CNI", "true";
        /// Deprecated: `false` means CALICO_NETWORKING_BACKEND=none.
        networking: String = text(), "CALICO_NETWORKING", "";
        /// What distributes routes between nodes: `bird`, `vxlan`, or `none` if Calico only enforces policy.
        networking_backend: String = text(), "CALICO_NETWORKING_BACKEND", "bird";
        /// The file that keeps the node's name.
        nodename_file: PathBuf = text(), "CALICO_NODENAME_FILE", "/var/lib/calico/nodename";
        /// The file that keeps the time of the last shutdown.
        shutdown_file: PathBuf = text(), "CALICO_SHUTDOWN_TIMESTAMP_FILE", "/var/lib/calico/shutdownTS";
        /// The least severe level that is logged.
        log_level: LevelFilter = Level, "CALICO_STARTUP_LOGLEVEL", "info";
        /// Words about the cluster, separated by commas.
        cluster_type: String = text(), "CLUSTER_TYPE", "";
        /// How often the CNI plugin's token is renewed; if unset, its lifetime decides.
        cni_token_interval: Option<Duration> = Of(optional_interval), "CNI_TOKEN_REFRESH_INTERVAL", "";
        /// `true`: two nodes may have the same address.
        skip_conflict_check: bool = OnlyIf("true"), "DISABLE_NODE_IP_CHECK", "";
        /// `true`: Felix serves its health, and the node waits for it.
        felix_health: bool = OnlyIf("true"), "FELIX_HEALTHENABLED", "";
        /// The host on which Felix serves its health.
        felix_health_host: String = text(), "FELIX_HEALTHHOST", "localhost";
        /// The port on which Felix serves its health.
        felix_health_port: u16 = Of(Number::parse), "FELIX_HEALTHPORT", "9099";
        /// Whether Felix handles IPv6; if not, no IPv6 default pool is created.
        ipv6_support: bool = UnlessDenied, "FELIX_IPV6SUPPORT", "true";
        /// Whether the WireGuard device uses the node's own address rather than one from a pool.
        wireguard_host_encryption: bool = Of(felix_truth), "FELIX_WIREGUARDHOSTENCRYPTIONENABLED", "false";
        /// The node's name if neither NODENAME nor the file has one.
        hostname: String = Of(lower_case), "HOSTNAME", "";
        /// The node's IPv4 address, `autodetect`, or `none` to keep the stored one. If unset, it is detected once.
        ipv4: AddressSetting = text(), "IP", "";
        /// The node's IPv6 address, `autodetect`, or `none` to keep the stored one.
        ipv6: AddressSetting = text(), "IP6", "";
        /// How the IPv6 address is detected; see IP_AUTODETECTION_METHOD.
        ipv6_method: String = text(), "IP6_AUTODETECTION_METHOD", "first-found";
        /// How the IPv4 address is detected: `first-found`, `interface=REGEX,...`, `skip-interface=REGEX,...`,
        /// `can-reach=HOST`, `cidr=RANGE,...` or `kubernetes-internal-ip`.
        ipv4_method: String = text(), "IP_AUTODETECTION_METHOD", "first-found";
        /// The node's name.
        nodename: String = Of(trimmed), "NODENAME", "";
        /// The user id that owns the folders of a node that does not run as root.
        node_user_id: u32 = Of(Number::parse), "NODE_USER_ID", "1000";
        /// `true`: no default pools are created.
        no_default_pools: bool = OnlyIfAnyCase("true"), "NO_DEFAULT_POOLS", "";
        /// What speaks BGP with CALICO_NETWORKING_BACKEND=bird: `native`, this program itself, or `bird`, a BIRD whose
        /// files this program renders.
        bgp_speaker: BgpSpeaker = Of(bgp_speaker), "TORTIE_BGP_SPEAKER", "native";
        /// `true`: wait until the datastore answers.
        wait_for_datastore: bool = OnlyIf("true"), "WAIT_FOR_DATASTORE", "";
    }
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Errors
    /// When variables have unusable values; the error lists all of them.
    pub fn read(environment: &dyn Environment) -> Result<Self, Mistakes> {
        let (mut settings, mut reading) = Self::read_from(|name| settings::utf8(environment.variable(name)));
        // Without networking there is no BGP, so the value of AS does not matter.
        if settings.backend() == Backend::None {
            settings.as_number = None;
            reading.mistakes.0.retain(|mistake| mistake.name != "AS");
        }
        for mistake in &reading.warnings {
            tracing::error!("{mistake}; the default is used");
        }
        if !["none", "vxlan", "bird"].contains(&settings.networking_backend.as_str()) {
            let backend = &settings.networking_backend;
            tracing::warn!(backend, "unknown CALICO_NETWORKING_BACKEND: treated as bird");
        }
        if reading.mistakes.0.is_empty() { Ok(settings) } else { Err(reading.mistakes) }
    }

    /// The backend. The old name of the setting takes precedence if it is set.
    #[must_use]
    pub fn backend(&self) -> Backend {
        match (self.networking.as_str(), self.networking_backend.as_str()) {
            ("false", _) | ("", "none") => Backend::None,
            ("", "vxlan") => Backend::Vxlan,
            _ => Backend::Bird,
        }
    }

    /// The address settings of one IP version.
    #[must_use]
    pub fn family(&self, version: IpVersion) -> FamilySettings<'_> {
        match version {
            IpVersion::V4 => FamilySettings { address: &self.ipv4, method: &self.ipv4_method },
            IpVersion::V6 => FamilySettings { address: &self.ipv6, method: &self.ipv6_method },
        }
    }

    /// The pool settings of one IP version.
    #[must_use]
    pub fn pool(&self, version: IpVersion) -> PoolSettings<'_> {
        match version {
            IpVersion::V4 => PoolSettings {
                cidr: &self.ipv4_pool_cidr,
                ipip: &self.ipv4_pool_ipip,
                vxlan: &self.ipv4_pool_vxlan,
                block_size: &self.ipv4_pool_block_size,
                node_selector: &self.ipv4_pool_node_selector,
                nat_outgoing: self.ipv4_pool_nat_outgoing,
                disable_bgp_export: self.ipv4_pool_disable_bgp_export,
            },
            IpVersion::V6 => PoolSettings {
                cidr: &self.ipv6_pool_cidr,
                ipip: "",
                vxlan: &self.ipv6_pool_vxlan,
                block_size: &self.ipv6_pool_block_size,
                node_selector: &self.ipv6_pool_node_selector,
                nat_outgoing: self.ipv6_pool_nat_outgoing,
                disable_bgp_export: self.ipv6_pool_disable_bgp_export,
            },
        }
    }
}

/// The log level; an unknown one does not keep a node down.
struct Level;

impl settings::Kind for Level {
    type Value = LevelFilter;

    fn read(&self, found: Option<&str>, default: &str) -> Result<LevelFilter, Trouble> {
        let text = found.filter(|text| !text.is_empty()).unwrap_or(default);
        daemon::log::level(text).ok_or_else(|| Trouble::Ignored("not a log level".to_owned()))
    }

    fn nothing(&self) -> LevelFilter {
        LevelFilter::INFO
    }
}

fn as_number(text: &str) -> Result<Option<ASNumber>, Trouble> {
    if text.is_empty() {
        return Ok(None);
    }
    let remedy = "set a number such as 64512 or 1.10, or unset it";
    ASNumber::from_text(text).map(Some).map_err(|reason| Trouble::Mistake(format!("{reason}: {remedy}")))
}

/// Parses a duration. An invalid one does not keep a node down.
fn interval(text: &str) -> Result<Duration, Trouble> {
    match go_duration(text) {
        Ok(interval) if !interval.is_zero() => Ok(interval),
        Ok(_) => Err(Trouble::Ignored("must be longer than zero: set a value such as 60s".to_owned())),
        Err(reason) => Err(Trouble::Ignored(reason)),
    }
}

fn optional_interval(text: &str) -> Result<Option<Duration>, Trouble> {
    if text.is_empty() { Ok(None) } else { interval(text).map(Some) }
}

fn bgp_speaker(text: &str) -> Result<BgpSpeaker, Trouble> {
    match text {
        "native" => Ok(BgpSpeaker::Native),
        "bird" => Ok(BgpSpeaker::Bird),
        _ => Err(Trouble::Ignored("must be native or bird".to_owned())),
    }
}

fn is_set(text: &str) -> Result<bool, Trouble> {
    Ok(!text.is_empty())
}

fn is_not_false(text: &str) -> Result<bool, Trouble> {
    Ok(text != "false")
}

/// Parses a switch like Felix. Felix itself reports values that it does not know.
fn felix_truth(text: &str) -> Result<bool, Trouble> {
    Ok(matches!(text.to_lowercase().as_str(), "true" | "1" | "yes" | "y" | "t"))
}

fn name(text: &str) -> Result<Option<String>, Trouble> {
    Ok(Some(text.to_owned()).filter(|name| !name.is_empty()))
}

fn trimmed(text: &str) -> Result<String, Trouble> {
    Ok(text.trim().to_owned())
}

fn lower_case(text: &str) -> Result<String, Trouble> {
    Ok(text.trim().to_lowercase())
}

#[cfg(test)]
mod tests;
