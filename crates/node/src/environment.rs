//! The variables that a node is started with, read once into types.
//!
//! One declared table ([`VARIABLES`]) says which variables exist, what they default to and what they mean; the reader takes
//! only names of that table, and the reference page is made from it. Sources are injected, so nothing here touches the
//! process, and every mistake is reported at once with the variable's name and a remedy.
//!
//! What the pool variables mean is decided where a pool is made ([`crate::startup::pools`]): as in Calico, a mistake in
//! them stops a node only when they are needed.

mod table;

pub use table::{VARIABLES, Variable, reference_page};

use api::scalars::{ASNumber, Duration as GoDuration};
use client::config::Environment;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// Who carries routes between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    /// A BGP daemon. Also what an unset or unknown value means.
    Bird,
    /// Felix alone, with VXLAN.
    Vxlan,
    /// Nobody: Calico enforces policy on a network that somebody else makes.
    None,
}

/// What `IP` or `IP6` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressSetting {
    /// Nothing.
    Unset,
    /// Look for one.
    Autodetect,
    /// Leave what is stored alone.
    Leave,
    /// This address, with or without its network.
    Given(String),
}

impl AddressSetting {
    fn read(text: &str) -> Self {
        match text {
            "" => Self::Unset,
            "autodetect" => Self::Autodetect,
            "none" => Self::Leave,
            given => Self::Given(given.to_owned()),
        }
    }

    /// Whether the node's interfaces of this family are told in its resource.
    #[must_use]
    pub fn lists_interfaces(&self) -> bool {
        matches!(self, Self::Autodetect | Self::Given(_))
    }
}

/// The settings of one family's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FamilySettings {
    /// `IP` or `IP6`.
    pub address: AddressSetting,
    /// `IP_AUTODETECTION_METHOD` or `IP6_AUTODETECTION_METHOD`, as written.
    pub method: String,
}

/// The settings of one family's default pool, as written; empty means not set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSettings {
    /// `CALICO_IPV*POOL_CIDR`.
    pub cidr: String,
    /// `CALICO_IPV4POOL_IPIP`.
    pub ipip: String,
    /// `CALICO_IPV*POOL_VXLAN`.
    pub vxlan: String,
    /// `CALICO_IPV*POOL_BLOCK_SIZE`.
    pub block_size: String,
    /// `CALICO_IPV*POOL_NODE_SELECTOR`.
    pub node_selector: String,
    /// `CALICO_IPV*POOL_NAT_OUTGOING`.
    pub nat_outgoing: bool,
    /// `CALICO_IPV*POOL_DISABLE_BGP_EXPORT`.
    pub disable_bgp_export: bool,
}

/// Everything that the variables say.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Where the node's name is kept.
    pub nodename_file: PathBuf,
    /// `NODENAME`, trimmed.
    pub nodename: String,
    /// `HOSTNAME`, trimmed and in lower case.
    pub hostname: String,
    /// The level of messages.
    pub log_level: tracing::Level,
    /// Whether to wait until the datastore answers.
    pub wait_for_datastore: bool,
    /// Who carries routes.
    pub backend: Backend,
    /// Kubernetes' name of this node, where it differs.
    pub kubernetes_node: Option<String>,
    /// The IPv4 address.
    pub ipv4: FamilySettings,
    /// The IPv6 address.
    pub ipv6: FamilySettings,
    /// Whether two nodes may have the same address.
    pub skip_conflict_check: bool,
    /// The node's AS number.
    pub as_number: Option<ASNumber>,
    /// Whether no default pools are made.
    pub no_default_pools: bool,
    /// The IPv4 default pool.
    pub ipv4_pool: PoolSettings,
    /// The IPv6 default pool.
    pub ipv6_pool: PoolSettings,
    /// Whether Felix handles IPv6.
    pub ipv6_support: bool,
    /// Words about the cluster.
    pub cluster_type: String,
    /// Whether nothing logs to files.
    pub disable_file_logging: bool,
    /// Whether Felix serves its health.
    pub felix_health: bool,
    /// Where Felix serves its health.
    pub felix_health_address: (String, u16),
    /// Where the time of the shutdown is kept.
    pub shutdown_file: PathBuf,
    /// Whether the CNI plugin's kubeconfig is kept fresh.
    pub manage_cni: bool,
    /// The service account of the CNI plugin's tokens.
    pub cni_service_account: String,
    /// How often those tokens are renewed; by their lifetime unless set.
    pub cni_token_interval: Option<Duration>,
    /// How often addresses are looked at again.
    pub poll_interval: Duration,
    /// Whether WireGuard's device uses the node's own address.
    pub wireguard_host_encryption: bool,
    /// Whether Felix runs elsewhere.
    pub disable_felix: bool,
    /// Who owns the folders of a node that does not run as root.
    pub node_user_id: u32,
}

/// Variables that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Mistakes(pub Vec<Mistake>);

/// One variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {reason}")]
pub struct Mistake {
    /// Which one.
    pub variable: &'static str,
    /// What it holds.
    pub value: String,
    /// What is wrong, and what to do about it.
    pub reason: String,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [only] => write!(f, "environment variable {only}"),
            several => {
                write!(f, "{} environment variables cannot be used:", several.len())?;
                several.iter().try_for_each(|mistake| write!(f, "\n  {mistake}"))
            }
        }
    }
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Errors
    /// All that cannot be used.
    pub fn read(environment: &dyn Environment) -> Result<Self, Mistakes> {
        let mut reader = Reader { environment, mistakes: Vec::new() };
        let settings = Self::read_with(&mut reader);
        if reader.mistakes.is_empty() { Ok(settings) } else { Err(Mistakes(reader.mistakes)) }
    }

    fn read_with(reader: &mut Reader<'_>) -> Self {
        let backend = reader.backend();
        // Without networking there is no BGP, and whatever AS says is not looked at.
        let as_number = if backend == Backend::None { None } else { reader.as_number() };
        Self {
            nodename_file: reader.text("CALICO_NODENAME_FILE").into(),
            nodename: reader.text("NODENAME").trim().to_owned(),
            hostname: reader.text("HOSTNAME").trim().to_lowercase(),
            log_level: reader.log_level(),
            wait_for_datastore: reader.text("WAIT_FOR_DATASTORE") == "true",
            backend,
            kubernetes_node: Some(reader.text("CALICO_K8S_NODE_REF")).filter(|name| !name.is_empty()),
            ipv4: FamilySettings {
                address: AddressSetting::read(&reader.text("IP")),
                method: reader.text("IP_AUTODETECTION_METHOD"),
            },
            ipv6: FamilySettings {
                address: AddressSetting::read(&reader.text("IP6")),
                method: reader.text("IP6_AUTODETECTION_METHOD"),
            },
            skip_conflict_check: reader.text("DISABLE_NODE_IP_CHECK") == "true",
            as_number,
            no_default_pools: reader.text("NO_DEFAULT_POOLS").eq_ignore_ascii_case("true"),
            ipv4_pool: PoolSettings {
                cidr: reader.text("CALICO_IPV4POOL_CIDR"),
                ipip: reader.text("CALICO_IPV4POOL_IPIP"),
                vxlan: reader.text("CALICO_IPV4POOL_VXLAN"),
                block_size: reader.text("CALICO_IPV4POOL_BLOCK_SIZE"),
                node_selector: reader.text("CALICO_IPV4POOL_NODE_SELECTOR"),
                nat_outgoing: reader.unless_denied("CALICO_IPV4POOL_NAT_OUTGOING", true),
                disable_bgp_export: reader.unless_denied("CALICO_IPV4POOL_DISABLE_BGP_EXPORT", false),
            },
            ipv6_pool: PoolSettings {
                cidr: reader.text("CALICO_IPV6POOL_CIDR"),
                ipip: String::new(),
                vxlan: reader.text("CALICO_IPV6POOL_VXLAN"),
                block_size: reader.text("CALICO_IPV6POOL_BLOCK_SIZE"),
                node_selector: reader.text("CALICO_IPV6POOL_NODE_SELECTOR"),
                nat_outgoing: reader.unless_denied("CALICO_IPV6POOL_NAT_OUTGOING", false),
                disable_bgp_export: reader.unless_denied("CALICO_IPV6POOL_DISABLE_BGP_EXPORT", false),
            },
            ipv6_support: reader.unless_denied("FELIX_IPV6SUPPORT", true),
            cluster_type: reader.text("CLUSTER_TYPE"),
            disable_file_logging: reader.text("CALICO_DISABLE_FILE_LOGGING").eq_ignore_ascii_case("true"),
            felix_health: reader.text("FELIX_HEALTHENABLED") == "true",
            felix_health_address: (reader.text("FELIX_HEALTHHOST"), reader.number("FELIX_HEALTHPORT")),
            shutdown_file: reader.text("CALICO_SHUTDOWN_TIMESTAMP_FILE").into(),
            manage_cni: reader.text("CALICO_MANAGE_CNI") != "false",
            cni_service_account: reader.text("CALICO_CNI_SERVICE_ACCOUNT"),
            cni_token_interval: reader.interval("CNI_TOKEN_REFRESH_INTERVAL"),
            poll_interval: reader.interval("AUTODETECT_POLL_INTERVAL").unwrap_or(POLL_INTERVAL),
            wireguard_host_encryption: reader.felix_truth("FELIX_WIREGUARDHOSTENCRYPTIONENABLED"),
            disable_felix: !reader.text("CALICO_DISABLE_FELIX").is_empty(),
            node_user_id: reader.number("NODE_USER_ID"),
        }
    }
}

/// How often addresses are looked at again unless something else is asked for.
const POLL_INTERVAL: Duration = Duration::from_secs(60);

/// Reads variables of the table and collects what is wrong with them.
struct Reader<'a> {
    environment: &'a dyn Environment,
    mistakes: Vec<Mistake>,
}

impl Reader<'_> {
    /// The value of a variable, or its default. One that is set to nothing counts as not set.
    fn text(&mut self, name: &'static str) -> String {
        let default =
            VARIABLES.iter().find(|variable| variable.name == name).map(|variable| variable.default);
        debug_assert!(default.is_some(), "{name} is not in the table of variables");
        let value = match self.environment.variable(name).map(std::ffi::OsString::into_string) {
            None => String::new(),
            Some(Ok(value)) => value,
            Some(Err(bytes)) => {
                let value = bytes.to_string_lossy().into_owned();
                self.wrong(name, &value, "holds bytes that are not UTF-8: write it again as plain text");
                String::new()
            }
        };
        if value.is_empty() { default.unwrap_or_default().to_owned() } else { value }
    }

    fn wrong(&mut self, variable: &'static str, value: &str, reason: impl Into<String>) {
        self.mistakes.push(Mistake { variable, value: value.to_owned(), reason: reason.into() });
    }

    /// Calico's reading of a switch: what is set and no word for no means yes, even an empty value.
    fn unless_denied(&mut self, name: &'static str, default: bool) -> bool {
        let Some(value) = self.environment.variable(name) else { return default };
        let value = value.to_string_lossy().to_lowercase();
        !matches!(value.as_str(), "false" | "0" | "no" | "n" | "f")
    }

    /// Felix's reading of a switch. What it does not know is Felix's to complain about.
    fn felix_truth(&mut self, name: &'static str) -> bool {
        matches!(self.text(name).to_lowercase().as_str(), "true" | "1" | "yes" | "y" | "t")
    }

    fn number<T: std::str::FromStr + Default>(&mut self, name: &'static str) -> T {
        let value = self.text(name);
        value.trim().parse().unwrap_or_else(|_| {
            self.wrong(name, &value, "is not a number in its range: set a whole number, or unset it");
            T::default()
        })
    }

    fn as_number(&mut self) -> Option<ASNumber> {
        let value = self.text("AS");
        if value.is_empty() {
            return None;
        }
        match ASNumber::from_text(&value) {
            Ok(number) => Some(number),
            Err(reason) => {
                self.wrong(
                    "AS",
                    &value,
                    format!("{reason}: set a number such as 64512 or 1.10, or unset it"),
                );
                None
            }
        }
    }

    /// A length of time. One that cannot be read is told and not used: a node must not stay down for it.
    fn interval(&mut self, name: &'static str) -> Option<Duration> {
        let value = self.text(name);
        if value.is_empty() {
            return None;
        }
        match GoDuration::from(value.as_str()).parse() {
            Ok(interval) if !interval.is_zero() => Some(interval),
            Ok(_) => {
                tracing::error!(variable = name, "a pause of nothing is not used: set one such as 60s");
                None
            }
            Err(reason) => {
                tracing::error!(variable = name, reason, "not used");
                None
            }
        }
    }

    fn log_level(&mut self) -> tracing::Level {
        use tracing::Level;
        let value = self.text("CALICO_STARTUP_LOGLEVEL");
        match value.to_lowercase().as_str() {
            "trace" => Level::TRACE,
            "debug" => Level::DEBUG,
            "info" => Level::INFO,
            "warn" | "warning" => Level::WARN,
            "error" | "fatal" | "panic" => Level::ERROR,
            _ => {
                tracing::error!(level = value, "unknown log level in CALICO_STARTUP_LOGLEVEL: using info");
                Level::INFO
            }
        }
    }

    fn backend(&mut self) -> Backend {
        // The old name of the setting wins where it is still used.
        match self.text("CALICO_NETWORKING").as_str() {
            "" => {}
            "false" => return Backend::None,
            _ => return Backend::Bird,
        }
        let value = self.text("CALICO_NETWORKING_BACKEND");
        match value.as_str() {
            "none" => Backend::None,
            "vxlan" => Backend::Vxlan,
            "bird" => Backend::Bird,
            _ => {
                tracing::warn!(backend = value, "unknown CALICO_NETWORKING_BACKEND: taken for bird");
                Backend::Bird
            }
        }
    }
}

#[cfg(test)]
mod tests;
