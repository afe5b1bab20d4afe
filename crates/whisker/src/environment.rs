//! The environment variables of whisker-backend, one row each: Calico's names, and three of ours.

use daemon::Environment;
use daemon::log::LevelFilter;
use settings::Mistakes;
use settings::kinds::{Number, Of, Trouble, go_bool, text};
use std::path::PathBuf;

settings::settings! {
    /// The settings from the environment.
    #[derive(Clone, Debug)]
    pub struct Settings, VARIABLES {
        /// The certificate authority of Goldmane.
        ca_cert_path: PathBuf = text(), "CA_CERT_PATH", "/etc/pki/tls/certs/ca.crt";
        /// The version shown in `/config/config.json`.
        calico_version: String = text(), "CALICO_VERSION", "";
        /// Passed on in `/config/config.json` for Calico's page; our page does not use it.
        calico_cloud_url: String = text(), "CALICO_CLOUD_URL", "";
        /// The cluster's id in `/config/config.json`.
        cluster_id: String = text(), "CLUSTER_ID", "";
        /// The cluster's type in `/config/config.json`.
        cluster_type: String = text(), "CLUSTER_TYPE", "";
        /// The address of Goldmane: `host:port`, or `unix://` followed by a path.
        goldmane_host: String = text(), "GOLDMANE_HOST", "goldmane.calico-system.svc:7443";
        /// The address to listen on. Default: all addresses with a certificate, loopback without one.
        host: String = text(), "HOST", "";
        /// The least severe level that is logged.
        log_level: Level = Of(log_level), "LOG_LEVEL", "info";
        /// Whether Calico's page may show notices: `Enabled` or `Disabled`.
        notifications: String = text(), "NOTIFICATIONS", "Enabled";
        /// The port to listen on.
        port: u16 = Of(Number::parse), "PORT", "8080";
        /// The server's certificate. Without one, only this machine is served.
        server_tls_cert_path: PathBuf = text(), "SERVER_TLS_CERT_PATH", "";
        /// The key of the server's certificate.
        server_tls_key_path: PathBuf = text(), "SERVER_TLS_KEY_PATH", "";
        /// Our client certificate for Goldmane. Without one, the connection is not encrypted.
        tls_cert_path: PathBuf = text(), "TLS_CERT_PATH", "";
        /// The key of the certificate for Goldmane.
        tls_key_path: PathBuf = text(), "TLS_KEY_PATH", "";
        /// Ours: the authority that must have signed client certificates.
        client_ca_path: PathBuf = text(), "WHISKER_CLIENT_CA_PATH", "";
        /// Ours: a file with a token that clients must send as `Authorization: Bearer`.
        token_path: PathBuf = text(), "WHISKER_TOKEN_PATH", "";
        /// Ours: whether Kubernetes reviews tokens: users who may `get` the path `/flows` may see flows.
        token_review: bool = Of(truth), "WHISKER_TOKEN_REVIEW", "false";
    }
}

/// The least severe level that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Level(pub LevelFilter);

impl Default for Level {
    fn default() -> Self {
        Self(LevelFilter::INFO)
    }
}

fn truth(text: &str) -> Result<bool, Trouble> {
    go_bool(text).map_err(Trouble::Mistake)
}

fn log_level(text: &str) -> Result<Level, Trouble> {
    let ignored = || Trouble::Ignored("is not a level: info is used".to_owned());
    daemon::log::level(text).map(Level).ok_or_else(ignored)
}

impl Settings {
    /// Reads the variables.
    ///
    /// # Errors
    /// All mistakes in any of them.
    pub(crate) fn read(environment: &dyn Environment) -> Result<Self, Mistakes> {
        let (settings, reading) = Self::read_from(|name| settings::utf8(environment.variable(name)));
        for warning in &reading.warnings {
            tracing::warn!("{warning}");
        }
        if reading.mistakes.0.is_empty() { Ok(settings) } else { Err(reading.mistakes) }
    }
}
