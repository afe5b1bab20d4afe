//! Writes layers and images into one archive.

use crate::sum;
use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use tar::{Builder, EntryType, Header};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// A fixed date: reproducible contents have none of their own.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The architectures of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Architecture {
    /// x86-64.
    #[default]
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Architecture {
    /// The architecture of a Linux program, from the head of its file; `None` for anything else.
    #[must_use]
    pub fn of(program: &[u8]) -> Option<Self> {
        // Both are 64-bit and little-endian.
        if !program.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        match program.get(18..20)? {
            [0x3e, 0] => Some(Self::Amd64),
            [0xb7, 0] => Some(Self::Arm64),
            _ => None,
        }
    }

    /// Its name in images and in Debian's packages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

/// One image: its layers, and what it runs by default.
#[derive(Clone, Debug, Default)]
pub struct Image<'a> {
    /// The whole reference, such as `quay.io/tortie/node:v1`.
    pub reference: String,
    /// The indexes of its layers in the archive, lowest first.
    pub layers: Vec<usize>,
    /// The program, and arguments that always follow it.
    pub entry_point: Vec<&'a str>,
    /// Replaced by the arguments of a manifest.
    pub command: Vec<&'a str>,
    /// The user, as a number: `runAsNonRoot` cannot check a name.
    pub user: &'a str,
    /// Variables, as `NAME=value`.
    pub environment: Vec<&'a str>,
    /// The working folder.
    pub folder: &'a str,
    /// The processors that it runs on.
    pub architecture: Architecture,
    /// Its labels.
    pub labels: BTreeMap<&'a str, String>,
}

/// The level of compression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// For published images.
    Best,
    /// For images that are used once.
    Fast,
}

/// The files of the archive by path.
type Files = BTreeMap<String, Vec<u8>>;

/// Writes the archive.
///
/// # Errors
/// When an image refers to a layer that does not exist.
pub fn write(layers: &[Vec<u8>], images: &[Image<'_>], effort: Effort) -> Result<Vec<u8>> {
    let mut files = Files::new();
    let mut packed = Vec::new();
    for layer in layers {
        let level = if effort == Effort::Best { Compression::best() } else { Compression::fast() };
        let mut gzip = GzBuilder::new().mtime(0).write(Vec::new(), level);
        gzip.write_all(layer)?;
        packed.push((format!("sha256:{}", sum(layer)), blob(&mut files, LAYER, gzip.finish()?)));
    }
    let mut manifests = Vec::new();
    let mut for_docker = Vec::new();
    for image in images {
        let layers = image.layers.iter().map(|index| packed.get(*index));
        let layers =
            layers.collect::<Option<Vec<_>>>().context("an image refers to a layer that does not exist")?;
        let differences: Vec<&str> = layers.iter().map(|(difference, _)| difference.as_str()).collect();
        let config = serde_json::to_vec(&configuration(image, &differences))?;
        let config = blob(&mut files, CONFIG, config);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config.value(),
            "layers": layers.iter().map(|(_, layer)| layer.value()).collect::<Vec<_>>(),
        });
        let mut entry = blob(&mut files, MANIFEST, serde_json::to_vec(&manifest)?).value();
        let tag = image.reference.rsplit_once(':').map_or("latest", |(_, tag)| tag);
        entry["annotations"] = json!({
            "io.containerd.image.name": image.reference,
            "org.opencontainers.image.ref.name": tag,
        });
        entry["platform"] = json!({"architecture": image.architecture.name(), "os": "linux"});
        manifests.push(entry);
        let paths: Vec<String> = layers.iter().map(|(_, layer)| layer.path()).collect();
        for_docker.push(json!({"Config": config.path(), "RepoTags": [image.reference], "Layers": paths}));
    }
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests});
    files.insert("index.json".to_owned(), serde_json::to_vec(&index)?);
    files.insert("manifest.json".to_owned(), serde_json::to_vec(&for_docker)?);
    files.insert("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec());
    pack(&files)
}

struct Blob {
    kind: &'static str,
    digest: String,
    size: usize,
}

impl Blob {
    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn value(&self) -> Value {
        json!({"mediaType": self.kind, "digest": format!("sha256:{}", self.digest), "size": self.size})
    }
}

fn blob(files: &mut Files, kind: &'static str, bytes: Vec<u8>) -> Blob {
    let blob = Blob { kind, digest: sum(&bytes), size: bytes.len() };
    files.insert(blob.path(), bytes);
    blob
}

fn configuration(image: &Image<'_>, differences: &[&str]) -> Value {
    let mut config = json!({"User": image.user, "WorkingDir": image.folder, "Labels": image.labels});
    for (name, list) in
        [("Entrypoint", &image.entry_point), ("Cmd", &image.command), ("Env", &image.environment)]
    {
        if !list.is_empty() {
            config[name] = json!(list);
        }
    }
    let step = json!({"created": CREATED, "created_by": "cargo xtask image"});
    json!({
        "architecture": image.architecture.name(), "os": "linux", "created": CREATED, "config": config,
        "rootfs": {"type": "layers", "diff_ids": differences},
        "history": vec![step; differences.len()],
    })
}

fn pack(files: &Files) -> Result<Vec<u8>> {
    let mut tar = Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::Regular);
        header.set_mtime(0);
        header.set_mode(0o644);
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, path, bytes.as_slice())?;
    }
    Ok(tar.into_inner()?)
}

#[cfg(test)]
mod tests {
    use super::Architecture;

    #[test]
    fn the_architecture_is_read_from_the_program() {
        let mut program = b"\x7fELF\x02\x01\x01".to_vec();
        program.resize(64, 0);
        assert_eq!(Architecture::of(&program), None);
        program[18] = 0xb7;
        assert_eq!(Architecture::of(&program), Some(Architecture::Arm64));
        assert_eq!(Architecture::of(b"#!/bin/sh"), None);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(
            Architecture::of(&own).map(Architecture::name),
            Some(if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" })
        );
    }
}
