//! The bill of materials: every crate with version and licence, as SPDX in JSON. The same lock file gives the same
//! bytes.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn spdx(root: &Path) -> Result<Vec<u8>> {
    let metadata = crate::dependencies::metadata(root)?;
    let packages = metadata["packages"].as_array().context("cargo metadata lists no packages")?;
    let mut entries: Vec<(String, Value)> = packages.iter().map(entry).collect();
    entries.sort_by(|one, other| one.0.cmp(&other.0));
    entries.dedup_by(|one, other| one.0 == other.0);
    let described: Vec<Value> = entries
        .iter()
        .map(|(id, _)| json!({
            "spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": id,
        }))
        .collect();
    let document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": concat!("tortie-", env!("CARGO_PKG_VERSION")),
        "documentNamespace": concat!(env!("CARGO_PKG_REPOSITORY"), "/sbom/", env!("CARGO_PKG_VERSION")),
        "creationInfo": {"created": "1970-01-01T00:00:00Z", "creators": ["Tool: cargo xtask image"]},
        "packages": entries.into_iter().map(|(_, package)| package).collect::<Vec<_>>(),
        "relationships": described,
    });
    Ok(serde_json::to_vec(&document)?)
}

fn entry(package: &Value) -> (String, Value) {
    let text = |name: &str| package[name].as_str().unwrap_or_default();
    let (name, version) = (text("name"), text("version"));
    // "/" is an old way to write OR that SPDX does not know.
    let licence = text("license").replace('/', " OR ");
    let id: String = format!("SPDXRef-{name}-{version}")
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() || matches!(it, '-' | '.') { it } else { '-' })
        .collect();
    let mut entry = json!({
        "SPDXID": id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": if licence.is_empty() { "NOASSERTION" } else { &licence },
        "copyrightText": "NOASSERTION",
    });
    // Crates of this workspace are not packages of the registry.
    if package["source"].is_string() {
        entry["externalRefs"] = json!([{
            "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
            "referenceLocator": format!("pkg:cargo/{name}@{version}"),
        }]);
    }
    (id, entry)
}
