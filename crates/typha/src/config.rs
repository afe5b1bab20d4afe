//! Typha's parameters: one table; from `TYPHA_` variables and a file. Variables take precedence.
//!
//! As in Calico, an invalid value is replaced by its default, with a warning, unless continuing would be worse than not
//! starting. `none` turns a parameter off. Names are case-insensitive.

mod kinds;
mod table;

pub use table::reference_page;
pub(crate) use table::{Parameters, ROWS};

use crate::feed::FeedOptions;
use crate::rebalance::Limits;
use crate::settings::ServerSettings;
use ::settings::{Mistake, Mistakes};
use std::collections::BTreeMap;
use std::time::Duration;
use typha_client::settings::TlsParameters;

/// The prefix of variables.
const PREFIX: &str = "TYPHA_";

/// The configuration in force.
#[derive(Clone, Debug)]
pub struct Config {
    pub(crate) parameters: Parameters,
    /// Warnings to be logged.
    pub notices: Vec<String>,
}

/// Why Typha does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Invalid values of strict parameters.
    #[error("{}", listed(.0))]
    Values(Mistakes),
    /// An incomplete TLS configuration.
    #[error("{0}")]
    Tls(String),
}

fn listed(mistakes: &Mistakes) -> String {
    mistakes.0.iter().map(said).collect::<Vec<_>>().join("; ")
}

fn said(Mistake { name, value, reason }: &Mistake) -> String {
    format!("{name} is '{value}': {reason}")
}

impl Config {
    /// Reads parameters: names and values from the environment's variables (all of them; others are ignored; `Err` for
    /// a value that is not UTF-8), and from a file.
    ///
    /// # Errors
    /// When a strict parameter is invalid; all such parameters are named.
    pub fn read(
        variables: impl IntoIterator<Item = (String, Result<String, String>)>,
        file: &BTreeMap<String, String>,
    ) -> Result<Self, ConfigError> {
        let mut texts: BTreeMap<String, (String, Result<String, String>)> = file
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), (name.clone(), Ok(value.clone()))))
            .collect();
        for (name, value) in variables {
            if let Some(key) = name.to_ascii_uppercase().strip_prefix(PREFIX) {
                texts.insert(key.to_ascii_lowercase(), (name, value));
            }
        }
        let (parameters, reading) = Parameters::read_from(|name| {
            texts.get(&name.to_ascii_lowercase()).map(|(_, value)| value.clone())
        });
        if !reading.mistakes.0.is_empty() {
            return Err(ConfigError::Values(reading.mistakes));
        }
        let mut notices: Vec<String> = reading.warnings.iter().map(said).collect();
        for row in ROWS {
            texts.remove(&row.name.to_ascii_lowercase());
        }
        // Kubernetes sets variables for each service; those of Typha's own service have this prefix, too.
        let is_service = |key: &str| key.starts_with("service_") || key.starts_with("port");
        let unknown = texts.into_iter().filter(|(key, _)| !is_service(key));
        notices.extend(unknown.map(|(_, (name, _))| format!("{name} is not a parameter of Typha")));
        let config = Self { parameters, notices };
        config.tls()?;
        Ok(config)
    }

    /// The limits and intervals for clients.
    #[must_use]
    pub fn server(&self) -> ServerSettings {
        let given = &self.parameters;
        ServerSettings {
            max_fall_behind: given.server_max_fall_behind_secs,
            new_client_grace: given.server_new_client_fall_behind_grace_period,
            ping_interval: given.server_ping_interval_secs,
            pong_timeout: given.server_pong_timeout_secs,
            handshake_timeout: given.server_handshake_timeout_secs,
            write_timeout: given.server_write_timeout_secs,
            drop_interval: given.connection_drop_interval_secs,
            shutdown_timeout: given.shutdown_timeout_secs,
            shutdown_drop_interval: given.shutdown_connection_drop_interval_max_secs,
        }
        .corrected()
    }

    /// How feeds are split into messages.
    #[must_use]
    pub fn feeds(&self) -> FeedOptions {
        FeedOptions {
            largest_step: self.parameters.snapshot_cache_max_batch_size.max(1),
            largest_message: self.parameters.server_max_message_size.max(1),
        }
    }

    /// The bounds on the number of connections. An upper limit that is turned off means no limit.
    #[must_use]
    pub fn limits(&self) -> Limits {
        let upper = match self.parameters.max_connections_upper_limit {
            0 => usize::MAX,
            upper => upper,
        };
        Limits { lower: self.parameters.max_connections_lower_limit, upper }
    }

    /// How often that number is recalculated.
    #[must_use]
    pub fn poll_interval(&self) -> Duration {
        self.parameters.k8s_service_poll_interval_secs.max(Duration::from_secs(1))
    }

    /// The files for TLS and the name that clients must have; `None` if nothing of it is set.
    ///
    /// # Errors
    /// When only part of it is set: Typha never falls back to plain connections.
    pub fn tls(
        &self,
    ) -> Result<Option<(typha_client::tls::TlsFiles, typha_client::tls::PeerName)>, ConfigError> {
        let given = self.parameters.clone();
        let parameters = TlsParameters {
            key_file: given.server_key_file,
            cert_file: given.server_cert_file,
            ca_file: given.ca_file,
            common_name: given.client_cn,
            uri_san: given.client_uri_san,
        };
        parameters.resolve().map_err(|_| {
            ConfigError::Tls(
                "TLS needs ServerKeyFile, ServerCertFile, CAFile, and ClientCN or ClientURISAN; only some of them are set"
                    .to_owned(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use client::DatastoreType;
    use daemon::log::LevelFilter;

    fn read(variables: &[(&str, &str)], file: &[(&str, &str)]) -> Result<Config, ConfigError> {
        let own = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let variables = own(variables).into_iter().map(|(name, value)| (name, Ok(value)));
        Config::read(variables, &own(file).into_iter().collect())
    }

    #[test]
    fn defaults_are_calicos() {
        let config = read(&[], &[]).unwrap();
        assert_eq!(config.server(), ServerSettings::default());
        assert_eq!((config.feeds().largest_step, config.feeds().largest_message), (100, 100));
        assert_eq!(config.limits(), Limits { lower: 400, upper: 10_000 });
        assert_eq!(config.parameters.health_port, 9098);
        let datastore = config.parameters.datastore_type;
        assert_eq!((datastore.value, datastore.is_given), (Some(DatastoreType::EtcdV3), false));
        assert!(config.notices.is_empty(), "{:?}", config.notices);
        assert_eq!(config.tls(), Ok(None));
    }

    #[test]
    fn variables_beat_the_file_in_any_case() {
        let config = read(
            &[("TYPHA_SERVERPINGINTERVALSECS", "2.5"), ("typha_HealthEnabled", "TRUE"), ("PATH", "x")],
            &[("ServerPingIntervalSecs", "7"), ("healthport", "1"), ("EtcdAddr", "x:1")],
        )
        .unwrap();
        assert_eq!(config.server().ping_interval, Duration::from_millis(2500));
        assert!(config.parameters.health_enabled);
        assert_eq!(config.parameters.health_port, 1);
        let address = &config.parameters.etcd_addr;
        assert_eq!((address.value.as_str(), address.is_given), ("x:1", true));
    }

    #[test]
    fn mistakes_are_reported() {
        let config = read(
            &[
                ("TYPHA_HEALTHPORT", "99999"),
                ("TYPHA_NONSENSE", "1"),
                ("TYPHA_SERVICE_HOST", "1"),
                ("TYPHA_DEBUGPORT", "5"),
                ("TYPHA_LOGSEVERITYSCREEN", "none"),
                ("TYPHA_LOGSEVERITYFILE", "critical"),
                ("TYPHA_CONNECTIONREBALANCINGMODE", "None"),
            ],
            &[],
        )
        .unwrap();
        assert_eq!(config.parameters.health_port, 9098);
        assert_eq!(config.parameters.log_severity_screen, None);
        assert_eq!(config.parameters.log_severity_file, Some(LevelFilter::ERROR));
        assert_eq!(config.notices.len(), 3, "{:?}", config.notices);
        let unlimited = read(&[("TYPHA_MAXCONNECTIONSUPPERLIMIT", "none")], &[]).unwrap();
        assert_eq!(unlimited.limits().upper, usize::MAX);
        assert!(read(&[("TYPHA_CLIENTCN", "felix")], &[]).is_err(), "half of TLS is none");
        let both = read(&[("TYPHA_DATASTORETYPE", "mongo"), ("TYPHA_CAFILE", "/nowhere")], &[]);
        let both = both.unwrap_err().to_string();
        assert!(both.contains("DatastoreType is 'mongo'") && both.contains("CAFile is '/nowhere'"), "{both}");
        let bytes =
            Config::read([("TYPHA_HEALTHHOST".to_owned(), Err("\u{fffd}".to_owned()))], &BTreeMap::new());
        assert!(bytes.unwrap_err().to_string().contains("UTF-8"));
    }

    /// Walks the table: an invalid value is reported and replaced by the default, or refused if continuing would be
    /// worse; a parameter without effect is reported whatever its value. The compiler ensures that all others have an
    /// effect: an unused field is an error.
    #[test]
    fn every_parameter_works_or_causes_a_warning() {
        let idle: Vec<&str> =
            ROWS.iter().filter(|row| row.doc.contains("Without effect")).map(|row| row.name).collect();
        let any_text = [
            "EtcdAddr",
            "EtcdEndpoints",
            "LogFilePath",
            "HealthHost",
            "PrometheusMetricsHost",
            "PrometheusMetricsCAFile",
            "PrometheusMetricsCertFile",
            "PrometheusMetricsKeyFile",
            "ServerHost",
            "K8sNamespace",
            "K8sServiceName",
            "K8sPortName",
            "DebugMemoryProfilePath",
        ];
        let strict = [
            "DatastoreType",
            "EtcdKeyFile",
            "EtcdCertFile",
            "EtcdCaFile",
            "ServerKeyFile",
            "ServerCertFile",
            "CAFile",
        ];
        for name in
            ROWS.iter().map(|row| row.name).filter(|name| !["ClientCN", "ClientURISAN"].contains(name))
        {
            let variable = format!("TYPHA_{}", name.to_ascii_uppercase());
            let wrong = "/no/such thing";
            for outcome in [read(&[(&variable, wrong)], &[]), read(&[], &[(name, wrong)])] {
                match outcome {
                    Err(error) => {
                        assert!(strict.contains(&name) && error.to_string().contains(wrong), "{error}");
                    }
                    Ok(config) => {
                        let notices = config.notices.join(" ");
                        assert!(!strict.contains(&name), "{name} takes '{wrong}'");
                        assert_eq!(
                            notices.contains("without effect"),
                            idle.contains(&name),
                            "{name}: {notices}"
                        );
                        let is_named = notices.contains(wrong) && notices.contains(name);
                        assert_eq!(is_named, !any_text.contains(&name), "{name}: {notices}");
                    }
                }
            }
        }
        assert_eq!(idle.len(), 5, "{idle:?}");
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
    }
}
