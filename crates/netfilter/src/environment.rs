//! The host's features, and the choice of its packet filter: versions, features, nftables or iptables.
//!
//! Decisions are pure functions of the findings; functions that examine the host have `look` or `find` in their names.
//! An unreadable version counts as an old one without any optional feature.

use crate::iptables::{is_installed, parse_version};
use api::NFTablesMode;
use netlink::netfilter::{Result, nft};
use rules::Features;
use std::collections::BTreeMap;
use std::process::Command;

/// A version of three numbers.
pub type Version = (u32, u32, u32);

/// The first version whose `iptables-restore` knows the lock, and then always takes it.
const RESTORE_KNOWS_LOCK: Version = (1, 6, 2);

/// The known properties of the host's tools and kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    /// The features that rules may use.
    pub features: Features,
    /// Whether `iptables-restore` knows the lock that iptables programs share, and so always takes it.
    pub restore_supports_lock: bool,
}

/// The version in a kernel release string, such as `6.1.0-13-amd64`.
#[must_use]
pub fn parse_kernel_release(release: &str) -> Option<Version> {
    let mut numbers = release.trim().split(['.', '-', '+', '_']).map(|part| part.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??, numbers.next().flatten().unwrap_or(0)))
}

/// The features of these versions. Without iptables, nftables is used and only the kernel matters.
#[must_use]
pub fn features(iptables: Option<Version>, kernel: Option<Version>) -> Features {
    let kernel = kernel.unwrap_or((3, 10, 0));
    let iptables_has = |version: Version| iptables.is_none_or(|iptables| iptables >= version);
    Features {
        masquerade_random_fully: iptables_has((1, 6, 2)) && kernel >= (3, 14, 0),
        snat_random_fully: iptables_has((1, 6, 0)) && kernel >= (3, 14, 0),
        nflog_size: kernel >= (4, 8, 0),
    }
}

/// Applies the setting `FeatureDetectOverride`; returns messages about values that could not be understood.
pub fn override_features(environment: &mut Environment, overrides: &BTreeMap<String, String>) -> Vec<String> {
    let mut unknown = Vec::new();
    for (name, value) in overrides {
        let place = match name.as_str() {
            "SNATFullyRandom" => &mut environment.features.snat_random_fully,
            "MASQFullyRandom" => &mut environment.features.masquerade_random_fully,
            "NFLogSize" => &mut environment.features.nflog_size,
            "RestoreSupportsLock" => &mut environment.restore_supports_lock,
            _ => {
                unknown.push(format!("{name} is not a feature"));
                continue;
            }
        };
        match value.to_ascii_lowercase().as_str() {
            "1" | "t" | "true" => *place = true,
            "0" | "f" | "false" => *place = false,
            _ => unknown.push(format!("{name}: {value} is neither true nor false")),
        }
    }
    unknown
}

/// Examines the host. `with_iptables`: whether iptables programs the rules, so that its version matters.
#[must_use]
pub fn look(with_iptables: bool) -> Environment {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = parse_kernel_release(&release);
    let iptables = with_iptables.then(|| {
        let printed = Command::new("iptables").arg("--version").output();
        let printed = printed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        parse_version(&printed.unwrap_or_default()).unwrap_or((1, 4, 7))
    });
    let features = features(iptables, kernel);
    let restore_supports_lock = iptables.is_some_and(|version| version >= RESTORE_KNOWS_LOCK);
    tracing::info!(?kernel, ?iptables, ?features, restore_supports_lock, "features of this host");
    Environment { features, restore_supports_lock }
}

/// Whether nftables programs the rules, according to the setting `NFTablesMode`: `Enabled`, `Disabled`, or `Auto`,
/// which follows kube-proxy. If kube-proxy does not use nftables and the program iptables is not installed, that leaves
/// nftables.
///
/// # Errors
/// When kube-proxy's tables have to be looked for but cannot be read.
pub fn uses_nftables(
    mode: Option<NFTablesMode>,
    find_kube_proxy: impl FnOnce() -> Result<bool>,
    find_iptables: impl FnOnce() -> bool,
) -> Result<bool> {
    let (nftables, reason) = match mode {
        Some(NFTablesMode::Enabled) => (true, "by setting"),
        Some(NFTablesMode::Disabled) => (false, "by setting"),
        Some(NFTablesMode::Auto) | None => match find_kube_proxy()? {
            true => (true, "kube-proxy uses nftables"),
            false if find_iptables() => (false, "no kube-proxy with nftables found: iptables"),
            false => (true, "no kube-proxy with nftables found, and no iptables"),
        },
    };
    tracing::info!(mode = mode.map_or("", NFTablesMode::as_str), nftables, reason, "packet filter chosen");
    Ok(nftables)
}

/// Whether the program `iptables` is installed.
#[must_use]
pub fn find_iptables() -> bool {
    is_installed("iptables")
}

/// Whether kube-proxy has a table with chains in nftables.
///
/// # Errors
/// When nftables cannot be read.
pub fn find_kube_proxy_nftables() -> Result<bool> {
    let mut client = nft::Client::open()?;
    for family in [nft::Family::Ip, nft::Family::Ip6] {
        match client.has_chains(family, "kube-proxy") {
            Ok(false) => {}
            // A kernel without nftables has no tables at all.
            Err(error) if error.refusal().is_some() => tracing::debug!(%error, "nftables cannot be read"),
            found => return found,
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::{
        Environment, NFTablesMode, features, override_features, parse_kernel_release, uses_nftables,
    };
    use rules::Features;
    use std::collections::BTreeMap;

    #[test]
    fn kernel_releases_are_parsed() {
        let cases = [
            ("6.18.44-fc-v445\n", Some((6, 18, 44))),
            ("4.18.0-305.el8.x86_64", Some((4, 18, 0))),
            ("5.10+", Some((5, 10, 0))),
            ("6.1-rc3", Some((6, 1, 0))),
            ("", None),
            ("six", None),
        ];
        for (release, expected) in cases {
            assert_eq!(parse_kernel_release(release), expected, "{release}");
        }
    }

    #[test]
    fn features_follow_from_versions() {
        let all = Features { masquerade_random_fully: true, snat_random_fully: true, nflog_size: true };
        assert_eq!(features(Some((1, 8, 9)), Some((6, 1, 0))), all);
        assert_eq!(features(None, Some((6, 1, 0))), all);
        assert!(!features(Some((1, 6, 1)), Some((6, 1, 0))).masquerade_random_fully);
        assert!(features(Some((1, 6, 1)), Some((6, 1, 0))).snat_random_fully);
        assert!(!features(Some((1, 8, 9)), Some((4, 7, 9))).nflog_size);
        assert!(!features(Some((1, 8, 9)), None).snat_random_fully, "an unknown kernel is an old one");
    }

    #[test]
    fn settings_override_what_was_found() {
        let mut environment = Environment { features: Features::default(), restore_supports_lock: false };
        let overrides = [
            ("MASQFullyRandom", "false"),
            ("RestoreSupportsLock", "T"),
            ("NFLogSize", "maybe"),
            ("Magic", "true"),
        ];
        let overrides: BTreeMap<String, String> =
            overrides.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let unknown = override_features(&mut environment, &overrides);
        assert_eq!(unknown, ["Magic is not a feature", "NFLogSize: maybe is neither true nor false"]);
        assert!(!environment.features.masquerade_random_fully && environment.restore_supports_lock);
        assert!(environment.features.nflog_size);
    }

    #[test]
    fn the_setting_decides_and_auto_follows_kube_proxy() {
        for (mode, kube_proxy, iptables, expected) in [
            (Some(NFTablesMode::Enabled), false, true, true),
            (Some(NFTablesMode::Disabled), true, false, false),
            (Some(NFTablesMode::Auto), true, true, true),
            (None, false, true, false),
            (Some(NFTablesMode::Auto), false, false, true),
        ] {
            let found = uses_nftables(mode, || Ok(kube_proxy), || iptables);
            assert_eq!(found, Ok(expected), "{mode:?} {kube_proxy} {iptables}");
        }
    }
}
