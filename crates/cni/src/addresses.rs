//! A container's addresses, whichever IPAM plugin manages them: ADD takes them, DEL gives them back.

use crate::annotations::AddressSource;
use crate::assigned::Assigned;
use crate::attachment::Attachment;
use crate::error::{CniError, Result, code};
use crate::host::HostPaths;
use crate::ipam::assign::{self, Wish};
use crate::ipam::azure::{self, AzureFiles};
use crate::ipam::host_local::{self, PodCidrs};
use crate::ipam::{delegate, release};
use crate::journal::Journal;
use crate::request::{Command, Request};
use serde_json::Value;

/// The name of Calico's own IPAM plugin.
const CALICO: &str = "calico-ipam";
/// The reference plugin whose configuration Calico extends.
const HOST_LOCAL: &str = "host-local";

/// Takes addresses.
///
/// # Errors
/// When no address is available; nothing stays taken then.
pub(crate) async fn take(
    attachment: &Attachment<'_>,
    source: &AddressSource,
    wish: Wish,
) -> Result<Assigned> {
    let addresses = match source {
        AddressSource::Plugin => return take_any(attachment, wish).await,
        AddressSource::Unmanaged(addresses) => {
            return Ok(Assigned::unmanaged(addresses.iter().copied()));
        }
        AddressSource::Requested(addresses) => addresses,
    };
    let mut all = Assigned::default();
    for address in addresses {
        match take_any(attachment, Wish { address: Some(*address), ..Wish::default() }).await {
            Ok(part) => {
                all.addresses.extend(part.addresses.into_iter().take(1));
                all.routes.extend(part.routes);
            }
            Err(error) => {
                give_back_quietly(attachment).await;
                return Err(CniError { msg: format!("error getting IP from IPAM: {}", error.msg), ..error });
            }
        }
    }
    Ok(all)
}

async fn take_any(attachment: &Attachment<'_>, wish: Wish) -> Result<Assigned> {
    let Attachment { context, request, .. } = attachment;
    let plugin = request.conf.ipam.kind.as_str();
    if plugin == CALICO {
        return assign::assign(attachment, wish).await;
    }
    let azure = azure_files(&context.paths, request);
    let mut document = request.document.clone();
    if let Some(files) = &azure {
        files.prepare_add(&mut document);
    }
    if plugin == HOST_LOCAL && host_local::needs_pod_cidrs(&document) {
        let ranges = context.store.pod_cidrs(&request.conf, attachment.node()).await?;
        host_local::replace_pod_cidrs(&mut document, &PodCidrs::of(&ranges)?)?;
    }
    let result = delegate::call(request, plugin, Command::Add, &document, wish.address).await?;
    let assigned = Assigned::by_plugin(result.unwrap_or_default());
    if assigned.addresses.is_empty() {
        delegate_release(request, &context.paths).await?;
        return Err(CniError::new(
            code::DELEGATE,
            format!("IPAM plugin {plugin} returned no IP addresses in result"),
        ));
    }
    if let Some(files) = &azure {
        files.keep(&assigned)?;
    }
    Ok(assigned)
}

/// Gives the container's addresses back. Having none is not an error.
///
/// # Errors
/// When their manager fails.
pub(crate) async fn give_back(attachment: &Attachment<'_>) -> Result<()> {
    if is_delegated(attachment.request) {
        delegate_release(attachment.request, &attachment.context.paths).await
    } else {
        release::release(attachment).await
    }
}

/// Gives addresses back after a failure that is reported in any case.
pub(crate) async fn give_back_quietly(attachment: &Attachment<'_>) {
    if let Err(error) = give_back(attachment).await {
        let container = attachment.identity.describe();
        tracing::error!(%error, %container, "addresses of a failed ADD could not be given back now");
        if error.is_transient() {
            record(attachment);
        }
    }
}

/// Records the release in the journal, for later.
pub(crate) fn record(attachment: &Attachment<'_>) {
    let journal = Journal::new(&attachment.context.paths.journal);
    if let Err(error) = journal.record(attachment.request, Some(attachment.node())) {
        tracing::error!(%error, "the release could not be kept for later either; the runtime's DEL will do it");
    }
}

/// Whether addresses are given back without the datastore.
#[must_use]
pub(crate) fn is_delegated(request: &Request) -> bool {
    request.conf.ipam.kind != CALICO
}

/// Has another IPAM plugin give the addresses back.
///
/// # Errors
/// When the plugin fails.
pub(crate) async fn delegate_release(request: &Request, paths: &HostPaths) -> Result<()> {
    let files = azure_files(paths, request);
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

fn prepare_host_local(request: &Request, document: &mut Value) -> Result<()> {
    if request.conf.ipam.kind == HOST_LOCAL {
        host_local::replace_pod_cidrs(document, &PodCidrs::placeholder())?;
    }
    Ok(())
}

/// Passes CHECK, STATUS or GC on to another plugin.
///
/// # Errors
/// When the plugin fails.
pub(crate) async fn pass_on(request: &Request) -> Result<()> {
    let mut document = request.document.clone();
    prepare_host_local(request, &mut document)?;
    delegate::call(request, &request.conf.ipam.kind, request.command, &document, None).await.map(drop)
}

fn azure_files(paths: &HostPaths, request: &Request) -> Option<AzureFiles> {
    (request.conf.ipam.kind == azure::PLUGIN)
        .then(|| AzureFiles::new(&paths.azure, &request.conf.name, &request.container_id, &request.ifname))
}
