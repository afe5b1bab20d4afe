//! The variables of the environment that the controllers know.
//!
//! A variable that is set counts, even when it is set to nothing: most have no empty value, and that is then said.

use super::LogLevel;
use client::config::Environment;
use std::collections::BTreeMap;
use std::time::Duration;

/// The names.
pub mod names {
    /// The least severe message that is logged.
    pub const LOG_LEVEL: &str = "LOG_LEVEL";
    /// How often everything is compared again.
    pub const RECONCILER_PERIOD: &str = "RECONCILER_PERIOD";
    /// Which controllers run.
    pub const ENABLED_CONTROLLERS: &str = "ENABLED_CONTROLLERS";
    /// How often etcd is compacted.
    pub const COMPACTION_PERIOD: &str = "COMPACTION_PERIOD";
    /// Whether health is reported.
    pub const HEALTH_ENABLED: &str = "HEALTH_ENABLED";
    /// Whether labels are copied.
    pub const SYNC_NODE_LABELS: &str = "SYNC_NODE_LABELS";
    /// Whether host endpoints are made.
    pub const AUTO_HOST_ENDPOINTS: &str = "AUTO_HOST_ENDPOINTS";
    /// Workers for pods.
    pub const WORKLOAD_ENDPOINT_WORKERS: &str = "WORKLOAD_ENDPOINT_WORKERS";
    /// Workers for namespaces and service accounts.
    pub const PROFILE_WORKERS: &str = "PROFILE_WORKERS";
    /// Workers for policies.
    pub const POLICY_WORKERS: &str = "POLICY_WORKERS";
    /// Accepted; the node controller never had more than one.
    pub const NODE_WORKERS: &str = "NODE_WORKERS";
}

/// The controllers that the variable may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControllerName {
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

/// What the environment says. `None` is for variables that are not set.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvironmentSettings {
    /// The variables that are set, as they are; those of the status come from here.
    pub texts: BTreeMap<&'static str, String>,
    /// The level of logging.
    pub log_level: Option<LogLevel>,
    /// The controllers; `None` leaves that to the resource.
    pub enabled: Option<Vec<ControllerName>>,
    /// Whether the migration from flannel runs, alone.
    pub flannel_migration: bool,
    /// The period of the controllers that copy.
    pub reconciler_period: Option<Duration>,
    /// The period of compaction.
    pub compaction_period: Option<Duration>,
    /// Whether health is reported.
    pub health_enabled: Option<bool>,
    /// Whether labels are copied.
    pub sync_node_labels: Option<bool>,
    /// Whether host endpoints are made.
    pub auto_host_endpoints: Option<bool>,
    /// Workers for pods.
    pub workload_endpoint_workers: usize,
    /// Workers for namespaces and service accounts.
    pub profile_workers: usize,
    /// Workers for policies.
    pub policy_workers: usize,
}

/// Variables that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("wrong environment variables: {}", .mistakes.join("; "))]
pub struct EnvironmentError {
    /// What is wrong with each.
    pub mistakes: Vec<String>,
}

impl EnvironmentSettings {
    /// Reads the variables.
    ///
    /// # Errors
    /// All that is wrong with any of them.
    pub fn read(environment: &dyn Environment) -> Result<Self, EnvironmentError> {
        let mut reader = Reader { environment, texts: BTreeMap::new(), mistakes: Vec::new() };
        let (enabled, flannel_migration) = reader.enabled();
        let settings = Self {
            log_level: reader.value(names::LOG_LEVEL, |text| {
                LogLevel::from_name(text)
                    .ok_or("must be one of trace, debug, info, warning, error, fatal, panic".to_owned())
            }),
            enabled,
            flannel_migration,
            reconciler_period: reader.value(names::RECONCILER_PERIOD, duration),
            compaction_period: reader.value(names::COMPACTION_PERIOD, duration),
            health_enabled: reader.value(names::HEALTH_ENABLED, truth),
            sync_node_labels: reader.value(names::SYNC_NODE_LABELS, truth),
            auto_host_endpoints: reader.value(names::AUTO_HOST_ENDPOINTS, |text| {
                match text.to_ascii_lowercase().as_str() {
                    "enabled" => Ok(true),
                    "disabled" => Ok(false),
                    _ => Err("must be enabled or disabled".to_owned()),
                }
            }),
            workload_endpoint_workers: reader.workers(names::WORKLOAD_ENDPOINT_WORKERS),
            profile_workers: reader.workers(names::PROFILE_WORKERS),
            policy_workers: reader.workers(names::POLICY_WORKERS),
            texts: BTreeMap::new(),
        };
        // Only its form matters.
        reader.workers(names::NODE_WORKERS);
        match reader.mistakes.is_empty() {
            true => Ok(Self { texts: reader.texts, ..settings }),
            false => Err(EnvironmentError { mistakes: reader.mistakes }),
        }
    }
}

struct Reader<'a> {
    environment: &'a dyn Environment,
    texts: BTreeMap<&'static str, String>,
    mistakes: Vec<String>,
}

impl Reader<'_> {
    fn text(&mut self, name: &'static str) -> Option<String> {
        match self.environment.variable(name)?.into_string() {
            Ok(text) => {
                self.texts.insert(name, text.clone());
                Some(text)
            }
            Err(_) => {
                self.mistakes.push(format!("{name} holds bytes that are not UTF-8"));
                None
            }
        }
    }

    fn value<T>(&mut self, name: &'static str, parse: impl Fn(&str) -> Result<T, String>) -> Option<T> {
        let text = self.text(name)?;
        parse(&text).map_err(|reason| self.mistakes.push(format!("{name} is '{text}': {reason}"))).ok()
    }

    fn workers(&mut self, name: &'static str) -> usize {
        let parse = |text: &str| text.parse().map_err(|_| "must be a number".to_owned());
        self.value(name, parse).unwrap_or(1)
    }

    fn enabled(&mut self) -> (Option<Vec<ControllerName>>, bool) {
        let Some(text) = self.text(names::ENABLED_CONTROLLERS) else { return (None, false) };
        let wrong = |reason: String| format!("{} is '{text}': {reason}", names::ENABLED_CONTROLLERS);
        if text.contains("flannelmigration") {
            let alone = text.trim_matches([' ', ',']) == "flannelmigration";
            if !alone {
                self.mistakes.push(wrong("flannelmigration must be the only controller".to_owned()));
            }
            return (Some(Vec::new()), alone);
        }
        let mut enabled = Vec::new();
        for name in text.split(',').map(str::trim) {
            enabled.push(match name {
                "node" => ControllerName::Node,
                "policy" => ControllerName::Policy,
                "workloadendpoint" => ControllerName::WorkloadEndpoint,
                "serviceaccount" => ControllerName::ServiceAccount,
                "namespace" | "profile" => ControllerName::Namespace,
                "loadbalancer" => ControllerName::LoadBalancer,
                _ => {
                    let known =
                        "node, policy, namespace, serviceaccount, workloadendpoint, loadbalancer, flannelmigration";
                    self.mistakes.push(wrong(format!("there is no controller '{name}' (there are {known})")));
                    continue;
                }
            });
        }
        (Some(enabled), false)
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    api::scalars::Duration::from(text).parse()
}

fn truth(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::io;
    use std::path::Path;

    /// Variables from a list.
    pub(in crate::config) struct Variables(pub(in crate::config) Vec<(&'static str, &'static str)>);

    impl Environment for Variables {
        fn variable(&self, name: &str) -> Option<OsString> {
            self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into())
        }

        fn read_file(&self, _: &Path) -> io::Result<String> {
            Err(io::ErrorKind::NotFound.into())
        }

        fn exists(&self, _: &Path) -> bool {
            false
        }
    }

    #[test]
    fn nothing_is_set() {
        let settings = EnvironmentSettings::read(&Variables(Vec::new())).expect("nothing can be wrong");
        assert_eq!((settings.enabled, settings.log_level, settings.profile_workers), (None, None, 1));
    }

    #[test]
    fn every_variable_is_understood() {
        let variables = Variables(vec![
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
            settings.enabled,
            Some(vec![ControllerName::Namespace, ControllerName::Node, ControllerName::Policy])
        );
        assert_eq!(settings.reconciler_period, Some(Duration::from_secs(105)));
        assert_eq!(settings.compaction_period, Some(Duration::from_secs(33 * 60)));
        assert_eq!((settings.health_enabled, settings.sync_node_labels), (Some(false), Some(true)));
        assert_eq!((settings.auto_host_endpoints, settings.policy_workers), (Some(true), 3));
        assert_eq!(settings.texts.len(), 8);
    }

    #[test]
    fn every_mistake_is_told() {
        let variables = Variables(vec![
            (names::LOG_LEVEL, "loud"),
            (names::ENABLED_CONTROLLERS, "node,bot"),
            (names::RECONCILER_PERIOD, ""),
            (names::HEALTH_ENABLED, "yes"),
            (names::AUTO_HOST_ENDPOINTS, "on"),
            (names::NODE_WORKERS, "many"),
        ]);
        let error = EnvironmentSettings::read(&variables).expect_err("bad variables");
        assert_eq!(error.mistakes.len(), 6, "{error}");
        assert!(error.to_string().contains("there is no controller 'bot'"), "{error}");
    }

    #[test]
    fn flannel_migration_runs_alone() {
        let read = |text| EnvironmentSettings::read(&Variables(vec![(names::ENABLED_CONTROLLERS, text)]));
        assert!(read(" flannelmigration,").expect("alone").flannel_migration);
        assert!(read("flannelmigration,node").is_err());
        assert!(!read("node").expect("another").flannel_migration);
    }
}
