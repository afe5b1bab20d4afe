//! The variables that make a component other than Felix follow a Typha.
//!
//! Calico reads each of them under several prefixes, and the first that is set wins: confd and the speaker look for
//! `CONFD_TYPHA…`, `FELIX_TYPHA…` and `CALICO_TYPHA…`, the node's services for the last two. Empty and `none` mean not
//! set. Refuses incomplete TLS, and a service without access to Kubernetes: such a component must not run without
//! Typha.

use crate::discovery::Discovery;
use crate::feed::follow_feed;
use crate::reconnect::Follower;
use crate::settings::{ClientSettings, TlsParameters};
use crate::state_file;
use daemon::Environment;
use follow::FeedEvent;
use kube_access::KubeAccess;
use std::path::Path;
use std::time::Duration;
use telemetry::Pulse;
use tokio::sync::mpsc;
use typha_wire::SyncerType;

/// The prefixes that the speaker and confd look for.
pub const BGP_PREFIXES: &[&str] = &["CONFD_", "FELIX_", "CALICO_"];
/// The prefixes that the node's services look for.
pub const NODE_PREFIXES: &[&str] = &["FELIX_", "CALICO_"];

/// The namespace of the service unless one is configured.
const NAMESPACE: &str = "kube-system";

/// The component that follows Typha.
#[derive(Clone, Copy, Debug)]
pub struct Component<'a> {
    /// The feed it needs.
    pub kind: SyncerType,
    /// Its name in the server's log.
    pub name: &'a str,
    /// This node.
    pub node: &'a str,
    /// The prefixes of its variables, in lookup order.
    pub prefixes: &'a [&'a str],
    /// The folder in which components record whether they are connected, for the node's health.
    pub state_folder: &'a Path,
}

/// Why the variables are invalid.
#[derive(Debug, thiserror::Error)]
pub enum EnvironmentError {
    /// TLS is only partly configured.
    #[error("{0}")]
    Tls(String),
    /// A service is configured, but not the access to Kubernetes.
    #[error("{0} names the service of Typha, but there is no access to Kubernetes")]
    NoKubernetes(String),
    /// Kubernetes cannot be reached.
    #[error("connecting to Kubernetes, to look for Typha")]
    Kubernetes(#[from] kube_access::OpenError),
}

/// How a component follows Typha.
pub struct Plan {
    discovery: Discovery,
    settings: ClientSettings,
}

impl Plan {
    /// How Typhas are found.
    #[must_use]
    pub fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// The settings of the connection.
    #[must_use]
    pub fn settings(&self) -> &ClientSettings {
        &self.settings
    }

    /// Starts following. Needs a Tokio runtime.
    #[must_use]
    pub fn start(self) -> (Follower, mpsc::Receiver<FeedEvent>) {
        tracing::info!(
            typha = %self.discovery.describe(), syncer = %self.settings.kind,
            "following Typha instead of the datastore"
        );
        follow_feed(self.discovery, self.settings, Pulse::new())
    }
}

/// Determines how this component follows Typha; `None` if no Typha is configured.
///
/// # Errors
/// When a Typha is configured that cannot be looked for.
pub async fn plan(
    component: Component<'_>,
    environment: &(dyn Environment + Send + Sync),
) -> Result<Option<Plan>, EnvironmentError> {
    let variables = Variables { prefixes: component.prefixes, environment };
    let state_file = state_file::of(component.state_folder, component.kind);
    let address = variables.text("ADDR");
    let service = variables.find("K8SSERVICENAME");
    let discovery = match (address.as_str(), service) {
        ("", None) => {
            // The state recorded by an earlier run is no longer true.
            let _ = std::fs::remove_file(&state_file);
            return Ok(None);
        }
        ("", Some((variable, name))) => {
            let access = KubeAccess::from_environment(environment).await?;
            let access = access.ok_or(EnvironmentError::NoKubernetes(variable))?;
            let namespace = variables.find("K8SNAMESPACE").map_or(NAMESPACE.to_owned(), |(_, value)| value);
            Discovery::Service { access: Box::new(access), namespace, name, node: component.node.to_owned() }
        }
        (address, _) => Discovery::Address(address.to_owned()),
    };
    let mut settings = variables.settings(component)?;
    settings.state_file = Some(state_file);
    Ok(Some(Plan { discovery, settings }))
}

struct Variables<'a> {
    prefixes: &'a [&'a str],
    environment: &'a (dyn Environment + Send + Sync),
}

impl Variables<'_> {
    /// The first variable for this name that is set, and its value.
    fn find(&self, name: &str) -> Option<(String, String)> {
        self.prefixes.iter().find_map(|prefix| {
            let variable = format!("{prefix}TYPHA{name}");
            let value = self.environment.variable(&variable)?.into_string().ok()?;
            (!value.is_empty() && value != "none").then_some((variable, value))
        })
    }

    fn text(&self, name: &str) -> String {
        self.find(name).map(|(_, value)| value).unwrap_or_default()
    }

    /// Seconds, with an optional fraction. An invalid value counts as unset, as in Calico.
    fn seconds(&self, name: &str) -> Option<Duration> {
        let (variable, value) = self.find(name)?;
        let seconds = value.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if seconds.is_none() {
            tracing::warn!("{variable} is '{value}', which is not a number of seconds; the default is used");
        }
        seconds.filter(|seconds| !seconds.is_zero())
    }

    fn settings(&self, component: Component<'_>) -> Result<ClientSettings, EnvironmentError> {
        let version = env!("CARGO_PKG_VERSION");
        let info = format!("{} {version}", component.name);
        let mut settings = ClientSettings::new(component.kind, component.node, &info, version);
        let tls = TlsParameters {
            key_file: self.text("KEYFILE"),
            cert_file: self.text("CERTFILE"),
            ca_file: self.text("CAFILE"),
            common_name: self.text("CN"),
            uri_san: self.text("URISAN"),
        };
        settings.tls = tls.resolve().map_err(EnvironmentError::Tls)?;
        if let Some(limit) = self.seconds("READTIMEOUT") {
            settings.read_timeout = limit;
        }
        if let Some(limit) = self.seconds("WRITETIMEOUT") {
            settings.write_timeout = limit;
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    async fn planned(
        folder: &Folder,
        prefixes: &[&str],
        variables: &[(&str, &str)],
    ) -> Result<Option<Plan>, EnvironmentError> {
        let environment = daemon::Variables::new(variables.iter().copied()).with_files::<&str, &str>([]);
        let component = Component {
            kind: SyncerType::Bgp,
            name: "confd",
            node: "n1",
            prefixes,
            state_folder: folder.path(),
        };
        plan(component, &environment).await
    }

    #[tokio::test]
    async fn prefixes_are_tried_in_order() {
        let folder = Folder::new("typha-variables").unwrap();
        assert!(planned(&folder, BGP_PREFIXES, &[]).await.unwrap().is_none());
        let set = [
            ("CONFD_TYPHAADDR", "none"),
            ("FELIX_TYPHAADDR", "10.0.0.1:5473"),
            ("CALICO_TYPHAADDR", "10.0.0.2:5473"),
            ("CALICO_TYPHAREADTIMEOUT", "7.5"),
            ("FELIX_TYPHAWRITETIMEOUT", "soon"),
            ("CONFD_TYPHAK8SSERVICENAME", "calico-typha"),
        ];
        let found = planned(&folder, BGP_PREFIXES, &set).await.unwrap().unwrap();
        assert_eq!(found.discovery().describe(), "10.0.0.1:5473");
        let settings = found.settings();
        assert_eq!(
            (settings.read_timeout, settings.write_timeout),
            (Duration::from_millis(7500), Duration::from_secs(10))
        );
        assert_eq!((settings.hostname.as_str(), settings.kind), ("n1", SyncerType::Bgp));
        assert!(settings.info.starts_with("confd "), "{}", settings.info);
        // The node's services do not look for confd's.
        let confd_only = [("CONFD_TYPHAADDR", "10.0.0.1:5473")];
        assert!(planned(&folder, NODE_PREFIXES, &confd_only).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn unusable_settings_are_refused() {
        let folder = Folder::new("typha-variables").unwrap();
        let half = [("FELIX_TYPHAADDR", "10.0.0.1:5473"), ("FELIX_TYPHACN", "typha-server")];
        let refused = planned(&folder, NODE_PREFIXES, &half).await;
        assert!(matches!(refused, Err(EnvironmentError::Tls(_))));
        let service = [("CALICO_TYPHAK8SSERVICENAME", "calico-typha")];
        let refused = planned(&folder, NODE_PREFIXES, &service).await.err().expect("no access").to_string();
        assert!(refused.starts_with("CALICO_TYPHAK8SSERVICENAME names the service"), "{refused}");
    }

    #[tokio::test]
    async fn an_old_state_is_removed_when_typha_is_no_longer_configured() {
        let folder = Folder::new("typha-variables").unwrap();
        let file = state_file::of(folder.path(), SyncerType::Bgp);
        state_file::write(&file, false, "no connection");
        planned(&folder, BGP_PREFIXES, &[]).await.unwrap();
        assert_eq!(state_file::read(folder.path(), SyncerType::Bgp), None);
    }
}
