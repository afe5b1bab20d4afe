//! A second layer for hosts that need the iptables mode: Debian's programs as installed on the machine that builds the
//! image, the libraries and extensions that they load, their licences, and the list of their sources.
//!
//! They are not part of this project and keep their own licences. Nftables mode needs none of it. Nothing is guessed: a
//! file that no package owns is an error.

use super::libraries;
use anyhow::{Context, Result, ensure};
use oci::{Entries, Entry};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// The programs, each of which has many names.
const PROGRAMS: [(&str, &str); 2] = [("xtables-legacy-multi", "legacy"), ("xtables-nft-multi", "nft")];

/// Extensions for matches and targets.
const EXTENSIONS: &str = "/usr/lib/x86_64-linux-gnu/xtables";

const REMEDY: &str = "install Debian's iptables (`make setup` does)";

/// Builds the layer, uncompressed.
pub(super) fn layer() -> Result<Vec<u8>> {
    let mut files = BTreeMap::new();
    for (program, _) in PROGRAMS {
        let path = format!("/usr/sbin/{program}");
        files
            .insert(path.clone(), std::fs::read(&path).with_context(|| format!("reading {path}: {REMEDY}"))?);
        files.extend(libraries::of(Path::new(&path))?);
    }
    let extensions =
        std::fs::read_dir(EXTENSIONS).with_context(|| format!("reading {EXTENSIONS}: {REMEDY}"))?;
    for extension in extensions {
        let path = extension?.path();
        files.insert(path.display().to_string(), std::fs::read(&path)?);
        // Some need more than the programs do: `statistic`, which kube-proxy uses, needs libm, and without it a table
        // with such a rule cannot be read.
        files.extend(libraries::of(&path)?);
    }
    let paths: Vec<&str> = files.keys().map(String::as_str).collect();
    let packages = packages(&paths)?;
    let mut entries = Entries::new();
    for (path, bytes) in &files {
        let path = libraries::in_layer(path);
        entries.insert(path, Entry::File { mode: 0o755, bytes: Cow::Borrowed(bytes) });
    }
    for (program, mode) in PROGRAMS {
        for (family, action) in ["iptables", "ip6tables"]
            .into_iter()
            .flat_map(|it| ["", "-save", "-restore"].map(|action| (it, action)))
        {
            entries.insert(format!("usr/sbin/{family}-{mode}{action}"), Entry::Link(program.to_owned()));
        }
    }
    let mut sources = String::from(
        "Programs and libraries of Debian, unchanged, in this layer. Their sources are in Debian's archive and\n\
         its archive of snapshots, under the names and versions of these source packages:\n\n",
    );
    for package in &packages {
        sources += &format!("{} {} (binary package {})\n", package.source, package.version, package.name);
        let path = format!("/usr/share/doc/{}/copyright", package.name);
        let text = std::fs::read(&path).with_context(|| format!("reading {path}"))?;
        entries.insert(
            format!("licenses/{}", package.name),
            Entry::File { mode: 0o644, bytes: Cow::Owned(text) },
        );
    }
    let sources = Entry::File { mode: 0o644, bytes: Cow::Owned(sources.into_bytes()) };
    entries.insert("licenses/SOURCES".to_owned(), sources);
    oci::layer(&entries)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    source: String,
    version: String,
}

/// The packages that own these files.
fn packages(paths: &[&str]) -> Result<BTreeSet<Package>> {
    // A package lists the file by its old (/lib) or its current (/usr/lib) path.
    let other = |path: &str| path.strip_prefix("/usr").map_or_else(|| format!("/usr{path}"), str::to_owned);
    let mut search = Command::new("dpkg-query");
    search.arg("--search").args(paths).args(paths.iter().map(|path| other(path)));
    // It fails if one path is unknown, which always applies to the alternative path.
    let output = search.output().context("running dpkg-query")?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let owners: BTreeMap<&str, &str> = listed
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .filter_map(|(owner, path)| Some((path, owner.split([':', ',']).next()?)))
        .collect();
    let mut names = BTreeSet::new();
    for path in paths {
        let owner = owners.get(path).or_else(|| owners.get(other(path).as_str()));
        names.insert(*owner.with_context(|| format!("no package of Debian owns {path}"))?);
    }
    let mut command = Command::new("dpkg-query");
    command.args(["--show", "--showformat=${Package} ${source:Package} ${source:Version}\\n"]).args(&names);
    let output = command.output().context("running dpkg-query")?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let packages = parse(&listed);
    ensure!(packages.len() >= names.len(), "dpkg-query does not know all of {names:?}");
    Ok(packages)
}

fn parse(listed: &str) -> BTreeSet<Package> {
    listed
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some(Package { name: words.next()?, source: words.next()?, version: words.next()? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{layer, parse};
    use std::collections::BTreeMap;
    use std::io::Read as _;

    #[test]
    fn the_layer_has_every_name_its_libraries_licences_and_sources() {
        let bytes = layer().unwrap();
        assert_eq!(bytes, layer().unwrap());
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut files = BTreeMap::new();
        for entry in archive.entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_string_lossy().into_owned();
            let mut text = Vec::new();
            entry.read_to_end(&mut text).unwrap();
            assert!(!path.starts_with("lib"), "{path} would hide a link of the layer below");
            files.insert(path, text);
        }
        for path in [
            "usr/sbin/iptables-nft-restore",
            "usr/sbin/ip6tables-legacy-save",
            "licenses/libxtables12",
            "licenses/libc6",
        ] {
            assert!(files.contains_key(path), "{path}");
        }
        assert!(
            files
                .keys()
                .any(|path| path.ends_with("/xtables/libxt_comment.so") || path.ends_with("/libxt_set.so"))
        );
        for extension in std::fs::read_dir(super::EXTENSIONS).unwrap() {
            let extension = extension.unwrap().path();
            for (library, _) in super::libraries::of(&extension).unwrap() {
                let path = super::libraries::in_layer(&library);
                assert!(files.contains_key(&path), "{} needs {path}", extension.display());
            }
        }
        let sources = String::from_utf8(files["licenses/SOURCES"].clone()).unwrap();
        assert!(sources.contains("\niptables "), "{sources}");
    }

    #[test]
    fn packages_are_read_from_lines() {
        let packages = parse("libxtables12 iptables 1.8.9-2\n\nhalf\n");
        assert_eq!(packages.len(), 1);
    }
}
