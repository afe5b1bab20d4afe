//! The configuration of the controllers, computed from the environment and the KubeControllersConfiguration `default`.
//!
//! - [`environment`]: the variables, read once from an injected source; all mistakes are reported together.
//! - [`merge`]: combines both sources to a [`RunConfig`], and to the status that shows users the settings in effect. A
//!   variable overrides the resource.
//! - [`resource`]: reads the resource, creates it if it does not exist, watches it and writes its status.
//!
//! If two configurations are equal, no restart is needed; nothing else about a change matters.

pub(crate) mod environment;
pub(crate) mod merge;
pub(crate) mod resource;

pub(crate) use environment::{Enabled, EnvironmentSettings};

use api::{AssignIPs, Template};
use daemon::log::LevelFilter;
use std::time::Duration;

/// The complete configuration of the controllers.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunConfig {
    /// The least severe level that is logged.
    pub log_level: LogLevel,
    /// The controllers.
    pub controllers: Controllers,
    /// How often etcd is compacted; zero for never.
    pub compaction_period: Duration,
    /// Whether health is reported.
    pub health_enabled: bool,
    /// The port of the metrics; `None` if they are not served.
    pub metrics_port: Option<u16>,
}

/// The controllers that run, each with its settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Controllers {
    /// Nodes: cleanup, garbage collection, labels, host endpoints.
    pub node: Option<NodeConfig>,
    /// Kubernetes' policies.
    pub policy: Option<SyncConfig>,
    /// Pods.
    pub workload_endpoint: Option<SyncConfig>,
    /// Service accounts.
    pub service_account: Option<SyncConfig>,
    /// Namespaces.
    pub namespace: Option<SyncConfig>,
    /// Addresses for services.
    pub load_balancer: Option<LoadBalancerConfig>,
    /// Whether policies stored under old names are renamed.
    pub policy_name_migrator: bool,
}

/// The settings of a controller that copies objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncConfig {
    /// How often everything is compared; zero for only once at the start.
    pub reconciler_period: Duration,
    /// How many workers there are.
    pub workers: usize,
}

/// The settings of the node controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NodeConfig {
    /// Whether labels are copied from Kubernetes' nodes to Calico's.
    pub sync_labels: bool,
    /// Whether a Calico node is deleted when its Kubernetes node is gone.
    pub delete_nodes: bool,
    /// The host endpoints to create for nodes.
    pub host_endpoints: HostEndpointsConfig,
    /// The time after which an unused address counts as leaked; zero turns collection off, `None` if it is not set.
    pub leak_grace_period: Option<Duration>,
}

/// How host endpoints are created.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HostEndpointsConfig {
    /// Whether they are created at all; if not, existing ones of ours are removed.
    pub auto_create: bool,
    /// Whether each node gets an endpoint for all its interfaces.
    pub create_default: bool,
    /// Templates of further endpoints.
    pub templates: Vec<Template>,
}

/// The settings of the load balancer controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadBalancerConfig {
    /// Which services get an address.
    pub assign_ips: AssignIPs,
}

/// The least severe level that is logged, with the names of Calico's logging library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    /// `panic`
    Panic,
    /// `fatal`
    Fatal,
    /// `error`
    Error,
    /// `warning`, or `warn`
    Warning,
    /// `info`
    Info,
    /// `debug`
    Debug,
    /// `trace`
    Trace,
}

impl LogLevel {
    /// The level of this name, in any case.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "panic" => Self::Panic,
            "fatal" => Self::Fatal,
            "error" => Self::Error,
            "warn" | "warning" => Self::Warning,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }

    /// The name of the level in resources.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Panic => "Panic",
            Self::Fatal => "Fatal",
            Self::Error => "Error",
            Self::Warning => "Warning",
            Self::Info => "Info",
            Self::Debug => "Debug",
            Self::Trace => "Trace",
        }
    }

    /// The level of our own log.
    #[must_use]
    pub fn filter(self) -> LevelFilter {
        daemon::log::level(self.as_str()).unwrap_or(LevelFilter::INFO)
    }
}
