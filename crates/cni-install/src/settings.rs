//! Calico's variables for the installer, read once.

use daemon::Environment;
use std::time::Duration;

/// What the variables say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The folder of network configurations as the host sees it.
    pub net_folder: String,
    /// The name of the configuration.
    pub conf_name: String,
    /// The name that it had before.
    pub old_conf_name: String,
    /// The template, in place.
    pub template: String,
    /// The file of the template; wins.
    pub template_file: String,
    /// Where etcd's certificates are mounted.
    pub tls_folder: String,
    /// Programs of the image that are not installed.
    pub skipped: Vec<String>,
    /// Whether programs that are there are replaced.
    pub update: bool,
    /// Whether to stay after the work is done.
    pub sleep: bool,
    /// Whether a variable says so.
    pub sleep_was_said: bool,
    /// The node's name.
    pub node_name: String,
    /// The service account of the plugin's tokens.
    pub service_account: String,
    /// How often the token is renewed; by its lifetime unless set.
    pub token_interval: Option<Duration>,
}

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: {reason}")]
pub struct SettingsError {
    /// Which one.
    pub variable: &'static str,
    /// What it holds.
    pub value: String,
    /// What is wrong, and what would be right.
    pub reason: &'static str,
}

/// The value of a variable that is set to something, or the default.
pub(crate) fn text(environment: &dyn Environment, name: &str, default: &str) -> String {
    let value = environment.variable(name).and_then(|value| value.into_string().ok());
    value.filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned())
}

impl Settings {
    /// Reads the variables; `hostname` is the node's name where none says it.
    ///
    /// # Errors
    /// The first that cannot be used.
    pub fn read(environment: &dyn Environment, hostname: &str) -> Result<Self, SettingsError> {
        let get = |name: &str, default: &str| text(environment, name, default);
        let settings = Self {
            net_folder: get("CNI_NET_DIR", "/etc/cni/net.d"),
            conf_name: get("CNI_CONF_NAME", DEFAULT_CONF_NAME),
            old_conf_name: get("CNI_OLD_CONF_NAME", DEFAULT_CONF_NAME),
            template: get("CNI_NETWORK_CONFIG", ""),
            template_file: get("CNI_NETWORK_CONFIG_FILE", ""),
            tls_folder: get("TLS_ASSETS_DIR", "/calico-secrets"),
            skipped: get("SKIP_CNI_BINARIES", "").split(',').map(|name| name.trim().to_owned()).collect(),
            update: switch(environment, "UPDATE_CNI_BINARIES")?,
            sleep: switch(environment, "SLEEP")?,
            sleep_was_said: !get("SLEEP", "").is_empty(),
            node_name: get("KUBERNETES_NODE_NAME", hostname),
            service_account: get("CALICO_CNI_SERVICE_ACCOUNT", kube_access::token::DEFAULT_SERVICE_ACCOUNT),
            token_interval: interval(&get("CNI_TOKEN_REFRESH_INTERVAL", "")),
        };
        for (variable, name) in
            [("CNI_CONF_NAME", &settings.conf_name), ("CNI_OLD_CONF_NAME", &settings.old_conf_name)]
        {
            // Joined to a folder of the host, so it must not lead out of it.
            if name.contains('/') || name == ".." || name == "." {
                let reason = "must be the name of a file, without a folder";
                return Err(SettingsError { variable, value: name.clone(), reason });
            }
        }
        Ok(settings)
    }
}

const DEFAULT_CONF_NAME: &str = "10-calico.conflist";

/// A switch that is on unless it is turned off, in Go's words.
fn switch(environment: &dyn Environment, name: &'static str) -> Result<bool, SettingsError> {
    let value = text(environment, name, "true");
    match value.as_str() {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err(SettingsError { variable: name, value, reason: "must be true or false" }),
    }
}

/// A length of time. One that cannot be read is told and not used.
fn interval(value: &str) -> Option<Duration> {
    if value.is_empty() {
        return None;
    }
    let parsed = api::scalars::Duration::from(value).parse();
    if let Err(reason) = &parsed {
        tracing::error!(reason, "CNI_TOKEN_REFRESH_INTERVAL is not used");
    }
    parsed.ok().filter(|interval| !interval.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn nothing_set_means_calicos_defaults() {
        let settings = Settings::read(&Variables::default(), "host").expect("usable variables");
        assert_eq!(settings.net_folder, "/etc/cni/net.d");
        assert_eq!(
            (settings.conf_name.as_str(), settings.old_conf_name.as_str()),
            ("10-calico.conflist", "10-calico.conflist")
        );
        assert_eq!((settings.tls_folder.as_str(), settings.node_name.as_str()), ("/calico-secrets", "host"));
        assert_eq!(settings.service_account, "calico-cni-plugin");
        assert!(settings.update && settings.sleep);
    }

    #[test]
    fn variables_and_their_mistakes() {
        let settings = Settings::read(
            &Variables::new([
                ("SLEEP", "False"),
                ("UPDATE_CNI_BINARIES", "0"),
                ("SKIP_CNI_BINARIES", "tuning, bandwidth"),
                ("KUBERNETES_NODE_NAME", "n1"),
                ("CNI_TOKEN_REFRESH_INTERVAL", "soon"),
            ]),
            "host",
        )
        .expect("usable variables");
        assert!(!settings.sleep && !settings.update);
        assert_eq!(settings.skipped, ["tuning", "bandwidth"]);
        assert_eq!((settings.node_name.as_str(), settings.token_interval), ("n1", None));
        for (name, value) in [("SLEEP", "maybe"), ("CNI_CONF_NAME", "../x"), ("CNI_OLD_CONF_NAME", "..")] {
            let error = Settings::read(&Variables::new([(name, value)]), "host").expect_err(name);
            assert!(error.to_string().starts_with(&format!("{name}={value}: must be")), "{error}");
        }
    }
}
