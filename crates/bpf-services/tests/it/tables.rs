//! Objects and their entries in maps: the families of Calico's proxy tests, as tables of our own.

use crate::world::{Maps, service, settings, slice};
use bpf::layout::{Family, V4, V6};
use bpf_services::{Here, Services, Settings, Update};

fn here() -> Update {
    let addresses = ["192.168.0.1", "fd00::1"].map(|text| text.parse().expect("an address")).to_vec();
    Update::Here(Here { zone: "a".to_owned(), addresses })
}

pub(crate) fn host(name: &str, address: &str) -> Update {
    Update::Host(name.to_owned(), Some(address.parse().expect("an address")))
}

pub(crate) fn begun<F: Family>(settings: Settings, updates: Vec<Update>) -> (Services<F>, Maps<F>) {
    let (mut services, mut maps) = (Services::<F>::new(settings), Maps::default());
    assert!(services.apply([here()].into_iter().chain(updates)).is_empty(), "nothing before all is known");
    maps.write(&services.begin(&maps.0));
    (services, maps)
}

pub(crate) fn lines(updates: Vec<Update>) -> Vec<String> {
    begun::<V4>(settings(), updates).1.lines()
}

pub(crate) const SLICE: &str = "ns/a-1 svc=a port=http:8080/TCP ep=10.1.0.2@there ep=10.1.0.1@here";

#[test]
fn types_of_services() {
    let table: &[(&str, &[&str])] = &[
        ("ns/a ip=10.96.0.1 port=http:80/TCP", &["10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]"]),
        // The wildcard stands for all other nodes.
        (
            "ns/a type=NodePort ip=10.96.0.1 port=http:80/TCP:30080",
            &[
                "10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "192.168.0.1:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "255.255.255.255:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
            ],
        ),
        (
            "ns/a ip=10.96.0.1 port=http:80/TCP ext=35.0.0.1 ext=35.0.0.2 ext=fd35::1 ext=x",
            &[
                "10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "35.0.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "35.0.0.2:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
            ],
        ),
        // A load balancer that works as a proxy sends from its own address: packets to it are not for us.
        (
            "ns/a type=LoadBalancer ip=10.96.0.1 port=http:80/TCP lb=5.5.5.5 proxylb=5.5.5.6 lb=",
            &[
                "10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "5.5.5.5:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
            ],
        ),
        (
            "ns/a ip=10.96.0.1 port=http:80/TCP sticky=100",
            &["10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] sticky 100"],
        ),
        // Traffic policies: external ones only concern external addresses.
        (
            "ns/a type=LoadBalancer etp=Local ip=10.96.0.1 port=http:80/TCP:30080 lb=5.5.5.5 ext=35.0.0.1",
            &[
                "10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "192.168.0.1:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] external-local",
                "255.255.255.255:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] external-local",
                "35.0.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] external-local",
                "5.5.5.5:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] external-local",
            ],
        ),
        (
            "ns/a etp=Local ip=10.96.0.1 port=http:80/TCP",
            &["10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]"],
        ),
        // One frontend per node with backends, instead of the wildcard.
        (
            "ns/a type=NodePort itp=Local ip=10.96.0.1 port=http:80/TCP:30080",
            &[
                "10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] internal-local",
                "192.168.0.1:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] internal-local",
                "192.168.0.2:30080/TCP 1(0) [10.1.0.2:8080]",
            ],
        ),
        (
            "ns/a ip=10.96.0.1 port=http:80/TCP note=projectcalico.org/natExcludeService=true",
            &["10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] exclude"],
        ),
        (
            "ns/a ip=10.96.9.1 port=http:80/TCP",
            &["10.96.9.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] exclude"],
        ),
        // A table with five positions; node ports have none.
        (
            "ns/a type=NodePort ip=10.96.0.1 port=http:80/TCP:30080 ext=35.0.0.1 note=lb.projectcalico.org/external-traffic-strategy=Maglev",
            &[
                "10.96.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] maglev",
                "192.168.0.1:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "255.255.255.255:30080/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080]",
                "35.0.0.1:80/TCP 2(1) [10.1.0.1:8080 10.1.0.2:8080] maglev",
            ],
        ),
        // Ignored services.
        ("ns/a ip=None port=http:80/TCP", &[]),
        ("ns/a port=http:80/TCP", &[]),
        ("ns/a ip=fd96::1 port=http:80/TCP", &[]),
        ("ns/a type=ExternalName ip=10.96.0.1 port=http:80/TCP", &[]),
        ("ns/a ip=10.96.0.1 port=http:80/TCP label=service.kubernetes.io/service-proxy-name", &[]),
        ("ns/a ip=10.96.0.1 port=http:80/TCP label=service.kubernetes.io/headless", &[]),
        ("ns/a ip=10.96.0.1 port=http:80/QUIC", &[]),
        // Another name, protocol or namespace is another port: it is served, but has no backends.
        ("ns/a ip=10.96.0.1 port=https:80/TCP", &["10.96.0.1:80/TCP 0(0) []"]),
        ("ns/a ip=10.96.0.1 port=http:80/UDP", &["10.96.0.1:80/UDP 0(0) []"]),
        ("other/a ip=10.96.0.1 port=http:80/TCP", &["10.96.0.1:80/TCP 0(0) []"]),
    ];
    for (line, expected) in table {
        let settings = Settings { excluded: vec!["10.96.9.0/24".parse().expect("a network")], ..settings() };
        let updates =
            vec![host("there", "192.168.0.2"), host("here", "192.168.0.1"), service(line), slice(SLICE)];
        assert_eq!(begun::<V4>(settings, updates).1.lines(), *expected, "{line}");
    }
}

#[test]
fn source_ranges() {
    let back = "2(1) [10.1.0.1:8080 10.1.0.2:8080]";
    let (cluster, drop) = (format!("10.96.0.1:80/TCP {back}"), "5.5.5.5:80/TCP drop");
    let table: &[(&str, &[String])] = &[
        (
            "range=10.0.0.0/8 range=172.16.0.1/32",
            &[
                drop.to_owned(),
                format!("5.5.5.5:80/TCP from 10.0.0.0/8 {back}"),
                format!("5.5.5.5:80/TCP from 172.16.0.1/32 {back}"),
            ],
        ),
        // If all clients are admitted, no dropping entry is needed.
        ("range=0.0.0.0/0", &[format!("5.5.5.5:80/TCP {back}")]),
        (
            "range=0.0.0.0/0 range=10.0.0.0/8",
            &[format!("5.5.5.5:80/TCP {back}"), format!("5.5.5.5:80/TCP from 10.0.0.0/8 {back}")],
        ),
        // Bits behind the prefix are ignored.
        ("range=10.1.2.3/8", &[drop.to_owned(), format!("5.5.5.5:80/TCP from 10.0.0.0/8 {back}")]),
        // For the other IP version only: unrestricted in this one, as in kube-proxy.
        ("range=fd00::/8", &[format!("5.5.5.5:80/TCP {back}")]),
        // An invalid range admits no client.
        ("range=nonsense", &[drop.to_owned()]),
    ];
    for (ranges, expected) in table {
        for place in ["type=LoadBalancer lb=5.5.5.5", "ext=5.5.5.5"] {
            let line = format!("ns/a {place} ip=10.96.0.1 port=http:80/TCP {ranges}");
            let mut expected = expected.to_vec();
            expected.insert(0, cluster.clone());
            expected.sort();
            assert_eq!(lines(vec![service(&line), slice(SLICE)]), expected, "{line}");
        }
    }
}

#[test]
fn endpoints_of_slices() {
    let table: &[(&[&str], &str)] = &[
        // Several slices, each with its own port number; an endpoint in two of them counts once.
        (
            &[
                "ns/a-1 svc=a port=http:8080/TCP ep=10.1.0.9@there ep=10.1.0.1@there",
                "ns/a-2 svc=a port=http:9090/TCP ep=10.1.0.2@here",
                "ns/a-3 svc=a port=http:8080/TCP ep=10.1.0.9@here",
            ],
            "3(2) [10.1.0.2:9090 10.1.0.9:8080 10.1.0.1:8080]",
        ),
        // The order is that of the text, as in kube-proxy.
        (
            &["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.9 ep=10.1.0.10 ep=10.1.0.2"],
            "3(0) [10.1.0.10:80 10.1.0.2:80 10.1.0.9:80]",
        ),
        // Unknown readiness counts as ready.
        (&["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1 ep=10.1.0.2,notready"], "1(0) [10.1.0.1:80]"),
        (
            &["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1 ep=10.1.0.2,terminating,serving"],
            "1(0) [10.1.0.1:80]",
        ),
        // The last terminating endpoints serve until they are gone.
        (
            &["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1,notready ep=10.1.0.2,terminating,serving"],
            "1(0) [10.1.0.2:80]",
        ),
        (&["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.2,terminating,notserving"], "0(0) []"),
        (&["ns/a-1 svc=b port=http:80/TCP ep=10.1.0.1"], "0(0) []"),
        (&["ns/a-1 svc=a ep=10.1.0.1"], "0(0) []"),
        (&["ns/a-1 svc=a port=http:80/TCP ep=fd01::1"], "0(0) []"),
        (&["ns/a-1 svc=a label=service.kubernetes.io/headless port=http:80/TCP ep=10.1.0.1"], "0(0) []"),
        // Hints. This node is "here" in zone "a".
        (&["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1,zone=a ep=10.1.0.2,zone=b"], "1(0) [10.1.0.1:80]"),
        (
            &["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1,zone=c ep=10.1.0.2,zone=b"],
            "2(0) [10.1.0.1:80 10.1.0.2:80]",
        ),
        (
            &["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1,zone=a,node=x ep=10.1.0.2,zone=b,node=here"],
            "1(0) [10.1.0.2:80]",
        ),
        (&["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1,zone=a ep=10.1.0.2"], "1(0) [10.1.0.1:80]"),
        // A near endpoint that is not ready is no reason to stay near.
        (
            &["ns/a-1 svc=a port=http:80/TCP ep=10.1.0.1,zone=a,notready ep=10.1.0.2,zone=b"],
            "1(0) [10.1.0.2:80]",
        ),
    ];
    for (slices, expected) in table {
        let updates =
            slices.iter().map(|line| slice(line)).chain([service("ns/a ip=10.96.0.1 port=http:1/TCP")]);
        assert_eq!(lines(updates.collect()), [format!("10.96.0.1:1/TCP {expected}")], "{slices:?}");
    }
}

#[test]
fn topology_mode_auto_is_all_or_nothing() {
    let table: &[(&str, &str)] = &[
        ("ep=10.1.0.1,zone=a ep=10.1.0.2,zone=b", "1(0) [10.1.0.1:80]"),
        ("ep=10.1.0.1,zone=a ep=10.1.0.2", "2(0) [10.1.0.1:80 10.1.0.2:80]"),
        ("ep=10.1.0.1,zone=c ep=10.1.0.2,zone=b", "2(0) [10.1.0.1:80 10.1.0.2:80]"),
        // An endpoint that is not ready may lack its hint; a terminating one may not.
        ("ep=10.1.0.1,zone=a ep=10.1.0.2,notready", "1(0) [10.1.0.1:80]"),
        ("ep=10.1.0.1,zone=a ep=10.1.0.2,zone=b ep=10.1.0.3,terminating", "2(0) [10.1.0.1:80 10.1.0.2:80]"),
        // Node hints belong to another feature.
        ("ep=10.1.0.1,zone=a ep=10.1.0.2,zone=b,node=here", "1(0) [10.1.0.1:80]"),
    ];
    for (endpoints, expected) in table {
        let line = "ns/a ip=10.96.0.1 port=http:1/TCP note=service.kubernetes.io/topology-mode=auto";
        let found = lines(vec![service(line), slice(&format!("ns/a-1 svc=a port=http:80/TCP {endpoints}"))]);
        assert_eq!(found, [format!("10.96.0.1:1/TCP {expected}")], "{endpoints}");
    }
}

#[test]
fn both_ip_versions_side_by_side() {
    let updates = || {
        vec![
            service(
                "ns/a type=LoadBalancer ip=10.96.0.1 ip=fd96::1 port=http:80/TCP:30080 lb=fd55::1 range=fd00::/8",
            ),
            slice("ns/a-4 svc=a port=http:8080/TCP ep=10.1.0.1@here"),
            slice("ns/a-6 svc=a port=http:8080/TCP ep=fd01::1@here"),
        ]
    };
    assert_eq!(
        lines(updates()),
        [
            "10.96.0.1:80/TCP 1(1) [10.1.0.1:8080]",
            "192.168.0.1:30080/TCP 1(1) [10.1.0.1:8080]",
            "255.255.255.255:30080/TCP 1(1) [10.1.0.1:8080]",
        ]
    );
    assert_eq!(
        begun::<V6>(settings(), updates()).1.lines(),
        [
            "[fd00::1]:30080/TCP 1(1) [[fd01::1]:8080]",
            "[fd55::1]:80/TCP drop",
            "[fd55::1]:80/TCP from fd00::/8 1(1) [[fd01::1]:8080]",
            "[fd96::1]:80/TCP 1(1) [[fd01::1]:8080]",
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:30080/TCP 1(1) [[fd01::1]:8080]",
        ]
    );
}
