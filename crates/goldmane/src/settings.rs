//! The environment variables, one row each.

use daemon::Environment;
use daemon::log::LevelFilter;
use http::Uri;
use settings::Reading;
use settings::kinds::{Number, Of, Trouble, go_bool, go_duration, text};
use std::path::PathBuf;
use std::time::Duration;

settings::settings! {
    /// The settings from the environment.
    #[derive(Clone, Debug, PartialEq)]
    pub struct Settings, VARIABLES {
        /// The length of a bucket.
        aggregation_window: Duration = Of(window), "AGGREGATION_WINDOW", "15s";
        /// The authority that signs the certificates of clients, and of the server of `PUSH_URL`.
        ca_cert_path: PathBuf = text(), "CA_CERT_PATH", "";
        /// Our certificate for `PUSH_URL`.
        client_cert_path: PathBuf = text(), "CLIENT_CERT_PATH", "";
        /// The key of the certificate for `PUSH_URL`.
        client_key_path: PathBuf = text(), "CLIENT_KEY_PATH", "";
        /// How many seconds after its end a window is sent to `PUSH_URL`.
        emit_after_seconds: u32 = Of(Number::parse), "EMIT_AFTER_SECONDS", "30";
        /// The length of the windows that are sent to `PUSH_URL`; a multiple of the length of a bucket.
        emitter_aggregation_window: Duration = Of(window), "EMITTER_AGGREGATION_WINDOW", "5m";
        /// A file that contains `{"emitFlows": true}` while flows are to be sent to `PUSH_URL`; if empty, they always
        /// are.
        file_config_path: PathBuf = text(), "FILE_CONFIG_PATH", "";
        /// Whether health is served.
        health_enabled: bool = Of(boolean), "HEALTH_ENABLED", "true";
        /// The address that serves health; all addresses if empty.
        health_host: String = text(), "HEALTH_HOST", "";
        /// The port that serves health.
        health_port: u16 = Of(Number::parse), "HEALTH_PORT", "8080";
        /// The folder of a history beyond an hour; none if empty. Used by one process at a time. Not one of Calico's.
        history_dir: PathBuf = text(), "TORTIE_GOLDMANE_HISTORY_DIR", "";
        /// The maximum total size of the history's files in bytes; the oldest hour is removed first. Not one of
        /// Calico's.
        history_bytes: u64 = Of(Number::parse), "TORTIE_GOLDMANE_HISTORY_BYTES", "1073741824";
        /// The least severe level that is logged; `info` if the name is not known.
        log_level: String = text(), "LOG_LEVEL", "info";
        /// The maximum number of flow keys kept; flows of further keys are counted as dropped. Not one of Calico's.
        most_keys: usize = Of(Number::parse), "TORTIE_GOLDMANE_MOST_KEYS", "1000000";
        /// The maximum number of series in per-policy metrics; 0 disables them. Not one of Calico's.
        policy_metrics: usize = Of(Number::parse), "TORTIE_GOLDMANE_POLICY_METRICS", "0";
        /// The port of the API.
        port: u16 = Of(Number::parse), "PORT", "443";
        /// The port that serves metrics; 0 for none.
        prometheus_port: u16 = Of(Number::parse), "PROMETHEUS_PORT", "0";
        /// In Calico, the port for Go's profiles. Not supported here: a warning is logged.
        profile_port: u16 = Of(Number::parse), "PROFILE_PORT", "0";
        /// The server to which complete flows are sent as lines of JSON; none if empty.
        push_url: Option<Uri> = Of(url), "PUSH_URL", "";
        /// The server's certificate. Without it and its key the API is unencrypted.
        server_cert_path: PathBuf = text(), "SERVER_CERT_PATH", "";
        /// The key of the server's certificate.
        server_key_path: PathBuf = text(), "SERVER_KEY_PATH", "";
        /// The name that the certificate of `PUSH_URL`'s server must have.
        server_name: String = text(), "SERVER_NAME", "tigera-linseed.tigera-elasticsearch.svc";
        /// The minimum TLS version: `1.2` or `1.3`.
        tls_min_version: String = text(), "TLS_MIN_VERSION", "";
        /// The cipher suites of TLS 1.2 by their usual names, separated by commas. Unsafe ones are ignored.
        tls_cipher_suites: String = text(), "TLS_CIPHER_SUITES", "";
    }
}

impl Settings {
    /// Reads the environment.
    ///
    /// # Errors
    /// When a variable cannot be used.
    pub fn read(environment: &dyn Environment) -> Result<Self, settings::Mistakes> {
        let (settings, Reading { mistakes, warnings }) =
            Self::read_from(|name| settings::utf8(environment.variable(name)));
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        let mut mistakes = mistakes;
        let (window, bucket) = (settings.emitter_aggregation_window, settings.aggregation_window);
        if mistakes.0.is_empty() && !window.as_secs().is_multiple_of(bucket.as_secs().max(1)) {
            mistakes.0.push(settings::Mistake {
                name: "EMITTER_AGGREGATION_WINDOW",
                value: format!("{}s", window.as_secs()),
                reason: format!("must be a multiple of AGGREGATION_WINDOW, {}s", bucket.as_secs()),
            });
        }
        if mistakes.0.is_empty() { Ok(settings) } else { Err(mistakes) }
    }

    /// The log level.
    #[must_use]
    pub fn level(&self) -> LevelFilter {
        daemon::log::level(&self.log_level).unwrap_or(LevelFilter::INFO)
    }

    /// The variables that are set but not supported.
    #[must_use]
    pub fn unsupported(&self) -> Vec<&'static str> {
        let mut names = Vec::new();
        if self.profile_port != 0 {
            names.push("PROFILE_PORT");
        }
        names
    }
}

fn url(text: &str) -> Result<Option<Uri>, Trouble> {
    if text.is_empty() {
        return Ok(None);
    }
    let url: Uri = text.parse().map_err(|_| Trouble::Mistake("is not an address".to_owned()))?;
    match (url.scheme_str(), url.host()) {
        (Some("http" | "https"), Some(_)) => Ok(Some(url)),
        _ => Err(Trouble::Mistake("must be an address with http or https".to_owned())),
    }
}

fn boolean(text: &str) -> Result<bool, Trouble> {
    go_bool(text).map_err(Trouble::Mistake)
}

fn window(text: &str) -> Result<Duration, Trouble> {
    let window = go_duration(text).map_err(Trouble::Mistake)?;
    match window.subsec_nanos() == 0 && window >= Duration::from_secs(1) {
        true => Ok(window),
        false => Err(Trouble::Mistake("must be whole seconds".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn defaults_are_calicos_and_mistakes_are_reported_together() {
        let settings = Settings::read(&Variables::default()).unwrap();
        assert_eq!((settings.port, settings.health_port, settings.prometheus_port), (443, 8080, 0));
        assert_eq!((settings.aggregation_window, settings.health_enabled), (Duration::from_secs(15), true));
        assert_eq!(settings.unsupported(), [""; 0]);
        let wrong =
            Variables::new([("PORT", "x"), ("AGGREGATION_WINDOW", "1500ms"), ("HEALTH_ENABLED", "no!")]);
        let mistakes = Settings::read(&wrong).unwrap_err();
        assert_eq!(mistakes.0.len(), 3, "{mistakes}");
        for wrong in [("PUSH_URL", "there"), ("EMITTER_AGGREGATION_WINDOW", "20s")] {
            assert_eq!(Settings::read(&Variables::new([wrong])).unwrap_err().0.len(), 1, "{wrong:?}");
        }
        let more = Variables::new([("LOG_LEVEL", "chatty"), ("PROFILE_PORT", "6060")]);
        let settings = Settings::read(&more).unwrap();
        assert_eq!(settings.level(), LevelFilter::INFO);
        assert_eq!(settings.unsupported(), ["PROFILE_PORT"]);
    }
}
