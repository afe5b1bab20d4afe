//! What Azure's IPAM plugin needs in DEL: the subnet and address of the container, kept in files.
//!
//! Paths and form of the files are Calico's, so that either plugin can finish what the other began.

use crate::assigned::Assigned;
use crate::error::{CniError, Result, code};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The plugin's name.
pub(crate) const PLUGIN: &str = "azure-vnet-ipam";

/// The file of a network.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Network {
    name: String,
    subnets: Option<Vec<String>>,
}

/// The file of a container.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Endpoint {
    network: String,
    #[serde(rename = "ContainerID")]
    container_id: String,
    interface: String,
    addresses: Option<Vec<String>>,
}

/// The paths of one container's files.
#[derive(Clone, Debug)]
pub(crate) struct AzureFiles {
    folder: PathBuf,
    network: String,
    container_id: String,
    interface: String,
}

impl AzureFiles {
    /// The paths of a container's files below the folder of networks.
    #[must_use]
    pub(crate) fn new(networks: &Path, network: &str, container_id: &str, interface: &str) -> Self {
        Self {
            folder: networks.join(network),
            network: network.to_owned(),
            container_id: container_id.to_owned(),
            interface: interface.to_owned(),
        }
    }

    fn network_file(&self) -> PathBuf {
        self.folder.join("network.json")
    }

    fn endpoint_file(&self) -> PathBuf {
        self.folder.join(format!("{}-{}", self.container_id, self.interface))
    }

    fn subnet(&self) -> Option<String> {
        let text = std::fs::read(self.network_file()).ok()?;
        let network: Network = serde_json::from_slice(&text).ok()?;
        network.subnets?.into_iter().next()
    }

    /// Prepares the configuration for ADD: adds the network's subnet once it is known.
    pub(crate) fn prepare_add(&self, document: &mut Value) {
        if let (Some(subnet), Some(ipam)) =
            (self.subnet(), document.get_mut("ipam").and_then(Value::as_object_mut))
        {
            ipam.insert("subnet".to_owned(), subnet.into());
        }
    }

    /// Stores the result of ADD.
    ///
    /// # Errors
    /// When the files cannot be written.
    pub(crate) fn keep(&self, assigned: &Assigned) -> Result<()> {
        let subnets = assigned.addresses.first().map(|address| vec![address.trunc().to_string()]);
        let network = Network { name: self.network.clone(), subnets };
        let endpoint = Endpoint {
            network: self.network.clone(),
            container_id: self.container_id.clone(),
            interface: self.interface.clone(),
            addresses: Some(assigned.ips().map(|address| address.to_string()).collect()),
        };
        let write = || -> std::io::Result<()> {
            std::fs::create_dir_all(&self.folder)?;
            daemon::files::write(&self.network_file(), &serde_json::to_vec(&network)?, 0o600)?;
            daemon::files::write(&self.endpoint_file(), &serde_json::to_vec(&endpoint)?, 0o600)
        };
        write().map_err(|error| {
            CniError::new(
                code::DELEGATE,
                format!("cannot keep the addresses for {PLUGIN} in {}: {error}", self.folder.display()),
            )
        })
    }

    /// Prepares the configuration for DEL: adds the container's address and subnet. Returns false if nothing is known
    /// about it, so that nothing is to be released.
    #[must_use]
    pub(crate) fn prepare_del(&self, document: &mut Value) -> bool {
        let endpoint: Endpoint = std::fs::read(self.endpoint_file())
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        let Some(address) = endpoint.addresses.unwrap_or_default().into_iter().next() else { return false };
        if let (Some(subnet), Some(ipam)) =
            (self.subnet(), document.get_mut("ipam").and_then(Value::as_object_mut))
        {
            let address = address.split('/').next().unwrap_or_default();
            ipam.insert("ipAddress".to_owned(), address.into());
            ipam.insert("subnet".to_owned(), subnet.into());
        }
        true
    }

    /// Removes the container's file, once its address is released.
    pub(crate) fn forget(&self) {
        if let Err(error) = std::fs::remove_file(self.endpoint_file()) {
            tracing::warn!(%error, "the file of an Azure endpoint stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::AzureFiles;
    use crate::assigned::Assigned;
    use serde_json::json;

    #[test]
    fn results_of_add_are_passed_to_del() {
        let folder = tempfile::tempdir().unwrap();
        let files = AzureFiles::new(folder.path(), "net", "c1", "eth0");
        let mut document = json!({"ipam": {}});
        files.prepare_add(&mut document);
        assert_eq!(document, json!({"ipam": {}}));
        assert!(!files.prepare_del(&mut document));
        let addresses = vec!["10.240.0.5/16".parse().unwrap()];
        files.keep(&Assigned { addresses, ..Assigned::default() }).unwrap();
        files.prepare_add(&mut document);
        assert_eq!(document, json!({"ipam": {"subnet": "10.240.0.0/16"}}));
        assert!(files.prepare_del(&mut document));
        assert_eq!(document, json!({"ipam": {"subnet": "10.240.0.0/16", "ipAddress": "10.240.0.5"}}));
        files.forget();
        assert!(!files.prepare_del(&mut document));
    }
}
