//! The installer's variables, one row each.

use daemon::Environment;
use settings::kinds::{Of, OnlyIf, Trouble, go_bool, go_duration, text};
use settings::{Mistakes, Reading};
use std::time::Duration;

settings::settings! {
    /// The installer's settings.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Settings, VARIABLES {
        /// The name of the network configuration.
        conf_name: String = Of(file_name), "CNI_CONF_NAME", "10-calico.conflist";
        /// The folder of network configurations, as a path on the host.
        net_folder: String = text(), "CNI_NET_DIR", "/etc/cni/net.d";
        /// The template of the network configuration; if unset, a built-in one.
        template: String = text(), "CNI_NETWORK_CONFIG", "";
        /// The file of the template; takes precedence over `CNI_NETWORK_CONFIG`.
        template_file: String = text(), "CNI_NETWORK_CONFIG_FILE", "";
        /// The previous name of the network configuration; that file is removed.
        old_conf_name: String = Of(file_name), "CNI_OLD_CONF_NAME", "10-calico.conflist";
        /// How often the plugin's token is renewed, such as `1h`; if unset, its lifetime decides.
        token_interval: Option<Duration> = Of(interval), "CNI_TOKEN_REFRESH_INTERVAL", "";
        /// The service account of the plugin's tokens.
        service_account: String = text(), "CALICO_CNI_SERVICE_ACCOUNT", "calico-cni-plugin";
        /// The node's name; if unset, the machine's.
        node_name: String = text(), "KUBERNETES_NODE_NAME", "";
        /// The address of the Kubernetes API.
        service_host: String = text(), "KUBERNETES_SERVICE_HOST", "";
        /// The port of the Kubernetes API.
        service_port: String = text(), "KUBERNETES_SERVICE_PORT", "";
        /// The protocol of the Kubernetes API.
        service_protocol: String = text(), "KUBERNETES_SERVICE_PROTOCOL", "https";
        /// Programs of the image that are not installed, separated by commas.
        skipped: Vec<String> = Of(names), "SKIP_CNI_BINARIES", "";
        /// `true`: the plugin does not check the certificate of the Kubernetes API.
        skip_tls_verify: bool = OnlyIf("true"), "SKIP_TLS_VERIFY", "";
        /// Whether to keep running and refresh credentials; if unset, whenever there are credentials, and always in a
        /// container.
        sleep: Option<bool> = Of(switch), "SLEEP", "";
        /// The folder where etcd's certificates are mounted.
        tls_folder: String = text(), "TLS_ASSETS_DIR", "/calico-secrets";
        /// Whether existing programs are replaced.
        update: bool = Of(boolean), "UPDATE_CNI_BINARIES", "true";
    }
}

impl Settings {
    /// Reads the variables; `hostname` is the node's name if no variable sets it.
    ///
    /// # Errors
    /// When variables cannot be used; the error lists all of them.
    pub fn read(environment: &dyn Environment, hostname: &str) -> Result<Self, Mistakes> {
        let (mut settings, Reading { mistakes, warnings }) =
            Self::read_from(|name| settings::utf8(environment.variable(name)));
        for warning in warnings {
            tracing::error!("{warning}");
        }
        if settings.node_name.is_empty() {
            hostname.clone_into(&mut settings.node_name);
        }
        if mistakes.0.is_empty() { Ok(settings) } else { Err(mistakes) }
    }
}

/// Parses a name that is joined to a folder of the host, so it must not lead out of that folder.
fn file_name(text: &str) -> Result<String, Trouble> {
    match text.contains('/') || text == ".." || text == "." {
        true => Err(Trouble::Mistake("must be a file name without a folder".to_owned())),
        false => Ok(text.to_owned()),
    }
}

fn names(text: &str) -> Result<Vec<String>, Trouble> {
    Ok(text.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect())
}

fn boolean(text: &str) -> Result<bool, Trouble> {
    go_bool(text).map_err(Trouble::Mistake)
}

fn switch(text: &str) -> Result<Option<bool>, Trouble> {
    if text.is_empty() { Ok(None) } else { boolean(text).map(Some) }
}

fn interval(text: &str) -> Result<Option<Duration>, Trouble> {
    if text.is_empty() {
        return Ok(None);
    }
    let interval = go_duration(text).map_err(Trouble::Ignored)?;
    Ok(Some(interval).filter(|interval| !interval.is_zero()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use daemon::Variables;

    #[test]
    fn unset_variables_mean_calicos_defaults() {
        let settings = Settings::read(&Variables::default(), "host").expect("usable variables");
        assert_eq!(settings.net_folder, "/etc/cni/net.d");
        assert_eq!(
            (settings.conf_name.as_str(), settings.old_conf_name.as_str()),
            ("10-calico.conflist", "10-calico.conflist")
        );
        assert_eq!((settings.tls_folder.as_str(), settings.node_name.as_str()), ("/calico-secrets", "host"));
        assert_eq!(settings.service_account, "calico-cni-plugin");
        assert_eq!((settings.update, settings.sleep), (true, None));
    }

    #[test]
    fn variables_are_read_and_mistakes_reported() {
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
        assert_eq!((settings.update, settings.sleep), (false, Some(false)));
        assert_eq!(settings.skipped, ["tuning", "bandwidth"]);
        assert_eq!((settings.node_name.as_str(), settings.token_interval), ("n1", None));
        let wrong = [("SLEEP", "maybe"), ("CNI_CONF_NAME", "../x"), ("CNI_OLD_CONF_NAME", "..")];
        let mistakes =
            Settings::read(&Variables::new(wrong), "host").expect_err("three mistakes").to_string();
        for (name, value) in wrong {
            assert!(mistakes.contains(&format!("{name}={value}: must be")), "{mistakes}");
        }
    }
}
