//! Managers over drivers that only record what is wanted.

mod sources;

use super::{
    AllHosts, ClusterRoutes, ClusterRoutesSettings, Dscp, FloatingAddresses, HostEndpoints, Interfaces,
    Manager, Migrations, News, Policies, Pools, ServiceLoop, ThisHost, VxlanManager, VxlanSettings,
    WorkloadSettings, Workloads, World,
};
use crate::desired::{Desired, VersionDesired, WantedInterface};
use api::{IPIPMode, IPPoolAllowedUse, Kind, VXLANMode};
use ipnet::IpNet;
use messages::{
    GlobalBgpConfig, HostEndpoint, HostMetadata, InterfaceName, IpPoolType, IpSetMember, IpSetType, IpamPool,
    Nat, Policy, PolicyId, QosPolicy, Route, RouteTypes, TierInfo, TunnelType, VxlanTunnelEndpoint,
    WorkloadEndpoint, WorkloadEndpointId,
};
use model::feed::RuleAction;
use model::v1::PolicyKey;
use netfilter::driver::{Applied, ApplyError, RuleDriver};
use netfilter::ipsets::{IpSetDriver, Metrics};
use netfilter::refused::Refused;
use netlink::{FakeKernel, Family, Kernel as _, Link, RouteFilter, RouteKind, TABLE_LOCAL, TABLE_MAIN};
use routing::routes::{ConnectionCleanup, Ownership, PROTOCOL_BOOT, RouteTable, TableSettings};
use rules::tree::{Chain, ChainName, IpVersion, KernelChain, MapName, SetName, Table, VerdictMap};
use rules::{Backend, Renderer, RulesConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The calls that a driver received.
#[derive(Debug, Default)]
struct Told {
    chains: BTreeMap<(Table, ChainName), Chain>,
    kept: BTreeSet<(Table, ChainName)>,
    maps: BTreeMap<MapName, BTreeSet<InterfaceName>>,
    sets: BTreeMap<String, BTreeSet<String>>,
    log: Vec<String>,
}

#[derive(Clone, Debug, Default)]
struct Notes(Arc<Mutex<Told>>);

impl Notes {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.0.lock().expect("lock")
    }

    /// The calls since the last time.
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

    fn keep_chain(&mut self, layer: Table, name: &ChainName, keep: bool) {
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

    fn remove_chain(&mut self, layer: Table, name: &ChainName) {
        let mut told = self.told();
        told.kept.remove(&(layer, name.clone()));
        if told.chains.remove(&(layer, name.clone())).is_some() {
            told.log.push(format!("-{layer} {name}"));
        }
    }

    fn set_kernel_chain(&mut self, _: Table, _: KernelChain) {}

    fn update_map(&mut self, _: Table, map: VerdictMap) {
        self.told().maps.insert(map.name, map.entries.into_keys().collect());
    }

    fn set_map_entry(&mut self, _: Table, map: &str, interface: &InterfaceName, chain: Option<&ChainName>) {
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

    fn set_faults(&mut self, _: &netfilter::refused::SetFaults) {}

    fn retry_refused(&mut self) {}

    fn apply(&mut self, _: Instant) -> Result<Applied, ApplyError> {
        Ok(Applied::default())
    }

    fn refused(&self) -> Vec<Refused> {
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

    fn faults(&self) -> BTreeMap<SetName, netfilter::refused::SetFault> {
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

/// Drivers that record what they take over, and a kernel for routes.
struct Scene {
    notes: Notes,
    arp: Notes,
    table: RouteTable,
    kernel: FakeKernel,
    world: World,
    desired: Desired,
    policies: Policies,
    migrations: Migrations,
    now: Instant,
}

impl Scene {
    fn new(backend: Backend) -> Self {
        let renderer = Arc::new(Renderer::new(RulesConfig { backend, ..RulesConfig::default() }));
        let now = Instant::now();
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
        Self {
            notes: Notes::default(),
            arp: Notes::default(),
            table,
            kernel: FakeKernel::new(),
            policies: Policies::new(Arc::clone(&renderer)),
            world: World::new(renderer, Interfaces::default(), now),
            desired: Desired::new(&[IpVersion::V4]),
            migrations: Migrations::new(Duration::from_secs(30)),
            now,
        }
    }

    fn interface(&mut self, name: &str, addresses: &[&str]) {
        let index = self.kernel.with_link(name, "veth");
        let link = Link { index, name: name.to_owned(), running: true, mtu: 1500, ..Link::default() };
        let mut news = Vec::new();
        self.world.interfaces.take(&netlink::Event::Link(link), &mut news);
        for address in addresses {
            let local = netlink::Route {
                kind: RouteKind::Local,
                table: TABLE_LOCAL,
                device: Some(index),
                ..netlink::Route::new(address.parse().expect("a network"))
            };
            self.world.interfaces.take(&netlink::Event::Route(local), &mut news);
        }
        self.table.device_is(&name.into(), index, true, self.now);
    }

    /// The state of the only IP version, for creating a manager.
    fn of_v4(&mut self) -> &mut VersionDesired {
        self.desired.of(IpVersion::V4).expect("the only version")
    }

    fn hear(&mut self, manager: &mut dyn Manager, news: &News<'_>) {
        manager.hear(news, self.now, &mut self.desired);
        self.hand_over();
    }

    /// Has policies, migrations and this manager write.
    fn write(&mut self, manager: &mut dyn Manager) {
        self.world.begin(self.now);
        self.policies.write(&mut self.world, &mut self.desired);
        self.migrations.write(&mut self.world, &mut self.desired);
        manager.write(&mut self.world, &mut self.desired);
        self.hand_over();
    }

    fn workload(
        &mut self,
        workloads: &mut Workloads,
        id: &WorkloadEndpointId,
        endpoint: Option<WorkloadEndpoint>,
    ) {
        let endpoint = endpoint.map(Arc::new);
        self.hear(workloads, &News::Workload(id, endpoint.as_ref()));
    }

    fn policy(&mut self, id: &str, policy: Option<&Policy>) {
        let policy = policy.map(|policy| Arc::new(policy.clone()));
        self.policies.hear(&News::Policy(&policy_id(id), policy.as_ref()), self.now, &mut self.desired);
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let wanted = &mut self.desired.versions[0];
        wanted.sets.hand_over(&mut self.notes);
        wanted.rules.hand_over(&mut self.notes);
        wanted.routes.hand_over(&mut self.table);
        self.desired.arp.hand_over(&mut self.arp);
    }

    /// The setup of interfaces that changed since the last call.
    fn interfaces(&mut self) -> Vec<(InterfaceName, Option<WantedInterface>)> {
        std::mem::take(&mut self.desired.interfaces).into_iter().collect()
    }

    fn routes(&mut self) -> Vec<String> {
        let outcome = self.table.apply(&mut self.kernel, &mut NoConnections, self.now);
        assert!(outcome.is_done(), "{outcome:?}");
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
        name: interface.into(),
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
        name: "default".into(),
        default_action: RuleAction::Deny,
        ingress_policies: policies.iter().map(|name| policy_id(name)).collect(),
        egress_policies: Vec::new(),
    }
}

fn policy(selector: &str) -> Policy {
    Policy { tier: "default".into(), original_selector: selector.to_owned(), ..Policy::default() }
}

#[test]
fn the_first_by_name_of_two_endpoints_has_a_shared_interface() {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut scene = Scene::new(backend);
        let mut workloads = Workloads::new(settings());
        scene.interface("cali1", &[]);
        let status = |workloads: &mut Workloads, scene: &Scene, set_up: bool| {
            let all = workloads.take_statuses(&scene.world.interfaces, |_| set_up, |_| false);
            all.into_iter()
                .map(|(id, status)| (id.workload, status.map(|one| one.0)))
                .collect::<BTreeMap<_, _>>()
        };
        scene.workload(&mut workloads, &id("b"), Some(workload("cali1", &["10.0.0.2/32"])));
        scene.write(&mut workloads);
        assert_eq!(
            status(&mut workloads, &scene, false),
            BTreeMap::from([("b".into(), Some("down"))]),
            "not set up yet"
        );
        scene.hear(&mut workloads, &News::SetUp(&"cali1".into()));
        assert_eq!(status(&mut workloads, &scene, true), BTreeMap::from([("b".into(), Some("up"))]));
        assert_eq!(scene.routes(), ["route 10.0.0.2/32 by device 1 metric 1024 proto 3"]);
        // A second endpoint takes its place, and then a third has to wait.
        scene.workload(&mut workloads, &id("a"), Some(workload("cali1", &["10.0.0.1/32"])));
        scene.workload(&mut workloads, &id("c"), Some(workload("cali1", &["10.0.0.3/32"])));
        scene.write(&mut workloads);
        let expected = BTreeMap::from([("a".into(), Some("up")), ("b".into(), None), ("c".into(), None)]);
        assert_eq!(status(&mut workloads, &scene, true), expected);
        assert_eq!(scene.routes(), ["route 10.0.0.1/32 by device 1 metric 1024 proto 3"]);
        // Then the first of the waiting ones gets it.
        scene.workload(&mut workloads, &id("a"), None);
        scene.write(&mut workloads);
        let expected = BTreeMap::from([("a".into(), None), ("b".into(), Some("up"))]);
        assert_eq!(status(&mut workloads, &scene, true), expected);
        assert_eq!(scene.routes(), ["route 10.0.0.2/32 by device 1 metric 1024 proto 3"]);
        for name in ["b", "c"] {
            scene.workload(&mut workloads, &id(name), None);
        }
        scene.write(&mut workloads);
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
        scene.workload(&mut workloads, &id(&format!("{number:02}")), Some(endpoint));
    }
    scene.write(&mut workloads);
    scene.notes.news();
    scene.workload(&mut workloads, &id("new"), Some(workload("calinew", &["10.0.2.1/32"])));
    scene.write(&mut workloads);
    assert_eq!(scene.notes.news(), ["+filter cali-fw-calinew", "+filter cali-tw-calinew"]);
    assert_eq!(scene.notes.told().maps["cali-from-wl-dispatch"].len(), 51);
    let with_policy = WorkloadEndpoint { tiers: vec![tier(&["p"])], ..workload("calinew", &["10.0.2.1/32"]) };
    scene.workload(&mut workloads, &id("new"), Some(with_policy));
    scene.write(&mut workloads);
    assert_eq!(scene.notes.news(), ["+filter cali-tw-calinew"]);
    // A new name requires other chains.
    scene.workload(&mut workloads, &id("new"), Some(workload("calinewer", &["10.0.2.1/32"])));
    scene.write(&mut workloads);
    let expected = [
        "-filter cali-fw-calinew",
        "+filter cali-fw-calinewer",
        "-filter cali-tw-calinew",
        "+filter cali-tw-calinewer",
    ];
    assert_eq!(scene.notes.news(), expected);
}

#[test]
fn the_changes_for_a_workload_are_proportional_to_it() {
    let mut scene = Scene::new(Backend::Nftables);
    let mut workloads = Workloads::new(settings());
    let mut write = |scene: &mut Scene, name: &str, endpoint: Option<WorkloadEndpoint>| -> Desired {
        let endpoint = endpoint.map(Arc::new);
        workloads.hear(&News::Workload(&id(name), endpoint.as_ref()), scene.now, &mut scene.desired);
        scene.world.begin(scene.now);
        workloads.write(&mut scene.world, &mut scene.desired);
        std::mem::replace(&mut scene.desired, Desired::new(&[IpVersion::V4]))
    };
    for number in 0..50 {
        let endpoint = workload(&format!("cali{number:02}"), &[&format!("10.0.1.{number}/32")]);
        write(&mut scene, &format!("{number:02}"), Some(endpoint));
    }
    let new = || workload("calinew", &["10.0.2.1/32"]);
    let first = write(&mut scene, "new", Some(new()));
    let expected = "IPv4 +filter cali-fw-calinew\n\
                    IPv4 +filter cali-tw-calinew\n\
                    IPv4 +filter map cali-from-wl-dispatch: calinew\n\
                    IPv4 +filter map cali-to-wl-dispatch: calinew\n\
                    IPv4 LocalWorkload by calinew: 1 routes\n\
                    ARP +filter cali-arp-calinew\n\
                    ARP +filter map cali-arp-dispatch: calinew\n\
                    -limits of calinew\n\
                    +interface calinew\n";
    assert_eq!(first.to_string(), expected);
    let gone = write(&mut scene, "new", None);
    assert!(gone.to_string().lines().all(|line| line.contains("calinew")), "{gone}");
    assert_eq!(write(&mut scene, "new", Some(new())), first, "the same input gives the same changes");
}

#[test]
fn disabled_or_misnamed_endpoints_get_no_routes() {
    let mut scene = Scene::new(Backend::Iptables);
    let mut workloads = Workloads::new(settings());
    scene.interface("cali1", &[]);
    let off = WorkloadEndpoint { state: "inactive".to_owned(), ..workload("cali1", &["10.0.0.1/32"]) };
    scene.workload(&mut workloads, &id("off"), Some(off));
    scene.workload(&mut workloads, &id("odd"), Some(workload("../../kernel", &["10.0.0.2/32"])));
    scene.write(&mut workloads);
    assert_eq!(scene.routes(), [""; 0]);
    assert_eq!(scene.interfaces(), [(InterfaceName::from("cali1"), Some(WantedInterface::default()))]);
    let status: Vec<_> = workloads.take_statuses(&scene.world.interfaces, |_| true, |_| false);
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
    scene.hear(&mut workloads, &News::Workload(&id("a"), Some(&endpoint)));
    scene.write(&mut workloads);
    assert_eq!(
        scene.routes(),
        [
            "route 10.0.0.1/32 by device 1 metric 1024 proto 3",
            "route 192.0.2.1/32 by device 1 metric 1024 proto 3"
        ]
    );
    let mut floating = FloatingAddresses::new(true);
    scene.hear(&mut floating, &News::Workload(&id("a"), Some(&endpoint)));
    scene.write(&mut floating);
    let dnat = |scene: &Scene| scene.notes.told().chains[&(Table::Nat, "cali-fip-dnat".into())].rules.len();
    assert_eq!(dnat(&scene), 1);
    scene.hear(&mut floating, &News::Workload(&id("a"), None));
    scene.write(&mut floating);
    assert_eq!(dnat(&scene), 0);
    // OpenStack's addresses are always used, others only on request.
    let mut floating = FloatingAddresses::new(false);
    scene.hear(&mut floating, &News::Workload(&id("a"), Some(&endpoint)));
    scene.hear(
        &mut floating,
        &News::Workload(&WorkloadEndpointId { orchestrator: "openstack".into(), ..id("a") }, Some(&endpoint)),
    );
    scene.write(&mut floating);
    assert_eq!(dnat(&scene), 1);

    let migrate = |scene: &mut Scene, live_migration_role| {
        let machine = Arc::new(WorkloadEndpoint { live_migration_role, ..WorkloadEndpoint::default() });
        let news = News::Workload(&id("a"), Some(&machine));
        scene.migrations.hear(&news, scene.now, &mut scene.desired);
    };
    migrate(&mut scene, messages::LiveMigrationRole::Target);
    scene.write(&mut workloads);
    assert_eq!(scene.routes(), [""; 0]);
    migrate(&mut scene, messages::LiveMigrationRole::None);
    scene.write(&mut workloads);
    assert_eq!(scene.routes()[0], "route 10.0.0.1/32 by device 1 metric 512 proto 3");
}

#[test]
fn a_policy_rewrites_its_own_chains_where_it_is_used() {
    let mut scene = Scene::new(Backend::Iptables);
    let regrouped = |scene: &mut Scene| {
        scene.world.begin(scene.now);
        scene.policies.write(&mut scene.world, &mut scene.desired);
        std::mem::take(&mut scene.world.changed.selectors)
    };
    scene.policy("p", Some(&policy("all()")));
    scene.policy("q", Some(&policy("all()")));
    let expected = ["+mangle cali-po-gnp/p", "+filter cali-pi-gnp/p", "+filter cali-po-gnp/p"];
    let news: BTreeSet<String> = scene.notes.news().into_iter().take(3).collect();
    assert_eq!(news, expected.map(ToOwned::to_owned).into());
    let rule = messages::Rule { action: RuleAction::Allow, ..messages::Rule::default() };
    let changed = Policy { inbound_rules: vec![rule], ..policy("all()") };
    scene.policy("p", Some(&changed));
    assert_eq!(scene.notes.news(), ["+filter cali-pi-gnp/p"]);
    assert!(regrouped(&mut scene).is_empty());
    // A policy of another kind belongs elsewhere.
    scene.policy("p", Some(&Policy { untracked: true, ..policy("x") }));
    let has = |layer| scene.notes.has_chain(layer, "cali-pi-gnp/p");
    assert!(has(Table::Raw) && !has(Table::Filter));
    assert_eq!(regrouped(&mut scene), BTreeSet::from([policy_id("p")]));
    scene.policy("p", None);
    scene.policy("q", None);
    assert!(scene.notes.told().chains.is_empty());
    regrouped(&mut scene);
    assert!(scene.world.selectors.is_empty());
}

#[test]
fn policies_that_every_node_needs_are_kept_in_the_filter_layer() {
    for backend in [Backend::Nftables, Backend::Iptables] {
        let mut scene = Scene::new(backend);
        let kept = |scene: &Scene| -> Vec<String> {
            scene.notes.told().kept.iter().map(|(layer, name)| format!("{layer} {name}")).collect()
        };
        let hinted = Policy {
            performance_hints: vec!["other".to_owned(), "AssumeNeededOnEveryNode".to_owned()],
            ..policy("all()")
        };
        scene.policy("p", Some(&hinted));
        scene.policy("q", Some(&policy("all()")));
        assert_eq!(kept(&scene), ["filter cali-pi-gnp/p", "filter cali-po-gnp/p"]);
        scene.policy("p", Some(&policy("all()")));
        assert!(kept(&scene).is_empty(), "without the hint");
        scene.policy("p", Some(&hinted));
        scene.policy("p", Some(&Policy { untracked: true, ..hinted.clone() }));
        assert!(kept(&scene).is_empty(), "it belongs elsewhere");
    }
}

#[test]
fn groups_live_as_long_as_an_endpoint_has_them() {
    let mut scene = Scene::new(Backend::Iptables);
    let mut workloads = Workloads::new(settings());
    for name in ["p", "q", "r"] {
        scene.policy(name, Some(&policy("all()")));
    }
    let endpoint = |interface: &str| WorkloadEndpoint {
        tiers: vec![tier(&["p", "q", "r"])],
        ..workload(interface, &[])
    };
    scene.workload(&mut workloads, &id("a"), Some(endpoint("cali1")));
    scene.workload(&mut workloads, &id("b"), Some(endpoint("cali2")));
    scene.write(&mut workloads);
    let groups = |scene: &Scene| {
        let told = scene.notes.told();
        told.chains
            .keys()
            .filter(|(layer, name)| *layer == Table::Filter && name.starts_with("cali-gi-"))
            .count()
    };
    assert_eq!(groups(&scene), 1);
    scene.workload(&mut workloads, &id("a"), None);
    scene.write(&mut workloads);
    assert_eq!(groups(&scene), 1);
    // One policy now selects others: the group is split.
    scene.policy("q", Some(&policy("x == 'y'")));
    scene.write(&mut workloads);
    assert_eq!(groups(&scene), 0);
    scene.workload(&mut workloads, &id("b"), None);
    scene.write(&mut workloads);
    assert_eq!(groups(&scene), 0);
}

#[test]
fn host_endpoints_find_their_interfaces() {
    let mut scene = Scene::new(Backend::Iptables);
    scene.interface("eth0", &["10.0.0.1/32", "10.0.0.2/32"]);
    scene.interface("eth1", &["10.1.0.1/32"]);
    scene.interface("cali1", &["10.9.0.1/32"]);
    let mut hosts = HostEndpoints::default();
    let complete = |scene: &mut Scene, hosts: &mut HostEndpoints| {
        scene.write(hosts);
        scene.world.changed.hosts
    };
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
        scene.hear(&mut hosts, &News::Host(&id.into(), Some(&Arc::new(endpoint))));
    }
    assert!(complete(&mut scene, &mut hosts));
    let status = |hosts: &mut HostEndpoints, scene: &Scene| {
        let all = hosts.take_statuses(&scene.world.interfaces, |_, _| false);
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
    assert!(!complete(&mut scene, &mut hosts), "nothing changed");
    // The address moves to the other interface.
    scene.notes.news();
    scene.hear(&mut hosts, &News::Host(&"a-by-address".into(), None));
    assert!(complete(&mut scene, &mut hosts));
    assert_eq!(status(&mut hosts, &scene), ["a-by-address gone", "b-by-name up"]);
    let moved = Arc::new(expecting([10, 1, 0, 1]));
    scene.hear(&mut hosts, &News::Host(&"b-by-name".into(), Some(&moved)));
    assert!(complete(&mut scene, &mut hosts));
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
        host: "n1".into(),
        version: IpVersion::V4,
        pool_type: IpPoolType::Vxlan,
        tunnel_device: Some("vxlan.calico".into()),
        tunnel_mtu: Some(1450),
        protocol: 80,
        sends_as_host: false,
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
    scene.write(&mut routes);
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
    scene.write(&mut routes);
    let all = scene.routes();
    assert_eq!(all[1], "route 10.66.2.0/26 via 10.66.2.0 by device 1 proto 3");
    assert_eq!(all[2], "route 10.66.3.0/26 via 10.65.0.2 by device 2 proto 80");
    // One route of another kind, one to another subnet, one removed.
    routes.update(&Route { ip_pool_type: IpPoolType::NoEncap, ..route("10.66.2.0/26", "n2", remote) });
    routes.update(&route("10.66.3.0/26", "n2", remote));
    routes.remove(&"10.66.4.0/32".parse().expect("net"));
    scene.write(&mut routes);
    assert_eq!(
        scene.routes(),
        [
            "route 10.66.1.0/26 Blackhole proto 80",
            "route 10.66.3.0/26 via 10.66.2.0 by device 1 proto 3",
            "route 10.66.5.0/32 by device 1 proto 3"
        ]
    );
    routes.set_gateway(&"n2".into(), None);
    scene.write(&mut routes);
    assert_eq!(scene.routes().len(), 2);
}

#[test]
fn without_tunnels_and_with_ip_in_ip() {
    let settings = |pool_type, tunnel: Option<&str>| ClusterRoutesSettings {
        host: "n1".into(),
        version: IpVersion::V4,
        pool_type,
        tunnel_device: tunnel.map(Into::into),
        tunnel_mtu: tunnel.map(|_| 1480),
        protocol: 80,
        sends_as_host: false,
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
        scene.write(routes);
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
        sends_as_host: false,
        external: nets(&["192.0.2.0/24"]),
    };
    let mut vxlan = VxlanManager::new(settings, scene.of_v4());
    let end = |number: u8, mac: &str| VxlanTunnelEndpoint {
        mac: mac.to_owned(),
        ipv4: Some([10, 66, number, 0].into()),
        parent_device_ipv4: Some([10, 65, 0, number].into()),
        ..VxlanTunnelEndpoint::default()
    };
    let mac = "66:00:00:00:00:01";
    scene.hear(&mut vxlan, &News::Vtep(&"n2".into(), Some(&end(2, mac))));
    scene.hear(&mut vxlan, &News::Vtep(&"n3".into(), Some(&end(3, "no mac"))));
    scene.hear(
        &mut vxlan,
        &News::Vtep(&"n4".into(), Some(&VxlanTunnelEndpoint { ipv4: None, ..end(4, mac) })),
    );
    scene.hear(&mut vxlan, &News::Vtep(&"n1".into(), Some(&end(1, mac))));
    assert_eq!(scene.notes.members("all-vxlan-net"), ["10.65.0.2/32", "192.0.2.0/24"]);
    assert_eq!(vxlan.wanted_device(&scene.world.interfaces), None, "no interface has the host's address");
    scene.interface("eth0", &["10.65.0.1/32"]);
    let device = vxlan.wanted_device(&scene.world.interfaces).expect("known");
    assert_eq!((device.name.as_str(), device.address), ("vxlan.calico", Some([10, 66, 1, 0].into())));
    // Two nodes temporarily have one address.
    scene.hear(&mut vxlan, &News::Vtep(&"n5".into(), Some(&end(2, "66:00:00:00:00:05"))));
    scene.hear(&mut vxlan, &News::Vtep(&"n2".into(), None));
    assert_eq!(scene.notes.members("all-vxlan-net"), ["10.65.0.2/32", "192.0.2.0/24"]);
    scene.hear(&mut vxlan, &News::Vtep(&"n5".into(), None));
    assert_eq!(scene.notes.members("all-vxlan-net"), ["192.0.2.0/24"]);
}

#[test]
fn sets_of_pools_hosts_and_marks() {
    let mut scene = Scene::new(Backend::Iptables);
    let mut pools = Pools::new(scene.of_v4());
    let pool = |cidr: &str, masquerade, allowed_uses: &[IPPoolAllowedUse]| IpamPool {
        cidr: cidr.parse().expect("a network"),
        masquerade,
        ipip_mode: IPIPMode::Never,
        vxlan_mode: VXLANMode::Never,
        allowed_uses: allowed_uses.to_vec(),
    };
    let nat =
        |scene: &Scene| scene.notes.told().chains[&(Table::Nat, "cali-nat-outgoing".into())].rules.len();
    scene.write(&mut pools);
    assert_eq!(nat(&scene), 0);
    for one in [
        pool("10.0.0.0/16", true, &[IPPoolAllowedUse::Workload]),
        pool("10.1.0.0/16", false, &[]),
        pool("10.2.0.0/16", false, &[IPPoolAllowedUse::LoadBalancer]),
        pool("fd00::/64", true, &[]),
    ] {
        scene.hear(&mut pools, &News::Pool(&one.cidr, Some(&one)));
    }
    scene.write(&mut pools);
    assert_eq!(scene.notes.members("network-ip-pools"), ["10.0.0.0/16", "10.1.0.0/16"]);
    assert_eq!(scene.notes.members("masq-ipam-pools"), ["10.0.0.0/16"]);
    assert_eq!(nat(&scene), 1);
    let changed = pool("10.0.0.0/16", false, &[IPPoolAllowedUse::LoadBalancer]);
    scene.hear(&mut pools, &News::Pool(&changed.cidr, Some(&changed)));
    scene.hear(&mut pools, &News::Pool(&"10.1.0.0/16".parse().expect("net"), None));
    scene.write(&mut pools);
    assert!(
        scene.notes.members("network-ip-pools").is_empty()
            && scene.notes.members("masq-ipam-pools").is_empty()
    );
    assert_eq!(nat(&scene), 0);

    let mut hosts = AllHosts::new(&nets(&["192.0.2.0/24"]), scene.of_v4());
    let metadata = |address: &str| HostMetadata { ipv4_addr: address.to_owned(), ..HostMetadata::default() };
    for (host, address) in [("n1", "10.65.0.1/24"), ("n2", "10.65.0.2"), ("n3", "10.65.0.2"), ("n4", "")] {
        scene.hear(&mut hosts, &News::Node(&host.into(), Some(&metadata(address))));
    }
    assert_eq!(scene.notes.members("all-hosts-net"), ["10.65.0.1/32", "10.65.0.2/32", "192.0.2.0/24"]);
    scene.hear(&mut hosts, &News::Node(&"n2".into(), None));
    scene.hear(&mut hosts, &News::Node(&"n1".into(), Some(&metadata(""))));
    assert_eq!(scene.notes.members("all-hosts-net"), ["10.65.0.2/32", "192.0.2.0/24"]);

    scene.interface("eth0", &["10.65.0.1/32"]);
    scene.interface("cali1", &["169.254.1.1/32"]);
    let mut this = ThisHost::new(Arc::clone(&scene.world.renderer));
    scene.write(&mut this);
    assert_eq!(scene.notes.members("this-host"), ["10.65.0.1"]);

    let mut dscp = Dscp::new(scene.of_v4());
    let marked = |value| WorkloadEndpoint {
        qos_policies: vec![QosPolicy { destination: String::new(), dscp: value }],
        ..workload("cali1", &["10.0.0.1/32"])
    };
    let marks =
        |scene: &Scene| scene.notes.told().chains[&(Table::Mangle, "cali-egress-dscp".into())].rules.len();
    scene.hear(&mut dscp, &News::Workload(&id("a"), Some(&Arc::new(marked(20)))));
    scene.hear(&mut dscp, &News::Workload(&id("b"), Some(&Arc::new(marked(64)))));
    scene.write(&mut dscp);
    assert_eq!((scene.notes.members("dscp-src-net"), marks(&scene)), (vec!["10.0.0.1/32".to_owned()], 1));
    scene.hear(&mut dscp, &News::Workload(&id("a"), None));
    scene.write(&mut dscp);
    assert_eq!((scene.notes.members("dscp-src-net").len(), marks(&scene)), (0, 0));

    let mut service_loop = ServiceLoop::default();
    let config = GlobalBgpConfig {
        service_cluster_cidrs: vec!["10.96.0.0/12".to_owned(), "nonsense".to_owned()],
        service_external_cidrs: vec!["192.0.2.7".to_owned(), "10.96.0.0/12".to_owned()],
        ..GlobalBgpConfig::default()
    };
    scene.hear(&mut service_loop, &News::Bgp(&config));
    scene.write(&mut service_loop);
    assert_eq!(scene.notes.told().chains[&(Table::Filter, "cali-cidr-block".into())].rules.len(), 2);
}
