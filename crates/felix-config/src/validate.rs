//! Rules between parameters, and what Felix changes by itself in a configuration that the machine cannot follow.

use crate::choices::{DatastoreType, EtcdScheme, RedirectToPeer, ReversePathFilter, Switch};
use crate::resolve::ConfigError;
use crate::table::Config;

impl Config {
    /// Checks what no parameter can be checked for alone.
    ///
    /// # Errors
    /// The last rule that is broken, as in Calico.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let mut broken = None;
        if self.felix_hostname.is_empty() {
            broken = Some("failed to determine hostname");
        }
        if self.datastore_type == DatastoreType::EtcdV3 && self.etcd_endpoints.is_empty() {
            if self.etcd_scheme == EtcdScheme::Unset {
                broken = Some("both EtcdEndpoints and EtcdScheme are missing");
            }
            if self.etcd_addr.is_empty() {
                broken = Some("both EtcdEndpoints and EtcdAddr are missing");
            }
        }
        let files = [&self.typha_ca_file, &self.typha_cert_file, &self.typha_key_file];
        let names = [&self.typha_cn, &self.typha_uri_san];
        let any = files.iter().chain(&names).any(|text| !text.is_empty());
        let all = files.iter().all(|text| !text.is_empty()) && names.iter().any(|text| !text.is_empty());
        if any && !all {
            broken = Some(
                "if any Felix-Typha TLS config parameters are specified, they _all_ must be - except that \
                 either TyphaCN or TyphaURISAN may be left unset",
            );
        }
        broken.map_or(Ok(()), |message| Err(ConfigError::Inconsistent(message.to_owned())))
    }

    /// The overrides that the BPF dataplane needs: parameter, value and reason. `unsupported` says why the machine cannot
    /// run it, if it cannot.
    #[must_use]
    pub fn bpf_overrides(&self, unsupported: Option<&str>) -> Vec<(&'static str, &'static str, String)> {
        if !self.bpf_enabled {
            return Vec::new();
        }
        if let Some(reason) = unsupported {
            let reason = format!("the BPF dataplane is enabled but this machine cannot run it: {reason}");
            return vec![("BPFEnabled", "false", reason)];
        }
        let mut overrides = vec![(
            "BPFConntrackCleanupMode",
            "Userspace",
            "connections of the BPF dataplane are only removed from user space".to_owned(),
        )];
        if self.bpf_redirect_to_peer == RedirectToPeer::L2Only {
            let reason = "L2Only is deprecated and means Enabled".to_owned();
            overrides.push(("BPFRedirectToPeer", "Enabled", reason));
        }
        if self.ip_forwarding == Switch::Disabled && self.bpf_enforce_rpf != ReversePathFilter::Disabled {
            let reason = "the kernel looks up routes only on interfaces that forward; turn BPFEnforceRPF off to \
                          keep forwarding off";
            overrides.push(("IPForwarding", "Enabled", reason.to_owned()));
        }
        overrides
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::NoSurroundings;

    fn valid() -> Config {
        Config { felix_hostname: "node".into(), ..Config::with_defaults(&NoSurroundings) }
    }

    fn message(change: impl FnOnce(&mut Config)) -> String {
        let mut config = valid();
        change(&mut config);
        config.validate().err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn rules() {
        let tls = "if any Felix-Typha TLS config parameters are specified, they _all_ must be - except that either \
                   TyphaCN or TyphaURISAN may be left unset";
        assert_eq!(message(|_| {}), "");
        assert_eq!(message(|config| config.felix_hostname.clear()), "failed to determine hostname");
        assert_eq!(message(|config| config.etcd_addr.clear()), "both EtcdEndpoints and EtcdAddr are missing");
        assert_eq!(
            message(|config| config.etcd_scheme = EtcdScheme::Unset),
            "both EtcdEndpoints and EtcdScheme are missing"
        );
        assert_eq!(
            message(|config| {
                config.etcd_addr.clear();
                config.etcd_endpoints.push("http://a:1/".into());
            }),
            ""
        );
        assert_eq!(
            message(|config| {
                config.etcd_addr.clear();
                config.datastore_type = DatastoreType::Kubernetes;
            }),
            ""
        );
        assert_eq!(message(|config| config.typha_cn = "typha".into()), tls);
        let files = |config: &mut Config| {
            config.typha_ca_file = "ca".into();
            config.typha_cert_file = "cert".into();
            config.typha_key_file = "key".into();
        };
        assert_eq!(message(files), tls);
        assert_eq!(
            message(|config| {
                files(config);
                config.typha_uri_san = "spiffe://typha".into();
            }),
            ""
        );
    }

    #[test]
    fn bpf_has_its_way() {
        let names = |config: &Config, unsupported: Option<&str>| {
            let overrides = config.bpf_overrides(unsupported).into_iter();
            overrides.map(|(name, value, _)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
        };
        let mut config = valid();
        config.ip_forwarding = Switch::Disabled;
        config.bpf_redirect_to_peer = RedirectToPeer::L2Only;
        assert_eq!(names(&config, Some("old")), "");
        config.bpf_enabled = true;
        assert_eq!(names(&config, Some("old")), "BPFEnabled=false");
        assert_eq!(
            names(&config, None),
            "BPFConntrackCleanupMode=Userspace BPFRedirectToPeer=Enabled IPForwarding=Enabled"
        );
        config.bpf_enforce_rpf = ReversePathFilter::Disabled;
        assert_eq!(names(&config, None), "BPFConntrackCleanupMode=Userspace BPFRedirectToPeer=Enabled");
    }
}
