//! The guest's kernel and modules, in the cache that `scripts/guest-kernel.sh` fills: `boot/vmlinuz-VERSION` and
//! `lib/modules/VERSION` with the lists that `depmod` generates.

use super::archive::Archive;
use crate::kubernetes::cache_root;
use anyhow::{Context as _, Result, bail};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The modules of a guest: those below these folders, and their dependencies.
const WANTED: [&str; 13] = [
    "kernel/net/bridge/",
    "kernel/net/core/",
    "kernel/net/ipv4/",
    "kernel/net/ipv6/",
    "kernel/net/netfilter/",
    "kernel/net/sched/",
    "kernel/net/packet/",
    "kernel/drivers/net/dummy.ko",
    "kernel/drivers/net/ifb.ko",
    "kernel/drivers/net/tun.ko",
    "kernel/drivers/net/veth.ko",
    "kernel/drivers/net/vxlan",
    "kernel/drivers/net/wireguard/",
];

#[derive(Debug)]
pub(super) struct Kernel {
    image: PathBuf,
    modules: PathBuf,
}

impl Kernel {
    /// The newest of a series (`6.1`) in the cache.
    pub(super) fn find(series: &str) -> Result<Self> {
        let root = match std::env::var_os("TORTIE_GUEST_KERNEL") {
            Some(folder) => PathBuf::from(folder),
            None => newest(&cache_root()?, series).context(
                "this test needs a kernel for its guest: run `make setup` (or scripts/guest-kernel.sh) once",
            )?,
        };
        let only = |folder: &str, prefix: &str| -> Result<PathBuf> {
            let folder = root.join(folder);
            let mut entries = std::fs::read_dir(&folder)
                .with_context(|| format!("reading {}", folder.display()))?
                .filter_map(|entry| entry.ok().map(|entry| entry.path()));
            let found = entries.find(|path| {
                path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(prefix))
            });
            found.with_context(|| format!("nothing in {}: run scripts/guest-kernel.sh", folder.display()))
        };
        Ok(Self { image: only("boot", "vmlinuz-")?, modules: only("lib/modules", "")? })
    }

    /// The bootable image.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// Adds the network modules and the lists that the guest's `modprobe` reads, which contain no others.
    pub(super) fn add_modules(&self, archive: &mut Archive) -> Result<()> {
        let read = |name: &str| {
            let file = self.modules.join(name);
            std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))
        };
        let dependencies = read("modules.dep")?;
        let wanted = closure(&dependencies);
        if wanted.is_empty() {
            bail!("no network modules in {}", self.modules.display());
        }
        let version = self.modules.file_name().context("no version")?;
        let place = Path::new("/lib/modules").join(version);
        for module in &wanted {
            archive.add_file(&place.join(module), &self.modules.join(module))?;
        }
        let kept = |line: &&str| line.split(':').next().is_some_and(|module| wanted.contains(module));
        let list: String = dependencies.lines().filter(kept).map(|line| format!("{line}\n")).collect();
        archive.add_bytes(&place.join("modules.dep"), list.as_bytes(), false);
        for file in ["modules.alias", "modules.symbols"] {
            let names: BTreeSet<String> = wanted.iter().map(|module| module_name(module)).collect();
            let list: String = read(file)?
                .lines()
                .filter(|line| line.split_whitespace().last().is_some_and(|name| names.contains(name)))
                .map(|line| format!("{line}\n"))
                .collect();
            archive.add_bytes(&place.join(file), list.as_bytes(), false);
        }
        Ok(())
    }
}

/// The reason why there is no kernel of a series, if set-up looked for one and found none.
pub(super) fn missing(series: &str) -> Option<String> {
    if std::env::var_os("TORTIE_GUEST_KERNEL").is_some() {
        return None;
    }
    let note = cache_root().ok()?.join(format!("guest-kernel-{series}.missing"));
    std::fs::read_to_string(note).ok()
}

fn newest(cache: &Path, series: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(cache).with_context(|| format!("reading {}", cache.display()))?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found = names.filter_map(|name| Some((version_of(&name, series)?, name))).max();
    let (_, name) =
        found.with_context(|| format!("no guest-kernel-VERSION of Linux {series} in {}", cache.display()))?;
    Ok(cache.join(name))
}

/// The version numbers in a folder's name, if it is a kernel of the series: `6.1` is not `6.12`.
fn version_of(name: &str, series: &str) -> Option<Vec<u32>> {
    let rest = name.strip_prefix("guest-kernel-")?.strip_prefix(series)?.strip_prefix('.')?;
    if !rest.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let numbers = rest.split(|one: char| !one.is_ascii_digit()).map_while(|number| number.parse().ok());
    Some(numbers.collect())
}

/// The name of a module's file: `kernel/net/ipv4/ip-tunnel.ko` is the module `ip_tunnel`.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

/// The wanted modules and all their dependencies; lines are `module: needed needed`.
fn closure(dependencies: &str) -> BTreeSet<String> {
    let needs: BTreeMap<&str, Vec<&str>> = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(module, needs)| (module, needs.split_whitespace().collect()))
        .collect();
    let mut open: Vec<&str> = needs
        .keys()
        .filter(|module| WANTED.iter().any(|wanted| module.starts_with(wanted)))
        .copied()
        .collect();
    let mut found = BTreeSet::new();
    while let Some(module) = open.pop() {
        if found.insert(module.to_owned()) {
            open.extend(needs.get(module).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{closure, module_name, version_of};

    #[test]
    fn series_are_distinguished() {
        assert_eq!(version_of("guest-kernel-6.1.0-55-cloud-amd64", "6.1"), Some(vec![0, 55]));
        assert!(
            version_of("guest-kernel-6.1.0-9-amd64", "6.1")
                < version_of("guest-kernel-6.1.0-55-amd64", "6.1")
        );
        assert_eq!(version_of("guest-kernel-6.12.107+deb13-amd64", "6.12"), Some(vec![107]));
        for other in ["guest-kernel-6.12.107+deb13-amd64", "guest-kernel-6.1.missing", "build.6.1.0"] {
            assert_eq!(version_of(other, "6.1"), None, "{other}");
        }
    }

    #[test]
    fn modules_include_their_dependencies() {
        let text = "kernel/net/ipv4/ipip.ko: kernel/net/ipv4/tunnel4.ko kernel/lib/x.ko\n\
                    kernel/lib/x.ko: kernel/crypto/y.ko\nkernel/crypto/y.ko:\nkernel/sound/z.ko:\n\
                    kernel/net/ipv4/tunnel4.ko:\n";
        let found: Vec<_> = closure(text).into_iter().collect();
        assert_eq!(
            found,
            [
                "kernel/crypto/y.ko",
                "kernel/lib/x.ko",
                "kernel/net/ipv4/ipip.ko",
                "kernel/net/ipv4/tunnel4.ko"
            ]
        );
        assert_eq!(module_name("kernel/net/ipv4/ip-tunnel.ko"), "ip_tunnel");
    }
}
