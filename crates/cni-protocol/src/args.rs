//! `CNI_ARGS`: arguments of the caller in addition to the configuration, as `NAME=VALUE` pairs.
//!
//! Unknown names are always ignored; for the same effect Calico prepends `IgnoreUnknown=1`.

use crate::error::{CniError, Result, code};
use std::net::IpAddr;

/// The pairs that matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CniArgs {
    /// The whole text as received.
    pub text: String,
    /// The pod's name.
    pub pod_name: String,
    /// The pod's namespace.
    pub pod_namespace: String,
    /// The requested address.
    pub ip: Option<IpAddr>,
    /// The namespace of a plain container, for tests.
    pub test_namespace: String,
}

impl CniArgs {
    /// Reads the pairs.
    ///
    /// # Errors
    /// Text that is not a pair, or an invalid address.
    pub fn parse(text: &str) -> Result<Self> {
        let mut args = Self { text: text.to_owned(), ..Self::default() };
        let wrong = |message: String| CniError::new(code::INVALID_ENVIRONMENT, message);
        for pair in text.split(';').filter(|_| !text.is_empty()) {
            let mut parts = pair.split('=');
            let (Some(name), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
                return Err(wrong(format!("ARGS: invalid pair {pair:?}")));
            };
            match name {
                "K8S_POD_NAME" => value.clone_into(&mut args.pod_name),
                "K8S_POD_NAMESPACE" => value.clone_into(&mut args.pod_namespace),
                "CNI_TEST_NAMESPACE" => value.clone_into(&mut args.test_namespace),
                "IP" if value.is_empty() => args.ip = None,
                "IP" => {
                    let address = value.parse().map_err(|error| {
                        wrong(format!("ARGS: error parsing value of pair {pair:?}: {error}"))
                    })?;
                    args.ip = Some(address);
                }
                _ => {}
            }
        }
        Ok(args)
    }

    /// Whether the container is a pod of Kubernetes.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        !self.pod_name.is_empty() && !self.pod_namespace.is_empty()
    }

    /// The text for a plugin that we delegate to, with a requested address.
    #[must_use]
    pub fn for_delegate(&self, ip: Option<IpAddr>) -> String {
        let mut text = String::from("IgnoreUnknown=1");
        if !self.text.is_empty() {
            text.push(';');
            text.push_str(&self.text);
        }
        if let Some(ip) = ip {
            text.push_str(&format!(";IP={ip}"));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::CniArgs;

    #[test]
    fn pairs() {
        let args = CniArgs::parse(
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=1;IP=10.0.0.1",
        )
        .unwrap();
        assert!(args.is_pod());
        assert_eq!((args.pod_namespace.as_str(), args.pod_name.as_str()), ("shop", "web"));
        assert_eq!(args.ip, Some("10.0.0.1".parse().unwrap()));
        assert_eq!(
            CniArgs::parse("A=1").unwrap().for_delegate(Some("fd00::1".parse().unwrap())),
            "IgnoreUnknown=1;A=1;IP=fd00::1"
        );
        assert!(!CniArgs::parse("").unwrap().is_pod());
        assert!(CniArgs::parse("IP=nonsense").is_err());
        assert!(CniArgs::parse("A=1;;B=2").is_err());
    }
}
