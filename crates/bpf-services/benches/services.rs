//! The cost of 10,000 services with 10 endpoints each: the start, one changed slice, and a restart.

use api::{KubernetesEndpointSlice, KubernetesService};
use bpf::Layout as _;
use bpf::layout::V4;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf_services::{Contents, MapChanges, NatMap, Services, Settings, Update};
use model::feed::NamespacedName;
use serde_json::json;
use std::time::Duration;
use testkit::Report;

const ENDPOINTS: u32 = 10;

fn name(text: String) -> NamespacedName {
    NamespacedName { namespace: "ns".to_owned(), name: text }
}

fn service(number: u32) -> Update {
    let [_, _, high, low] = number.to_be_bytes();
    let json = json!({
        "kind": "KubernetesService", "apiVersion": "projectcalico.org/v3",
        "metadata": {"namespace": "ns", "name": format!("s{number}")},
        "spec": {"type": "NodePort", "clusterIPs": [format!("10.96.{high}.{low}")], "ports": [{"name": "http", "port": 80, "nodePort": 20000 + number}]},
    });
    let service: KubernetesService = serde_json::from_value(json).expect("a service");
    Update::Service(name(format!("s{number}")), Some(Box::new(service)))
}

fn slice(number: u32, first: u32) -> Update {
    let endpoint = |place: u32| {
        let [_, high, middle, low] = (number * ENDPOINTS + place).to_be_bytes();
        json!({"addresses": [format!("10.{high}.{middle}.{low}")], "nodeName": format!("n{place}"), "conditions": {"ready": true}})
    };
    let endpoints: Vec<_> = (first..first + ENDPOINTS).map(endpoint).collect();
    let json = json!({
        "kind": "KubernetesEndpointSlice", "apiVersion": "projectcalico.org/v3",
        "metadata": {"namespace": "ns", "name": format!("s{number}-1"), "labels": {"kubernetes.io/service-name": format!("s{number}")}},
        "spec": {"addressType": "IPv4", "ports": [{"name": "http", "port": 8080, "protocol": "TCP"}], "endpoints": endpoints},
    });
    let slice: KubernetesEndpointSlice = serde_json::from_value(json).expect("a slice");
    Update::Slice(name(format!("s{number}-1")), Some(Box::new(slice)))
}

fn write(contents: &mut Contents<V4>, changes: &MapChanges<V4>) -> usize {
    let mut writes = 0;
    for step in changes.steps() {
        writes += step.set.len() + step.remove.len();
        for (key, value) in step.set {
            match step.map {
                NatMap::Frontends => {
                    contents.frontends.insert(FrontendKey::read(&key), Frontend::read(&value));
                }
                _ => {
                    contents.backends.insert(BackendKey::read(&key), Backend::read(&value));
                }
            }
        }
    }
    writes
}

/// Processor time of this thread, so that other work on the machine does not count.
fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap_or(0), time.tv_nsec.try_into().unwrap_or(0))
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let start = processor_time();
    let done = work();
    (processor_time() - start, done)
}

#[expect(clippy::print_stdout, reason = "a benchmark's output is its result")]
fn main() -> anyhow::Result<()> {
    let mut report = Report::new("services");
    let all: &[u32] =
        if std::env::args().any(|argument| argument == "--test") { &[10] } else { &[100, 10_000] };
    for count in all.iter().copied() {
        let settings = Settings {
            node: "n1".to_owned(),
            excluded: Vec::new(),
            maglev_services: 100,
            maglev_endpoints: 100,
            udp_affinity: 0,
        };
        let objects =
            || -> Vec<Update> { (0..count).flat_map(|number| [service(number), slice(number, 0)]).collect() };
        let mut contents = Contents::default();
        let mut services = Services::<V4>::new(settings.clone());
        let updates = objects();
        let (start, changes) = timed(|| {
            drop(services.apply(updates));
            services.begin(&contents)
        });
        let first = write(&mut contents, &changes);
        let rounds = 1_000;
        let updates: Vec<Update> =
            (0..rounds).map(|round| slice(round % count, 1 + round / count % 2)).collect();
        let (changed, writes) = timed(|| {
            updates
                .into_iter()
                .map(|update| {
                    services.apply([update]).steps().iter().map(|step| step.set.len()).sum::<usize>()
                })
                .sum::<usize>()
        });
        drop(services.begin(&contents));
        let mut again = Services::<V4>::new(settings);
        let updates = objects();
        let (restart, changes) = timed(|| {
            drop(again.apply(updates));
            again.begin(&contents)
        });
        let each = changed / rounds;
        let mut row = |what: &str, took: Duration, writes: String, goal: &str| {
            report.row(&format!("{count} services: {what}"), &format!("{took:.1?}"), &writes, "", goal);
        };
        row("start", start, format!("{first} writes"), "");
        let writes = writes as f64 / f64::from(rounds);
        row("one changed slice", each, format!("{writes:.1} writes"), "below 1 ms, however many");
        row("restart with full maps", restart, format!("{} writes", changes.steps().len()), "0 writes");
    }
    report.note(
        "Ten endpoints and three frontends each; processor time of the thread, without the writes to the kernel.",
    );
    print!("{}", report.markdown());
    report.record()
}
