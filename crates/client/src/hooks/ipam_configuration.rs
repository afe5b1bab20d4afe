//! The settings of address management, as users see them. On Kubernetes the user's object and IPAM's record are one
//! custom resource. In etcd they are two keys; Calico writes only the one that the user wrote to, so that settings made
//! through the other have no effect. Here a write through the user's object is copied to IPAM's record, and reads show
//! what IPAM uses.

use super::KindHooks;
use crate::Client;
use crate::query::DeleteOptions;
use api::{IPAMConfigurationSpec, Kind, Resource};
use async_trait::async_trait;
use datastore::Result;
use model::{IpamConfig, Key, KvPair, Value};

pub(super) struct IpamSettings;

#[async_trait]
impl KindHooks for IpamSettings {
    async fn after_write(&self, client: &Client, resource: &Resource) -> Result<()> {
        let Resource::IPAMConfiguration(configuration) = resource else { return Ok(()) };
        if client.backend().is_kubernetes() {
            return Ok(());
        }
        let entry = KvPair::new(Key::IpamConfig, Value::IpamConfig(record(&configuration.spec)));
        client.backend().apply(&entry).await?;
        Ok(())
    }

    async fn after_read(&self, client: &Client, resource: &mut Resource) -> Result<bool> {
        let Resource::IPAMConfiguration(configuration) = resource else { return Ok(true) };
        if client.backend().is_kubernetes() {
            return Ok(true);
        }
        match client.backend().get(&Key::IpamConfig, None).await {
            Ok(entry) => {
                if let Value::IpamConfig(record) = &entry.value {
                    show(record, &mut configuration.spec);
                }
                Ok(true)
            }
            Err(error) if error.is_does_not_exist() => Ok(true),
            Err(error) => Err(error),
        }
    }

    async fn delete(
        &self,
        client: &Client,
        kind: Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        let deleted = client.delete_plain(kind, namespace, name, options).await?;
        if !client.backend().is_kubernetes() {
            match client.backend().delete(&Key::IpamConfig, None).await {
                Err(error) if !error.is_does_not_exist() => return Err(error),
                _ => {}
            }
        }
        Ok(deleted)
    }
}

fn record(spec: &IPAMConfigurationSpec) -> IpamConfig {
    IpamConfig {
        strict_affinity: spec.strict_affinity,
        auto_allocate_blocks: spec.auto_allocate_blocks,
        max_blocks_per_host: spec.max_blocks_per_host,
        kubevirt_vm_address_persistence: spec.kubevirt_vm_address_persistence.clone(),
        ip_cooldown_seconds: spec.ip_cooldown_seconds,
        ..IpamConfig::default()
    }
}

fn show(record: &IpamConfig, spec: &mut IPAMConfigurationSpec) {
    spec.strict_affinity = record.strict_affinity;
    spec.auto_allocate_blocks = record.auto_allocate_blocks;
    spec.max_blocks_per_host = record.max_blocks_per_host;
    spec.kubevirt_vm_address_persistence.clone_from(&record.kubevirt_vm_address_persistence);
    spec.ip_cooldown_seconds = record.ip_cooldown_seconds;
}
