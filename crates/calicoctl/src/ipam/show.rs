//! `calicoctl ipam show`: one address, the use of pools and blocks, borrowed addresses, or the settings.

use super::parse_address;
use super::store::Store;
use super::table::{Align, Table, figure, share};
use super::{map, usage as blocks_in_use};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::version_gate::Access;
use api::meta::StringMap;
use client::Client;
use ipam_core::{Block, cooldown, utilisation};
use ipnet::IpNet;
use jiff::Timestamp;
use std::path::PathBuf;

/// Show an address, or how full pools and blocks are.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  # How full the pools are.\n  calicoctl ipam show\n\n  \
                        # Blocks as well.\n  calicoctl ipam show --show-blocks\n\n  \
                        # Who has an address.\n  calicoctl ipam show --ip=10.0.0.1\n\n  \
                        # Every block as a cell of a map; the same as a page for a browser.\n  \
                        calicoctl ipam show --map\n  calicoctl ipam show --html=addresses.html")]
pub(crate) struct ShowArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Report whether this address is in use, and by whom.
    #[arg(long, value_name = "IP")]
    pub ip: Option<String>,
    /// Show blocks as well as pools.
    #[arg(long)]
    pub show_blocks: bool,
    /// Show addresses that nodes took from other nodes' blocks.
    #[arg(long)]
    pub show_borrowed: bool,
    /// Show the settings of address management.
    #[arg(long)]
    pub show_configuration: bool,
    /// Show pools as maps, one cell per block, shaded by use; `--map=html` prints a page.
    #[arg(
        long,
        value_name = "FORMAT",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "text",
        value_parser = ["text", "html"],
        hide_possible_values = true,
        conflicts_with_all = ["ip", "show_blocks", "show_borrowed", "show_configuration"]
    )]
    pub map: Option<String>,
    /// Write the map as a page to this file; it needs no other file and no network.
    #[arg(
        long,
        value_name = "FILE",
        value_hint = clap::ValueHint::FilePath,
        conflicts_with_all = ["ip", "show_blocks", "show_borrowed", "show_configuration"]
    )]
    pub html: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When the datastore cannot be read.
pub(crate) async fn run(args: &ShowArgs, context: &mut Context) -> Result<()> {
    let client = context.connect_for(&args.config, Access::Read).await?;
    let store = Store::new(&client);
    if args.map.is_some() || args.html.is_some() {
        return as_map(args, &client, context).await;
    }
    let text = if let Some(address) = args.ip.as_deref().filter(|address| !address.is_empty()) {
        one_address(&store, address).await?
    } else if args.show_blocks {
        usage(&store, true).await?
    } else if args.show_borrowed {
        borrowed(&store).await?
    } else if args.show_configuration {
        configuration(&store).await?
    } else {
        usage(&store, false).await?
    };
    context.print(&text)
}

/// Prints pools as maps.
async fn as_map(args: &ShowArgs, client: &Client, context: &mut Context) -> Result<()> {
    let found = blocks_in_use::load(client).await?;
    for (key, reason) in &found.unreadable {
        context.warn(&format!("Note: block {key} cannot be read and is not shown: {reason}"));
    }
    let page = || {
        let now = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
        map::html(&found.pools, &format!("calicoctl {}, {now}", crate::version::client_version()))
    };
    if let Some(file) = &args.html {
        std::fs::write(file, page())
            .map_err(|error| Failure::new(format!("cannot write the page {}: {error}", file.display())))?;
        return context.print(&format!("Wrote {}\n", file.display()));
    }
    let text = match args.map.as_deref() {
        Some("html") => page(),
        _ => map::text(&found.pools, context.surroundings.width, context.surroundings.colours),
    };
    context.print(&text)
}

async fn one_address(store: &Store, address: &str) -> Result<String> {
    let address = parse_address(address)?;
    let Some(mut block) = store.block_of(address).await? else {
        return Ok(format!("{address} is not assigned\n"));
    };
    // As if the block were about to be changed: addresses past their cooldown are free.
    cooldown::collect(&mut block, store.config().await?.ip_cooldown_seconds, Timestamp::now());
    let Some(allocation) = Block::new(&block).allocation(address) else {
        return Ok(format!("{address} is not assigned\n"));
    };
    if allocation.is_resting() {
        return Err(Failure::new(format!("address {address} is in cooldown")));
    }
    let mut text =
        format!("IP {address} is in use\nHandle ID: {}\n", allocation.handle_id().unwrap_or("<none>"));
    let none = StringMap::new();
    let (active, alternate) = match allocation.attribute {
        Some(attribute) => (&attribute.active_owner_attrs, &attribute.alternate_owner_attrs),
        None => (&none, &none),
    };
    if active.is_empty() {
        text += "No Active Owner attributes defined\n";
    } else {
        text += &attributes("Active Owner Attributes", active);
    }
    if !alternate.is_empty() {
        text += &attributes("Alternate Owner Attributes", alternate);
    }
    Ok(text)
}

fn attributes(title: &str, attributes: &StringMap) -> String {
    let lines = attributes.iter().map(|(name, value)| format!("  {name}: {value}\n"));
    format!("{title}:\n{}", lines.collect::<String>())
}

async fn usage(store: &Store, with_blocks: bool) -> Result<String> {
    let pools: Vec<(String, IpNet)> =
        store.pools().await?.into_iter().map(|pool| (pool.name, pool.cidr)).collect();
    let reservations = store.reservations().await?;
    let blocks = store.blocks().await?;
    let mut table = Table::new(&[
        ("GROUPING", Align::Left),
        ("CIDR", Align::Left),
        ("IPS TOTAL", Align::Right),
        ("IPS IN USE", Align::Right),
        ("IPS RESERVED", Align::Right),
        ("IPS FREE", Align::Right),
    ]);
    let mut push = |grouping: &str, cidr: IpNet, capacity, in_use, reserved, available| {
        table.push(vec![
            grouping.to_owned(),
            cidr.to_string(),
            figure(capacity),
            share(in_use, capacity),
            share(reserved, capacity),
            share(available, capacity),
        ]);
    };
    for pool in utilisation(&pools, &blocks.entries, &reservations) {
        if let Some(cidr) = pool.cidr {
            push("IP Pool", cidr, pool.capacity, pool.in_use, pool.reserved, pool.available);
        }
        for block in pool.blocks.iter().filter(|_| with_blocks) {
            push("Block", block.cidr, block.capacity, block.in_use, block.reserved, block.available);
        }
    }
    let mut text = table.render();
    for entry in &blocks.invalid {
        text += &format!("\nNote: block {} cannot be read and is not counted: {}\n", entry.key, entry.reason);
    }
    Ok(text)
}

async fn borrowed(store: &Store) -> Result<String> {
    let mut table = Table::new(
        &["IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"]
            .map(|title| (title, Align::Left)),
    );
    let mut unclassified = 0;
    for block in store.blocks().await?.entries {
        let view = Block::new(&block);
        // Everything after the first part, but only if there are exactly two, like Calico.
        let affinity = view.affinity().unwrap_or_default();
        let parts: Vec<&str> = affinity.split(':').collect();
        let owner = if let [_, owner] = parts.as_slice() {
            *owner
        } else {
            parts.first().copied().unwrap_or_default()
        };
        for allocation in view.allocations() {
            let Some(node) = allocation.owner_attribute("node") else {
                unclassified += 1;
                continue;
            };
            if node == owner {
                continue;
            }
            let namespace = allocation.owner_attribute("namespace").unwrap_or_default();
            let (kind, holder) = if let Some(machine) = allocation.owner_attribute("vmi-name") {
                ("vmi", format!("{namespace}/{machine}"))
            } else if let Some(pod) = allocation.owner_attribute("pod") {
                ("pod", format!("{namespace}/{pod}"))
            } else {
                (allocation.owner_attribute("type").unwrap_or_default(), String::new())
            };
            table.push(vec![
                allocation.address.to_string(),
                node.to_owned(),
                block.cidr.to_string(),
                owner.to_owned(),
                kind.to_owned(),
                holder,
            ]);
        }
    }
    let mut text = table.render();
    if unclassified > 0 {
        text += &format!(
            "\nNote: found {unclassified} IP allocations without an explicit node association. \
             Unable to determine if they are borrowed.\n"
        );
    }
    Ok(text)
}

async fn configuration(store: &Store) -> Result<String> {
    let config = store.config().await?;
    let mut table = Table::new(&[("PROPERTY", Align::Left), ("VALUE", Align::Left)]);
    // Unset means enabled.
    let persistence =
        config.kubevirt_vm_address_persistence.as_ref().map_or("Enabled", |value| value.as_str());
    for (property, value) in [
        ("StrictAffinity", config.strict_affinity.to_string()),
        ("AutoAllocateBlocks", config.auto_allocate_blocks.to_string()),
        ("MaxBlocksPerHost", config.max_blocks_per_host.to_string()),
        ("KubeVirtVMAddressPersistence", persistence.to_owned()),
        ("IPCooldownSeconds", config.ip_cooldown_seconds.to_string()),
    ] {
        table.push(vec![property.to_owned(), value]);
    }
    Ok(table.render())
}
