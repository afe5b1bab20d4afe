//! `calicoctl node checksystem`: whether this machine's kernel has what Calico needs.
//!
//! A feature may be loaded, loadable, built in, or only named in the kernel's configuration: any one of these will do.
//! Which features are needed depends on the dataplane, iptables or nftables.

use crate::context::Context;
use crate::failure::{Failure, Result};
use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// The oldest supported kernel.
const OLDEST: [u32; 3] = [2, 6, 24];

/// The dataplane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dataplane {
    /// iptables and IP sets.
    Iptables,
    /// nftables.
    Nftables,
}

impl Dataplane {
    fn name(self) -> &'static str {
        match self {
            Self::Iptables => "iptables",
            Self::Nftables => "nftables",
        }
    }
}

/// Where a feature is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Every node.
    All,
    /// Nodes with this dataplane.
    Only(Dataplane),
    /// Some uses of Calico only.
    Some,
}

/// A kernel feature.
struct Feature {
    name: &'static str,
    /// Alternative names of the same module.
    others: &'static [&'static str],
    /// Options of the kernel configuration, any of which suffices.
    options: &'static [&'static str],
    need: Need,
}

const fn feature(name: &'static str, options: &'static [&'static str]) -> Feature {
    Feature { name, others: &[], options, need: Need::Only(Dataplane::Iptables) }
}

impl Feature {
    const fn or(mut self, others: &'static [&'static str]) -> Self {
        self.others = others;
        self
    }

    const fn for_all(mut self) -> Self {
        self.need = Need::All;
        self
    }

    const fn for_nftables(mut self) -> Self {
        self.need = Need::Only(Dataplane::Nftables);
        self
    }

    const fn optional(mut self) -> Self {
        self.need = Need::Some;
        self
    }

    fn is_needed(&self, dataplane: Dataplane) -> bool {
        match self.need {
            Need::All => true,
            Need::Only(one) => one == dataplane,
            Need::Some => false,
        }
    }
}

/// Calico's list in Calico's order, then what only nftables needs. IPVS is for kube-proxy's IPVS mode, and virtual
/// functions are for devices passed through to virtual machines: a node runs without either.
const FEATURES: &[Feature] = &[
    feature("ip_set", &["CONFIG_IP_SET"]),
    feature("ip6_tables", &["CONFIG_IP6_NF_IPTABLES"]).optional(),
    feature("ip_tables", &["CONFIG_IP_NF_IPTABLES"]),
    feature("ipt_ipvs", &["CONFIG_NETFILTER_XT_MATCH_IPVS"]).or(&["xt_ipvs"]).optional(),
    feature("vfio-pci", &["CONFIG_VFIO", "CONFIG_VFIO_PCI"]).or(&["vfio_pci"]).optional(),
    feature("xt_bpf", &["CONFIG_BPF", "CONFIG_NETFILTER_XT_MATCH_BPF"]).optional(),
    feature(
        "ipt_REJECT",
        &["CONFIG_IP_NF_TARGET_REJECT", "CONFIG_NFT_REJECT", "CONFIG_NETFILTER_XT_TARGET_REJECT"],
    )
    .or(&["xt_REJECT"]),
    feature(
        "xt_rpfilter",
        &[
            "CONFIG_IP_NF_MATCH_RPFILTER",
            "CONFIG_IP6_NF_MATCH_RPFILTER",
            "CONFIG_NETFILTER_XT_MATCH_RPFILTER",
        ],
    )
    .or(&["ipt_rpfilter"]),
    feature("nf_conntrack_netlink", &["CONFIG_NF_CT_NETLINK"]).for_all(),
    feature("xt_addrtype", &["CONFIG_NETFILTER_XT_MATCH_ADDRTYPE"]),
    feature("xt_conntrack", &["CONFIG_NETFILTER_XT_MATCH_CONNTRACK"]),
    feature(
        "xt_mark",
        &["CONFIG_NETFILTER_XT_MARK", "CONFIG_IP_NF_TARGET_MARK", "CONFIG_NETFILTER_XT_TARGET_MARK"],
    ),
    feature("xt_multiport", &["CONFIG_NETFILTER_XT_MATCH_MULTIPORT", "CONFIG_IP_NF_MATCH_MULTIPORT"]),
    feature("xt_set", &["CONFIG_NETFILTER_XT_SET"]).or(&["ipt_set"]),
    feature("xt_u32", &["CONFIG_NETFILTER_XT_MATCH_U32"]).optional(),
    feature("nf_tables", &["CONFIG_NF_TABLES"]).for_nftables(),
    feature("nft_ct", &["CONFIG_NFT_CT"]).for_nftables(),
    feature("nft_chain_nat", &["CONFIG_NFT_NAT"]).or(&["nft_nat"]).for_nftables(),
    feature("nft_masq", &["CONFIG_NFT_MASQ"]).for_nftables(),
    feature("nft_reject", &["CONFIG_NFT_REJECT"]).or(&["nft_reject_inet"]).for_nftables(),
    feature("nft_fib", &["CONFIG_NFT_FIB_INET", "CONFIG_NFT_FIB_IPV4"]).or(&["nft_fib_inet"]).for_nftables(),
];

/// The facts about a machine's kernel: this machine's, or a test's.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// The kernel version, such as `6.1.0-13-amd64`.
    pub release: String,
    /// `modules.dep` and `modules.builtin`: a path per module.
    pub module_files: String,
    /// The modules that are loaded, or built in and visible, with underscores in their names.
    pub loaded: BTreeSet<String>,
    /// The kernel configuration, as far as it can be found.
    pub configuration: String,
}

impl Host {
    /// Reads the facts of this machine, with this configuration file instead of the usual ones if given.
    ///
    /// # Errors
    /// When the given configuration cannot be read. Everything else may be missing.
    pub fn new(kernel_config: Option<PathBuf>) -> Result<Self> {
        let text = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let release = text("/proc/sys/kernel/osrelease".into()).trim().to_owned();
        let mut loaded: BTreeSet<String> = text("/proc/modules".into())
            .lines()
            .filter_map(|line| line.split_whitespace().next())
            .map(str::to_owned)
            .collect();
        if let Ok(entries) = std::fs::read_dir("/sys/module") {
            loaded.extend(entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()));
        }
        let configuration = match kernel_config {
            Some(path) => std::fs::read_to_string(&path).map_err(|error| {
                Failure::new(format!("cannot read the kernel configuration {}: {error}", path.display()))
            })?,
            None => configuration(&release),
        };
        let module_files = format!(
            "{}\n{}",
            text(format!("/lib/modules/{release}/modules.dep")),
            text(format!("/lib/modules/{release}/modules.builtin"))
        );
        Ok(Self { release, module_files, loaded, configuration })
    }

    fn has(&self, feature: &Feature) -> bool {
        let is_there = |name: &str| {
            self.loaded.contains(&name.replace('-', "_"))
                || self.module_files.contains(&format!("/{name}.ko"))
        };
        let is_configured = |option: &str| {
            let value = |line: &str| line.strip_prefix(option)?.strip_prefix('=')?.chars().next();
            self.configuration.lines().any(|line| matches!(value(line), Some('y' | 'm')))
        };
        is_there(feature.name)
            || feature.others.iter().any(|name| is_there(name))
            || feature.options.iter().any(|option| is_configured(option))
    }
}

/// The configuration of the running kernel, from where distributions store it, or from the kernel itself.
fn configuration(release: &str) -> String {
    let places = [
        "/usr/src/linux/.config".to_owned(),
        format!("/boot/config-{release}"),
        format!("/usr/src/linux-{release}/.config"),
        format!("/usr/src/linux-headers-{release}/.config"),
        format!("/lib/modules/{release}/build/.config"),
    ];
    if let Some(path) = places.iter().find(|path| Path::new(path).exists()) {
        return std::fs::read_to_string(path).unwrap_or_default();
    }
    let mut text = String::new();
    if let Ok(file) = std::fs::File::open("/proc/config.gz") {
        // The kernel's own copy is a few hundred kilobytes; options beyond the limit are not found, which is safe.
        let _ = flate2::read::GzDecoder::new(file).take(16 << 20).read_to_string(&mut text);
    }
    text
}

/// The dataplane to check for: the named one, or the first that this kernel supports, iptables before nftables.
fn chosen(host: &Host, named: Option<Dataplane>) -> Dataplane {
    let can = |dataplane: Dataplane| {
        FEATURES.iter().all(|feature| !feature.is_needed(dataplane) || host.has(feature))
    };
    named.unwrap_or_else(|| match (can(Dataplane::Iptables), can(Dataplane::Nftables)) {
        (false, true) => Dataplane::Nftables,
        _ => Dataplane::Iptables,
    })
}

/// Prints which features are present, and checks those that a dataplane needs.
///
/// # Errors
/// When something that Calico needs is missing.
pub fn check(host: &Host, named: Option<Dataplane>, context: &mut Context) -> Result<()> {
    let dataplane = chosen(host, named);
    let mut is_ok = true;
    context.print("Checking kernel version...\n")?;
    if numbers(&host.release) >= OLDEST {
        context.print(&result(&host.release, "OK"))?;
    } else {
        is_ok = false;
        let oldest = OLDEST.map(|number| number.to_string()).join(".");
        context.print(&format!(
            "{}Minimum kernel version to run Calico is {oldest}. Detected kernel version: {}\n",
            result(&host.release, "FAIL"),
            host.release
        ))?;
    }
    context.print("Checking kernel modules...\n")?;
    for feature in FEATURES {
        let name = feature.name;
        let is_needed = feature.is_needed(dataplane);
        // Features that only nftables needs are not in Calico's list.
        if !is_needed && feature.need == Need::Only(Dataplane::Nftables) {
            continue;
        }
        if host.has(feature) {
            context.print(&result(name, "OK"))?;
        } else if !is_needed {
            context.print(&format!(
                "WARNING: Unable to detect optional module/feature {name}; continuing\n{}",
                result(name, "SKIP")
            ))?;
        } else {
            is_ok = false;
            context.print(&format!(
                "WARNING: Unable to detect the {name} module as Loaded/Builtin module or lsmod\n{}",
                result(name, "FAIL")
            ))?;
        }
    }
    if !is_ok {
        return Err(Failure::new(
            "system doesn't meet one or more minimum systems requirements to run Calico",
        ));
    }
    if dataplane != Dataplane::Iptables {
        context.print(&format!("Judged for the {} dataplane.\n", dataplane.name()))?;
    }
    context.print("System meets minimum system requirements to run Calico!\n")
}

fn result(name: &str, verdict: &str) -> String {
    format!("\t\t{name:<20}\t\t\t\t\t{verdict}\n")
}

/// The first three numbers of a version.
fn numbers(release: &str) -> [u32; 3] {
    let mut parts =
        release.split(|character: char| !character.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    [(); 3].map(|()| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        for (release, expected) in [
            ("6.1.0-13-amd64", true),
            ("2.6.24", true),
            ("2.6.23-old", false),
            ("2.7", true),
            ("10.0", true),
            ("", false),
            ("4.15.0-20-generic", true),
        ] {
            assert_eq!(numbers(release) >= OLDEST, expected, "{release}");
        }
    }

    #[test]
    fn a_kernel_is_judged_by_its_features() {
        let names = |dataplane: Dataplane| {
            let needed = FEATURES.iter().filter(|feature| feature.is_needed(dataplane));
            needed.map(|feature| feature.name.to_owned()).collect::<BTreeSet<_>>()
        };
        let host = |loaded: BTreeSet<String>| Host { loaded, ..Host::default() };
        let (iptables, nftables) = (host(names(Dataplane::Iptables)), host(names(Dataplane::Nftables)));
        for (host, named, expected) in [
            (&iptables, None, Dataplane::Iptables),
            (&nftables, None, Dataplane::Nftables),
            (&nftables, Some(Dataplane::Iptables), Dataplane::Iptables),
            (&host(BTreeSet::new()), None, Dataplane::Iptables),
        ] {
            assert_eq!(chosen(host, named), expected, "{host:?}");
        }
        assert!(!names(Dataplane::Nftables).contains("ip_tables"));
        for optional in ["ipt_ipvs", "vfio-pci"] {
            assert!(!names(Dataplane::Iptables).contains(optional));
        }
    }

    #[test]
    fn a_feature_counts_wherever_it_is_found() {
        let reject = FEATURES.iter().find(|feature| feature.name == "ipt_REJECT").expect("a feature");
        let vfio = FEATURES.iter().find(|feature| feature.name == "vfio-pci").expect("a feature");
        let loaded = |name: &str| Host { loaded: [name.to_owned()].into(), ..Host::default() };
        let files = |line: &str| Host { module_files: line.into(), ..Host::default() };
        let configured = |line: &str| Host { configuration: line.into(), ..Host::default() };
        for (host, feature, expected) in [
            (Host::default(), reject, false),
            (loaded("ipt_REJECT"), reject, true),
            (loaded("xt_REJECT"), reject, true),
            (loaded("vfio_pci"), vfio, true),
            (files("kernel/drivers/vfio/pci/vfio-pci.ko.zst: kernel/x.ko\n"), vfio, true),
            (files("kernel/net/my_ipt_REJECT.ko:\n"), reject, false),
            (configured("CONFIG_NFT_REJECT=m\n"), reject, true),
            (
                configured(
                    "# CONFIG_NFT_REJECT is not set\nCONFIG_NFT_REJECT_IPV4=m\nXCONFIG_NFT_REJECT=y\n",
                ),
                reject,
                false,
            ),
        ] {
            assert_eq!(host.has(feature), expected, "{host:?}");
        }
    }
}
