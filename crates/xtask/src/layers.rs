//! The layer rule: a crate depends only on its own or a lower layer, and components never on each other.
//!
//! Read from `cargo metadata`, so that it cannot drift from what is built. Dev-dependencies are free.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// The layer of components: libraries with a `run`, started as processes, never linked to each other.
const COMPONENTS: u64 = 4;

/// Violations of the layer rule, one sentence each.
pub(crate) fn check(root: &Path) -> Result<Vec<String>> {
    let output = crate::cargo()
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(root)
        .output()
        .context("running cargo metadata")?;
    let metadata: Value = serde_json::from_slice(&output.stdout).context("reading cargo metadata")?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut problems = Vec::new();
    let mut layers: BTreeMap<&str, u64> = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        match package["metadata"]["tortie"]["layer"].as_u64() {
            Some(layer) => {
                layers.insert(name, layer);
            }
            None => problems.push(format!("crate {name} has no package.metadata.tortie.layer")),
        }
        if package["description"].as_str().unwrap_or_default().is_empty() {
            problems.push(format!("crate {name} has no description"));
        }
    }
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(layer) = layers.get(name) else { continue };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"].as_str() == Some("dev") {
                continue;
            }
            let target = dependency["name"].as_str().unwrap_or_default();
            let Some(target_layer) = layers.get(target) else { continue };
            if target_layer > layer {
                problems.push(format!(
                    "crate {name} (layer {layer}) depends on {target} (layer {target_layer}): only downwards"
                ));
            }
            if *layer == COMPONENTS && *target_layer == COMPONENTS {
                problems.push(format!(
                    "component {name} depends on component {target}: move what they share below"
                ));
            }
        }
    }
    Ok(problems)
}
