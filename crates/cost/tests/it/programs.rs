//! The cost of changing one policy on its way into the maps of the eBPF dataplane: the same in a large cluster as in a
//! small one.

use crate::counted::Counts;
use bpf_driver::{Error, PolicyMaps, Store};
use bpf_policy::{EndpointId, Policies};
use messages::{
    IpSetId, IpSetMember, IpSetType, Policy, PolicyId, PortRange, Rule, RuleEnd, TierInfo, ToDataplane,
    WorkloadEndpoint, WorkloadEndpointId,
};
use model::v1::PolicyKey;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use testkit::heap;

/// Policies of each application.
const POLICIES: u32 = 20;
/// Pods of each application, in the whole cluster.
const MEMBERS: u32 = 50;
/// Applications, each with one local pod.
const SMALL: u32 = 10;
const LARGE: u32 = 100;
/// How often a policy is changed, to average out capacities that grow now and then.
const CHANGES: u32 = 10;

/// Accepts everything, stores nothing.
#[derive(Default)]
struct Counting {
    calls: usize,
    elements: usize,
}

impl Store for Counting {
    fn room(&self, _: &str) -> Option<usize> {
        Some(1_000_000)
    }

    fn read(&self, _: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        Ok(Vec::new())
    }

    fn write(&mut self, _: &str, elements: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        self.calls += 1;
        self.elements += elements.len();
        Ok(())
    }

    fn remove(&mut self, _: &str, keys: &[Vec<u8>]) -> Result<(), Error> {
        self.calls += 1;
        self.elements += keys.len();
        Ok(())
    }
}

fn set(application: u32) -> IpSetId {
    format!("s:application-{application}").as_str().into()
}

fn id(application: u32, number: u32) -> PolicyId {
    let name = format!("policy-{application}-{number}");
    Arc::new(PolicyKey { kind: api::Kind::GlobalNetworkPolicy, namespace: String::new(), name })
}

/// A policy that admits another application.
fn policy(applications: u32, application: u32, number: u32, port: u32) -> ToDataplane {
    let port = u16::try_from(port).unwrap();
    let rule = Rule {
        protocol: Some(api::scalars::Protocol::Tcp),
        source: RuleEnd { ip_set_ids: vec![set((application + 1) % applications)], ..RuleEnd::default() },
        destination: RuleEnd { ports: vec![PortRange { first: port, last: port }], ..RuleEnd::default() },
        ..Rule::default()
    };
    let policy = Policy { inbound_rules: vec![rule], ..Policy::default() };
    ToDataplane::PolicyUpdate(id(application, number), Arc::new(policy))
}

fn workload(application: u32) -> WorkloadEndpointId {
    WorkloadEndpointId {
        orchestrator: "k8s".into(),
        workload: format!("shop/pod-{application}").as_str().into(),
        endpoint: "eth0".into(),
    }
}

fn cluster(applications: u32) -> Vec<ToDataplane> {
    let mut all = Vec::new();
    for application in 0..applications {
        let first = 0x0a00_0000 + application * 256;
        let member = |pod: u32| IpSetMember::Ip(IpAddr::from((first + pod).to_be_bytes()));
        let members = (0..MEMBERS).map(member).collect();
        all.push(ToDataplane::IpSetUpdate { id: set(application), set_type: IpSetType::Ip, members });
        all.extend((0..POLICIES).map(|number| policy(applications, application, number, 8000 + number)));
        let ingress_policies = (0..POLICIES).map(|number| id(application, number)).collect();
        let tier = TierInfo { name: "default".into(), ingress_policies, ..TierInfo::default() };
        let endpoint = WorkloadEndpoint {
            name: format!("cali{application}").as_str().into(),
            state: "active".into(),
            tiers: vec![tier],
            ..WorkloadEndpoint::default()
        };
        all.push(ToDataplane::WorkloadEndpointUpdate(workload(application), Box::new(endpoint)));
    }
    all
}

/// Changes policies of one application; returns calls, elements and allocations per change.
fn change(applications: u32) -> [usize; 3] {
    let (mut maps, mut policies, mut store) =
        (PolicyMaps::default(), Policies::default(), Counting::default());
    cluster(applications).iter().for_each(|message| policies.update(message));
    let number = |application| application + 1;
    maps.set_holders(
        (0..applications).map(|one| (number(one), EndpointId::Workload(workload(one)))).collect(),
    );
    let mut now = Instant::now();
    maps.apply(&mut store, &mut policies, now).unwrap();
    store = Counting::default();
    let changes: Vec<ToDataplane> =
        (0..CHANGES).map(|round| policy(applications, 0, round % POLICIES, 9000 + round)).collect();
    let before = heap::so_far();
    for change in changes {
        policies.update(&change);
        maps.apply(&mut store, &mut policies, now).unwrap();
        // Leftovers of a change are removed a moment later.
        now += Duration::from_secs(1);
        maps.apply(&mut store, &mut policies, now).unwrap();
    }
    let allocations = heap::so_far().0 - before.0;
    [store.calls, store.elements, allocations].map(|count| count / CHANGES as usize)
}

pub(crate) fn policies(counts: &mut Counts) {
    let (small, large) = (change(SMALL), change(LARGE));
    assert_eq!(small[..2], large[..2], "calls and elements do not depend on the cluster");
    let most = small[2] + small[2] / 20;
    assert!(large[2] <= most, "{} allocations in a large cluster, {} in a small one", large[2], small[2]);
    let [calls, elements, allocations] = large;
    counts.add("eBPF: one policy changes: calls to the kernel", calls);
    counts.add("eBPF: one policy changes: elements written and removed", elements);
    counts.add("eBPF: one policy changes: allocations", allocations);
}
