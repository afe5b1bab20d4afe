//! The variant of iptables: the one based on nftables, or the older one with tables of its own.
//!
//! Both may be installed, and both may hold rules; the right variant is the one that the rest of the host uses. It is
//! detected as in Calico: first by Kubernetes' marks, then by the number of rules. The decision is a pure function of
//! the findings; [`probe`] collects them.

use super::look;
use api::IptablesBackend;
use daemon::{Environment as _, SystemEnvironment};
use netlink::netfilter::nft;
use rules::tree::IpVersion;
use std::path::Path;
use std::process::Command;

/// A variant of iptables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    /// The older variant, with tables of its own.
    Legacy,
    /// The variant based on nftables.
    Nft,
}

impl Backend {
    /// The name in program names and settings.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Nft => "nft",
        }
    }

    /// The other variant, from which our rules have to be removed.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Legacy => Self::Nft,
            Self::Nft => Self::Legacy,
        }
    }

    /// The program for an action (`save`, `restore`): the variant's own, or the plain one if there is none.
    pub(super) fn program(
        self,
        version: IpVersion,
        action: &str,
        is_installed: impl Fn(&str) -> bool,
    ) -> String {
        let family = family(version);
        let own = format!("{family}-{}-{action}", self.as_str());
        if is_installed(&own) { own } else { format!("{family}-{action}") }
    }

    /// Whether programs of exactly this variant are installed; the plain ones may be of either.
    #[must_use]
    pub fn is_available(self, version: IpVersion) -> bool {
        let family = family(version);
        ["save", "restore"].iter().all(|action| is_installed(&format!("{family}-{}-{action}", self.as_str())))
    }
}

fn family(version: IpVersion) -> &'static str {
    match version {
        IpVersion::V4 => "iptables",
        IpVersion::V6 => "ip6tables",
    }
}

/// The findings about one variant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Whether there are chains by which Kubernetes marks the variant that it uses.
    pub kubernetes: bool,
    /// The number of rules of both families. Rules of the nft variant are counted only until there are more than of the
    /// other.
    pub rules: usize,
}

/// Chooses the variant; the setting `IptablesBackend` has precedence if it names one.
#[must_use]
pub fn choose(setting: Option<IptablesBackend>, legacy: Found, nft: Found) -> Backend {
    let detected = match (nft.kubernetes, legacy.kubernetes) {
        (true, _) => Backend::Nft,
        (false, true) => Backend::Legacy,
        (false, false) if legacy.rules >= nft.rules => Backend::Legacy,
        (false, false) => Backend::Nft,
    };
    let chosen = match setting {
        Some(IptablesBackend::Legacy) => Some(Backend::Legacy),
        Some(IptablesBackend::NFT) => Some(Backend::Nft),
        Some(IptablesBackend::Auto) | None => None,
    };
    match chosen {
        Some(chosen) if chosen != detected => {
            tracing::warn!(
                chosen = chosen.as_str(),
                detected = detected.as_str(),
                "IptablesBackend is not the variant that this host seems to use; following the setting"
            );
            chosen
        }
        Some(chosen) => chosen,
        None => {
            tracing::info!(backend = detected.as_str(), ?legacy, ?nft, "iptables variant detected");
            detected
        }
    }
}

/// Examines the rules of both variants, the older one first.
#[must_use]
pub fn probe() -> (Found, Found) {
    let legacy = probe_legacy();
    // The kernel answers at once, while the program takes seconds to print.
    let nft = probe_nft(legacy.rules).unwrap_or_else(|error| {
        tracing::debug!(%error, "cannot query nftables; assuming that it holds no rules");
        Found::default()
    });
    (legacy, nft)
}

fn probe_legacy() -> Found {
    let mut found = Found::default();
    for version in [IpVersion::V4, IpVersion::V6] {
        if !may_be_asked(Backend::Legacy, version) {
            continue;
        }
        let program = Backend::Legacy.program(version, "save", is_installed);
        let output = Command::new(&program).output();
        let printed =
            output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        found.kubernetes |= has_marks(&printed);
        found.rules += count_rules(&printed);
    }
    found
}

/// Counts rules until there are more than `enough`.
fn probe_nft(enough: usize) -> netlink::netfilter::Result<Found> {
    let mut client = nft::Client::open()?;
    let mut found = Found::default();
    for version in [IpVersion::V4, IpVersion::V6] {
        found.kubernetes |= look::has_kubernetes_marks(&mut client, version)?;
        let enough = enough.saturating_sub(found.rules);
        found.rules += look::count_rules(&mut client, version, enough)?;
    }
    Ok(found)
}

/// Whether the variant may be queried. A query of the older variant loads its modules, which adds its hooks to a host
/// that may avoid them on purpose.
pub(super) fn may_be_asked(backend: Backend, version: IpVersion) -> bool {
    let file = match version {
        IpVersion::V4 => "/proc/net/ip_tables_names",
        IpVersion::V6 => "/proc/net/ip6_tables_names",
    };
    backend == Backend::Nft || Path::new(file).exists()
}

fn has_marks(printed: &str) -> bool {
    look::KUBERNETES_MARKS.iter().any(|mark| printed.contains(mark))
}

fn count_rules(printed: &str) -> usize {
    printed.lines().filter(|line| line.starts_with('-')).count()
}

/// Whether a program is on the search path.
pub(crate) fn is_installed(program: &str) -> bool {
    SystemEnvironment.find_program(program).is_some()
}

/// The version in the output of `iptables --version`.
#[must_use]
pub fn parse_version(printed: &str) -> Option<(u32, u32, u32)> {
    let rest = &printed[printed.find(" v")? + 2..];
    let end = rest.find(|one: char| !(one.is_ascii_digit() || one == '.')).unwrap_or(rest.len());
    let mut numbers = rest[..end].split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next().unwrap_or(Ok(0)).ok()?))
}

#[cfg(test)]
mod tests {
    use super::{Backend, Found, IptablesBackend, choose, count_rules, has_marks, parse_version};
    use rules::tree::IpVersion;

    fn found(kubernetes: bool, rules: usize) -> Found {
        Found { kubernetes, rules }
    }

    #[test]
    fn kubernetes_marks_decide_then_the_number_of_rules() {
        let cases = [
            (Some(IptablesBackend::Auto), found(false, 0), found(false, 0), Backend::Legacy),
            (Some(IptablesBackend::Auto), found(false, 3), found(false, 4), Backend::Nft),
            (Some(IptablesBackend::Auto), found(false, 4), found(false, 4), Backend::Legacy),
            (None, found(true, 0), found(false, 9), Backend::Legacy),
            (Some(IptablesBackend::Auto), found(true, 9), found(true, 0), Backend::Nft),
            (Some(IptablesBackend::NFT), found(true, 9), found(false, 0), Backend::Nft),
            (Some(IptablesBackend::Legacy), found(false, 0), found(true, 9), Backend::Legacy),
        ];
        for (setting, legacy, nft, expected) in cases {
            assert_eq!(choose(setting, legacy, nft), expected, "{setting:?} {legacy:?} {nft:?}");
        }
    }

    #[test]
    fn printed_output_is_parsed() {
        assert_eq!(parse_version("iptables v1.8.9 (nf_tables)"), Some((1, 8, 9)));
        assert_eq!(parse_version("iptables v1.4.7"), Some((1, 4, 7)));
        assert_eq!(parse_version("iptables v1.8"), Some((1, 8, 0)));
        assert_eq!(parse_version("no version"), None);
        assert!(has_marks(":KUBE-KUBELET-CANARY - [0:0]"));
        assert_eq!(count_rules("*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j X\n-A INPUT -j Y\nCOMMIT\n"), 2);
    }

    #[test]
    fn the_variants_own_program_is_preferred() {
        assert_eq!(Backend::Nft.program(IpVersion::V6, "save", |_| true), "ip6tables-nft-save");
        assert_eq!(Backend::Legacy.program(IpVersion::V4, "restore", |_| false), "iptables-restore");
    }
}
