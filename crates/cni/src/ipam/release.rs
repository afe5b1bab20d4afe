//! `calico-ipam` DEL: gives addresses back to Calico's blocks.

use super::assign::{keeps_addresses, timed, turn};
use super::machine::Machine;
use crate::attachment::Attachment;
use crate::config::NetConf;
use crate::context::Context;
use crate::error::StoreFailure as _;
use crate::error::{CniError, Result, code};
use crate::identity::Identity;
use api::AllocationAttribute;
use ipam::{Change, Expected, OwnerCheck, OwnerUpdate, PodOwner};
use ipam_core::Block;
use model::{HandleId, ListOptions, Value};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// Gives back the container's addresses. Having none is not an error.
///
/// # Errors
/// When the datastore fails.
pub(crate) async fn release(attachment: &Attachment<'_>) -> Result<()> {
    let Attachment { context, request, identity } = attachment;
    let conf = &request.conf;
    match Machine::of(&context.store, conf, identity).await {
        Ok(Some(machine)) if keeps_addresses(context).await => {
            release_machine(context, conf, identity, &machine).await
        }
        Ok(_) => release_handles(context, conf, identity).await,
        // The pod is gone from the API, so the machine that it ran, if any, cannot be determined. Release what is held
        // for this container, and remove this pod from the machine's record.
        Err(error) if error.code == code::UNKNOWN_CONTAINER => {
            release_handles(context, conf, identity).await?;
            forget_pod(context, conf, identity).await
        }
        Err(error) => Err(CniError { msg: format!("failed to get VMI info: {}", error.msg), ..error }),
    }
}

async fn release_handles(context: &Context, conf: &NetConf, identity: &Identity) -> Result<()> {
    let _turn = turn(context, conf).await;
    let (handle, old) = (identity.handle(), identity.old_handle());
    // Calico 2 named handles after the workload. Nearly always there is no such handle, so both are requested at once.
    timed(async {
        let (new, old) = tokio::join!(release_handle(context, &handle), release_old_handle(context, &old));
        new.and(old)
    })
    .await
}

/// Releases a handle of Calico 2. `shop.web` may also be container `web` of a network `shop`: allocations of Calico 3
/// record their node, those of Calico 2 do not.
async fn release_old_handle(context: &Context, handle: &HandleId) -> Result<()> {
    let ipam = &context.store.ipam;
    let failed =
        |error: &ipam::Error| CniError::address(&format!("reading the addresses of handle {handle}"), error);
    let addresses = match ipam.ips_by_handle(handle).await {
        Ok(addresses) => addresses,
        Err(error) if error.is_does_not_exist() => return Ok(()),
        Err(error) => return Err(failed(&error)),
    };
    for address in addresses {
        let record = ipam.allocation(address).await.map_err(|error| failed(&error))?;
        if record.is_some_and(|record| record.active_owner_attrs.contains_key("node")) {
            tracing::info!(%handle, %address, "the handle is another container's and stays");
            return Ok(());
        }
    }
    release_handle(context, handle).await
}

async fn release_handle(context: &Context, handle: &HandleId) -> Result<()> {
    match Box::pin(context.store.ipam.release_by_handle(handle)).await {
        Err(error) if !error.is_does_not_exist() => {
            Err(CniError::address(&format!("releasing the addresses of handle {handle}"), &error))
        }
        _ => Ok(()),
    }
}

/// Removes only the record of this pod: a machine keeps its addresses until it is deleted.
async fn release_machine(
    context: &Context,
    conf: &NetConf,
    identity: &Identity,
    machine: &Machine,
) -> Result<()> {
    let handle = machine.handle(&conf.name, &identity.namespace);
    let ipam = &context.store.ipam;
    let failed = |error: &ipam::Error| {
        CniError::address(&format!("releasing the addresses of handle {handle}"), error)
    };
    let _turn = turn(context, conf).await;
    timed(async {
        let addresses = match ipam.ips_by_handle(&handle).await {
            Ok(addresses) => addresses,
            Err(error) if error.is_does_not_exist() => return Ok(()),
            Err(error) => return Err(failed(&error)),
        };
        let own = PodOwner { namespace: identity.namespace.clone(), name: identity.identifiers.pod.clone() };
        for address in &addresses {
            let Some(record) = ipam.allocation(*address).await.map_err(|error| failed(&error))? else {
                continue;
            };
            clear_owner(context, *address, &handle, &record, &own).await?;
        }
        if !machine.is_going {
            return Ok(());
        }
        for address in &addresses {
            let record = ipam.allocation(*address).await.map_err(|error| failed(&error))?;
            if record.is_some_and(|record| {
                !record.active_owner_attrs.is_empty() || !record.alternate_owner_attrs.is_empty()
            }) {
                return Ok(());
            }
        }
        release_handle(context, &handle).await
    })
    .await
}

/// Removes a pod that is gone from the records of machines. The machines keep their addresses.
async fn forget_pod(context: &Context, conf: &NetConf, identity: &Identity) -> Result<()> {
    let blocks = context.store.client.backend().list(&ListOptions::Block { ip_version: None }, None).await;
    let blocks = blocks.map_err(|error| CniError::datastore("listing address blocks", &error))?;
    let own = PodOwner { namespace: identity.namespace.clone(), name: identity.identifiers.pod.clone() };
    let prefix = format!("{}.vmi.", conf.name);
    let mut found = Vec::new();
    for entry in blocks.items {
        let Value::Block(block) = entry.value else { continue };
        found.extend(Block::new(&block).allocations().filter_map(|it| {
            let (record, handle) = (it.attribute?, it.handle_id()?);
            let is_named =
                is_owner(&record.active_owner_attrs, &own) || is_owner(&record.alternate_owner_attrs, &own);
            (is_named && handle.starts_with(&prefix))
                .then(|| (it.address, HandleId::from(handle), record.clone()))
        }));
    }
    let _turn = turn(context, conf).await;
    timed(async {
        for (address, handle, record) in found {
            clear_owner(context, address, &handle, &record, &own).await?;
        }
        Ok(())
    })
    .await
}

/// Removes a pod from the record of one address, if it is in it.
async fn clear_owner(
    context: &Context,
    address: IpAddr,
    handle: &HandleId,
    record: &AllocationAttribute,
    own: &PodOwner,
) -> Result<()> {
    let (update, check) = if is_owner(&record.active_owner_attrs, own) {
        let check = OwnerCheck { active: Expected::Pod(own.clone()), ..OwnerCheck::default() };
        (OwnerUpdate { active: Change::Clear, ..OwnerUpdate::default() }, check)
    } else if is_owner(&record.alternate_owner_attrs, own) {
        let check = OwnerCheck { alternate: Expected::Pod(own.clone()), ..OwnerCheck::default() };
        (OwnerUpdate { alternate: Change::Clear, ..OwnerUpdate::default() }, check)
    } else {
        return Ok(());
    };
    // A refusal means that the machine has just moved: the runtime repeats the call, and then it matches.
    context
        .store
        .ipam
        .set_owner_attributes(address, handle, &update, &check)
        .await
        .map_err(|error| CniError::address(&format!("releasing the addresses of handle {handle}"), &error))
}

fn is_owner(attributes: &BTreeMap<String, String>, pod: &PodOwner) -> bool {
    attributes.get("pod") == Some(&pod.name) && attributes.get("namespace") == Some(&pod.namespace)
}
