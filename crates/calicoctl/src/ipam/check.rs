//! `calicoctl ipam check`: whether blocks, handles, endpoints, nodes and services agree about who has which address.
//!
//! Texts and counts are Calico's; the lists are ordered by address. Beyond Calico: a cluster without the controllers'
//! configuration is checked to the end, IPv6 tunnel addresses count as in use, each problem address is explained, and
//! `--fix` repairs records that contradict each other. An unreadable endpoint or node ends the check, because its
//! addresses would look leaked.

mod findings;
mod services;

use super::fix::{self, FixOptions};
use super::report::{HandleInfo, Report};
use super::store::{Store, all_readable};
use crate::cli::FAILED_WITH_EXIT_CODE;
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::version::client_version;
use crate::version_gate::Access;
use api::{ClusterInformationSpec, NodeSpec, WorkloadEndpointSpec};
use client::{Client, ListQuery};
use findings::Findings;
use ipam_core::structure;
use jiff::Timestamp;
use model::{HandleId, Key, ListOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How many nodes are listed, those with the most addresses first.
const NODES_TO_PRINT: usize = 20;

/// Check the integrity of the IPAM data structures.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0, or 1 for a failure. With --exit-code: 0 for no problem, 1 for problems, 2 for a failure.\n\n\
                        Examples:\n  # Name and explain every problem address.\n  \
                        calicoctl ipam check --show-problem-ips\n\n  \
                        # A report for `calicoctl ipam release --from-report`.\n  calicoctl ipam check -o report.json\n\n  \
                        # Show which records contradict each other, and repair them after a question.\n  \
                        calicoctl ipam check --fix"
)]
pub(crate) struct CheckArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Print all addresses that are checked.
    #[arg(long)]
    pub show_all_ips: bool,
    /// Print all addresses that are leaked or not allocated properly, and why.
    #[arg(long)]
    pub show_problem_ips: bool,
    /// Write a report to this file.
    #[arg(long, short = 'o', value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The kubeconfig of the cluster, to look at its services when the datastore is not Kubernetes.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<String>,
    /// Repair handles, claims and blocks that contradict each other. No address is released.
    #[arg(long)]
    pub fix: bool,
    /// With --fix: do not ask before repairing.
    #[arg(long, requires = "fix")]
    pub yes: bool,
    /// With --fix: how many seconds a contradiction must persist, unless the datastore is locked.
    #[arg(long, value_name = "SECONDS", default_value_t = 15, requires = "fix")]
    pub settle: u64,
    /// Exit with 1 if there are problems, and with 2 after a failure.
    #[arg(long)]
    pub exit_code: bool,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be read or written; problems that were found are an error only with `--exit-code`.
pub(crate) async fn run(args: &CheckArgs, context: &mut Context) -> Result<()> {
    match (check(args, context).await, args.exit_code) {
        (Ok(0), _) | (Ok(_), false) => Ok(()),
        (Ok(_), true) => Err(Failure::silent(1)),
        (Err(failure), true) => Err(failure.with_code(FAILED_WITH_EXIT_CODE)),
        (Err(failure), false) => Err(failure),
    }
}

/// Runs the check and returns the number of problems.
async fn check(args: &CheckArgs, context: &mut Context) -> Result<usize> {
    let access = if args.fix { Access::Write } else { Access::Read };
    let client = context.connect_for(&args.config, access).await?;
    context.print("Checking IPAM for inconsistencies...\n\n")?;
    let information = client.resource::<ClusterInformationSpec>().get("", api::words::GLOBAL_NAME).await?;
    let is_locked = information.spec.datastore_ready == Some(false);
    let mut findings = Findings::new(args.show_all_ips, args.show_all_ips || args.show_problem_ips);
    let store = Store::new(&client);

    context.print("Loading all IPAM blocks...\n")?;
    let blocks = store.blocks().await?;
    context.print(&format!("Found {} IPAM blocks.\n", blocks.entries.len()))?;
    for block in &blocks.entries {
        findings.add_block(block);
    }
    findings.say(&format!("IPAM blocks record {} allocations.\n\n", findings.allocation_count()));
    context.print(&findings.take_text())?;

    context.print("Loading all IPAM pools...\n")?;
    for pool in store.pools().await?.into_iter().filter(|pool| !pool.disabled) {
        findings.add_pool(pool.cidr);
    }
    findings.say(&format!("Found {} active IP pools.\n\n", findings.pool_count()));
    context.print(&findings.take_text())?;

    context.print("Loading all nodes.\n")?;
    load_nodes(&client, &mut findings).await?;
    context.print(&findings.take_text())?;

    context.print("Loading all service load balancer IPs.\n")?;
    services::load(&client, args, context, &mut findings).await?;
    context.print(&findings.take_text())?;

    context.print("Loading all workload endpoints.\n")?;
    load_endpoints(&client, &mut findings).await?;
    context.print(&findings.take_text())?;

    context.print("Loading all handles\n")?;
    let handles = load_handles(&client).await?;
    findings.top_nodes(NODES_TO_PRINT);
    findings.scan_allocations();
    findings.scan_users();
    let leaked_handles = findings.scan_handles(&handles);
    findings.say("Validating IPAMBlock structures...\n");
    let now = Timestamp::now();
    let damaged = blocks.entries.iter().filter_map(|block| {
        structure::problem(block, now)
            .map(|problem| (Key::Block { cidr: block.cidr }.to_string(), problem.to_string()))
    });
    let unreadable = blocks.invalid.iter().map(|entry| {
        let key = entry.parsed_key.as_ref().map_or_else(|| entry.key.clone(), ToString::to_string);
        let reason = entry.reason.strip_prefix(&format!("{key}: ")).unwrap_or(&entry.reason).to_owned();
        (key, reason)
    });
    findings.invalid_blocks(&damaged.chain(unreadable).collect::<Vec<_>>());
    let problems = findings.problems();
    let plural = if problems == 1 { "" } else { "s" };
    findings.say(&format!("Check complete; found {problems} problem{plural}.\n"));
    context.print(&findings.take_text())?;

    if let Some(file) = &args.output {
        let report = Report {
            version: client_version(),
            cluster_guid: information.spec.cluster_guid.clone(),
            datastore_locked: is_locked,
            cluster_information_revision: information.metadata.resource_version.clone(),
            cluster_type: information.spec.cluster_type.clone(),
            allocations: findings.allocations(),
            leaked_handles,
        };
        std::fs::write(file, report.to_json()?)
            .map_err(|error| Failure::new(format!("cannot write the report {}: {error}", file.display())))?;
    }
    if args.fix {
        let options = FixOptions { yes: args.yes, settle: Duration::from_secs(args.settle), is_locked };
        fix::run(&client, options, context).await?;
    }
    Ok(problems)
}

async fn load_nodes(client: &Client, findings: &mut Findings) -> Result<()> {
    let failed = |error| Failure::new(format!("failed to list nodes: {error}"));
    let nodes = client.resource::<NodeSpec>().list(&ListQuery::all()).await.map_err(failed)?;
    all_readable("node", &nodes.invalid)?;
    let mut count = 0;
    for node in nodes.items {
        let name = node.metadata.name;
        let spec = node.spec;
        let wireguard = spec.wireguard.unwrap_or_default();
        let bgp = spec.bgp.unwrap_or_default();
        for (field, address) in [
            ("IPv4VXLANTunnelAddr", spec.ipv4_vxlan_tunnel_addr),
            ("IPv6VXLANTunnelAddr", spec.ipv6_vxlan_tunnel_addr),
            ("Wireguard.InterfaceIPv4Address", wireguard.interface_ipv4_address),
            ("Wireguard.InterfaceIPv6Address", wireguard.interface_ipv6_address),
            ("IPv4IPIPTunnelAddr", bgp.ipv4_ipip_tunnel_addr),
        ] {
            if address.is_empty() {
                continue;
            }
            // A prefix length after the address is tolerated, as in Calico.
            let parsed = api::scalars::IpOrCidr::from(address.as_str()).parse().map_err(|reason| {
                Failure::new(format!("failed to parse {field} ({address}) of node {name}: {reason}"))
            })?;
            findings.add_user(parsed.address(), &format!("Node({name})"));
            count += 1;
        }
        findings.knowledge.nodes.insert(name);
    }
    findings.say(&format!("Found {count} node tunnel IPs.\n\n"));
    Ok(())
}

async fn load_endpoints(client: &Client, findings: &mut Findings) -> Result<()> {
    let failed = |error| Failure::new(format!("failed to list workload endpoints: {error}"));
    let endpoints =
        client.resource::<WorkloadEndpointSpec>().list(&ListQuery::all()).await.map_err(failed)?;
    all_readable("workload endpoint", &endpoints.invalid)?;
    let mut count = 0;
    for endpoint in endpoints.items {
        let (namespace, name) = (endpoint.metadata.namespace, endpoint.metadata.name);
        let user = format!("Workload({namespace}/{name})");
        let mut addresses = Vec::new();
        for network in &endpoint.spec.ip_networks {
            let parsed = network.parse().map_err(|reason| {
                Failure::new(format!(
                    "failed to parse IP ({network}) of workload {namespace}/{name}: {reason}"
                ))
            })?;
            findings.add_user(parsed.address(), &user);
            addresses.push(parsed.address());
            count += 1;
        }
        if !endpoint.spec.pod.is_empty() {
            let facts = findings.knowledge.pods.entry((namespace, endpoint.spec.pod)).or_default();
            facts.node = endpoint.spec.node;
            facts.addresses.extend(addresses);
        }
    }
    findings.say(&format!("Found {count} workload IPs.\n"));
    findings.say(&format!("Workloads and nodes are using {} IPs.\n\n", findings.user_count()));
    Ok(())
}

/// Lists all handles; an unreadable handle counts as existing.
async fn load_handles(client: &Client) -> Result<BTreeMap<HandleId, HandleInfo>> {
    let failed = |error| Failure::new(format!("failed to list handles: {error}"));
    let found = client.backend().list(&ListOptions::IpamHandle, None).await.map_err(failed)?;
    all_readable("IPAM handle", &found.invalid)?;
    let handles = found.items.into_iter().filter_map(|entry| match entry.key {
        Key::IpamHandle { handle_id } => {
            let id = handle_id.to_string();
            Some((handle_id, HandleInfo { id, uid: entry.uid, revision: entry.revision }))
        }
        _ => None,
    });
    Ok(handles.collect())
}
