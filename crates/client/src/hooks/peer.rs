//! BGP peers: the filters they name must exist.

use super::KindHooks;
use crate::Client;
use crate::any::one_error;
use crate::query::ListQuery;
use api::{Kind, Resource};
use async_trait::async_trait;
use datastore::Result;
use std::collections::BTreeSet;

pub(super) struct Peer;

#[async_trait]
impl KindHooks for Peer {
    async fn check_create(&self, client: &Client, resource: &Resource) -> Result<()> {
        check_filters(client, resource).await
    }

    async fn check_update(&self, client: &Client, resource: &Resource) -> Result<()> {
        check_filters(client, resource).await
    }
}

async fn check_filters(client: &Client, resource: &Resource) -> Result<()> {
    let Resource::BGPPeer(peer) = resource else { return Ok(()) };
    if peer.spec.filters.is_empty() {
        return Ok(());
    }
    let list = client.list_any(Kind::BGPFilter, &ListQuery::all()).await?;
    let known: BTreeSet<&str> = list.items.iter().map(Resource::name).collect();
    let missing: Vec<&str> =
        peer.spec.filters.iter().map(String::as_str).filter(|filter| !known.contains(filter)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(one_error("spec.filters", missing.join(", "), "BGPFilter(s) not found"))
}
