//! Addresses for a container, whoever manages them: one place that ADD takes them from and DEL gives them back to.

use crate::annotations::{AddressSource, PoolChoice};
use crate::context::Context;
use crate::endpoint::whole;
use crate::error::{CniError, Result, code};
use crate::identity::Identity;
use crate::ipam::assign::{self, Wish};
use crate::ipam::azure::{self, AzureFiles};
use crate::ipam::host_local::{self, PodCidrs};
use crate::ipam::{delegate, release};
use crate::request::{Command, Request};
use crate::result::{CniResult, Ip};
use ipam::{Ahead, NamespaceLabels};
use serde_json::Value;
use std::net::IpAddr;

/// The name of Calico's own IPAM plugin.
const CALICO: &str = "calico-ipam";
/// The reference plugin that Calico adds something to.
const HOST_LOCAL: &str = "host-local";

/// Changes the `ipam` part as annotations ask.
pub(crate) fn apply_choice(request: &mut Request, choice: &PoolChoice) {
    let ipam = &mut request.conf.ipam;
    if let Some(pools) = &choice.ipv4_pools {
        ipam.ipv4_pools.clone_from(pools);
    }
    if let Some(pools) = &choice.ipv6_pools {
        ipam.ipv6_pools.clone_from(pools);
    }
    if let Some((v4, v6)) = choice.families {
        ipam.assign_ipv4 = Some(v4.to_string());
        ipam.assign_ipv6 = Some(v6.to_string());
    }
}

/// Takes addresses.
///
/// # Errors
/// When there are none to be had; nothing stays taken then.
pub(crate) async fn take(
    context: &Context,
    request: &Request,
    identity: &Identity,
    source: &AddressSource,
    namespace: Option<NamespaceLabels>,
    ahead: Option<Ahead>,
) -> Result<CniResult> {
    match source {
        AddressSource::Plugin => {
            let wish = Wish { address: request.args.ip, namespace, ahead };
            take_any(context, request, identity, wish).await
        }
        AddressSource::Requested(addresses) => {
            let mut all = CniResult::default();
            for address in addresses {
                let wish = Wish { address: Some(*address), ..Wish::default() };
                match take_any(context, request, identity, wish).await {
                    Ok(part) => {
                        all.ips.extend(part.ips.into_iter().take(1));
                        all.routes.extend(part.routes);
                    }
                    Err(error) => {
                        give_back_quietly(context, request, identity).await;
                        return Err(CniError {
                            msg: format!("error getting IP from IPAM: {}", error.msg),
                            ..error
                        });
                    }
                }
            }
            Ok(all)
        }
        AddressSource::Unmanaged(addresses) => {
            let ip = |address: &IpAddr| Ip { address: whole(*address), gateway: None, interface: None };
            Ok(CniResult { ips: addresses.iter().map(ip).collect(), ..CniResult::default() })
        }
    }
}

async fn take_any(
    context: &Context,
    request: &Request,
    identity: &Identity,
    wish: Wish,
) -> Result<CniResult> {
    let plugin = request.conf.ipam.kind.as_str();
    if plugin == CALICO {
        return assign::assign(context, &request.conf, identity, wish).await;
    }
    let azure = azure_files(context, request);
    let mut document = request.document.clone();
    if let Some(files) = &azure {
        files.prepare_add(&mut document);
    }
    if plugin == HOST_LOCAL && host_local::needs_pod_cidrs(&document) {
        let ranges = context.store.pod_cidrs(&request.conf, &identity.identifiers.node).await?;
        host_local::replace_pod_cidrs(&mut document, &PodCidrs::of(&ranges)?)?;
    }
    let result =
        delegate::call(request, plugin, Command::Add, &document, wish.address).await?.unwrap_or_default();
    if result.ips.is_empty() {
        delegate_release(context, request).await?;
        return Err(CniError::new(
            code::DELEGATE,
            format!("IPAM plugin {plugin} returned no IP addresses in result"),
        ));
    }
    if let Some(files) = &azure {
        files.keep(&result)?;
    }
    Ok(result)
}

/// Gives the container's addresses back; that it has none is fine.
///
/// # Errors
/// When whoever manages them fails.
pub(crate) async fn give_back(context: &Context, request: &Request, identity: &Identity) -> Result<()> {
    if request.conf.ipam.kind == CALICO {
        release::release(context, &request.conf, identity).await
    } else {
        delegate_release(context, request).await
    }
}

/// Gives addresses back after a failure that is told anyway.
pub(crate) async fn give_back_quietly(context: &Context, request: &Request, identity: &Identity) {
    if let Err(error) = give_back(context, request, identity).await {
        tracing::error!(%error, container = %identity.describe(), "addresses of a failed ADD could not be given back now");
        if error.is_transient() {
            record(context, request, identity);
        }
    }
}

/// Keeps the release for later.
pub(crate) fn record(context: &Context, request: &Request, identity: &Identity) {
    let journal = crate::journal::Journal::new(&context.paths.journal);
    if let Err(error) = journal.record(request, Some(&identity.identifiers.node)) {
        tracing::error!(%error, "the release could not be kept for later either; the runtime's DEL will do it");
    }
}

/// Whether addresses are given back without the datastore.
#[must_use]
pub(crate) fn is_delegated(request: &Request) -> bool {
    request.conf.ipam.kind != CALICO
}

/// Gives addresses back to another plugin.
///
/// # Errors
/// When it fails.
pub(crate) async fn delegate_release_only(request: &Request, paths: &crate::host::HostPaths) -> Result<()> {
    let files = azure_files_in(paths, request);
    let mut document = request.document.clone();
    if let Some(files) = &files
        && !files.prepare_del(&mut document)
    {
        return Ok(());
    }
    prepare_host_local(request, &mut document)?;
    delegate::call(request, &request.conf.ipam.kind, Command::Del, &document, None).await?;
    if let Some(files) = files {
        files.forget();
    }
    Ok(())
}

async fn delegate_release(context: &Context, request: &Request) -> Result<()> {
    delegate_release_only(request, &context.paths).await
}

fn prepare_host_local(request: &Request, document: &mut Value) -> Result<()> {
    if request.conf.ipam.kind == HOST_LOCAL {
        host_local::replace_pod_cidrs(document, &PodCidrs::placeholder())?;
    }
    Ok(())
}

/// Passes CHECK, STATUS or GC on to another plugin.
///
/// # Errors
/// When it fails.
pub(crate) async fn pass_on(request: &Request) -> Result<()> {
    let mut document = request.document.clone();
    prepare_host_local(request, &mut document)?;
    delegate::call(request, &request.conf.ipam.kind, request.command, &document, None).await.map(drop)
}

fn azure_files(context: &Context, request: &Request) -> Option<AzureFiles> {
    azure_files_in(&context.paths, request)
}

fn azure_files_in(paths: &crate::host::HostPaths, request: &Request) -> Option<AzureFiles> {
    (request.conf.ipam.kind == azure::PLUGIN)
        .then(|| AzureFiles::new(&paths.azure, &request.conf.name, &request.container_id, &request.ifname))
}
