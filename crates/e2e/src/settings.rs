//! The settings of a run, from variables: the archive of images, the manifest, the mode of kube-proxy, IP versions,
//! Calico's own program for a swap, the number of parallel tests.

use crate::families::Families;
use crate::manifest::{OURS, Source};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

/// How nodes translate services.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proxy {
    Iptables,
    Nftables,
    /// Only by our eBPF dataplane, without kube-proxy.
    None,
}

impl Proxy {
    /// kube-proxy's name for the mode; `None` if it does not run.
    pub(crate) fn word(self) -> Option<&'static str> {
        match self {
            Self::Iptables => Some("iptables"),
            Self::Nftables => Some("nftables"),
            Self::None => None,
        }
    }
}

/// This many processes keep two processors busy: most of a test is waiting.
const AT_ONCE: usize = 3;

/// A run's settings.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The archive with our images.
    pub(crate) images: PathBuf,
    /// The program, for the custom resources and our own manifest.
    pub(crate) program: PathBuf,
    /// A user's manifest, in which only `image:` is changed; ours if `None`.
    pub(crate) manifest: Option<PathBuf>,
    /// The folder of a Helm chart to install instead of a manifest.
    pub(crate) chart: Option<PathBuf>,
    /// Which of our manifests.
    pub(crate) like: String,
    /// The settings to generate it with, as `KEY=VALUE`.
    pub(crate) chosen: Vec<String>,
    /// The source of the installed images.
    pub(crate) source: Source,
    /// The folder with Calico's own program, for a swap.
    pub(crate) peer: Option<PathBuf>,
    pub(crate) proxy: Proxy,
    pub(crate) families: Families,
    /// How many processes of Kubernetes' own tests share the bed.
    pub(crate) at_once: usize,
}

impl Settings {
    /// Reads the settings from variables, with a function that looks them up.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        // The program also runs with another working directory: in a node's namespaces.
        let absolute = |value: String| std::path::absolute(&value).unwrap_or_else(|_| value.into());
        let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(absolute);
        let proxy = match variable("TORTIE_E2E_PROXY").as_deref() {
            None | Some("" | "nftables") => Proxy::Nftables,
            Some("iptables") => Proxy::Iptables,
            Some("none") => Proxy::None,
            Some(other) => bail!("TORTIE_E2E_PROXY is {other:?}; known are nftables, iptables and none"),
        };
        let at_once = match variable("TORTIE_E2E_AT_ONCE").filter(|value| !value.is_empty()) {
            None => AT_ONCE,
            Some(value) => value
                .parse()
                .ok()
                .filter(|count| *count > 0)
                .with_context(|| format!("TORTIE_E2E_AT_ONCE is {value:?}; it should be a number"))?,
        };
        Ok(Self {
            at_once,
            images: path("TORTIE_E2E_IMAGES").context("TORTIE_E2E_IMAGES is not set; `make e2e` sets it")?,
            program: path("TORTIE_E2E_PROGRAM")
                .context("TORTIE_E2E_PROGRAM is not set; `make e2e` sets it")?,
            manifest: path("TORTIE_E2E_MANIFEST"),
            chart: None,
            like: variable("TORTIE_E2E_LIKE")
                .filter(|like| !like.is_empty())
                .unwrap_or_else(|| "calico-vxlan".to_owned()),
            chosen: variable("TORTIE_E2E_SET")
                .unwrap_or_default()
                .split_whitespace()
                .map(str::to_owned)
                .collect(),
            source: OURS,
            peer: path("TORTIE_PEER_BIN"),
            proxy,
            families: Families::read(&variable("TORTIE_E2E_FAMILIES").unwrap_or_default())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Proxy, Settings};

    #[test]
    fn variables_are_read_and_mistakes_are_reported() {
        let given = |proxy: &'static str| {
            Settings::read(move |name| match name {
                "TORTIE_E2E_PROXY" => Some(proxy.to_owned()),
                "TORTIE_E2E_MANIFEST" | "TORTIE_E2E_FAMILIES" | "TORTIE_E2E_LIKE" => Some(String::new()),
                "TORTIE_E2E_AT_ONCE" => Some("5".to_owned()),
                "TORTIE_E2E_PROGRAM" => Some("target/debug/tortie".to_owned()),
                "TORTIE_E2E_SET" => Some("mtu=1400  ipv6=true".to_owned()),
                _ => Some("/x".to_owned()),
            })
        };
        let settings = given("iptables").unwrap();
        assert_eq!((settings.proxy, settings.manifest, settings.at_once), (Proxy::Iptables, None, 5));
        assert_eq!((settings.like.as_str(), settings.chosen.len()), ("calico-vxlan", 2));
        assert!(settings.program.is_absolute() && settings.program.ends_with("target/debug/tortie"));
        assert_eq!(given("none").unwrap().proxy.word(), None);
        let error = given("ipvs").unwrap_err().to_string();
        assert!(error.contains("ipvs"), "{error}");
        let error = Settings::read(|_| None).unwrap_err().to_string();
        assert!(error.contains("TORTIE_E2E_IMAGES"), "{error}");
    }
}
