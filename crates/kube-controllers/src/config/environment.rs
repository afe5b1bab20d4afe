//! The environment variables of the controllers, one row each in [`Values`].
//!
//! A variable that is set counts, even if it is empty: for most, an empty value is a mistake and reported as such.

use super::LogLevel;
use daemon::Environment;
use settings::Mistakes;
use settings::kinds::{Optional, go_bool, go_duration};
use std::collections::BTreeMap;
use std::time::Duration;

/// The names of the variables.
pub(crate) mod names {
    /// The least severe level that is logged.
    pub(crate) const LOG_LEVEL: &str = "LOG_LEVEL";
    /// How often everything is compared.
    pub(crate) const RECONCILER_PERIOD: &str = "RECONCILER_PERIOD";
    /// Which controllers run.
    pub(crate) const ENABLED_CONTROLLERS: &str = "ENABLED_CONTROLLERS";
    /// How often etcd is compacted.
    pub(crate) const COMPACTION_PERIOD: &str = "COMPACTION_PERIOD";
    /// Whether health is reported.
    pub(crate) const HEALTH_ENABLED: &str = "HEALTH_ENABLED";
    /// Whether labels are copied.
    pub(crate) const SYNC_NODE_LABELS: &str = "SYNC_NODE_LABELS";
    /// Whether host endpoints are created.
    pub(crate) const AUTO_HOST_ENDPOINTS: &str = "AUTO_HOST_ENDPOINTS";
    /// The number of workers for pods.
    pub(crate) const WORKLOAD_ENDPOINT_WORKERS: &str = "WORKLOAD_ENDPOINT_WORKERS";
    /// The number of workers for namespaces and service accounts.
    pub(crate) const PROFILE_WORKERS: &str = "PROFILE_WORKERS";
    /// The number of workers for policies.
    pub(crate) const POLICY_WORKERS: &str = "POLICY_WORKERS";
    /// Accepted without effect; the node controller never had more than one worker.
    pub(crate) const NODE_WORKERS: &str = "NODE_WORKERS";
}

/// The controllers that the variable may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControllerName {
    /// `node`
    Node,
    /// `policy`
    Policy,
    /// `workloadendpoint`
    WorkloadEndpoint,
    /// `serviceaccount`
    ServiceAccount,
    /// `namespace`, or `profile`
    Namespace,
    /// `loadbalancer`
    LoadBalancer,
}

settings::settings! {
    /// The values of the variables; `None` for those that are not set.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Values, VARIABLES {
        /// Whether every node gets a host endpoint: `enabled` or `disabled`.
        auto_host_endpoints: Option<bool> = Optional(enabled_or_disabled), names::AUTO_HOST_ENDPOINTS, "disabled",
            "controllers.node.hostEndpoint.autoCreate";
        /// How often old revisions of etcd are compacted; `0` for never.
        compaction_period: Option<Duration> = Optional(go_duration), names::COMPACTION_PERIOD, "10m",
            "etcdV3CompactionPeriod";
        /// Which controllers run: `node`, `policy`, `namespace` (or `profile`), `serviceaccount`, `workloadendpoint`,
        /// `loadbalancer`, separated by commas; or `flannelmigration` alone. If unset, those in the resource.
        enabled: Option<Enabled> = Optional(enabled), names::ENABLED_CONTROLLERS, "", "controllers";
        /// Whether the status file is maintained.
        health_enabled: Option<bool> = Optional(go_bool), names::HEALTH_ENABLED, "true", "healthChecks";
        /// The least severe level that is logged: `trace`, `debug`, `info`, `warning`, `error`, `fatal` or `panic`.
        log_level: Option<LogLevel> = Optional(log_level), names::LOG_LEVEL, "info", "logSeverityScreen";
        /// Accepted for compatibility: the node controller never had more than one worker.
        node_workers: Option<usize> = Optional(workers), names::NODE_WORKERS, "1";
        /// The number of workers of the policy controller, with eight concurrent requests each.
        policy_workers: Option<usize> = Optional(workers), names::POLICY_WORKERS, "1";
        /// The number of workers of the namespace and service account controllers, with eight concurrent requests each.
        profile_workers: Option<usize> = Optional(workers), names::PROFILE_WORKERS, "1";
        /// How often a controller that copies objects compares everything; `0` for only once at the start.
        reconciler_period: Option<Duration> = Optional(go_duration), names::RECONCILER_PERIOD, "5m",
            "controllers.NAME.reconcilerPeriod";
        /// Whether labels of Kubernetes' nodes are copied (etcd datastore only).
        sync_node_labels: Option<bool> = Optional(go_bool), names::SYNC_NODE_LABELS, "true",
            "controllers.node.syncLabels";
        /// The number of workers of the workload endpoint controller, with eight concurrent requests each.
        workload_endpoint_workers: Option<usize> = Optional(workers), names::WORKLOAD_ENDPOINT_WORKERS, "1";
    }
}

/// The environment's settings, both as text and parsed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EnvironmentSettings {
    /// The texts of the variables that are set, for the status.
    pub texts: BTreeMap<&'static str, String>,
    /// The parsed values.
    pub values: Values,
}

/// The controllers that the variable enables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Enabled {
    /// These controllers.
    Controllers(Vec<ControllerName>),
    /// The migration from flannel, which runs alone.
    FlannelMigration,
}

impl EnvironmentSettings {
    /// Reads the variables.
    ///
    /// # Errors
    /// When variables have unusable values; the error lists all of them.
    pub(crate) fn read(environment: &dyn Environment) -> Result<Self, Mistakes> {
        let find = |name: &str| settings::utf8(environment.variable(name));
        let (values, reading) = Values::read_from(find);
        if !reading.mistakes.0.is_empty() {
            return Err(reading.mistakes);
        }
        let texts = VARIABLES.iter().filter_map(|row| Some((row.name, find(row.name)?.ok()?)));
        Ok(Self { texts: texts.collect(), values })
    }
}

impl std::ops::Deref for EnvironmentSettings {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

fn log_level(text: &str) -> Result<LogLevel, String> {
    let known = "must be one of trace, debug, info, warning, error, fatal, panic";
    LogLevel::from_name(text).ok_or_else(|| known.to_owned())
}

fn enabled_or_disabled(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        _ => Err("must be enabled or disabled".to_owned()),
    }
}

fn workers(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "must be a number".to_owned())
}

fn enabled(text: &str) -> Result<Enabled, String> {
    if text.contains("flannelmigration") {
        let is_alone = text.trim_matches([' ', ',']) == "flannelmigration";
        let reason = || "flannelmigration must be the only controller".to_owned();
        return if is_alone { Ok(Enabled::FlannelMigration) } else { Err(reason()) };
    }
    let mut unknown = Vec::new();
    let mut enabled = Vec::new();
    for name in text.split(',').map(str::trim) {
        match name {
            "node" => enabled.push(ControllerName::Node),
            "policy" => enabled.push(ControllerName::Policy),
            "workloadendpoint" => enabled.push(ControllerName::WorkloadEndpoint),
            "serviceaccount" => enabled.push(ControllerName::ServiceAccount),
            "namespace" | "profile" => enabled.push(ControllerName::Namespace),
            "loadbalancer" => enabled.push(ControllerName::LoadBalancer),
            _ => unknown.push(format!("unknown controller '{name}'")),
        }
    }
    let known = "node, policy, namespace, serviceaccount, workloadendpoint, loadbalancer, flannelmigration";
    match unknown.is_empty() {
        true => Ok(Enabled::Controllers(enabled)),
        false => Err(format!("{} (known controllers: {known})", unknown.join(", "))),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn unset_variables_have_no_values() {
        let settings = EnvironmentSettings::read(&Variables::default()).expect("nothing can be wrong");
        assert_eq!(
            (settings.enabled.clone(), settings.log_level, settings.profile_workers),
            (None, None, None)
        );
    }

    #[test]
    fn every_variable_is_parsed() {
        let variables = Variables::new([
            (names::LOG_LEVEL, "WARN"),
            (names::ENABLED_CONTROLLERS, "profile,node, policy"),
            (names::RECONCILER_PERIOD, "105s"),
            (names::COMPACTION_PERIOD, "33m"),
            (names::HEALTH_ENABLED, "F"),
            (names::SYNC_NODE_LABELS, "1"),
            (names::AUTO_HOST_ENDPOINTS, "Enabled"),
            (names::POLICY_WORKERS, "3"),
        ]);
        let settings = EnvironmentSettings::read(&variables).expect("good variables");
        assert_eq!(settings.log_level, Some(LogLevel::Warning));
        assert_eq!(
            settings.values.enabled,
            Some(Enabled::Controllers(vec![
                ControllerName::Namespace,
                ControllerName::Node,
                ControllerName::Policy
            ]))
        );
        assert_eq!(settings.reconciler_period, Some(Duration::from_secs(105)));
        assert_eq!(settings.compaction_period, Some(Duration::from_secs(33 * 60)));
        assert_eq!((settings.health_enabled, settings.sync_node_labels), (Some(false), Some(true)));
        assert_eq!((settings.auto_host_endpoints, settings.policy_workers), (Some(true), Some(3)));
        assert_eq!(settings.texts.len(), 8);
    }

    #[test]
    fn every_mistake_is_reported() {
        let variables = Variables::new([
            (names::LOG_LEVEL, "loud"),
            (names::ENABLED_CONTROLLERS, "node,bot"),
            (names::RECONCILER_PERIOD, ""),
            (names::HEALTH_ENABLED, "yes"),
            (names::AUTO_HOST_ENDPOINTS, "on"),
            (names::NODE_WORKERS, "many"),
        ]);
        let error = EnvironmentSettings::read(&variables).expect_err("bad variables");
        assert_eq!(error.0.len(), 6, "{error}");
        assert!(error.to_string().contains("unknown controller 'bot'"), "{error}");
    }

    #[test]
    fn flannel_migration_runs_alone() {
        let read = |text| EnvironmentSettings::read(&Variables::new([(names::ENABLED_CONTROLLERS, text)]));
        assert_eq!(read(" flannelmigration,").expect("alone").enabled, Some(Enabled::FlannelMigration));
        assert!(read("flannelmigration,node").is_err());
        assert_ne!(read("node").expect("another").enabled, Some(Enabled::FlannelMigration));
    }
}
