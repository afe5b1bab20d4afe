//! The figures for Prometheus, with Calico's names. Computed on request.

use super::state::State;
use ipam_core::AddressSet;
use ipam_core::garbage::Figures;
use ipam_core::garbage::PoolRange;
use ipam_core::garbage::figures::ByPool;
use std::collections::BTreeMap;
use telemetry::{Figure, FigureKind};

/// The figures of the state. None before everything is known, and while the datastore is locked.
pub(crate) fn figures(state: &State, page: &mut Vec<Figure>) {
    if !state.is_in_sync || !state.is_ready {
        return;
    }
    let pools: Vec<PoolRange> = state.pools.values().cloned().collect();
    let counted = state.collector.figures(&pools, state.calico_nodes.keys().map(String::as_str));
    let gauge = |name, help, values| Figure { name, kind: FigureKind::Gauge, help, values };
    page.push(gauge(
        "ipam_allocations_in_use",
        "IPs currently allocated in IPAM to a workload or tunnel endpoint.",
        by_pool(&counted.in_use),
    ));
    page.push(gauge(
        "ipam_allocations_borrowed",
        "IPs currently allocated in IPAM to a workload or tunnel endpoint, where the allocation was borrowed from a block \
         affine to another node.",
        by_pool(&counted.borrowed),
    ));
    page.push(gauge(
        "ipam_blocks",
        "IPAM blocks currently allocated for the IP pool.",
        by_pool(&counted.blocks),
    ));
    page.push(gauge(
        "ipam_allocations_gc_candidates",
        "Allocations that look leaked and are released when that lasts, or are found to be in use after all.",
        by_pool(&counted.candidates),
    ));
    let reclaimed =
        state.reclaimed.iter().map(|((pool, node), count)| (labels(pool, node), number(*count))).collect();
    page.push(Figure {
        name: "ipam_allocations_gc_reclamations",
        kind: FigureKind::Counter,
        help: "Leaked allocations that were released.",
        values: reclaimed,
    });
    page.push(gauge(
        "ipam_allocations_per_node",
        "Number of IPs allocated",
        by_node(&counted.in_use_by_node),
    ));
    page.push(gauge(
        "ipam_allocations_borrowed_per_node",
        "Number of allocated IPs that are from non-affine blocks.",
        by_node(&without_zeros(Figures::by_node(&counted.borrowed))),
    ));
    page.push(gauge(
        "ipam_blocks_per_node",
        "Number of blocks in IPAM",
        by_node(&Figures::by_node(&counted.blocks)),
    ));
    let of_pools = |count: &dyn Fn(&PoolRange) -> u128| {
        pools.iter().map(|pool| (label("ippool", &pool.name), large(count(pool)))).collect()
    };
    page.push(gauge(
        "ipam_ippool_size",
        "Total number of addresses in the IP Pool",
        of_pools(&|pool| ipam_core::address::size(&pool.cidr)),
    ));
    let reserved = state.reservations.values().flatten().copied().collect::<AddressSet>();
    page.push(gauge(
        "ipam_ippool_reserved",
        "Number of addresses in the IP Pool that an IPReservation covers, and so cannot be assigned.",
        of_pools(&|pool| reserved.count_within(&pool.cidr)),
    ));
}

fn without_zeros(mut nodes: BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    nodes.retain(|_, count| *count > 0);
    nodes
}

fn by_pool(figure: &ByPool) -> Vec<(String, f64)> {
    let pools = figure.iter();
    pools
        .flat_map(|(pool, nodes)| nodes.iter().map(move |(node, count)| (labels(pool, node), number(*count))))
        .collect()
}

fn by_node(nodes: &BTreeMap<String, u64>) -> Vec<(String, f64)> {
    nodes.iter().map(|(node, count)| (label("node", node), number(*count))).collect()
}

fn labels(pool: &str, node: &str) -> String {
    format!("{},{}", label("ippool", pool), label("node", node))
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

fn number(count: u64) -> f64 {
    count as f64
}

fn large(count: u128) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::{ClusterInformationSpec, IPPoolSpec, IPReservationSpec, NodeSpec, Object, OrchRef, Resource};
    use model::feed::{FeedEntry, Status};
    use model::{AllocationBlock, ResourceKey};
    use telemetry::Metrics;

    fn key(kind: api::Kind, name: &str) -> ResourceKey {
        ResourceKey { kind, namespace: String::new(), name: name.to_owned() }
    }

    fn resource(resource: Resource) -> FeedEntry {
        FeedEntry::Resource(key(resource.kind(), resource.name()), Some(Box::new(resource)))
    }

    fn page(state: State) -> String {
        let metrics = Metrics::default();
        metrics.source(move |page| figures(&state, page));
        metrics.page()
    }

    #[test]
    fn figures_have_calicos_names_and_labels() {
        let block: AllocationBlock = serde_json::from_str(
            r#"{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,1,null,null],"unallocated":[2,3],"attributes":[
                {"handle_id":"a","secondary":{"node":"n1","namespace":"shop","pod":"web"}},
                {"handle_id":"b","secondary":{"node":"n2","namespace":"shop","pod":"api"}}]}"#,
        )
        .expect("a block");
        let pool: IPPoolSpec = serde_json::from_str(r#"{"cidr":"10.0.0.0/24"}"#).expect("a pool");
        let reservation: IPReservationSpec =
            serde_json::from_str(r#"{"reservedCIDRs":["10.0.0.0/28","10.0.0.200"]}"#).expect("a reservation");
        let node = NodeSpec {
            orch_refs: vec![OrchRef {
                node_name: "k1".to_owned(),
                orchestrator: "k8s".to_owned(),
                ..OrchRef::default()
            }],
            ..NodeSpec::default()
        };
        let mut state = State::default();
        state.update(&FeedEntry::Block(block.cidr, Some(Box::new(block.clone()))));
        for object in [
            Resource::from(Object::new("", "p", pool)),
            Object::new("", "r", reservation).into(),
            Object::new("", "n1", node).into(),
        ] {
            state.update(&resource(object));
        }
        assert_eq!(state.calico_names("k1"), ["k1".to_owned(), "n1".to_owned()].into());
        state.count_reclaimed(&block.cidr, "n1");
        assert_eq!(page(State::default()), "", "nothing before everything is known");
        state.status(Status::InSync);
        let lines: Vec<String> =
            page(state).lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        assert_eq!(
            lines,
            [
                r#"ipam_allocations_borrowed{ippool="p",node="n1"} 0"#,
                r#"ipam_allocations_borrowed{ippool="p",node="n2"} 1"#,
                r#"ipam_allocations_borrowed_per_node{node="n2"} 1"#,
                r#"ipam_allocations_gc_candidates{ippool="p",node="n1"} 0"#,
                r#"ipam_allocations_gc_reclamations{ippool="p",node="n1"} 1"#,
                r#"ipam_allocations_in_use{ippool="p",node="n1"} 1"#,
                r#"ipam_allocations_in_use{ippool="p",node="n2"} 1"#,
                r#"ipam_allocations_per_node{node="n1"} 1"#,
                r#"ipam_allocations_per_node{node="n2"} 1"#,
                r#"ipam_blocks{ippool="p",node="n1"} 1"#,
                r#"ipam_blocks_per_node{node="n1"} 1"#,
                r#"ipam_ippool_reserved{ippool="p"} 17"#,
                r#"ipam_ippool_size{ippool="p"} 256"#,
            ]
        );
    }

    #[test]
    fn a_locked_datastore_stops_everything() {
        let mut state = State::default();
        state.status(Status::InSync);
        let locked =
            ClusterInformationSpec { datastore_ready: Some(false), ..ClusterInformationSpec::default() };
        state.update(&resource(Object::new("", "default", locked).into()));
        assert!(!state.is_ready);
        let unlocked =
            ClusterInformationSpec { datastore_ready: Some(true), ..ClusterInformationSpec::default() };
        state.update(&resource(Object::new("", "default", unlocked).into()));
        assert!(state.is_ready);
        state.update(&FeedEntry::Resource(key(api::Kind::ClusterInformation, "default"), None));
        assert!(!state.is_ready);
    }
}
