//! Random histories: maps written step by step equal those of a naive model and those of a fresh start, and a restart
//! finds them in order.

use crate::naive::World;
use crate::world::{Maps, name, service_json, service_object, settings, slice_json, slice_object};
use bpf::layout::V4;
use bpf_services::{Here, Services, Update};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

#[derive(Clone, Debug)]
enum Act {
    Service(String),
    NoService(usize),
    Slice(String),
    NoSlice(usize),
    Host(usize, Option<u8>),
    Here(bool, bool),
}

const SERVICES: [&str; 3] = ["ns/a", "ns/b", "other/a"];
const SLICES: [&str; 4] = ["ns/s1", "ns/s2", "ns/s3", "other/s1"];

fn a_service() -> impl Strategy<Value = Act> {
    let ports =
        vec!["port=http:80/TCP:30080", "port=http:80/UDP", "port=tls:443/TCP", "port=dns:53/UDP:30053"];
    let words = vec![
        "type=NodePort",
        "type=LoadBalancer",
        "itp=Local",
        "etp=Local",
        "sticky=7",
        "ext=35.0.0.1",
        "ext=10.96.0.2",
        "lb=5.5.5.5",
        "lb=35.0.0.1",
        "range=10.0.0.0/8",
        "range=0.0.0.0/0",
        "note=projectcalico.org/natExcludeService=true",
        "label=service.kubernetes.io/headless",
        "created=2020-01-01T00:00:00Z",
    ];
    let ips = vec!["ip=10.96.0.1", "ip=10.96.0.2", "ip=10.96.0.3", "ip=None", "ip=fd96::1"];
    (select(SERVICES.to_vec()), select(ips), subsequence(ports, 0..=3), subsequence(words, 0..=6)).prop_map(
        |(name, ip, ports, words)| {
            Act::Service(format!("{name} {ip} {} {}", ports.join(" "), words.join(" ")))
        },
    )
}

fn a_slice() -> impl Strategy<Value = Act> {
    let ports = vec!["port=http:8080/TCP", "port=http:8080/UDP", "port=tls:8443/TCP", "port=dns:53/UDP"];
    let endpoint = (
        0..6u8,
        select(vec!["", "@here", "@n1", "@n2", "@n9"]),
        subsequence(vec![",notready", ",terminating", ",serving", ",zone=a", ",zone=b", ",node=here"], 0..=3),
    )
        .prop_map(|(number, node, words)| format!("ep=10.1.0.{number}{node}{}", words.concat()));
    (
        select(SLICES.to_vec()),
        select(vec!["svc=a", "svc=b", ""]),
        subsequence(ports, 0..=4),
        vec(endpoint, 0..4),
    )
        .prop_map(|(name, service, ports, endpoints)| {
            Act::Slice(format!("{name} {service} {} {}", ports.join(" "), endpoints.join(" ")))
        })
}

fn an_act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => a_service(),
        6 => a_slice(),
        1 => (0..SERVICES.len()).prop_map(Act::NoService),
        1 => (0..SLICES.len()).prop_map(Act::NoSlice),
        1 => (1..3usize, proptest::option::of(2..4u8)).prop_map(|(host, address)| Act::Host(host, address)),
        1 => (any::<bool>(), any::<bool>()).prop_map(|(zone, more)| Act::Here(zone, more)),
    ]
}

fn key(text: &str) -> (String, String) {
    let name = name(text);
    (name.namespace, name.name)
}

fn take(act: &Act, world: &mut World) -> Update {
    let first = |line: &str| line.split(' ').next().unwrap_or_default().to_owned();
    match act {
        Act::Service(line) => {
            let json = service_json(line);
            let update = Update::Service(name(&first(line)), Some(service_object(&json)));
            world.services.insert(key(&first(line)), json);
            update
        }
        Act::NoService(which) => {
            world.services.remove(&key(SERVICES[*which]));
            Update::Service(name(SERVICES[*which]), None)
        }
        Act::Slice(line) => {
            let json = slice_json(line);
            let update = Update::Slice(name(&first(line)), Some(slice_object(&json)));
            world.slices.insert(key(&first(line)), json);
            update
        }
        Act::NoSlice(which) => {
            world.slices.remove(&key(SLICES[*which]));
            Update::Slice(name(SLICES[*which]), None)
        }
        Act::Host(which, address) => {
            let host = format!("n{which}");
            let address = address.map(|last| format!("192.168.0.{last}").parse().expect("an address"));
            world.hosts.remove(&host);
            world.hosts.extend(address.map(|address| (host.clone(), address)));
            Update::Host(host, address)
        }
        Act::Here(in_a, more) => {
            world.zone = if *in_a { "a" } else { "" }.to_owned();
            let mut addresses = vec!["192.168.0.1"];
            addresses.extend(more.then_some("172.16.0.1"));
            world.addresses = addresses.into_iter().map(|text| text.parse().expect("an address")).collect();
            Update::Here(Here { zone: world.zone.clone(), addresses: world.addresses.clone() })
        }
    }
}

/// All objects, given to a fresh agent.
fn from_nothing(world: &World) -> Services<V4> {
    let mut services = Services::<V4>::new(settings());
    let named = |(namespace, name): &(String, String)| name_of(namespace, name);
    let all =
        world.services.iter().map(|(key, json)| Update::Service(named(key), Some(service_object(json))));
    let slices = world.slices.iter().map(|(key, json)| Update::Slice(named(key), Some(slice_object(json))));
    let hosts = world.hosts.iter().map(|(name, address)| Update::Host(name.clone(), Some(*address)));
    let here = Update::Here(Here { zone: world.zone.clone(), addresses: world.addresses.clone() });
    drop(services.apply(all.chain(slices).chain(hosts).chain([here])));
    services
}

fn name_of(namespace: &str, name: &str) -> model::feed::NamespacedName {
    crate::world::name(&format!("{namespace}/{name}"))
}

proptest! {
    #[test]
    fn step_by_step_equals_a_fresh_start_and_the_naive_model(batches in vec(vec(an_act(), 1..4), 1..14), start in 0..4usize) {
        let mut world = World::default();
        let mut services = Services::<V4>::new(settings());
        let mut maps = Maps::default();
        for (number, batch) in batches.iter().enumerate() {
            let updates: Vec<Update> = batch.iter().map(|act| take(act, &mut world)).collect();
            let changes = services.apply(updates);
            if number < start {
                prop_assert!(changes.is_empty());
                continue;
            }
            maps.write(&if number == start { services.begin(&maps.0) } else { changes });
            prop_assert_eq!(maps.lines(), world.lines());

            let mut fresh = Maps::default();
            fresh.write(&from_nothing(&world).begin(&fresh.0));
            prop_assert_eq!(maps.lines(), fresh.lines());
            prop_assert_eq!(maps.0.backends.len(), fresh.0.backends.len());
            prop_assert!(services.begin(&maps.0).is_empty());

            // A restart with these maps writes nothing, unless a service without any frontend of its own has backends:
            // its id cannot be found again.
            let mut again = maps.clone();
            again.write(&from_nothing(&world).begin(&again.0));
            prop_assert_eq!(&again.0.frontends, &maps.0.frontends);
        }
    }
}
