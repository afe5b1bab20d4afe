//! Follows Typha instead of the datastore, if the configuration names one.
//!
//! Felix then waits for Typha and never follows the datastore itself. While no Typha can be reached, the programmed
//! state remains, and health reports it.

use anyhow::{Context as _, Result, anyhow};
use daemon::SystemEnvironment;
use felix_config::Config;
use follow::Events;
use std::time::Duration;
use telemetry::{Health, Pulse};
use typha_client::settings::TlsParameters;
use typha_client::{ClientSettings, Discovery, Follower, follow_unread};
use typha_wire::SyncerType;

/// The Typha that the configuration names.
#[derive(Debug, PartialEq, Eq)]
enum Named<'a> {
    Address(&'a str),
    Service { namespace: &'a str, name: &'a str },
}

fn named(config: &Config) -> Option<Named<'_>> {
    if !config.typha_addr.is_empty() {
        return Some(Named::Address(&config.typha_addr));
    }
    let (namespace, name) = (config.typha_k8s_namespace.as_str(), config.typha_k8s_service_name.as_str());
    (!name.is_empty()).then_some(Named::Service { namespace, name })
}

fn settings(config: &Config) -> Result<ClientSettings> {
    let tls = TlsParameters {
        key_file: config.typha_key_file.clone(),
        cert_file: config.typha_cert_file.clone(),
        ca_file: config.typha_ca_file.clone(),
        common_name: config.typha_cn.clone(),
        uri_san: config.typha_uri_san.clone(),
    };
    let version = env!("CARGO_PKG_VERSION");
    let info = format!("felix {version}");
    let mut settings = ClientSettings::new(SyncerType::Felix, &config.felix_hostname, &info, version);
    settings.tls = tls.resolve().map_err(|reason| anyhow!(reason))?;
    for (given, setting) in [
        (config.typha_read_timeout.or_zero(), &mut settings.read_timeout),
        (config.typha_write_timeout.or_zero(), &mut settings.write_timeout),
    ] {
        if !given.is_zero() {
            *setting = given;
        }
    }
    Ok(settings)
}

/// How to follow Typha; `None` if no Typha is configured.
///
/// # Errors
/// When the configured Typha cannot be looked for: Felix must not continue without it.
pub(crate) async fn plan(config: &Config) -> Result<Option<(Discovery, ClientSettings)>> {
    let discovery = match named(config) {
        None => return Ok(None),
        Some(Named::Address(address)) => Discovery::Address(address.to_owned()),
        Some(Named::Service { namespace, name }) => {
            let access = kube_access::KubeAccess::from_environment(&SystemEnvironment).await?;
            Discovery::Service {
                access: Box::new(
                    access.context("TyphaK8sServiceName is set, but there is no access to Kubernetes")?,
                ),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                node: config.felix_hostname.clone(),
            }
        }
    };
    Ok(Some((discovery, settings(config)?)))
}

/// Follows Typha for the calculation.
pub(crate) fn start(
    (discovery, settings): (Discovery, ClientSettings),
    health: &Health,
) -> (Follower, Events) {
    tracing::info!(typha = %discovery.describe(), "following Typha instead of the datastore");
    let pulse = Pulse::new();
    health.register("TyphaClient", &pulse, true, true, Duration::ZERO);
    follow_unread(discovery, settings, pulse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_comes_before_the_service() {
        let mut config = Config { typha_k8s_namespace: "kube-system".to_owned(), ..Config::default() };
        assert_eq!(named(&config), None);
        config.typha_k8s_service_name = "calico-typha".to_owned();
        let service = Named::Service { namespace: "kube-system", name: "calico-typha" };
        assert_eq!(named(&config), Some(service));
        config.typha_addr = "10.0.0.1:5473".to_owned();
        assert_eq!(named(&config), Some(Named::Address("10.0.0.1:5473")));
        let plain = settings(&config).unwrap();
        assert_eq!(
            (plain.read_timeout, plain.write_timeout),
            (Duration::from_secs(30), Duration::from_secs(10))
        );
        assert_eq!(plain.tls, None);
        config.typha_cn = "typha-server".to_owned();
        assert!(settings(&config).is_err(), "half of TLS is refused");
    }
}
