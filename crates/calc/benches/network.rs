//! Routes of a large cluster: 5,000 nodes and 250,000 addresses, each address with a route of its own.
//!
//! The lower bound is a plain ordered map of the same finished routes: the cost of just keeping them.

#![expect(clippy::print_stdout, reason = "the table is this program's output")]

use anyhow::Result;
use api::{IPIPMode, Node, NodeBGPSpec, VXLANMode};
use calc::{CalcGraph, GraphConfig};
use ipnet::IpNet;
use messages::{Route, ToDataplane};
use model::AllocationBlock;
use model::convert::{self, Faults};
use model::feed::{FeedEntry, IpPool, Status};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::Instant;
use testkit::{Report, heap, median};

#[global_allocator]
static HEAP: heap::Counting = heap::Counting;

const NODES: u32 = 5_000;
const ADDRESSES_PER_BLOCK: u32 = 50;
const CHANGES: u32 = 200;

fn main() -> Result<()> {
    let before = heap::now();
    let updates = cluster()?;
    let start = Instant::now();
    let mut graph = CalcGraph::new(GraphConfig { host: "node-0".into(), ..GraphConfig::default() });
    for update in updates {
        graph.on_entry(update);
    }
    graph.on_status(Status::InSync);
    let mut out = Vec::new();
    graph.flush(&mut out);
    let load = start.elapsed().as_secs_f64();
    let routes: Vec<Route> = out
        .into_iter()
        .filter_map(|message| match message {
            ToDataplane::RouteUpdate(route) => Some(route),
            _ => None,
        })
        .collect();
    let count = routes.len();
    let with_messages = heap::now();
    let start = Instant::now();
    let map: BTreeMap<IpNet, Route> = routes.into_iter().map(|route| (route.dst, route)).collect();
    let floor = start.elapsed().as_secs_f64();
    let with_map = heap::now();
    drop(map);
    // The updates are consumed, and the messages were dropped with the map: only the graph is left.
    let kept = megabytes(heap::now() - before);
    let floor_memory = megabytes(with_map.min(with_messages) - heap::now());

    let mut report = Report::new("network");
    report.row(
        &format!("{NODES} nodes, {count} routes: first load to flushed messages"),
        &format!("{load:.2} s"),
        &format!("an ordered map of the same routes: {floor:.2} s"),
        &format!("{:.1}", load / floor),
        "under 2 s",
    );
    report.row(
        "the same, memory kept by the graph",
        &format!("{kept:.0} MB"),
        &format!("the map alone: {floor_memory:.0} MB"),
        &format!("{:.1}", kept / floor_memory),
        "no more than three times the map",
    );
    for (what, change) in [
        ("one block changed", block_changed as fn(u32) -> Result<FeedEntry>),
        ("one node's address changed (51 routes)", node_changed),
    ] {
        let mut times = Vec::new();
        for index in 0..CHANGES {
            let update = change(index)?;
            let mut out = Vec::new();
            let start = Instant::now();
            graph.on_entry(update);
            graph.flush(&mut out);
            times.push(start.elapsed().as_secs_f64() * 1e6);
            anyhow::ensure!(!out.is_empty(), "a change without a message");
        }
        let worst = times.iter().copied().fold(0.0, f64::max);
        report.row(
            &format!("{what}, update to flushed messages"),
            &format!("{:.1} µs (worst {worst:.0} µs)", median(times)),
            "first load",
            "",
            "does not grow with the cluster",
        );
    }
    print!("{}", report.markdown());
    report.record()
}

fn cluster() -> Result<Vec<FeedEntry>> {
    let mut updates = vec![pool()?];
    for index in 0..NODES {
        updates.push(node(index, 0));
        updates.push(block(index, 0)?);
    }
    Ok(updates)
}

fn pool() -> Result<FeedEntry> {
    let cidr: IpNet = "10.0.0.0/8".parse()?;
    let pool = IpPool {
        cidr,
        ipip_interface: String::new(),
        ipip_mode: IPIPMode::Never,
        vxlan_mode: VXLANMode::CrossSubnet,
        masquerade: true,
        ipam: true,
        disabled: false,
        disable_bgp_export: false,
        assigned_automatically: true,
        allowed_uses: Vec::new(),
    };
    Ok(FeedEntry::IpPool(cidr, Some(Box::new(pool))))
}

fn node(index: u32, generation: u32) -> FeedEntry {
    let mut node = Node::default();
    let address = Ipv4Addr::from_bits(0xac10_0000 + index + generation * NODES);
    node.spec.bgp =
        Some(NodeBGPSpec { ipv4_address: format!("{address}/24").into(), ..NodeBGPSpec::default() });
    FeedEntry::Node(
        format!("node-{index}").into(),
        Some(Box::new(convert::node::node(node, &mut Faults::new()))),
    )
}

/// A block whose owner is gone: every address has its own route, the last one to another node in each generation.
fn block(index: u32, generation: u32) -> Result<FeedEntry> {
    let cidr = IpNet::new(Ipv4Addr::from_bits(0x0a00_0000 + index * 64).into(), 26)?;
    let attribute = |node: u32| serde_json::json!({"handle_id": format!("k8s-pod-network.{index}-{node}"), "secondary": {"node": format!("node-{node}")}});
    let allocations: Vec<u32> =
        (0..ADDRESSES_PER_BLOCK).map(|ordinal| u32::from(ordinal + 1 == ADDRESSES_PER_BLOCK)).collect();
    let block: AllocationBlock = serde_json::from_value(serde_json::json!({
        "cidr": cidr.to_string(), "affinity": null, "allocations": allocations, "unallocated": [],
        "attributes": [attribute(index), attribute((index + 1 + generation) % NODES)],
    }))?;
    Ok(FeedEntry::Block(cidr, Some(Box::new(block))))
}

fn block_changed(index: u32) -> Result<FeedEntry> {
    block(index * 17 % NODES, 1)
}

fn node_changed(index: u32) -> Result<FeedEntry> {
    Ok(node(index * 19 % NODES, 1))
}

#[expect(clippy::cast_precision_loss, reason = "megabytes for people")]
fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
