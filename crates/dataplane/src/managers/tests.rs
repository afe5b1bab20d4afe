//! Managers over drivers that only write down what they are told.

use super::migration::Migrations;
use super::workloads::Surroundings;
use super::{
    AllHosts, Bandwidth, ClusterRoutes, ClusterRoutesSettings, DriverFigure, Dscp, Firewall,
    FloatingAddresses, Groups, HostEndpoints, Interfaces, Plane, Policies, Pools, ServiceLoop, ThisHost,
    VxlanManager, VxlanSettings, WorkloadSettings, Workloads,
};
use crate::driver::{Applied, ApplyError, RuleDriver};
use crate::ipsets::{IpSetDriver, Metrics};
use crate::refused::Refused;
use crate::routes::{ConnectionCleanup, Ownership, PROTOCOL_BOOT, RouteTable, TableSettings};
use api::{IPIPMode, IPPoolAllowedUse, Kind, VXLANMode};
use ipnet::IpNet;
use messages::{
    GlobalBgpConfig, HostEndpoint, HostMetadata, IpPoolType, IpSetMember, IpSetType, IpamPool, Nat, Policy,
    PolicyId, QosPolicy, Route, RouteTypes, Text, TierInfo, TunnelType, VxlanTunnelEndpoint,
    WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use netlink::{FakeKernel, Family, Kernel as _, Link, RouteFilter, RouteKind, TABLE_LOCAL, TABLE_MAIN};
use rules::tree::{Chain, IpVersion, KernelChain, Table, VerdictMap};
use rules::{Backend, EndpointMarks, Renderer, RulesConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What a driver was told.
#[derive(Debug, Default)]
struct Told {
    chains: BTreeMap<(Table, Text), Chain>,
    kept: BTreeSet<(Table, Text)>,
    maps: BTreeMap<Text, BTreeSet<Text>>,
    sets: BTreeMap<String, BTreeSet<String>>,
    log: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Told>>);

impl Notes {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("lock")
    }

    /// What was told since the last call.
    fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.told().log)
    }

    fn has_chain(&self, layer: Table, name: &str) -> bool {
        self.told().chains.contains_key(&(layer, name.into()))
    }

    fn members(&self, set: &str) -> Vec<String> {
        self.told().sets.get(set).unwrap_or_else(|| panic!("no set {set}")).iter().cloned().collect()
    }
}

impl RuleDriver for Notes {
    fn update_chain(&mut self, layer: Table, chain: Chain) {
        let mut told = self.told();
        if told.chains.insert((layer, chain.name.clone()), chain.clone()).as_ref() != Some(&chain) {
            told.log.push(format!("+{layer} {}", chain.name));
        }
    }

    fn keep_chain(&mut self, layer: Table, name: &Text, keep: bool) {
        let mut told = self.told();
        assert!(told.chains.contains_key(&(layer, name.clone())), "{name} is defined");
        let changed = if keep {
            told.kept.insert((layer, name.clone()))
        } else {
            told.kept.remove(&(layer, name.clone()))
        };
        if changed {
            told.log.push(format!("{}{layer} {name}", if keep { "keep " } else { "leave " }));
        }
    }

    fn remove_chain(&mut self, layer: Table, name: &str) {
        let mut told = self.told();
        told.kept.remove(&(layer, name.into()));
        if told.chains.remove(&(layer, name.into())).is_some() {
            told.log.push(format!("-{layer} {name}"));
        }
    }

    fn set_kernel_chain(&mut self, _: Table, _: KernelChain) {}

    fn update_map(&mut self, _: Table, map: VerdictMap) {
        self.told().maps.insert(map.name, map.entries.into_keys().collect());
    }

    fn set_map_entry(&mut self, _: Table, map: &str, interface: &Text, chain: Option<&Text>) {
        let mut told = self.told();
        let entries = told.maps.entry(map.into()).or_default();
        match chain {
            Some(_) => entries.insert(interface.clone()),
            None => entries.remove(interface),
        };
    }

    fn remove_map(&mut self, _: Table, name: &str) {
        self.told().maps.remove(name);
    }

    fn invalidate(&mut self) {}

    fn set_faults(&mut self, _: &crate::refused::SetFaults) {}

    fn retry_refused(&mut self) {}

    fn apply(&mut self, _: Instant) -> Result<Applied, ApplyError> {
        Ok(Applied::default())
    }

    fn refused(&self) -> Vec<Refused> {
        Vec::new()
    }
}

impl Firewall for Notes {
    fn figures(&self) -> Vec<DriverFigure> {
        Vec::new()
    }
}

impl IpSetDriver for Notes {
    fn update_set(&mut self, id: &str, _: IpSetType, members: &[IpSetMember]) {
        self.told().sets.insert(id.to_owned(), members.iter().map(ToString::to_string).collect());
    }

    fn update_members(&mut self, id: &str, added: &[IpSetMember], removed: &[IpSetMember]) {
        let mut told = self.told();
        let members = told.sets.get_mut(id).expect("defined before");
        for member in removed {
            assert!(members.remove(&member.to_string()), "{member} was in {id}");
        }
        for member in added {
            assert!(members.insert(member.to_string()), "{member} was not in {id}");
        }
    }

    fn remove_set(&mut self, id: &str) {
        self.told().sets.remove(id);
    }

    fn invalidate(&mut self) {}

    fn retry_refused(&mut self) {}

    fn hold(&mut self, _: bool) {}

    fn apply_updates(&mut self) -> Result<Applied, ApplyError> {
        Ok(Applied::default())
    }

    fn apply_deletions(&mut self) -> Result<Applied, ApplyError> {
        Ok(Applied::default())
    }

    fn refused(&self) -> Vec<Refused> {
        Vec::new()
    }

    fn faults(&self) -> BTreeMap<Text, crate::refused::SetFault> {
        BTreeMap::new()
    }

    fn metrics(&self) -> Metrics {
        Metrics::default()
    }
}

struct NoConnections;

impl ConnectionCleanup for NoConnections {
    fn start(&mut self, _: BTreeSet<IpAddr>) {}
    fn wait(&mut self, _: &BTreeSet<IpAddr>) {}
}

/// A plane that writes down, and a kernel for its routes.
struct Scene {
    notes: Notes,
    arp: Notes,
    planes: Vec<Plane>,
    kernel: FakeKernel,
    interfaces: Interfaces,
    renderer: Renderer,
    policies: Policies,
    groups: Groups,
    marks: EndpointMarks,
    migrations: Migrations,
    bandwidth: Bandwidth,
    now: Instant,
}

impl Scene {
    fn new(backend: Backend) -> Self {
        let config = RulesConfig { backend, ..RulesConfig::default() };
        let (notes, now) = (Notes::default(), Instant::now());
        let table = RouteTable::new(TableSettings {
            family: Family::V4,
            table: TABLE_MAIN,
            ownership: Ownership {
                workload_prefixes: vec!["cali".into()],
                all_workload_routes: true,
                device_protocol: PROTOCOL_BOOT,
                ..Ownership::default()
            },
            source: None,
            static_neighbours: true,
        });
        let plane = Plane {
            version: IpVersion::V4,
            rules: Box::new(notes.clone()),
            sets: Box::new(notes.clone()),
            routes: Some(table),
            link_addresses: None,
            set_retry: crate::refused::Retry::default(),
            rules_behind: false,
        };
        Self {
            notes,
            arp: Notes::default(),
            planes: vec![plane],
            kernel: FakeKernel::new(),
            interfaces: Interfaces::default(),
            marks: EndpointMarks::new(&config.marks),
            renderer: Renderer::new(config),
            policies: Policies::default(),
            groups: Groups::default(),
            migrations: Migrations::new(Duration::from_secs(30)),
            bandwidth: Bandwidth::default(),
            now,
        }
    }

    fn interface(&mut self, name: &str, addresses: &[&str]) {
        let index = self.kernel.with_link(name, "veth");
        let link = Link { index, name: name.to_owned(), running: true, mtu: 1500, ..Link::default() };
        let mut news = Vec::new();
        self.interfaces.take(&netlink::Event::Link(link), &mut news);
        for address in addresses {
            let local = netlink::Route {
                kind: RouteKind::Local,
                table: TABLE_LOCAL,
                device: Some(index),
                ..netlink::Route::new(address.parse().expect("a network"))
            };
            self.interfaces.take(&netlink::Event::Route(local), &mut news);
        }
        if let Some(routes) = &mut self.planes[0].routes {
            routes.device_is(&name.into(), index, true, self.now);
        }
    }

    fn complete(&mut self, workloads: &mut Workloads) {
        workloads.complete(&mut Surroundings {
            renderer: &self.renderer,
            planes: &mut self.planes,
            arp: Some(&mut self.arp),
            policies: &self.policies,
            groups: &mut self.groups,
            marks: &mut self.marks,
            migrations: &self.migrations,
            bandwidth: &mut self.bandwidth,
        });
    }

    fn complete_hosts(&mut self, hosts: &mut HostEndpoints) -> bool {
        hosts.complete(
            &self.renderer,
            &mut self.planes,
            (&self.policies, &mut self.groups, &mut self.marks),
            &self.interfaces,
            |name| name.starts_with("cali"),
        )
    }

    fn routes(&mut self) -> Vec<String> {
        if let Some(routes) = &mut self.planes[0].routes {
            let outcome = routes.apply(&mut self.kernel, &mut NoConnections, self.now);
            assert!(outcome.is_done(), "{outcome:?}");
        }
        let found = self.kernel.routes(&RouteFilter::all(Family::V4)).expect("routes");
        let text = |route: &netlink::Route| {
            let metric = route.metric.map(|metric| format!(" metric {metric}")).unwrap_or_default();
            format!("{route}{metric} proto {}", route.protocol)
        };
        found.iter().map(text).collect()
    }
}

fn id(name: &str) -> WorkloadEndpointId {
    WorkloadEndpointId { orchestrator: "k8s".into(), workload: name.into(), endpoint: "eth0".into() }
}

fn nets(texts: &[&str]) -> Vec<IpNet> {
    texts.iter().map(|text| text.parse().expect("a network")).collect()
}

fn workload(interface: &str, addresses: &[&str]) -> WorkloadEndpoint {
    WorkloadEndpoint {
        state: "active".to_owned(),
        name: interface.to_owned(),
        ipv4_nets: nets(addresses),
        ..WorkloadEndpoint::default()
    }
}

fn settings() -> WorkloadSettings {
    WorkloadSettings { floating_addresses: false, normal_metric: [1024; 2], elevated_metric: [512; 2] }
}

fn policy_id(name: &str) -> PolicyId {
    Arc::new(PolicyKey { kind: Kind::GlobalNetworkPolicy, namespace: String::new(), name: name.to_owned() })
}

fn tier(policies: &[&str]) -> TierInfo {
    TierInfo {
        name: "default".to_owned(),
        default_action: RuleAction::Deny,
        ingress_policies: policies.iter().map(|name| policy_id(name)).collect(),
        egress_policies: Vec::new(),
    }
}

fn policy(selector: &str) -> Policy {
    Policy { tier: "default".to_owned(), original_selector: selector.to_owned(), ..Policy::default() }
}

#[test]
fn of_two_endpoints_with_one_interface_the_first_by_name_has_it() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut scene = Scene::new(backend);
        let mut workloads = Workloads::new(settings());
        scene.interface("cali1", &[]);
        let status = |workloads: &mut Workloads, scene: &Scene| {
            let all = workloads.take_statuses(&scene.interfaces, |_| false);
            all.into_iter()
                .map(|(id, status)| (id.workload, status.map(|one| one.0)))
                .collect::<BTreeMap<_, _>>()
        };
        let configured = |workloads: &mut Workloads, scene: &Scene| {
            for (name, _) in workloads.to_configure(&scene.interfaces) {
                workloads.configured(&name);
            }
        };
        workloads.update(id("b"), Arc::new(workload("cali1", &["10.0.0.2/32"])));
        scene.complete(&mut workloads);
        assert_eq!(
            status(&mut workloads, &scene),
            BTreeMap::from([("b".into(), Some("down"))]),
            "not set up yet"
        );
        configured(&mut workloads, &scene);
        assert_eq!(status(&mut workloads, &scene), BTreeMap::from([("b".into(), Some("up"))]));
        assert_eq!(scene.routes(), ["route 10.0.0.2/32 by device 1 metric 1024 proto 3"]);
        // Another one takes its place, then a third has to wait.
        workloads.update(id("a"), Arc::new(workload("cali1", &["10.0.0.1/32"])));
        workloads.update(id("c"), Arc::new(workload("cali1", &["10.0.0.3/32"])));
        scene.complete(&mut workloads);
        configured(&mut workloads, &scene);
        let expected = BTreeMap::from([("a".into(), Some("up")), ("b".into(), None), ("c".into(), None)]);
        assert_eq!(status(&mut workloads, &scene), expected);
        assert_eq!(scene.routes(), ["route 10.0.0.1/32 by device 1 metric 1024 proto 3"]);
        // Then the first of those who wait has it.
        workloads.remove(id("a"));
        scene.complete(&mut workloads);
        configured(&mut workloads, &scene);
        let expected = BTreeMap::from([("a".into(), None), ("b".into(), Some("up"))]);
        assert_eq!(status(&mut workloads, &scene), expected);
        assert_eq!(scene.routes(), ["route 10.0.0.2/32 by device 1 metric 1024 proto 3"]);
        for name in ["b", "c"] {
            workloads.remove(id(name));
        }
        scene.complete(&mut workloads);
        assert_eq!(scene.routes(), [""; 0]);
        assert!(!scene.notes.has_chain(Table::Filter, "cali-tw-cali1"));
        let arp = scene.arp.told();
        assert!(!arp.chains.contains_key(&(Table::Filter, "cali-arp-cali1".into())));
        assert!(arp.maps.values().all(BTreeSet::is_empty));
        if backend == Backend::Nftables {
            assert!(scene.notes.told().maps.values().all(BTreeSet::is_empty));
        }
    }
}

#[test]
fn an_endpoint_costs_its_own_chains_and_entries() {
    let mut scene = Scene::new(Backend::Nftables);
    let mut workloads = Workloads::new(settings());
    for number in 0..50 {
        let endpoint = workload(&format!("cali{number:02}"), &[&format!("10.0.1.{number}/32")]);
        workloads.update(id(&format!("{number:02}")), Arc::new(endpoint));
    }
    scene.complete(&mut workloads);
    scene.notes.news();
    workloads.update(id("new"), Arc::new(workload("calinew", &["10.0.2.1/32"])));
    scene.complete(&mut workloads);
    assert_eq!(scene.notes.news(), ["+filter cali-tw-calinew", "+filter cali-fw-calinew"]);
    assert_eq!(scene.notes.told().maps["cali-from-wl-dispatch"].len(), 51);
    workloads.update(
        id("new"),
        Arc::new(WorkloadEndpoint { tiers: vec![tier(&["p"])], ..workload("calinew", &["10.0.2.1/32"]) }),
    );
    scene.complete(&mut workloads);
    assert_eq!(scene.notes.news(), ["+filter cali-tw-calinew"]);
    // A new name means other chains.
    workloads.update(id("new"), Arc::new(workload("calinewer", &["10.0.2.1/32"])));
    scene.complete(&mut workloads);
    let expected = [
        "-filter cali-tw-calinew",
        "-filter cali-fw-calinew",
        "+filter cali-tw-calinewer",
        "+filter cali-fw-calinewer",
    ];
    assert_eq!(scene.notes.news(), expected);
}

#[test]
fn endpoints_that_are_off_or_have_impossible_names_get_no_routes() {
    let mut scene = Scene::new(Backend::Iptables);
    let mut workloads = Workloads::new(settings());
    scene.interface("cali1", &[]);
    let off = WorkloadEndpoint { state: "inactive".to_owned(), ..workload("cali1", &["10.0.0.1/32"]) };
    workloads.update(id("off"), Arc::new(off));
    workloads.update(id("odd"), Arc::new(workload("../../kernel", &["10.0.0.2/32"])));
    scene.complete(&mut workloads);
    assert_eq!(scene.routes(), [""; 0]);
    assert_eq!(workloads.to_configure(&scene.interfaces), [(Text::from("cali1"), false)]);
    let status: Vec<_> = workloads.take_statuses(&scene.interfaces, |_| false);
    let status: Vec<_> =
        status.into_iter().map(|(id, status)| (id.workload, status.map(|one| one.0))).collect();
    assert_eq!(status, [("odd".into(), Some("error")), ("off".into(), Some("down"))]);
}

#[test]
fn floating_addresses_and_migrations_have_their_routes() {
    let mut scene = Scene::new(Backend::Iptables);
    let mut workloads = Workloads::new(WorkloadSettings { floating_addresses: true, ..settings() });
    scene.interface("cali1", &[]);
    let nat = Nat { external: [192, 0, 2, 1].into(), internal: [10, 0, 0, 1].into() };
    let endpoint = Arc::new(WorkloadEndpoint { ipv4_nat: vec![nat], ..workload("cali1", &["10.0.0.1/32"]) });
    workloads.update(id("a"), Arc::clone(&endpoint));
    scene.complete(&mut workloads);
    assert_eq!(
        scene.routes(),
        [
            "route 10.0.0.1/32 by device 1 metric 1024 proto 3",
            "route 192.0.2.1/32 by device 1 metric 1024 proto 3"
        ]
    );
    let mut floating = FloatingAddresses::new(true);
    floating.update(&id("a"), Some(&endpoint));
    floating.complete(&scene.renderer, &mut scene.planes);
    let dnat = |scene: &Scene| scene.notes.told().chains[&(Table::Nat, "cali-fip-dnat".into())].rules.len();
    assert_eq!(dnat(&scene), 1);
    floating.update(&id("a"), None);
    floating.complete(&scene.renderer, &mut scene.planes);
    assert_eq!(dnat(&scene), 0);
    // OpenStack's count always, others' only where they are asked for.
    let mut floating = FloatingAddresses::new(false);
    floating.update(&id("a"), Some(&endpoint));
    floating.update(&WorkloadEndpointId { orchestrator: "openstack".into(), ..id("a") }, Some(&endpoint));
    floating.complete(&scene.renderer, &mut scene.planes);
    assert_eq!(dnat(&scene), 1);

    let machine =
        |live_migration_role| WorkloadEndpoint { live_migration_role, ..WorkloadEndpoint::default() };
    scene.migrations.update(&id("a"), &machine(messages::LiveMigrationRole::Target), scene.now);
    workloads.touch(&id("a"));
    scene.complete(&mut workloads);
    assert_eq!(scene.routes(), [""; 0]);
    scene.migrations.update(&id("a"), &machine(messages::LiveMigrationRole::None), scene.now);
    workloads.touch(&id("a"));
    scene.complete(&mut workloads);
    assert_eq!(scene.routes()[0], "route 10.0.0.1/32 by device 1 metric 512 proto 3");
}

#[test]
fn a_policy_rewrites_its_own_chains_where_it_is_used() {
    let mut scene = Scene::new(Backend::Iptables);
    let Scene { policies, renderer, planes, notes, .. } = &mut scene;
    policies.update(&policy_id("p"), &policy("all()"), renderer, planes);
    policies.update(&policy_id("q"), &policy("all()"), renderer, planes);
    let expected = ["+mangle cali-po-gnp/p", "+filter cali-pi-gnp/p", "+filter cali-po-gnp/p"];
    assert_eq!(notes.news()[..3], expected);
    let rule = messages::Rule { action: RuleAction::Allow, ..messages::Rule::default() };
    let changed = Policy { inbound_rules: vec![rule], ..policy("all()") };
    policies.update(&policy_id("p"), &changed, renderer, planes);
    assert_eq!(notes.news(), ["+filter cali-pi-gnp/p"]);
    assert!(policies.take_regrouped().is_empty());
    // Of another kind it belongs elsewhere.
    policies.update(&policy_id("p"), &Policy { untracked: true, ..policy("x") }, renderer, planes);
    assert!(notes.has_chain(Table::Raw, "cali-pi-gnp/p") && !notes.has_chain(Table::Filter, "cali-pi-gnp/p"));
    assert_eq!(policies.take_regrouped(), BTreeSet::from([policy_id("p")]));
    policies.remove(&policy_id("p"), renderer, planes);
    policies.remove(&policy_id("q"), renderer, planes);
    assert!(notes.told().chains.is_empty());
}

#[test]
fn policies_that_every_node_needs_are_kept_in_the_filter_layer() {
    for backend in [Backend::Nftables, Backend::Iptables] {
        let Scene { notes, mut planes, renderer, mut policies, .. } = Scene::new(backend);
        let (planes, renderer) = (&mut planes, &renderer);
        let kept = |notes: &Notes| -> Vec<String> {
            notes.told().kept.iter().map(|(layer, name)| format!("{layer} {name}")).collect()
        };
        let hinted = Policy {
            performance_hints: vec!["other".to_owned(), "AssumeNeededOnEveryNode".to_owned()],
            ..policy("all()")
        };
        policies.update(&policy_id("p"), &hinted, renderer, planes);
        policies.update(&policy_id("q"), &policy("all()"), renderer, planes);
        assert_eq!(kept(&notes), ["filter cali-pi-gnp/p", "filter cali-po-gnp/p"]);
        policies.update(&policy_id("p"), &policy("all()"), renderer, planes);
        assert!(kept(&notes).is_empty(), "without the hint");
        policies.update(&policy_id("p"), &hinted, renderer, planes);
        policies.update(&policy_id("p"), &Policy { untracked: true, ..hinted.clone() }, renderer, planes);
        assert!(kept(&notes).is_empty(), "it belongs elsewhere");
    }
}

#[test]
fn groups_live_as_long_as_somebody_has_them() {
    let mut scene = Scene::new(Backend::Iptables);
    let mut workloads = Workloads::new(settings());
    for name in ["p", "q", "r"] {
        scene.policies.update(&policy_id(name), &policy("all()"), &scene.renderer, &mut scene.planes);
    }
    let endpoint = |interface: &str| WorkloadEndpoint {
        tiers: vec![tier(&["p", "q", "r"])],
        ..workload(interface, &[])
    };
    workloads.update(id("a"), Arc::new(endpoint("cali1")));
    workloads.update(id("b"), Arc::new(endpoint("cali2")));
    scene.complete(&mut workloads);
    let groups = |scene: &Scene| {
        let told = scene.notes.told();
        told.chains
            .keys()
            .filter(|(layer, name)| *layer == Table::Filter && name.starts_with("cali-gi-"))
            .count()
    };
    assert_eq!(groups(&scene), 1);
    workloads.remove(id("a"));
    scene.complete(&mut workloads);
    assert_eq!(groups(&scene), 1);
    // One policy selects others now: the group falls apart.
    scene.policies.update(&policy_id("q"), &policy("x == 'y'"), &scene.renderer, &mut scene.planes);
    let regrouped = scene.policies.take_regrouped();
    workloads.regroup(&regrouped);
    scene.complete(&mut workloads);
    assert_eq!(groups(&scene), 0);
    workloads.remove(id("b"));
    scene.complete(&mut workloads);
    assert_eq!(groups(&scene), 0);
}

#[test]
fn host_endpoints_find_their_interfaces() {
    let mut scene = Scene::new(Backend::Iptables);
    scene.interface("eth0", &["10.0.0.1/32", "10.0.0.2/32"]);
    scene.interface("eth1", &["10.1.0.1/32"]);
    scene.interface("cali1", &["10.9.0.1/32"]);
    let mut hosts = HostEndpoints::default();
    let named = |name: &str| HostEndpoint { name: name.to_owned(), ..HostEndpoint::default() };
    let expecting = |address: [u8; 4]| HostEndpoint {
        expected_ipv4_addrs: vec![address.into()],
        ..HostEndpoint::default()
    };
    for (id, endpoint) in [
        ("b-by-name", named("eth0")),
        ("a-by-address", expecting([10, 0, 0, 2])),
        ("c-elsewhere", HostEndpoint { name: "eth7".to_owned(), ..expecting([10, 1, 0, 1]) }),
        ("d-workload", expecting([10, 9, 0, 1])),
        ("e-all", named("*")),
        ("f-all", named("*")),
    ] {
        hosts.update(id.into(), endpoint);
    }
    assert!(scene.complete_hosts(&mut hosts));
    let status = |hosts: &mut HostEndpoints, scene: &Scene| {
        let all = hosts.take_statuses(&scene.interfaces, |_, _| false);
        all.into_iter().map(|(id, status)| format!("{id} {}", status.unwrap_or("gone"))).collect::<Vec<_>>()
    };
    assert_eq!(
        status(&mut hosts, &scene),
        [
            "a-by-address up",
            "b-by-name error",
            "c-elsewhere error",
            "d-workload error",
            "e-all up",
            "f-all error"
        ]
    );
    assert_eq!(hosts.interfaces(), BTreeSet::from(["eth0".into()]));
    for chain in ["cali-th-eth0", "cali-th-any-interface-at-all"] {
        assert!(scene.notes.has_chain(Table::Filter, chain), "{chain}");
    }
    assert!(!scene.complete_hosts(&mut hosts), "nothing changed");
    // The address moves to the other interface.
    scene.notes.news();
    hosts.remove(&"a-by-address".into());
    assert!(scene.complete_hosts(&mut hosts));
    assert_eq!(status(&mut hosts, &scene), ["a-by-address gone", "b-by-name up"]);
    hosts.update("b-by-name".into(), expecting([10, 1, 0, 1]));
    assert!(scene.complete_hosts(&mut hosts));
    assert_eq!(hosts.interfaces(), BTreeSet::from(["eth1".into()]));
    assert!(
        !scene.notes.has_chain(Table::Filter, "cali-th-eth0")
            && scene.notes.has_chain(Table::Filter, "cali-fh-eth1")
    );
}

fn route(dst: &str, node: &str, types: RouteTypes) -> Route {
    Route {
        dst: dst.parse().expect("a network"),
        types,
        ip_pool_type: IpPoolType::Vxlan,
        dst_node_name: Some(node.into()),
        dst_node_ip: Some([10, 65, 0, 2].into()),
        same_subnet: false,
        nat_outgoing: false,
        local_workload: false,
        tunnel_type: TunnelType::default(),
        borrowed: false,
    }
}

#[test]
fn routes_to_other_nodes_by_their_kind() {
    let mut scene = Scene::new(Backend::Iptables);
    scene.interface("vxlan.calico", &[]);
    let mut routes = ClusterRoutes::new(ClusterRoutesSettings {
        version: IpVersion::V4,
        pool_type: IpPoolType::Vxlan,
        tunnel_device: Some("vxlan.calico".into()),
        tunnel_mtu: Some(1450),
        protocol: 80,
    });
    let remote = RouteTypes::REMOTE_WORKLOAD;
    routes.update(&route("10.66.2.0/26", "n2", remote));
    routes.update(&Route { same_subnet: true, ..route("10.66.3.0/26", "n2", remote) });
    routes.update(&route("10.66.4.0/32", "n4", RouteTypes::REMOTE_TUNNEL | remote));
    routes.update(&Route { borrowed: true, ..route("10.66.5.0/32", "n5", RouteTypes::REMOTE_TUNNEL) });
    routes.update(&route("10.66.6.0/32", "n6", RouteTypes::REMOTE_TUNNEL));
    routes.update(&route("10.66.1.0/26", "n1", RouteTypes::LOCAL_WORKLOAD));
    routes
        .update(&Route { local_workload: true, ..route("10.66.1.64/26", "n1", RouteTypes::LOCAL_WORKLOAD) });
    routes.update(&route("10.66.1.1/32", "n1", RouteTypes::LOCAL_WORKLOAD));
    routes.update(&Route { ip_pool_type: IpPoolType::Ipip, ..route("10.67.0.0/26", "n2", remote) });
    routes.update(&route("fd00::/122", "n2", remote));
    routes.complete(&scene.interfaces, &mut scene.planes[0]);
    assert_eq!(
        scene.routes(),
        [
            "route 10.66.1.0/26 Blackhole proto 80",
            "route 10.66.4.0/32 by device 1 proto 3",
            "route 10.66.5.0/32 by device 1 proto 3"
        ],
        "neither the tunnel's other end nor our own device are known"
    );
    routes.set_gateway(&"n2".into(), Some([10, 66, 2, 0].into()));
    scene.interface("eth0", &["10.65.0.1/32"]);
    routes.set_parent_address(Some([10, 65, 0, 1].into()));
    routes.complete(&scene.interfaces, &mut scene.planes[0]);
    let all = scene.routes();
    assert_eq!(all[1], "route 10.66.2.0/26 via 10.66.2.0 by device 1 proto 3");
    assert_eq!(all[2], "route 10.66.3.0/26 via 10.65.0.2 by device 2 proto 80");
    // The other kind, another subnet, gone.
    routes.update(&Route { ip_pool_type: IpPoolType::NoEncap, ..route("10.66.2.0/26", "n2", remote) });
    routes.update(&route("10.66.3.0/26", "n2", remote));
    routes.remove(&"10.66.4.0/32".parse().expect("net"));
    routes.complete(&scene.interfaces, &mut scene.planes[0]);
    assert_eq!(
        scene.routes(),
        [
            "route 10.66.1.0/26 Blackhole proto 80",
            "route 10.66.3.0/26 via 10.66.2.0 by device 1 proto 3",
            "route 10.66.5.0/32 by device 1 proto 3"
        ]
    );
    routes.set_gateway(&"n2".into(), None);
    routes.complete(&scene.interfaces, &mut scene.planes[0]);
    assert_eq!(scene.routes().len(), 2);
}

#[test]
fn without_tunnels_and_with_ip_in_ip() {
    let settings = |pool_type, tunnel: Option<&str>| ClusterRoutesSettings {
        version: IpVersion::V4,
        pool_type,
        tunnel_device: tunnel.map(Into::into),
        tunnel_mtu: tunnel.map(|_| 1480),
        protocol: 80,
    };
    let mut scene = Scene::new(Backend::Iptables);
    scene.interface("tunl0", &[]);
    scene.interface("eth0", &["10.65.0.1/32"]);
    let mut direct = ClusterRoutes::new(settings(IpPoolType::NoEncap, None));
    let mut ipip = ClusterRoutes::new(settings(IpPoolType::Ipip, Some("tunl0")));
    let of = |pool_type, dst: &str| Route {
        ip_pool_type: pool_type,
        ..route(dst, "n2", RouteTypes::REMOTE_WORKLOAD)
    };
    direct.update(&of(IpPoolType::NoEncap, "10.66.2.0/26"));
    ipip.update(&of(IpPoolType::Ipip, "10.67.2.0/26"));
    direct.set_parent_address(Some([10, 65, 0, 1].into()));
    ipip.set_gateway(&"n2".into(), Some([10, 65, 0, 2].into()));
    for routes in [&mut direct, &mut ipip] {
        routes.complete(&scene.interfaces, &mut scene.planes[0]);
    }
    assert_eq!(
        scene.routes(),
        [
            "route 10.66.2.0/26 via 10.65.0.2 by device 2 proto 80",
            "route 10.67.2.0/26 via 10.65.0.2 by device 1 proto 80"
        ]
    );
}

#[test]
fn vxlan_knows_its_hosts_and_its_device() {
    let mut scene = Scene::new(Backend::Iptables);
    let settings = VxlanSettings {
        host: "n1".into(),
        vni: 4096,
        port: 4789,
        mtu: 1450,
        protocol: 80,
        external: nets(&["192.0.2.0/24"]),
    };
    let mut vxlan = VxlanManager::new(settings, &mut scene.planes[0]);
    let end = |number: u8, mac: &str| VxlanTunnelEndpoint {
        mac: mac.to_owned(),
        ipv4: Some([10, 66, number, 0].into()),
        parent_device_ipv4: Some([10, 65, 0, number].into()),
        ..VxlanTunnelEndpoint::default()
    };
    let mac = "66:00:00:00:00:01";
    let plane = &mut scene.planes[0];
    vxlan.update(&"n2".into(), Some(&end(2, mac)), plane);
    vxlan.update(&"n3".into(), Some(&end(3, "no mac")), plane);
    vxlan.update(&"n4".into(), Some(&VxlanTunnelEndpoint { ipv4: None, ..end(4, mac) }), plane);
    vxlan.update(&"n1".into(), Some(&end(1, mac)), plane);
    assert_eq!(scene.notes.members("all-vxlan-net"), ["10.65.0.2/32", "192.0.2.0/24"]);
    assert_eq!(vxlan.wanted_device(&scene.interfaces), None, "no interface has the host's address");
    scene.interface("eth0", &["10.65.0.1/32"]);
    let device = vxlan.wanted_device(&scene.interfaces).expect("known");
    assert_eq!((device.name.as_str(), device.address.to_string().as_str()), ("vxlan.calico", "10.66.1.0"));
    // Two nodes with one address, for a moment.
    let plane = &mut scene.planes[0];
    vxlan.update(&"n5".into(), Some(&end(2, "66:00:00:00:00:05")), plane);
    vxlan.update(&"n2".into(), None, plane);
    assert_eq!(scene.notes.members("all-vxlan-net"), ["10.65.0.2/32", "192.0.2.0/24"]);
    vxlan.update(&"n5".into(), None, &mut scene.planes[0]);
    assert_eq!(scene.notes.members("all-vxlan-net"), ["192.0.2.0/24"]);
}

#[test]
fn sets_of_pools_hosts_and_marks() {
    let mut scene = Scene::new(Backend::Iptables);
    let renderer = scene.renderer.clone();
    let mut pools = Pools::new(&mut scene.planes[0]);
    let pool = |cidr: &str, masquerade, allowed_uses: &[IPPoolAllowedUse]| IpamPool {
        cidr: cidr.parse().expect("a network"),
        masquerade,
        ipip_mode: IPIPMode::Never,
        vxlan_mode: VXLANMode::Never,
        allowed_uses: allowed_uses.to_vec(),
    };
    let nat =
        |scene: &Scene| scene.notes.told().chains[&(Table::Nat, "cali-nat-outgoing".into())].rules.len();
    pools.complete(&renderer, &mut scene.planes[0]);
    assert_eq!(nat(&scene), 0);
    for one in [
        pool("10.0.0.0/16", true, &[IPPoolAllowedUse::Workload]),
        pool("10.1.0.0/16", false, &[]),
        pool("10.2.0.0/16", false, &[IPPoolAllowedUse::LoadBalancer]),
        pool("fd00::/64", true, &[]),
    ] {
        pools.update(one.cidr, Some(&one), &mut scene.planes[0]);
    }
    pools.complete(&renderer, &mut scene.planes[0]);
    assert_eq!(scene.notes.members("network-ip-pools"), ["10.0.0.0/16", "10.1.0.0/16"]);
    assert_eq!(scene.notes.members("masq-ipam-pools"), ["10.0.0.0/16"]);
    assert_eq!(nat(&scene), 1);
    let changed = pool("10.0.0.0/16", false, &[IPPoolAllowedUse::LoadBalancer]);
    pools.update(changed.cidr, Some(&changed), &mut scene.planes[0]);
    pools.update("10.1.0.0/16".parse().expect("net"), None, &mut scene.planes[0]);
    pools.complete(&renderer, &mut scene.planes[0]);
    assert!(
        scene.notes.members("network-ip-pools").is_empty()
            && scene.notes.members("masq-ipam-pools").is_empty()
    );
    assert_eq!(nat(&scene), 0);

    let mut hosts = AllHosts::new(&nets(&["192.0.2.0/24"]), &mut scene.planes[0]);
    let metadata = |address: &str| HostMetadata { ipv4_addr: address.to_owned(), ..HostMetadata::default() };
    for (host, address) in [("n1", "10.65.0.1/24"), ("n2", "10.65.0.2"), ("n3", "10.65.0.2"), ("n4", "")] {
        hosts.update(&host.into(), Some(&metadata(address)), &mut scene.planes[0]);
    }
    assert_eq!(scene.notes.members("all-hosts-net"), ["10.65.0.1/32", "10.65.0.2/32", "192.0.2.0/24"]);
    hosts.update(&"n2".into(), None, &mut scene.planes[0]);
    hosts.update(&"n1".into(), Some(&metadata("")), &mut scene.planes[0]);
    assert_eq!(scene.notes.members("all-hosts-net"), ["10.65.0.2/32", "192.0.2.0/24"]);

    scene.interface("eth0", &["10.65.0.1/32"]);
    scene.interface("cali1", &["169.254.1.1/32"]);
    let mut this = ThisHost::default();
    this.complete(&scene.interfaces, &mut scene.planes, |name| name.starts_with("cali"));
    assert_eq!(scene.notes.members("this-host"), ["10.65.0.1"]);

    let mut dscp = Dscp::new(&mut scene.planes[0]);
    let marked = |value| WorkloadEndpoint {
        qos_policies: vec![QosPolicy { destination: String::new(), dscp: value }],
        ..workload("cali1", &["10.0.0.1/32"])
    };
    let marks =
        |scene: &Scene| scene.notes.told().chains[&(Table::Mangle, "cali-egress-dscp".into())].rules.len();
    dscp.update_workload(&id("a"), Some(&marked(20)), &mut scene.planes[0]);
    dscp.update_workload(&id("b"), Some(&marked(64)), &mut scene.planes[0]);
    dscp.complete(&renderer, &mut scene.planes[0]);
    assert_eq!((scene.notes.members("dscp-src-net"), marks(&scene)), (vec!["10.0.0.1/32".to_owned()], 1));
    dscp.update_workload(&id("a"), None, &mut scene.planes[0]);
    dscp.complete(&renderer, &mut scene.planes[0]);
    assert_eq!((scene.notes.members("dscp-src-net").len(), marks(&scene)), (0, 0));

    let mut service_loop = ServiceLoop::default();
    service_loop.update(&GlobalBgpConfig {
        service_cluster_cidrs: vec!["10.96.0.0/12".to_owned(), "nonsense".to_owned()],
        service_external_cidrs: vec!["192.0.2.7".to_owned(), "10.96.0.0/12".to_owned()],
        ..GlobalBgpConfig::default()
    });
    service_loop.complete(&renderer, &mut scene.planes);
    assert_eq!(scene.notes.told().chains[&(Table::Filter, "cali-cidr-block".into())].rules.len(), 2);
}
