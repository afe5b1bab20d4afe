//! The variables of whisker-backend, one row each: Calico's names, and three of ours.

use daemon::Environment;
use daemon::log::LevelFilter;
use settings::Mistakes;
use settings::kinds::{Number, Of, Trouble, go_bool, text};
use std::path::PathBuf;

settings::settings! {
    /// What the environment says.
    #[derive(Clone, Debug)]
    pub struct Settings, VARIABLES {
        /// The authority that signs Goldmane's certificate.
        ca_cert_path: PathBuf = text(), "CA_CERT_PATH", "/etc/pki/tls/certs/ca.crt";
        /// What `/config/config.json` says of the version.
        calico_version: String = text(), "CALICO_VERSION", "";
        /// Passed on in `/config/config.json` for Calico's page; ours asks nobody.
        calico_cloud_url: String = text(), "CALICO_CLOUD_URL", "";
        /// What `/config/config.json` says of the cluster's id.
        cluster_id: String = text(), "CLUSTER_ID", "";
        /// What `/config/config.json` says of the cluster's type.
        cluster_type: String = text(), "CLUSTER_TYPE", "";
        /// Where Goldmane is: `host:port`, or `unix://` and a path.
        goldmane_host: String = text(), "GOLDMANE_HOST", "goldmane.calico-system.svc:7443";
        /// The address to listen on. Unless set: all of them with a certificate, loopback without one.
        host: String = text(), "HOST", "";
        /// The least severe message that is logged.
        log_level: Level = Of(log_level), "LOG_LEVEL", "info";
        /// Whether Calico's page may show notices: `Enabled` or `Disabled`.
        notifications: String = text(), "NOTIFICATIONS", "Enabled";
        /// The port to listen on.
        port: u16 = Of(Number::parse), "PORT", "8080";
        /// The certificate to serve with. Without one, only this machine is served.
        server_tls_cert_path: PathBuf = text(), "SERVER_TLS_CERT_PATH", "";
        /// Its key.
        server_tls_key_path: PathBuf = text(), "SERVER_TLS_KEY_PATH", "";
        /// Our certificate for Goldmane. Without one, the connection is in the clear.
        tls_cert_path: PathBuf = text(), "TLS_CERT_PATH", "";
        /// Its key.
        tls_key_path: PathBuf = text(), "TLS_KEY_PATH", "";
        /// Ours: the authority that must have signed the certificates of clients.
        client_ca_path: PathBuf = text(), "WHISKER_CLIENT_CA_PATH", "";
        /// Ours: a file with a token that clients must show as `Authorization: Bearer`.
        token_path: PathBuf = text(), "WHISKER_TOKEN_PATH", "";
        /// Ours: whether Kubernetes is asked about tokens: who may `get` the path `/flows` may see them.
        token_review: bool = Of(truth), "WHISKER_TOKEN_REVIEW", "false";
    }
}

/// The least severe message that is logged.
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
    /// All that is wrong with any of them.
    pub(crate) fn read(environment: &dyn Environment) -> Result<Self, Mistakes> {
        let (settings, reading) = Self::read_from(|name| settings::utf8(environment.variable(name)));
        for warning in &reading.warnings {
            tracing::warn!("{warning}");
        }
        if reading.mistakes.0.is_empty() { Ok(settings) } else { Err(reading.mistakes) }
    }
}
