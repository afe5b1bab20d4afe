//! `calicoctl ipam release`: releases one address, or all addresses that reports of `ipam check` agree are leaked.
//!
//! A report is trusted only for the cluster that it was made on, and only if at least one report reflects the cluster's
//! current state. Each address is released under the handle and sequence number of the report: addresses that were
//! allocated again since then stay.

use super::parse_address;
use super::report::{HandleInfo, Leaks, Report};
use super::store::Store;
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::version::client_version;
use crate::version_gate::Access;
use api::scalars::IpOrCidr;
use api::{ClusterInformationSpec, NodeSpec, WorkloadEndpointSpec};
use client::{Client, Error, ListQuery};
use futures::StreamExt as _;
use ipam_core::Release;
use model::Key;
use std::net::IpAddr;
use std::path::PathBuf;

/// How many handles are deleted at once.
const AT_ONCE: usize = 16;

/// Release an address, or the leaked addresses of reports.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Releasing an address that is still in use leads to two workloads with one address.\n\n\
                        Examples:\n  # One address.\n  calicoctl ipam release --ip=10.0.0.1\n\n  \
                        # What a check found leaked; the datastore must be locked.\n  \
                        calicoctl ipam release --from-report=report.json"
)]
pub(crate) struct ReleaseArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// The address to release.
    #[arg(long, value_name = "IP")]
    pub ip: Option<String>,
    /// Release the leaked addresses in this report. With several reports: those that are leaked in all of them.
    #[arg(long, value_name = "FILE")]
    pub from_report: Vec<PathBuf>,
    /// Release even if the datastore is not locked, or a report is from another version of this program.
    #[arg(long)]
    pub force: bool,
}

/// Runs the command.
///
/// # Errors
/// When a release is refused, or the datastore fails.
pub(crate) async fn run(args: &ReleaseArgs, context: &mut Context) -> Result<()> {
    let address = args.ip.as_deref().filter(|address| !address.is_empty()).map(parse_address).transpose()?;
    if address.is_none() && args.from_report.is_empty() {
        return Err(Failure::new("nothing to release: give --ip or --from-report"));
    }
    let client = context.connect_for(&args.config, Access::Write).await?;
    if !args.from_report.is_empty() {
        from_reports(&client, args, context).await?;
        return context.print("You may now unlock the data store.\n");
    }
    let Some(address) = address else { return Ok(()) };
    let wrong = |failure| Failure::new(format!("error: {failure}"));
    let outcome = Store::new(&client).release(&[Release::of(address)]).await.map_err(wrong)?;
    if let Some(failure) = outcome.failure {
        return Err(wrong(failure));
    }
    if !outcome.not_allocated.is_empty() {
        return Err(Failure::new(format!("IP address {address} is not assigned")));
    }
    context.print(&format!("Successfully released IP address {address}\n"))?;
    // Like Calico, this releases without confirmation; but the user should see whose address it was.
    if let Some(user) = user_of(&client, address).await {
        context.warn(&format!(
            "Warning: {address} is still in use by {user}, and may be given to another workload: recreate {user}, or keep the \
             address back with an IPReservation"
        ));
    }
    Ok(())
}

/// The user of an address, according to endpoints and nodes; `None` if they cannot be read.
async fn user_of(client: &Client, address: IpAddr) -> Option<String> {
    let has = |text: &str| IpOrCidr::from(text).parse().is_ok_and(|parsed| parsed.address() == address);
    if let Ok(list) = client.resource::<WorkloadEndpointSpec>().list(&ListQuery::all()).await {
        let user =
            list.items.iter().find(|endpoint| endpoint.spec.ip_networks.iter().any(|net| has(net.as_str())));
        if let Some(endpoint) = user {
            let (namespace, spec) = (&endpoint.metadata.namespace, &endpoint.spec);
            return Some(match (spec.pod.as_str(), spec.workload.as_str()) {
                ("", "") => format!("workload endpoint {namespace}/{}", endpoint.metadata.name),
                ("", workload) => format!("workload {namespace}/{workload}"),
                (pod, _) => format!("pod {namespace}/{pod}"),
            });
        }
    }
    let nodes = client.resource::<NodeSpec>().list(&ListQuery::all()).await.ok()?;
    let user = nodes.items.iter().find(|node| {
        let spec = &node.spec;
        let tunnel = spec.bgp.as_ref().map(|bgp| bgp.ipv4_ipip_tunnel_addr.as_str());
        let wireguard = spec.wireguard.iter().flat_map(|wireguard| {
            [wireguard.interface_ipv4_address.as_str(), wireguard.interface_ipv6_address.as_str()]
        });
        [spec.ipv4_vxlan_tunnel_addr.as_str(), spec.ipv6_vxlan_tunnel_addr.as_str()]
            .into_iter()
            .chain(tunnel)
            .chain(wireguard)
            .any(has)
    });
    user.map(|node| format!("a tunnel of node {}", node.metadata.name))
}

async fn from_reports(client: &Client, args: &ReleaseArgs, context: &mut Context) -> Result<()> {
    let information = client.resource::<ClusterInformationSpec>().get("", api::words::GLOBAL_NAME).await?;
    let mut reports = Vec::with_capacity(args.from_report.len());
    for file in &args.from_report {
        let shown = file.display();
        let text = context.surroundings.environment.read_file(file);
        let text = text.map_err(|error| Failure::new(format!("open {shown}: {error}")))?;
        let report: Report = serde_json::from_str(&text).map_err(|error| {
            Failure::new(format!("{shown} is not a report of `calicoctl ipam check -o`: {error}"))
        })?;
        if report.cluster_guid != information.spec.cluster_guid {
            return Err(Failure::new(format!(
                "cluster does not match the provided report ({shown}): mismatched cluster GUID. Refusing to release"
            )));
        }
        if report.version != client_version() {
            if !args.force {
                let version = &report.version;
                return Err(Failure::new(format!(
                    "the provided report ({shown}) was produced using a different version ({version}) of calicoctl. \
                     Refusing to release"
                )));
            }
            context.print(
                "WARNING: Report was produced using a different version of calicoctl. Ignoring due to --force option\n",
            )?;
        }
        reports.push(report);
    }
    let current = &information.metadata.resource_version;
    if !reports.iter().any(|report| report.cluster_information_revision == *current) {
        return Err(Failure::new(
            "the provided reports are all stale - at least one should be up-to-date. Please generate a new report while \
             the data store is locked and try again",
        ));
    }
    if information.spec.datastore_ready.unwrap_or(true) {
        if !args.force {
            return Err(Failure::new(
                "data store is not locked. Either lock the data store, or re-run with --force",
            ));
        }
        context.print("WARNING: Data store is not locked. Ignoring due to --force option\n")?;
    }
    let leaks = Leaks::in_all(&reports)?;
    if leaks.addresses.is_empty() {
        context.print("Report didn't contain any leaked IPs to clean up.\n")?;
    } else {
        release_addresses(client, leaks.addresses, context).await?;
    }
    if leaks.handles.is_empty() {
        return context.print("Report didn't contain any handles to clean up.\n");
    }
    delete_handles(client, leaks.handles.into_values().collect(), context).await
}

async fn release_addresses(client: &Client, addresses: Vec<Release>, context: &mut Context) -> Result<()> {
    context.print(&format!("Releasing {} old IPs...\n", addresses.len()))?;
    let outcome = Store::new(client).release(&addresses).await?;
    if let Some(failure) = &outcome.failure {
        context.print(&format!(
            "An error occurred while releasing some IPs: {failure}.  Problems are often caused by an out-of-date IPAM \
             report.  Try regenerating the IPAM report and retry.\n"
        ))?;
    }
    if outcome.failure.is_none() || outcome.released > 0 {
        context.print(&format!("Released {} IPs successfully\n", outcome.released))?;
    }
    if !outcome.not_allocated.is_empty() {
        let count = outcome.not_allocated.len();
        context.print(&format!(
            "{count} addresses marked as leaked in the report had already been cleaned up.\n"
        ))?;
    }
    Ok(())
}

async fn delete_handles(client: &Client, handles: Vec<HandleInfo>, context: &mut Context) -> Result<()> {
    context.print(&format!(
        "Deleting {} handles...\nKey: '.' = Deleted OK; 'x' = skip, handle missing/changed.\n",
        handles.len()
    ))?;
    let (mut deleted, mut skipped, mut failed) = (0, 0, 0);
    let mut results = futures::stream::iter(handles)
        .map(|handle| async move { (delete_handle(client, &handle).await, handle) })
        .buffered(AT_ONCE);
    while let Some((outcome, handle)) = results.next().await {
        match outcome {
            Ok(()) => {
                deleted += 1;
                context.print(".")?;
            }
            Err(error) if error.is_does_not_exist() || error.is_conflict() => {
                skipped += 1;
                context.print("x")?;
            }
            Err(error) => {
                failed += 1;
                context.print(&format!("\nDeleting handle {} failed: {error}.\n", handle.id))?;
            }
        }
    }
    context.print(&format!("\nReleased {deleted} handles; {skipped} skipped; {failed} errors.\n"))
}

/// Deletes a handle if it is unchanged since the report.
async fn delete_handle(client: &Client, handle: &HandleInfo) -> client::Result<()> {
    let key = Key::IpamHandle { handle_id: handle.id.as_str().into() };
    let entry = client.backend().get(&key, None).await?;
    if entry.revision != handle.revision || entry.uid != handle.uid {
        return Err(Error::UpdateConflict { key: key.to_string(), existing: Some(Box::new(entry)) });
    }
    client.backend().delete_entry(&entry).await.map(|_| ())
}
