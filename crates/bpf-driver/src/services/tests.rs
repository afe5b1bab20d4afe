//! Whichever element a process dies at, every frontend has its backends, and the next process completes the work.

use super::*;
use api::{KubernetesEndpointSlice, KubernetesEndpointSliceSpec, KubernetesService, KubernetesServiceSpec};
use bpf::layout::V4;
use bpf::layout::nat::{Backend, BackendKey, Frontend};
use model::feed::NamespacedName;
use serde_json::json;

type Elements = BTreeMap<Vec<u8>, Vec<u8>>;

/// Maps that are plain values, and refuse everything after a number of elements.
#[derive(Clone, Default)]
struct Fake {
    maps: BTreeMap<String, Elements>,
    writes: usize,
    fails_after: Option<usize>,
}

impl Fake {
    fn step(&mut self) -> Result<(), Error> {
        if self.fails_after.is_some_and(|last| self.writes >= last) {
            return Err(Error::Missing("patience"));
        }
        self.writes += 1;
        Ok(())
    }

    /// Checks that each frontend has as many backends as it claims; returns the number of frontends.
    fn check(&self) -> usize {
        let map = |name: &str| self.maps.get(name).cloned().unwrap_or_default();
        let backends = map("cali_v4_nat_be");
        for frontend in map("cali_v4_nat_fe3").values().map(|value| Frontend::read(value)) {
            for ordinal in 0..frontend.count {
                let key = BackendKey { id: frontend.id, ordinal };
                assert!(backends.contains_key(&key.bytes()), "{frontend:?} leads nowhere");
            }
        }
        map("cali_v4_nat_fe3").len()
    }
}

impl Store for Fake {
    fn room(&self, map: &str) -> Option<usize> {
        (!map.contains("mglv2")).then_some(1000)
    }

    fn read(&self, map: &str) -> Result<Vec<(Vec<u8>, Vec<u8>)>, Error> {
        Ok(self.maps.get(map).cloned().unwrap_or_default().into_iter().collect())
    }

    fn write(&mut self, map: &str, elements: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
        for (key, value) in elements {
            self.step()?;
            self.maps.entry(map.to_owned()).or_default().insert(key.clone(), value.clone());
        }
        Ok(())
    }

    fn remove(&mut self, map: &str, keys: &[Vec<u8>]) -> Result<(), Error> {
        for key in keys {
            self.step()?;
            self.maps.entry(map.to_owned()).or_default().remove(key);
        }
        Ok(())
    }
}

fn maps() -> ServiceMaps<V4> {
    ServiceMaps::new(Settings {
        node: "here".to_owned(),
        excluded: Vec::new(),
        maglev_services: 0,
        maglev_endpoints: 1,
        udp_affinity: 0,
    })
}

fn name(name: &str) -> NamespacedName {
    NamespacedName { namespace: "ns".to_owned(), name: name.to_owned() }
}

/// A service and its endpoints.
fn service(number: usize, endpoints: usize) -> [ToDataplane; 2] {
    let called = format!("s{number}");
    let read: api::kubernetes::Service = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": called},
        "spec": {"type": "NodePort", "clusterIPs": [format!("10.96.0.{number}")],
                 "ports": [{"name": "p", "port": 80, "protocol": "TCP", "nodePort": 30000 + number}]},
    }))
    .expect("a service");
    let object = KubernetesService {
        metadata: read.metadata,
        spec: KubernetesServiceSpec(read.spec),
        ..KubernetesService::default()
    };
    let addresses: Vec<_> = (0..endpoints)
        .map(|one| json!({"addresses": [format!("10.65.{number}.{one}")], "conditions": {"ready": true}}))
        .collect();
    let read: api::kubernetes::EndpointSlice = serde_json::from_value(json!({
        "metadata": {"namespace": "ns", "name": called, "labels": {"kubernetes.io/service-name": called}},
        "addressType": "IPv4", "endpoints": addresses,
        "ports": [{"name": "p", "port": 8080, "protocol": "TCP"}],
    }))
    .expect("a slice");
    let slice = KubernetesEndpointSlice {
        metadata: read.metadata,
        spec: KubernetesEndpointSliceSpec(read.content),
        ..KubernetesEndpointSlice::default()
    };
    [
        ToDataplane::ServiceObject(name(&called), Some(Box::new(object))),
        ToDataplane::EndpointSliceObject(name(&called), Some(Box::new(slice))),
    ]
}

fn tell(maps: &mut ServiceMaps<V4>, counts: &[usize]) {
    for (number, count) in (1..).zip(counts) {
        service(number, *count).iter().for_each(|message| maps.hear(message));
    }
}

#[test]
fn a_process_killed_at_any_element_is_completed_by_the_next() {
    let (before, after) = ([3, 2, 0, 4], [1, 5, 2, 0]);
    let mut start = Fake::default();
    let mut first = maps();
    tell(&mut first, &before);
    first.write(&mut start).expect("written");
    assert_eq!(start.check(), 8);
    let mut whole = start.clone();
    tell(&mut first, &after);
    let changes = first.write(&mut whole).expect("written");
    assert!(changes > 10, "{changes}");
    for last in 0..changes {
        // With the same ids as the process before.
        let mut killed = maps();
        tell(&mut killed, &before);
        let mut store = start.clone();
        assert_eq!(killed.write(&mut store).expect("nothing to do"), 0);
        (store.writes, store.fails_after) = (0, Some(last));
        tell(&mut killed, &after);
        killed.write(&mut store).expect_err("it is killed");
        store.check();
        store.fails_after = None;
        let mut next = maps();
        tell(&mut next, &after);
        next.write(&mut store).expect("written");
        store.check();
        // Ids may differ where a frontend was missing; the backends may not.
        assert_eq!(meaning(&store), meaning(&whole), "killed after {last} elements");
        assert_eq!(next.write(&mut store).expect("nothing to do"), 0);
        // The same process continues after a refusal, too.
        let mut again = start.clone();
        (again.writes, again.fails_after) = (0, Some(last));
        let mut one = maps();
        tell(&mut one, &before);
        one.write(&mut again).expect("nothing to do");
        tell(&mut one, &after);
        one.write(&mut again).expect_err("refused");
        again.fails_after = None;
        one.write(&mut again).expect("written");
        assert_eq!(meaning(&again), meaning(&whole), "refused after {last} elements");
    }
}

/// The backends of each frontend.
fn meaning(store: &Fake) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let backends = &store.maps["cali_v4_nat_be"];
    let mut used = 0;
    let all = store.maps["cali_v4_nat_fe3"].iter().map(|(key, value)| {
        let frontend = Frontend::read(value);
        let keys = (0..frontend.count).map(|ordinal| BackendKey { id: frontend.id, ordinal }.bytes());
        let mut list: Vec<Vec<u8>> = keys.filter_map(|key| backends.get(&key).cloned()).collect();
        list.sort();
        used = used.max(list.len());
        (key.clone(), list)
    });
    let all: BTreeMap<_, _> = all.collect();
    assert_eq!(Backend::<V4>::SIZE, 8);
    // Each list is shared by three frontends: there are no others.
    let lists: usize = {
        let ids: BTreeMap<u32, u32> = store.maps["cali_v4_nat_fe3"]
            .values()
            .map(|value| Frontend::read(value))
            .map(|frontend| (frontend.id, frontend.count))
            .collect();
        ids.values().map(|count| *count as usize).sum()
    };
    assert_eq!(backends.len(), lists, "backends that nothing leads to");
    all
}

#[test]
fn a_changed_slice_causes_minimal_writes() {
    let (mut maps, mut store) = (maps(), Fake::default());
    tell(&mut maps, &[2; 50]);
    maps.write(&mut store).expect("written");
    assert_eq!(maps.write(&mut store).expect("nothing"), 0);
    maps.hear(&service(7, 3)[1]);
    // One more backend, and its count in the frontends.
    assert_eq!(maps.write(&mut store).expect("written"), 3);
    // Another process changed the map: that is repaired.
    store.maps.entry("cali_v4_nat_fe3".to_owned()).or_default().pop_first();
    assert_eq!(maps.write(&mut store).expect("not known"), 0);
    maps.invalidate();
    assert_eq!(maps.write(&mut store).expect("written"), 1);
}
