//! Reads the archive back: digests, links and entry points.

use super::{contents, is_dynamic, names};
use flate2::read::GzDecoder;
use oci::{Architecture, Effort, sum};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read as _;

fn unpack(bytes: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(bytes);
    let mut files = BTreeMap::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        files.insert(path, content);
    }
    files
}

fn layer() -> Vec<u8> {
    let parts = contents::Parts { program: b"program", licence: b"licence", bill: b"{}", libraries: &[] };
    contents::layer(parts).unwrap()
}

fn written() -> Vec<u8> {
    oci::write(&[layer()], &names::images("example.org/net", "v1", false, Architecture::Amd64), Effort::Best)
        .unwrap()
}

#[test]
fn the_same_program_gives_the_same_bytes() {
    assert_eq!(written(), written());
}

#[test]
fn digests_match_blobs_and_every_image_has_the_layer() {
    let files = unpack(&written());
    let read = |path: &str| serde_json::from_slice::<Value>(&files[path]).unwrap();
    let blob = |entry: &Value| {
        let digest = entry["digest"].as_str().unwrap().trim_start_matches("sha256:").to_owned();
        let bytes = &files[&format!("blobs/sha256/{digest}")];
        assert_eq!(sum(bytes), digest);
        assert_eq!(entry["size"].as_u64(), Some(bytes.len() as u64));
        bytes.clone()
    };
    let index = read("index.json");
    let manifests = index["manifests"].as_array().unwrap();
    assert_eq!(manifests.len(), names::IMAGES.len());
    for (entry, image) in manifests.iter().zip(&names::IMAGES) {
        let name = format!("example.org/net/{}:v1", image.name);
        assert_eq!(entry["annotations"]["io.containerd.image.name"], name);
        let manifest: Value = serde_json::from_slice(&blob(entry)).unwrap();
        let config: Value = serde_json::from_slice(&blob(&manifest["config"])).unwrap();
        assert_eq!(config["config"]["User"], image.user);
        let mut layer = Vec::new();
        GzDecoder::new(blob(&manifest["layers"][0]).as_slice()).read_to_end(&mut layer).unwrap();
        assert_eq!(config["rootfs"]["diff_ids"][0], format!("sha256:{}", sum(&layer)));
    }
    let for_docker = read("manifest.json");
    for entry in for_docker.as_array().unwrap() {
        assert!(files.contains_key(entry["Config"].as_str().unwrap()));
        assert!(files.contains_key(entry["Layers"][0].as_str().unwrap()));
    }
}

#[test]
fn entry_points_exist_and_links_lead_to_the_program() {
    let layer = layer();
    let mut links = BTreeMap::new();
    let mut archive = tar::Archive::new(layer.as_slice());
    for entry in archive.entries().unwrap() {
        let entry = entry.unwrap();
        let path = entry.path().unwrap().to_string_lossy().into_owned();
        let link = entry.link_name().unwrap().map(|target| target.to_string_lossy().into_owned());
        assert_eq!(entry.header().mtime().unwrap(), 0, "{path}");
        assert_eq!(entry.header().mode().unwrap() & 0o6000, 0, "{path}: never with the rights of its owner");
        links.insert(path, link);
    }
    for (path, target) in &links {
        let Some(target) =
            target.as_ref().filter(|_| !matches!(path.as_str(), "bin" | "lib" | "lib64" | "sbin"))
        else {
            continue;
        };
        // Resolve the link like the kernel.
        let mut place: Vec<&str> = path.split('/').collect();
        place.pop();
        for part in target.split('/') {
            match part {
                ".." => drop(place.drain(place.len() - 1..)),
                part => place.push(part),
            }
        }
        assert_eq!(place.join("/"), "usr/bin/calico", "{path}");
    }
    for image in &names::IMAGES {
        let first = image.entry_point.first().or(image.command.first()).unwrap();
        // A bare name is looked up on the runtime's default path.
        let path = if first.starts_with('/') {
            first.trim_start_matches('/').to_owned()
        } else {
            format!("usr/sbin/{first}")
        };
        assert!(links.contains_key(&path), "{}: {path}", image.name);
    }
}

#[test]
fn a_program_with_a_loader_is_detected() {
    assert!(is_dynamic(b"\x7fELF......../lib64/ld-linux-x86-64.so.2..."));
    assert!(!is_dynamic(b"\x7fELF........"));
}
