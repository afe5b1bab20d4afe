//! IP pools: a new pool must not overlap another pool nor blocks of another size; a pool is deleted in steps, so that
//! no address is allocated from it meanwhile.

use super::KindHooks;
use crate::Client;
use crate::any::one_error;
use crate::query::{DeleteOptions, ListQuery};
use api::{IPPool, IPPoolSpec, Kind, Resource};
use async_trait::async_trait;
use datastore::{Error, Result};
use ipam::Ipam;
use ipam_core::address::overlap;
use ipnet::IpNet;
use model::{IpVersion, Key, ListOptions};
use std::sync::Arc;
use std::time::Duration;

/// How long pending allocations get to finish before the blocks are released.
const GRACE: Duration = Duration::from_millis(500);

pub(super) struct Pool;

#[async_trait]
impl KindHooks for Pool {
    async fn check_create(&self, client: &Client, resource: &Resource) -> Result<()> {
        let Some((pool, range)) = pool_and_range(resource) else { return Ok(()) };
        check_overlap(client, pool, &range).await?;
        check_block_size(client, pool, &range).await
    }

    async fn check_update(&self, client: &Client, resource: &Resource) -> Result<()> {
        let old = client.get_any(Kind::IPPool, "", resource.name(), None).await?;
        Ok(resource.validate_update(&old)?)
    }

    async fn delete(
        &self,
        client: &Client,
        _kind: Kind,
        _namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        let (pool, options) = disable(client, name, options).await?;
        if let Ok(range) = pool.spec.cidr.parse() {
            tokio::time::sleep(GRACE).await;
            let ipam = Ipam::new(Arc::clone(client.backend()));
            match ipam.release_pool_affinities(range.masked()).await.map_err(Error::from) {
                // With host-local IPAM on Kubernetes there are no blocks.
                Ok(()) | Err(Error::NotSupported { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        client.delete_plain(Kind::IPPool, "", name, &options).await
    }
}

impl Client {
    /// Creates a pool that may overlap others and existing blocks. Only for splitting a pool, where the overlap is
    /// intended; everything else is checked as usual.
    ///
    /// # Errors
    /// As [`Client::create_any`].
    pub async fn create_overlapping_pool(&self, pool: IPPool) -> Result<Resource> {
        let mut resource = self.with_defaults(pool.into())?;
        self.check_new(&resource)?;
        self.store_new(&mut resource).await
    }

    /// Deletes a pool but leaves its blocks with their owners. Only for the end of splitting a pool.
    ///
    /// # Errors
    /// As [`Client::delete_any`].
    pub async fn delete_pool_keeping_affinities(
        &self,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Resource> {
        let (_, options) = disable(self, name, options).await?;
        self.delete_plain(Kind::IPPool, "", name, &options).await
    }
}

fn pool_and_range(resource: &Resource) -> Option<(&IPPool, IpNet)> {
    match resource {
        Resource::IPPool(pool) => pool.spec.cidr.parse().ok().map(|range| (&**pool, range.masked())),
        _ => None,
    }
}

async fn check_overlap(client: &Client, pool: &IPPool, range: &IpNet) -> Result<()> {
    let others = client.resource::<IPPoolSpec>().list(&ListQuery::all()).await?;
    let mut errors = api::FieldErrors::new();
    for other in &others.items {
        // A pool of the same name is left to the store, which reports that it exists.
        if other.metadata.name == pool.metadata.name {
            continue;
        }
        let Ok(other_range) = other.spec.cidr.parse() else {
            tracing::error!(pool = other.metadata.name, cidr = %other.spec.cidr, "this IP pool has no valid range");
            continue;
        };
        if overlap(range, &other_range.masked()) {
            let reason = format!(
                "IPPool({}) CIDR overlaps with IPPool({}) CIDR {}",
                pool.metadata.name, other.metadata.name, other.spec.cidr
            );
            errors.add(api::FieldPath::new("spec.cidr"), &pool.spec.cidr, reason);
        }
    }
    Ok(errors.into_result()?)
}

async fn check_block_size(client: &Client, pool: &IPPool, range: &IpNet) -> Result<()> {
    let list = ListOptions::Block { ip_version: Some(IpVersion::of(range)) };
    let blocks = match client.backend().list(&list, None).await {
        Ok(blocks) => blocks,
        // With host-local IPAM on Kubernetes there are no blocks.
        Err(Error::NotSupported { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    // The key alone decides, so a block whose contents cannot be read counts, too.
    let keys = blocks.items.iter().map(|entry| &entry.key);
    let keys = keys.chain(blocks.invalid.iter().filter_map(|entry| entry.parsed_key.as_ref()));
    for key in keys {
        if let Key::Block { cidr } = key
            && i64::from(cidr.prefix_len()) != pool.spec.block_size
            && overlap(range, cidr)
        {
            let reason = format!(
                "conflicts with existing allocations that use a different blockSize: there is a block {cidr}"
            );
            return Err(one_error("spec.blockSize", pool.spec.block_size, reason));
        }
    }
    Ok(())
}

/// Stops allocation from a pool. That write uses up the caller's revision, so the returned options for the deletion
/// itself do not contain it.
async fn disable(client: &Client, name: &str, options: &DeleteOptions) -> Result<(IPPool, DeleteOptions)> {
    let pools = client.resource::<IPPoolSpec>();
    let mut pool = pools.get("", name).await?;
    if let Some(uid) = &options.uid
        && pool.metadata.uid != *uid
    {
        let key = Key::resource(Kind::IPPool, "", name).to_string();
        return Err(Error::DoesNotExist { key, reason: format!("no object with uid {uid}") });
    }
    if pool.spec.disabled {
        return Ok((pool, options.clone()));
    }
    pool.spec.disabled = true;
    if let Some(revision) = &options.revision {
        pool.metadata.resource_version.clone_from(revision);
    }
    let pool = pools.update(pool).await?;
    Ok((pool, DeleteOptions { revision: None, uid: options.uid.clone() }))
}
