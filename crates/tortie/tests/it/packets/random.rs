//! Random policies: the evaluator and the fate of packets must agree.
//!
//! `TORTIE_PACKET_RANDOM_CASES=500 cargo test -p tortie random` tests more cases than by default;
//! `TORTIE_PACKET_RANDOM_SEED=7` tests different ones.

use super::clusters::{PODS, resources};
use super::plan::{Flavour, LanPlan, NodePlan, Plan, PodPlan};
use super::site::{Question, Site};
use super::table::query;
use anyhow::{Context as _, Result};
use api::{Kind, Resource, Rule};
use explain::{Cluster, ToHost, Verdict, World};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::BTreeSet;
use testkit::network::Traffic;

/// Two hosts on one link, with the pods of the random clusters, and routes as from a routing protocol.
fn plan() -> Plan {
    let node = |number: u8| NodePlan {
        name: format!("h{number}"),
        lan: "lan1".to_owned(),
        v4: format!("192.0.2.{number}/24"),
        v6: format!("2001:db8::{number}/64"),
        tunnel: None,
    };
    let pod = |(node, _, name, number, interface): &(&str, &str, &str, u8, &str)| PodPlan {
        name: (*name).to_owned(),
        node: (*node).to_owned(),
        interface: (*interface).to_owned(),
        v4: format!("10.0.0.{number}"),
        v6: format!("fd00::{number}"),
    };
    let outside =
        |number: u8| (format!("o{number}"), format!("203.0.113.{number}"), format!("2001:db9::{number}"));
    Plan {
        lans: vec![LanPlan {
            name: "lan1".to_owned(),
            gateway_v4: "192.0.2.254/24".to_owned(),
            gateway_v6: "2001:db8::fe/64".to_owned(),
        }],
        nodes: vec![node(1), node(2)],
        pods: PODS.iter().map(pod).collect(),
        outside: vec![outside(1), outside(2)],
        vxlan: false,
        static_neighbours: true,
        objects: String::new(),
    }
}

fn questions() -> impl Strategy<Value = Vec<Question>> {
    let place = || select(vec!["a", "a", "b", "b", "c", "c", "d", "d", "h1", "h2", "o1", "o2"]);
    // No traffic without ports or identifiers: what an earlier case allowed would still be a known connection.
    let traffic = select(vec![
        Traffic::Tcp(80),
        Traffic::Tcp(80),
        Traffic::Tcp(443),
        Traffic::Tcp(22),
        Traffic::Udp(80),
        Traffic::Udp(53),
        Traffic::Sctp(80),
        Traffic::Icmp(8, 0),
    ]);
    let one = (place(), place(), traffic, any::<bool>(), proptest::option::weighted(0.1, Just(53_u16)))
        .prop_filter("no place connects to itself, and none outside to another outside", |(from, to, ..)| {
            from != to && !(from.starts_with('o') && to.starts_with('o'))
        })
        .prop_map(|(from, to, traffic, v6, source_port)| Question {
            from: from.to_owned(),
            to: to.to_owned(),
            traffic,
            // Other protocols would match the connection of an earlier question.
            source_port: source_port.filter(|_| matches!(traffic, Traffic::Tcp(_))),
            source: None,
            v6,
            receiver: None,
        });
    proptest::collection::vec(one, 60).prop_map(|questions| {
        let mut seen = BTreeSet::new();
        let is_new = |question: &Question| {
            question.source_port.is_none() || seen.insert((station(&question.to), question.v6))
        };
        questions.into_iter().filter(is_new).collect()
    })
}

/// The station at a place: all outside addresses belong to one machine.
fn station(place: &str) -> String {
    if place.starts_with('o') { "outside".to_owned() } else { place.to_owned() }
}

/// A random cluster as stored in an etcd: without Kubernetes' own objects.
fn stored(resources: Vec<Resource>) -> Vec<Resource> {
    let kept = resources.into_iter().filter_map(|resource| match resource {
        Resource::KubernetesEndpointSlice(_) => None,
        Resource::KubernetesNetworkPolicy(object) => {
            let name = format!("knp.default.{}", object.metadata.name);
            Some(api::NetworkPolicy::new(&object.metadata.namespace, &name, object.spec.0).into())
        }
        other => Some(other),
    });
    kept.map(without_services).collect()
}

fn without_services(mut resource: Resource) -> Resource {
    let clear = |rules: &mut Vec<Rule>| {
        for rule in rules {
            rule.source.services = None;
            rule.destination.services = None;
        }
    };
    match &mut resource {
        Resource::NetworkPolicy(object) => {
            clear(&mut object.spec.ingress);
            clear(&mut object.spec.egress);
        }
        Resource::GlobalNetworkPolicy(object) => {
            clear(&mut object.spec.ingress);
            clear(&mut object.spec.egress);
        }
        Resource::Profile(object) => {
            clear(&mut object.spec.ingress);
            clear(&mut object.spec.egress);
        }
        _ => {}
    }
    resource
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `extra` are additional variables for every Felix.
pub(super) fn packets_and_evaluator_agree(flavour: Flavour, extra: &[(&str, &str)]) -> Result<()> {
    let site = Site::without_agents(&plan(), flavour, extra)?;
    site.start_agents()?;
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&number("TORTIE_PACKET_RANDOM_SEED", 1).to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut before: BTreeSet<(Kind, String, String)> = BTreeSet::new();
    for case in 0..number("TORTIE_PACKET_RANDOM_CASES", 10) {
        let mut next = |strategy: BoxedStrategy<(Vec<Resource>, Vec<Question>)>| {
            strategy
                .new_tree(&mut runner)
                .map(|tree| tree.current())
                .map_err(|reason| anyhow::anyhow!("{reason}"))
        };
        let (resources, mut questions) = next((resources(), questions()).boxed())?;
        if flavour.has_programs() {
            // Programs identify ICMP only by its two ends, as in Calico: after one ping, the reverse direction is
            // allowed, too.
            let mut pinged = BTreeSet::new();
            questions.retain(|question| {
                let mut ends = [station(&question.from), station(&question.to)];
                ends.sort();
                !matches!(question.traffic, Traffic::Icmp(..)) || pinged.insert((ends, question.v6))
            });
        }
        let mut cluster = Cluster::new();
        let mut now = BTreeSet::new();
        for resource in stored(resources) {
            now.insert((resource.kind(), resource.namespace().to_owned(), resource.name().to_owned()));
            cluster.add(resource);
        }
        // The previous version of an object that cannot be read would stay in force, so none is left.
        for (kind, namespace, name) in &before {
            site.delete_unchecked(*kind, namespace, name)?;
        }
        for resource in cluster.resources() {
            let identity = (resource.kind(), resource.namespace().to_owned(), resource.name().to_owned());
            // An earlier case may have had another version of what every cluster has.
            if now.contains(&identity) || before.contains(&identity) {
                site.put_unchecked(resource.clone())?;
            }
        }
        before = now;
        cluster.set_endpoint_to_host_action(ToHost::Accept);
        let world = World::new(&cluster);
        let mut wanted = Vec::new();
        for question in &questions {
            wanted.push(world.verdict(&query(&site, question))? == Verdict::Allow);
        }
        site.wait_for_one_way(&questions, &wanted).with_context(|| {
            let objects: Vec<String> = cluster
                .resources()
                .filter(|resource| {
                    before.contains(&(
                        resource.kind(),
                        resource.namespace().to_owned(),
                        resource.name().to_owned(),
                    ))
                })
                .map(|resource| serde_json::to_string(resource).unwrap_or_default())
                .collect();
            format!("case {case}:\n{}", objects.join("\n"))
        })?;
    }
    Ok(())
}

#[test]
fn random_policies_with_nftables() -> Result<()> {
    packets_and_evaluator_agree(Flavour::Nftables, &[])
}

#[test]
fn random_policies_with_iptables() -> Result<()> {
    packets_and_evaluator_agree(Flavour::IptablesNft, &[])
}
