//! The writes caused by successive changes of objects.

use crate::tables::{SLICE, begun, host, lines};
use crate::world::{Maps, name, service, settings, slice};
use bpf::layout::V4;
use bpf_services::{Services, Settings, Update};

#[test]
fn an_address_claimed_by_two_services() {
    let slices = || {
        vec![
            slice("ns/a-1 svc=a port=http:1/TCP ep=10.1.0.1"),
            slice("ns/b-1 svc=b port=http:2/TCP ep=10.1.0.2"),
        ]
    };
    let owner = |services: &[&str], place: &str| {
        let found = lines(services.iter().map(|line| service(line)).chain(slices()).collect());
        found.into_iter().find(|line| line.starts_with(place)).unwrap_or_default()
    };
    let of_a = "10.96.0.1:80/TCP 1(0) [10.1.0.1:1]";
    // A cluster address cannot be taken over by naming it.
    for thief in ["ext=10.96.0.1", "type=LoadBalancer lb=10.96.0.1"] {
        let b = format!("ns/b ip=10.96.0.2 port=http:80/TCP created=2020-01-01T00:00:00Z {thief}");
        let a = "ns/a ip=10.96.0.1 port=http:80/TCP created=2021-01-01T00:00:00Z";
        assert_eq!(owner(&[a, &b], "10.96.0.1"), of_a, "{thief}");
    }
    // Otherwise the older service gets it.
    let a = "ns/a ip=10.96.0.1 port=http:80/TCP ext=35.0.0.1 created=2021-01-01T00:00:00Z";
    let b = "ns/b ip=10.96.0.2 port=http:80/TCP ext=35.0.0.1 created=2020-01-01T00:00:00Z";
    assert_eq!(owner(&[a, b], "35."), "35.0.0.1:80/TCP 1(0) [10.1.0.2:2]");
    let (mut services, mut maps) =
        begun::<V4>(settings(), [service(a), service(b)].into_iter().chain(slices()).collect());
    maps.write(&services.apply([Update::Service(name("ns/b"), None)]));
    assert_eq!(maps.lines(), ["10.96.0.1:80/TCP 1(0) [10.1.0.1:1]", "35.0.0.1:80/TCP 1(0) [10.1.0.1:1]"]);
}

#[test]
fn changes_of_type_leave_nothing_behind() {
    let kinds = [
        "ns/a ip=10.96.0.1 port=http:80/TCP",
        "ns/a type=NodePort ip=10.96.0.1 port=http:80/TCP:30080",
        "ns/a type=NodePort itp=Local ip=10.96.0.1 port=http:80/TCP:30080",
        "ns/a type=LoadBalancer ip=10.96.0.1 port=http:80/TCP:30080 lb=5.5.5.5 range=10.0.0.0/8",
        "ns/a ip=10.96.0.1 port=http:80/TCP ext=35.0.0.1 sticky=5 note=lb.projectcalico.org/external-traffic-strategy=maglev",
        "ns/a ip=10.96.0.7 port=http:81/TCP port=dns:53/UDP",
        "ns/a type=ExternalName",
    ];
    let around = || vec![host("there", "192.168.0.2"), slice(SLICE)];
    for from in kinds {
        for to in kinds {
            let (mut services, mut maps) =
                begun::<V4>(settings(), around().into_iter().chain([service(from)]).collect());
            let changes = services.apply([service(to)]);
            assert_eq!(changes.is_empty(), from == to, "{from} -> {to}");
            maps.write(&changes);
            assert_eq!(
                maps.lines(),
                lines(around().into_iter().chain([service(to)]).collect()),
                "{from} -> {to}"
            );
            assert_eq!(maps.left_over(), []);
            assert!(services.begin(&maps.0).is_empty());
            maps.write(&services.apply([Update::Service(name("ns/a"), None)]));
            assert_eq!(maps.0, Maps::default().0, "{from} -> {to} -> gone");
        }
    }
}

#[test]
fn one_changed_slice_writes_only_what_changed() {
    let (mut services, mut maps) = begun::<V4>(
        settings(),
        vec![
            service("ns/a ip=10.96.0.1 port=http:80/TCP ext=35.0.0.1"),
            service("ns/b ip=10.96.0.2 port=http:80/TCP"),
            slice("ns/a-1 svc=a port=http:1/TCP ep=10.1.0.1 ep=10.1.0.2"),
            slice("ns/b-1 svc=b port=http:1/TCP ep=10.1.0.1 ep=10.1.0.2"),
        ],
    );
    let writes = |services: &mut Services<V4>, maps: &mut Maps<V4>, line: &str| {
        let changes = services.apply([slice(line)]);
        maps.write(&changes);
        changes.steps().iter().map(|step| (step.set.len(), step.remove.len())).collect::<Vec<_>>()
    };
    let mut change = |line| writes(&mut services, &mut maps, line);
    assert_eq!(change("ns/a-1 svc=a port=http:1/TCP ep=10.1.0.1 ep=10.1.0.2"), []);
    assert_eq!(change("ns/a-1 svc=a port=http:1/TCP ep=10.1.0.1 ep=10.1.0.3"), [(1, 0)], "a backend");
    assert_eq!(
        change("ns/a-1 svc=a port=http:1/TCP ep=10.1.0.1 ep=10.1.0.3 ep=10.1.0.4"),
        [(1, 0), (2, 0)],
        "and both frontends"
    );
    assert_eq!(
        change("ns/a-1 svc=a port=http:1/TCP ep=10.1.0.1"),
        [(2, 0), (0, 2)],
        "frontends first, then backends go"
    );
    // The slice moves to the other service.
    assert_eq!(change("ns/a-1 svc=b port=http:1/TCP ep=10.1.0.3"), [(1, 0), (3, 0), (0, 1)]);
}

#[test]
fn the_service_of_the_api_keeps_its_last_backends() {
    let api = "default/kubernetes ip=10.96.0.1 port=https:443/TCP";
    let full = "default/kubernetes svc=kubernetes port=https:6443/TCP ep=172.16.0.1 ep=172.16.0.2";
    let (mut services, mut maps) = begun::<V4>(settings(), vec![service(api), slice(full)]);
    let expected = ["10.96.0.1:443/TCP 2(0) [172.16.0.1:6443 172.16.0.2:6443]"];
    for emptied in [
        slice("default/kubernetes svc=kubernetes port=https:6443/TCP ep=172.16.0.1,notready"),
        slice("default/kubernetes svc=kubernetes port=https:6443/TCP"),
        Update::Slice(name("default/kubernetes"), None),
    ] {
        maps.write(&services.apply([emptied]));
        assert_eq!(maps.lines(), expected);
    }
    // After a restart they are found in the maps.
    let (mut services, mut maps) = (Services::<V4>::new(settings()), maps);
    drop(services.apply([service(api)]));
    maps.write(&services.begin(&maps.0));
    assert_eq!(maps.lines(), expected);
    maps.write(
        &services.apply([slice("default/kubernetes svc=kubernetes port=https:6443/TCP ep=172.16.0.3")]),
    );
    assert_eq!(maps.lines(), ["10.96.0.1:443/TCP 1(0) [172.16.0.3:6443]"]);
}

#[test]
fn a_service_beyond_the_limit_of_tables_waits_for_one() {
    let maglev = |name: &str, ip: &str| {
        service(&format!(
            "ns/{name} ip={ip} port=http:80/TCP note=lb.projectcalico.org/external-traffic-strategy=maglev"
        ))
    };
    let with = |maps: &Maps<V4>| -> Vec<String> {
        let lines = maps.lines().into_iter().filter(|line| line.ends_with("maglev"));
        lines.map(|line| line[..9].to_owned()).collect()
    };
    let ends = |name: &str| slice(&format!("ns/{name}-1 svc={name} port=http:80/TCP ep=10.1.0.1"));
    let (mut services, mut maps) = begun::<V4>(
        Settings { maglev_services: 1, ..settings() },
        vec![maglev("b", "10.96.0.2"), maglev("c", "10.96.0.3"), ends("a"), ends("b"), ends("c")],
    );
    assert_eq!((with(&maps), maps.0.maglev.len()), (vec!["10.96.0.2".to_owned()], 5));
    maps.write(&services.apply([maglev("a", "10.96.0.1")]));
    assert_eq!((with(&maps), maps.0.maglev.len()), (vec!["10.96.0.1".to_owned()], 5));
    maps.write(&services.apply([Update::Service(name("ns/a"), None), Update::Service(name("ns/b"), None)]));
    assert_eq!((with(&maps), maps.0.maglev.len()), (vec!["10.96.0.3".to_owned()], 5));
}

#[test]
fn addresses_of_nodes_appear_and_vanish() {
    let (mut services, mut maps) = begun::<V4>(
        settings(),
        vec![service("ns/a type=NodePort itp=Local ip=10.96.0.1 port=http:80/TCP:30080"), slice(SLICE)],
    );
    let remote =
        |maps: &Maps<V4>| maps.lines().into_iter().filter(|line| line.contains(" 1(0) ")).collect::<Vec<_>>();
    assert_eq!(remote(&maps), Vec::<String>::new(), "its address is not known");
    maps.write(&services.apply([host("there", "192.168.0.2")]));
    assert_eq!(remote(&maps), ["192.168.0.2:30080/TCP 1(0) [10.1.0.2:8080]"]);
    maps.write(&services.apply([host("there", "192.168.0.3")]));
    assert_eq!(remote(&maps), ["192.168.0.3:30080/TCP 1(0) [10.1.0.2:8080]"]);
    let id = |maps: &Maps<V4>| {
        let remote = maps.0.frontends.iter().find(|(key, _)| key.address == [192, 168, 0, 3]);
        remote.map(|(_, value)| value.id)
    };
    let before = id(&maps);
    maps.write(&services.apply([Update::Host("there".to_owned(), None)]));
    assert_eq!(remote(&maps), Vec::<String>::new());
    assert_eq!(maps.left_over(), []);
    maps.write(&services.apply([host("there", "192.168.0.3")]));
    assert!(before.is_some() && id(&maps).is_some() && id(&maps) != before, "its number was given back");
}
