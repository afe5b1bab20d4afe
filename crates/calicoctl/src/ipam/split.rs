//! `calicoctl ipam split`: divides one pool into several that together cover the same range. Blocks and addresses stay.
//!
//! All checks happen before the first write. An interrupted split can be run again: the pool is disabled by then, and
//! child pools that already exist are kept.

use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::version_gate::Access;
use api::meta::ObjectMeta;
use api::{ClusterInformationSpec, IPPool, IPPoolSpec};
use client::{Client, DeleteOptions, ListQuery};
use ipam_core::address;
use ipnet::IpNet;

/// The longest name that a resource may have.
const LONGEST_NAME: usize = 253;

/// How much of a long name is kept, so that the suffix fits.
const KEPT_NAME: usize = 240;

/// Split an IP pool into smaller ones.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "The datastore must be locked (`calicoctl datastore migrate lock`).\n\n\
                        Examples:\n  # Four pools instead of one.\n  calicoctl ipam split 4 --name=my-pool\n\n  \
                        # The same by range.\n  calicoctl ipam split 4 --cidr=10.0.0.0/16")]
pub(crate) struct SplitArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// The number of pools to create: a power of 2.
    #[arg(value_name = "NUMBER")]
    pub number: String,
    /// The range of the pool to split.
    #[arg(long, value_name = "CIDR")]
    pub cidr: Option<String>,
    /// The name of the pool to split.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
}

/// Runs the command.
///
/// # Errors
/// When there is no such pool, it cannot be split into that number, or the datastore is not locked or fails.
pub(crate) async fn run(args: &SplitArgs, context: &mut Context) -> Result<()> {
    let number: i64 = args.number.parse().map_err(|error| {
        let text = &args.number;
        Failure::new(format!(
            "error reading number to split IP pools into. {text} is not a valid number: {error}"
        ))
    })?;
    let (name, cidr) = (args.name.as_deref().unwrap_or_default(), args.cidr.as_deref().unwrap_or_default());
    if name.is_empty() && cidr.is_empty() {
        return Err(Failure::new(
            "no name or CIDR provided. Provide a name or CIDR to denote the IP pool to split",
        ));
    }
    let client = context.connect_for(&args.config, Access::Write).await?;
    let failed = |error| {
        Failure::new(format!(
            "error while checking if datastore was locked: error retrieving ClusterInformation: {error}"
        ))
    };
    let information =
        client.resource::<ClusterInformationSpec>().get("", api::words::GLOBAL_NAME).await.map_err(failed)?;
    if information.spec.datastore_ready.unwrap_or(true) {
        return Err(Failure::new(
            "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools",
        ));
    }
    let mut pool = find(&client, name, cidr).await?;
    let children = children(&pool, number)?;
    if !pool.spec.disabled {
        pool.spec.disabled = true;
        pool = client
            .resource::<IPPoolSpec>()
            .update(pool)
            .await
            .map_err(|error| Failure::new(format!("error disabling IP pool {cidr}: {error}")))?;
    }
    for child in &children {
        create(&client, child).await.map_err(|failure| {
            let cidr = &child.spec.cidr;
            Failure::new(format!("error using unsafe create to make split pool with cidr {cidr}: {failure}"))
        })?;
    }
    let name = &pool.metadata.name;
    client.delete_pool_keeping_affinities(name, &DeleteOptions::default()).await.map_err(|error| {
        Failure::new(format!("error removing the IP pool that was split {name}: {error}"))
    })?;
    let mut text = format!("IP Pool {name} was successfully split into {number} smaller pools.\n");
    for child in &children {
        text += &format!("Created {} with CIDR {}.\n", child.metadata.name, child.spec.cidr);
    }
    context.print(&(text + "Check the new pools with `calicoctl get ippools -o wide`, then run `calicoctl datastore migrate unlock`.\n"))
}

async fn find(client: &Client, name: &str, cidr: &str) -> Result<IPPool> {
    let pools = client.resource::<IPPoolSpec>();
    if !name.is_empty() {
        return pools
            .get("", name)
            .await
            .map_err(|error| Failure::new(format!("unable to find IP pool with name {name}: {error}")));
    }
    let all = pools.list(&ListQuery::all()).await.map_err(|error| {
        Failure::new(format!("unable to list IP pools to find the pool specified by {cidr}: {error}"))
    })?;
    let found = all.items.into_iter().find(|pool| pool.spec.cidr.as_str() == cidr);
    found.ok_or_else(|| {
        Failure::new(format!("unable to find IP pool {name} covering the specified CIDR {cidr}"))
    })
}

/// Computes the child pools; writes nothing.
fn children(pool: &IPPool, number: i64) -> Result<Vec<IPPool>> {
    let cidr = pool.spec.cidr.as_str();
    let wrong = |reason: String| {
        Failure::new(format!("error splitting the CIDR {cidr} into {number} CIDRs: {reason}"))
    };
    let range: IpNet = pool
        .spec
        .cidr
        .parse()
        .map_err(|_| wrong(format!("error reading CIDR {cidr} before attempting to split it")))?
        .masked();
    let parts = usize::try_from(number)
        .map_err(|_| wrong(format!("number to split CIDR into is not a valid power of 2: {number}")))?;
    let ranges = address::split(&range, parts).map_err(wrong)?;
    let block_size = pool.spec.block_size;
    if let Some(child) = ranges.first().filter(|child| i64::from(child.prefix_len()) > block_size) {
        return Err(wrong(format!(
            "pools as small as {child} would not hold one block of size {block_size}"
        )));
    }
    let child = |(place, range): (usize, IpNet)| {
        let parent = pool.metadata.name.as_str();
        let mut name = format!("split-{parent}-{place}");
        if name.len() > LONGEST_NAME {
            name = format!("split-{}-{place}", parent.get(..KEPT_NAME).unwrap_or(parent));
        }
        let metadata = ObjectMeta {
            name,
            labels: pool.metadata.labels.clone(),
            annotations: pool.metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        let spec = IPPoolSpec { cidr: range.to_string().into(), disabled: false, ..pool.spec.clone() };
        IPPool { metadata, spec, ..IPPool::default() }
    };
    Ok(ranges.into_iter().enumerate().map(child).collect())
}

/// Creates a child pool, or accepts the one that an interrupted split created.
async fn create(client: &Client, child: &IPPool) -> Result<()> {
    match client.create_overlapping_pool(child.clone()).await {
        Err(error) if error.is_already_exists() => {
            let there = client.resource::<IPPoolSpec>().get("", &child.metadata.name).await?;
            if there.spec.cidr == child.spec.cidr { Ok(()) } else { Err(error.into()) }
        }
        outcome => Ok(outcome.map(|_| ())?),
    }
}
