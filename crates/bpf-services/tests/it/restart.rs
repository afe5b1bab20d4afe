//! Restarts with various contents of the maps: its own, an older agent's, Calico's, the bootstrap container's,
//! nonsense.

use crate::world::{Maps, service, settings, slice};
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf::layout::{V4, V6};
use bpf_services::bootstrap::{addresses, entries};
use bpf_services::{Services, Update};
use std::collections::BTreeSet;

fn objects() -> Vec<Update> {
    vec![
        service(
            "ns/a type=NodePort itp=Local ip=10.96.0.1 port=http:80/TCP:30080 ext=35.0.0.1 range=10.0.0.0/8",
        ),
        slice("ns/a-1 svc=a port=http:8080/TCP ep=10.1.0.1@here ep=10.1.0.2@there"),
        service(
            "ns/b ip=10.96.0.2 port=http:80/TCP note=lb.projectcalico.org/external-traffic-strategy=maglev",
        ),
        slice("ns/b-1 svc=b port=http:8080/TCP ep=10.1.0.1"),
        Update::Host("there".to_owned(), Some("192.168.0.2".parse().expect("an address"))),
    ]
}

fn start(maps: &mut Maps<V4>, objects: Vec<Update>) -> Services<V4> {
    let mut services = Services::new(settings());
    drop(services.apply(objects));
    let changes = services.begin(&maps.0);
    maps.write(&changes);
    services
}

fn plain(address: [u8; 4], port: u16) -> FrontendKey<V4> {
    FrontendKey { address, port, protocol: 6, ..FrontendKey::default() }
}

#[test]
fn a_restart_writes_nothing() {
    let mut maps = Maps::default();
    drop(start(&mut maps, objects()));
    let before = maps.0.clone();
    let mut again = Services::<V4>::new(settings());
    drop(again.apply(objects().into_iter().rev()));
    assert!(again.begin(&maps.0).is_empty());
    assert!(again.refused_ids().is_empty());
    assert_eq!(maps.0, before);
}

#[test]
fn ids_in_the_maps_are_kept_and_never_given_to_others() {
    let mut maps = Maps::<V4>::default();
    // Left by others: the second service has id 7, id 9 belongs to a vanished service, and 12 has backends only.
    maps.0.frontends.insert(plain([10, 96, 0, 2], 80), Frontend { id: 7, count: 1, ..Frontend::default() });
    maps.0.frontends.insert(plain([10, 96, 0, 9], 80), Frontend { id: 9, count: 1, ..Frontend::default() });
    for id in [7, 9, 12] {
        let backend = Backend { address: [10, 1, 0, 9], port: 1 };
        maps.0.backends.insert(BackendKey { id, ordinal: 0 }, backend);
    }
    drop(start(&mut maps, objects()));
    let mut fresh = Maps::default();
    drop(start(&mut fresh, objects()));
    assert_eq!(maps.lines(), fresh.lines());
    assert_eq!(maps.0.frontends[&plain([10, 96, 0, 2], 80)].id, 7);
    let ids: BTreeSet<u32> = maps.0.frontends.values().map(|frontend| frontend.id).collect();
    assert!(ids.iter().all(|id| *id == 7 || *id > 12), "{ids:?}");
    assert_eq!(maps.left_over(), []);
}

#[test]
fn an_id_shared_by_two_services_is_given_to_neither() {
    let mut maps = Maps::<V4>::default();
    for address in [[10, 96, 0, 1], [10, 96, 0, 2]] {
        maps.0.frontends.insert(plain(address, 80), Frontend { id: 3, count: 1, ..Frontend::default() });
    }
    maps.0.backends.insert(BackendKey { id: 3, ordinal: 0 }, Backend { address: [9; 4], port: 9 });
    let services = start(&mut maps, objects());
    assert_eq!(services.refused_ids(), &BTreeSet::from([3]));
    assert!(maps.0.frontends.values().all(|frontend| frontend.id > 3));
    assert!(maps.0.backends.keys().all(|key| key.id > 3));
    let mut fresh = Maps::default();
    drop(start(&mut fresh, objects()));
    assert_eq!(maps.lines(), fresh.lines());
}

#[test]
fn maps_that_lost_something_are_repaired() {
    let mut maps = Maps::default();
    let mut services = start(&mut maps, objects());
    let whole = maps.0.clone();
    maps.0.backends.pop_first();
    maps.0.maglev.pop_last();
    let (key, mut value) = maps.0.frontends.pop_first().expect("a frontend");
    value.flags ^= 1;
    maps.0.frontends.insert(key, value);
    let changes = services.begin(&maps.0);
    assert_eq!(changes.steps().iter().map(|step| step.set.len()).sum::<usize>(), 3);
    maps.write(&changes);
    assert_eq!(maps.0, whole);
}

#[test]
fn the_bootstrap_of_the_api() {
    let list = |text: &str| addresses(text).expect("addresses");
    assert_eq!(
        addresses("10.96.0.1").unwrap_err(),
        "\"10.96.0.1\" is not an address with a port, such as 10.96.0.1:443"
    );
    for wrong in ["", "10.96.0.1:443,", "10.96.0.1:70000", "name:443"] {
        assert!(addresses(wrong).is_err(), "{wrong}");
    }
    let services = list("10.96.0.1:443, [fd96::1]:443");
    let endpoints = list("172.16.0.1:6443,172.16.0.2:6443,[fd16::1]:6443");
    // The ids of other services in the map, the current id of the API's service, and the one that it gets.
    let table: &[(&[u32], Option<u32>, u32)] =
        &[(&[], None, 0), (&[7], Some(3), 3), (&[0], None, 1), (&[0, 12], None, 1), (&[0, 1, 3], None, 2)];
    for (others, own, expected) in table {
        let mut maps = Maps::<V4>::default();
        for (number, id) in (1..).zip(*others) {
            maps.0
                .frontends
                .insert(plain([10, 96, 1, number], 80), Frontend { id: *id, ..Frontend::default() });
        }
        if let Some(id) = own {
            maps.0.frontends.insert(plain([10, 96, 0, 1], 443), Frontend { id: *id, ..Frontend::default() });
        }
        maps.write(&entries(&services, &endpoints, &maps.0));
        let found = maps.0.frontends[&plain([10, 96, 0, 1], 443)];
        assert_eq!(found, Frontend { id: *expected, count: 2, ..Frontend::default() }, "{others:?} {own:?}");
        assert_eq!(maps.lines()[0], "10.96.0.1:443/TCP 2(0) [172.16.0.1:6443 172.16.0.2:6443]");
    }
    let mut six = Maps::<V6>::default();
    six.write(&entries(&services, &endpoints, &six.0));
    assert_eq!(six.lines(), ["[fd96::1]:443/TCP 1(0) [[fd16::1]:6443]"]);
    // Without backends a frontend would refuse connections that might succeed by other means.
    assert!(entries::<V6>(&services, &list("172.16.0.1:6443"), &Maps::default().0).is_empty());
}
