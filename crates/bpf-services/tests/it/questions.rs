//! Answers for sweeps and load balancers.

use crate::world::{Maps, name, service, settings, slice};
use bpf::layout::V4;
use bpf::layout::nat::{Affinity, AffinityKey, Backend};
use bpf_conntrack::Destinations as _;
use bpf_services::{HealthCheck, Here, Services, Settings, Update};

const SECOND: u64 = 1_000_000_000;

fn begun(settings: Settings, updates: Vec<Update>) -> Services<V4> {
    let mut services = Services::<V4>::new(settings);
    let here = Here { zone: String::new(), addresses: vec!["192.168.0.1".parse().expect("an address")] };
    drop(services.apply([Update::Here(here)].into_iter().chain(updates)));
    drop(services.begin(&Maps::default().0));
    services
}

#[test]
fn flows_to_existing_backends_are_kept() {
    let services = begun(
        settings(),
        vec![
            service("ns/a type=NodePort ip=10.96.0.1 ext=35.0.0.1 port=dns:53/UDP:30053"),
            slice("ns/a-1 svc=a port=dns:5353/UDP ep=10.1.0.1 ep=10.1.0.2,notready ep=10.1.0.3,terminating"),
            service(
                "ns/b ip=10.96.0.2 port=dns:53/UDP note=projectcalico.org/udpConntrackCleanup=terminatingimmediately",
            ),
            slice("ns/b-1 svc=b port=dns:5353/UDP ep=10.1.0.1 ep=10.1.0.3,terminating"),
            service("ns/c ip=10.96.0.3 port=dns:53/UDP"),
        ],
    );
    let kept = |service: ([u8; 4], u16), backend: [u8; 4]| services.has_backend(service, (backend, 5353), 17);
    for frontend in [
        ([10, 96, 0, 1], 53),
        ([35, 0, 0, 1], 53),
        ([192, 168, 0, 1], 30053),
        // Forwarded here by another node, so it has that node's address.
        ([192, 168, 0, 9], 30053),
    ] {
        for backend in [[10, 1, 0, 1], [10, 1, 0, 2], [10, 1, 0, 3]] {
            assert!(kept(frontend, backend), "{frontend:?} {backend:?}");
        }
        assert!(!kept(frontend, [10, 1, 0, 4]));
        assert!(
            services.is_service(frontend.0, frontend.1, 17)
                && !services.is_service(frontend.0, frontend.1, 6)
        );
    }
    assert!(kept(([10, 96, 0, 2], 53), [10, 1, 0, 1]));
    assert!(!kept(([10, 96, 0, 2], 53), [10, 1, 0, 3]), "its service wants flows to end at once");
    assert!(
        !kept(([10, 96, 0, 3], 53), [10, 1, 0, 1]) && !services.is_service([10, 96, 0, 3], 53, 17),
        "no backends"
    );
    let early = Services::<V4>::new(settings());
    assert!(early.has_backend(([1; 4], 1), ([2; 4], 2), 17) && !early.is_service([1; 4], 1, 17));
}

#[test]
fn clients_stay_with_their_backend_as_long_as_it_exists() {
    let services = begun(
        Settings { udp_affinity: 60, ..settings() },
        vec![
            service(
                "ns/a ip=10.96.0.1 port=http:80/TCP port=dns:53/UDP sticky=100 ext=35.0.0.1 range=10.0.0.0/8",
            ),
            slice("ns/a-1 svc=a port=http:8080/TCP port=dns:8080/UDP ep=10.1.0.1 ep=10.1.0.2,terminating"),
            service("ns/b ip=10.96.0.2 port=http:80/TCP port=dns:53/UDP"),
            slice("ns/b-1 svc=b port=http:8080/TCP port=dns:8080/UDP ep=10.1.0.1"),
        ],
    );
    // Frontend, protocol, backend, age in seconds, whether the entry is removed.
    let table = [
        (([10, 96, 0, 1], 80), 6, [10, 1, 0, 1], 100, false),
        (([10, 96, 0, 1], 80), 6, [10, 1, 0, 1], 101, true),
        (([35, 0, 0, 1], 80), 6, [10, 1, 0, 1], 100, false),
        (([10, 96, 0, 1], 80), 6, [10, 1, 0, 2], 1, true),
        (([10, 96, 0, 1], 81), 6, [10, 1, 0, 1], 1, true),
        (([10, 96, 0, 1], 53), 17, [10, 1, 0, 1], 100, false),
        (([10, 96, 0, 2], 80), 6, [10, 1, 0, 1], 1, true),
        // Unconnected sockets stay with a backend whatever the service's affinity.
        (([10, 96, 0, 2], 53), 17, [10, 1, 0, 1], 60, false),
        (([10, 96, 0, 2], 53), 17, [10, 1, 0, 1], 61, true),
    ];
    for ((address, port), protocol, backend, age, expected) in table {
        let key = AffinityKey { address, port, protocol, client: [10, 0, 0, 9] };
        let value = Affinity { backend: Backend { address: backend, port: 8080 }, since: 1_000 * SECOND };
        let found = services.is_affinity_stale(&key, &value, (1_000 + age) * SECOND);
        assert_eq!(found, expected, "{address:?}:{port} {protocol} {backend:?} {age} s");
    }
}

#[test]
fn load_balancers_learn_of_local_endpoints() {
    let check =
        |port, endpoints| HealthCheck { namespace: "ns".to_owned(), name: "a".to_owned(), port, endpoints };
    let line = "ns/a type=LoadBalancer etp=Local health=32000 ip=10.96.0.1 port=http:80/TCP port=tls:443/TCP";
    let mut services = begun(
        settings(),
        vec![
            service(line),
            slice(
                "ns/a-1 svc=a port=http:80/TCP port=tls:443/TCP ep=10.1.0.1@here ep=10.1.0.2@here ep=10.1.0.3@there ep=10.1.0.4@here,notready",
            ),
            service("ns/b type=LoadBalancer health=32001 ip=10.96.0.2 port=http:80/TCP"),
            service("ns/c type=NodePort etp=Local health=32002 ip=10.96.0.3 port=http:80/TCP"),
        ],
    );
    assert_eq!(services.health_checks(), [check(32000, 2)]);
    drop(services.apply([Update::Slice(name("ns/a-1"), None)]));
    assert_eq!(services.health_checks(), [check(32000, 0)]);
    drop(services.apply([Update::Service(name("ns/a"), None)]));
    assert_eq!(services.health_checks(), []);
    assert_eq!(check(1, 2).answer(true).0, 200);
    assert_eq!((check(1, 0).answer(true).0, check(1, 2).answer(false).0), (503, 503));
    let body = "{\n\t\"service\": {\n\t\t\"namespace\": \"ns\",\n\t\t\"name\": \"a\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(check(1, 2).answer(true).1, body);
}
