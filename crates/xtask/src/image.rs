//! `cargo xtask image`: builds container images without Docker, as one archive that containerd, kind, k3s, podman and
//! registries accept.
//!
//! ```text
//! dist/tortie ─► contents (one layer: the program, its names, empty folders) ─► oci (OCI layout and Docker's manifest in
//!                names (a config per image: entry point, user, environment)      one tar) ─► dist/tortie-images.tar
//!                bill of materials         ─► dist/sbom.spdx.json                 ─► dist/SHA256SUMS
//! ```
//!
//! The same program gives the same bytes. All images share the one layer and differ in a few hundred bytes of
//! configuration, because manifests in the field rely on the entry point, the working directory and the user of each
//! image. Refuses a name that this program cannot run, and a program that needs shared libraries, unless
//! `--with-libraries` requests an image for a test on this machine: then the libraries are added to the layer.
//! `--with-iptables` gives the node a second layer, with Debian's iptables, for hosts that need that mode. The images'
//! architecture is that of the program; `--folder=dist/arm64` uses the program in another folder than `dist/`, and
//! writes there.

mod bill;
mod contents;
mod iptables;
mod libraries;
mod names;

use anyhow::{Context, Result, bail};
use oci::{Architecture, Effort, sum};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The registry in the images' references, unless `--registry` names another.
const REGISTRY: &str = "quay.io/tortie";

/// The architecture of this machine.
const HERE: Architecture =
    if cfg!(target_arch = "aarch64") { Architecture::Arm64 } else { Architecture::Amd64 };

const KNOWN: &str = "--registry=HOST/PATH, --tag=TAG, --folder=FOLDER, --out=FILE, --with-iptables and --with-libraries=PROGRAM";

struct Options<'a> {
    registry: &'a str,
    tag: &'a str,
    /// The folder of the program, and of everything that is written.
    folder: PathBuf,
    out: Option<PathBuf>,
    /// Whether the node gets a second layer with Debian's iptables.
    with_iptables: bool,
    /// A program for tests, packed with the libraries that it needs.
    with_libraries: Option<PathBuf>,
}

fn options<'a>(arguments: &[&'a str]) -> Result<Options<'a>> {
    let tag = concat!("v", env!("CARGO_PKG_VERSION"));
    let mut options = Options {
        registry: REGISTRY,
        tag,
        folder: PathBuf::from("dist"),
        out: None,
        with_iptables: false,
        with_libraries: None,
    };
    for argument in arguments {
        if *argument == "--with-iptables" {
            options.with_iptables = true;
            continue;
        }
        match argument.split_once('=').filter(|(_, value)| !value.is_empty()) {
            Some(("--registry", value)) => options.registry = value,
            Some(("--tag", value)) => options.tag = value,
            Some(("--folder", value)) => options.folder = PathBuf::from(value),
            Some(("--out", value)) => options.out = Some(PathBuf::from(value)),
            Some(("--with-libraries", value)) => options.with_libraries = Some(PathBuf::from(value)),
            _ => bail!("unknown argument {argument:?}; known are {KNOWN}"),
        }
    }
    Ok(options)
}

/// Writes the archive, the bill of materials and the checksums beside the program in `dist/`; or, for a test, the
/// archive alone.
pub(crate) fn run(root: &Path, arguments: &[&str]) -> Result<()> {
    let options = options(arguments)?;
    let dist = root.join(&options.folder);
    let bill = bill::spdx(root)?;
    let licence = std::fs::read(root.join("LICENSE")).context("reading LICENSE")?;
    let (program, libraries, effort) = match &options.with_libraries {
        Some(program) => {
            let (program, libraries) = libraries::stripped(program)?;
            (program, libraries, Effort::Fast)
        }
        None => {
            let program = std::fs::read(dist.join("tortie"));
            let program =
                program.with_context(|| format!("reading {}/tortie: run `make build` first", dist.display()));
            (program?, Vec::new(), Effort::Best)
        }
    };
    if options.with_libraries.is_none() && is_dynamic(&program) {
        bail!(
            "dist/tortie needs shared libraries, which an empty image does not have: run `make build` first"
        );
    }
    let architecture =
        Architecture::of(&program).context("the program is not one for Linux on amd64 or arm64")?;
    if options.with_iptables && architecture != HERE {
        bail!("--with-iptables takes this machine's iptables, which is of no use on {}", architecture.name());
    }
    let parts = contents::Parts { program: &program, licence: &licence, bill: &bill, libraries: &libraries };
    let mut layers = vec![contents::layer(parts)?];
    if options.with_iptables {
        layers.push(iptables::layer()?);
    }
    let images = names::images(options.registry, options.tag, options.with_iptables, architecture);
    let archive = oci::write(&layers, &images, effort)?;
    let file = options.out.unwrap_or_else(|| dist.join("tortie-images.tar"));
    std::fs::create_dir_all(file.parent().unwrap_or(root)).context("making the folder of the archive")?;
    crate::write_whole(&file, &archive)?;
    if options.with_libraries.is_none() {
        crate::write_whole(&dist.join("sbom.spdx.json"), &bill)?;
        let mut sums = String::new();
        for (name, bytes) in
            [("tortie-images.tar", &archive), ("sbom.spdx.json", &bill), ("tortie", &program)]
        {
            writeln!(sums, "{}  {name}", sum(bytes))?;
        }
        crate::write_whole(&dist.join("SHA256SUMS"), sums.as_bytes())?;
    }
    println!("image: {}, {} kB, with", file.display(), archive.len() / 1000);
    for image in &images {
        println!("image:   {}", image.reference);
    }
    Ok(())
}

/// Whether a Linux program needs a loader of shared libraries: its path is then in the file.
fn is_dynamic(program: &[u8]) -> bool {
    let head = program.get(..4096.min(program.len())).unwrap_or_default();
    head.windows(8).any(|window| window == b"ld-linux" || window == b"/ld-musl")
}

#[cfg(test)]
mod tests;

/// Whether there is an image of this name.
#[cfg(test)]
pub(crate) fn has_name(name: &str) -> bool {
    names::IMAGES.iter().any(|image| image.name == name)
}
