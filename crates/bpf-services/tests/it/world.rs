//! Services and slices in one line each, maps as text, and maps that are written step by step.
//!
//! A service: `NAMESPACE/NAME ip=… port=NAME:NUMBER/PROTOCOL[:NODEPORT]`, and `type=`, `ext=`, `lb=`, `proxylb=`, `range=`,
//! `sticky=`, `etp=`, `itp=`, `health=`, `created=`, `label=`, `note=KEY=VALUE`.
//! A slice: `NAMESPACE/NAME svc=… port=NAME:NUMBER/PROTOCOL ep=ADDRESS[@NODE][,notready|terminating|serving|notserving][,zone=…][,node=…]`,
//! and `label=`.

use api::{KubernetesEndpointSlice, KubernetesEndpointSliceSpec, KubernetesService, KubernetesServiceSpec};
use bpf::Layout as _;
use bpf::layout::Family;
use bpf::layout::nat::{Backend, BackendKey, Frontend, FrontendKey};
use bpf_services::{Contents, MapChanges, NatMap, Settings, Update};
use model::feed::NamespacedName;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

pub(crate) fn settings() -> Settings {
    Settings {
        node: "here".to_owned(),
        excluded: Vec::new(),
        maglev_services: 100,
        maglev_endpoints: 1,
        udp_affinity: 0,
    }
}

pub(crate) fn name(text: &str) -> NamespacedName {
    let (namespace, name) = text.split_once('/').expect("a name with a namespace");
    NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn words(line: &str) -> (NamespacedName, Vec<(&str, &str)>) {
    let mut words = line.split_whitespace();
    let first = name(words.next().expect("a name"));
    (first, words.map(|word| word.split_once('=').expect("word=value")).collect())
}

fn port(text: &str) -> (&str, i32, &str, i32) {
    let (name, rest) = text.split_once(':').expect("name:number/protocol");
    let (number, rest) = rest.split_once('/').expect("number/protocol");
    let (protocol, node_port) = rest.split_once(':').unwrap_or((rest, "0"));
    let read = |text: &str| text.parse::<i32>().expect("a number");
    (name, read(number), protocol, read(node_port))
}

/// The JSON of a service in the API.
pub(crate) fn service_json(line: &str) -> Value {
    let (name, words) = words(line);
    let mut object = json!({
        "metadata": {"namespace": name.namespace, "name": name.name, "labels": {}, "annotations": {}},
        "spec": {"type": "ClusterIP", "clusterIPs": [], "ports": [], "externalIPs": [], "loadBalancerSourceRanges": []},
        "status": {"loadBalancer": {"ingress": []}},
    });
    for (word, value) in words {
        let spec = &mut object["spec"];
        let push = |list: &mut Value, value: Value| list.as_array_mut().expect("a list").push(value);
        match word {
            "type" => spec["type"] = value.into(),
            "ip" => push(&mut spec["clusterIPs"], value.into()),
            "port" => {
                let (name, port, protocol, node_port) = port(value);
                push(
                    &mut spec["ports"],
                    json!({"name": name, "port": port, "protocol": protocol, "nodePort": node_port, "targetPort": "x"}),
                );
            }
            "ext" => push(&mut spec["externalIPs"], value.into()),
            "range" => push(&mut spec["loadBalancerSourceRanges"], value.into()),
            "lb" => {
                push(&mut object["status"]["loadBalancer"]["ingress"], json!({"ip": value, "ipMode": "VIP"}));
            }
            "proxylb" => {
                push(
                    &mut object["status"]["loadBalancer"]["ingress"],
                    json!({"ip": value, "ipMode": "Proxy"}),
                );
            }
            "sticky" => {
                spec["sessionAffinity"] = "ClientIP".into();
                let seconds: u32 = value.parse().expect("seconds");
                spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": seconds}});
            }
            "etp" => spec["externalTrafficPolicy"] = value.into(),
            "itp" => spec["internalTrafficPolicy"] = value.into(),
            "health" => spec["healthCheckNodePort"] = value.parse::<i32>().expect("a port").into(),
            "created" => object["metadata"]["creationTimestamp"] = value.into(),
            "label" => object["metadata"]["labels"][value] = "".into(),
            "note" => {
                let (key, value) = value.split_once('=').expect("key=value");
                object["metadata"]["annotations"][key] = value.into();
            }
            _ => panic!("a service has no {word}"),
        }
    }
    object
}

/// The JSON of a slice in the API.
pub(crate) fn slice_json(line: &str) -> Value {
    let (name, words) = words(line);
    let mut object = json!({
        "metadata": {"namespace": name.namespace, "name": name.name, "labels": {}},
        "addressType": "IPv4", "endpoints": [], "ports": [],
    });
    for (word, value) in words {
        match word {
            "svc" => object["metadata"]["labels"]["kubernetes.io/service-name"] = value.into(),
            "label" => object["metadata"]["labels"][value] = "".into(),
            "port" => {
                let (name, port, protocol, _) = port(value);
                let port = json!({"name": name, "port": port, "protocol": protocol});
                object["ports"].as_array_mut().expect("a list").push(port);
            }
            "ep" => {
                let mut parts = value.split(',');
                let place = parts.next().expect("an address");
                let (address, node) = place.split_once('@').unwrap_or((place, ""));
                if address.contains(':') {
                    object["addressType"] = "IPv6".into();
                }
                let mut endpoint = json!({"addresses": [address], "conditions": {}});
                if !node.is_empty() {
                    endpoint["nodeName"] = node.into();
                }
                for part in parts {
                    let hint = |name: &str| json!([{"name": name}]);
                    match part.split_once('=') {
                        Some(("zone", zone)) => endpoint["hints"]["forZones"] = hint(zone),
                        Some(("node", node)) => endpoint["hints"]["forNodes"] = hint(node),
                        _ => match part {
                            "notready" => endpoint["conditions"]["ready"] = false.into(),
                            "serving" => endpoint["conditions"]["serving"] = true.into(),
                            "notserving" => endpoint["conditions"]["serving"] = false.into(),
                            "terminating" => {
                                endpoint["conditions"]["ready"] = false.into();
                                endpoint["conditions"]["terminating"] = true.into();
                            }
                            _ => panic!("an endpoint has no {part}"),
                        },
                    }
                }
                object["endpoints"].as_array_mut().expect("a list").push(endpoint);
            }
            _ => panic!("a slice has no {word}"),
        }
    }
    object
}

pub(crate) fn service_object(json: &Value) -> Box<KubernetesService> {
    let service: api::kubernetes::Service = serde_json::from_value(json.clone()).expect("a service");
    Box::new(KubernetesService {
        metadata: service.metadata,
        spec: KubernetesServiceSpec(service.spec),
        status: service.status,
        ..KubernetesService::default()
    })
}

pub(crate) fn slice_object(json: &Value) -> Box<KubernetesEndpointSlice> {
    let slice: api::kubernetes::EndpointSlice = serde_json::from_value(json.clone()).expect("a slice");
    Box::new(KubernetesEndpointSlice {
        metadata: slice.metadata,
        spec: KubernetesEndpointSliceSpec(slice.content),
        ..KubernetesEndpointSlice::default()
    })
}

pub(crate) fn service(line: &str) -> Update {
    Update::Service(words(line).0, Some(service_object(&service_json(line))))
}

pub(crate) fn slice(line: &str) -> Update {
    Update::Slice(words(line).0, Some(slice_object(&slice_json(line))))
}

/// Maps written like the driver does. Checks after every single step that each frontend has its backends.
#[derive(Clone, Debug)]
pub(crate) struct Maps<F: Family>(pub(crate) Contents<F>);

impl<F: Family> Default for Maps<F> {
    fn default() -> Self {
        Self(Contents::default())
    }
}

impl<F: Family> Maps<F> {
    pub(crate) fn write(&mut self, changes: &MapChanges<F>) {
        assert_eq!(changes.is_empty(), changes.steps().is_empty());
        for step in changes.steps() {
            let maps = &mut self.0;
            for (key, value) in &step.set {
                match step.map {
                    NatMap::Frontends => {
                        maps.frontends.insert(FrontendKey::read(key), Frontend::read(value));
                    }
                    NatMap::Backends => {
                        maps.backends.insert(BackendKey::read(key), Backend::read(value));
                    }
                    NatMap::Maglev => drop(maps.maglev.insert(BackendKey::read(key), Backend::read(value))),
                }
            }
            for key in &step.remove {
                let was_there = match step.map {
                    NatMap::Frontends => maps.frontends.remove(&FrontendKey::read(key)).is_some(),
                    NatMap::Backends => maps.backends.remove(&BackendKey::read(key)).is_some(),
                    NatMap::Maglev => maps.maglev.remove(&BackendKey::read(key)).is_some(),
                };
                assert!(was_there, "{:?} {key:?} is deleted but did not exist", step.map);
            }
            self.leads_somewhere();
        }
    }

    fn leads_somewhere(&self) {
        for (key, value) in &self.0.frontends {
            let count = if value.count == Frontend::DROP { 0 } else { value.count };
            for ordinal in 0..count {
                let backend = BackendKey { id: value.id, ordinal };
                assert!(self.0.backends.contains_key(&backend), "{key:?} {value:?} has no backend {ordinal}");
            }
            if value.flags & 8 != 0 {
                assert!(
                    self.0.maglev.contains_key(&BackendKey { id: value.id, ordinal: 0 }),
                    "{key:?} has no table"
                );
            }
        }
    }

    /// The contents of the maps without ids: a line per frontend.
    pub(crate) fn lines(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.0.frontends.iter().map(|(key, value)| self.line(key, value)).collect();
        lines.sort();
        lines
    }

    fn line(&self, key: &FrontendKey<F>, value: &Frontend) -> String {
        let protocol = match key.protocol {
            6 => "TCP",
            17 => "UDP",
            132 => "SCTP",
            _ => "?",
        };
        let from = match key.source_bits {
            0 => String::new(),
            bits => format!(" from {}/{bits}", ip(key.source.as_ref())),
        };
        let place = SocketAddr::new(ip(key.address.as_ref()), key.port);
        if value.count == Frontend::DROP {
            return format!("{place}/{protocol}{from} drop");
        }
        let end = |backend: Option<&Backend<F>>| {
            backend.map_or_else(
                || "?".to_owned(),
                |one| SocketAddr::new(ip(one.address.as_ref()), one.port).to_string(),
            )
        };
        let backends: Vec<String> = (0..value.count)
            .map(|ordinal| end(self.0.backends.get(&BackendKey { id: value.id, ordinal })))
            .collect();
        let mut line =
            format!("{place}/{protocol}{from} {}({}) [{}]", value.count, value.local, backends.join(" "));
        if value.affinity != 0 {
            line += &format!(" sticky {}", value.affinity);
        }
        let names = ["external-local", "internal-local", "exclude", "maglev"];
        for (_, name) in names.iter().enumerate().filter(|(bit, _)| value.flags >> bit & 1 == 1) {
            line += &format!(" {name}");
        }
        line
    }

    /// Backends and tables that no frontend refers to.
    pub(crate) fn left_over(&self) -> Vec<BackendKey> {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        for value in self.0.frontends.values().filter(|value| value.count != Frontend::DROP) {
            counts.insert(value.id, value.count);
        }
        let is_left = |key: &&BackendKey| counts.get(&key.id).is_none_or(|count| key.ordinal >= *count);
        self.0.backends.keys().filter(is_left).copied().collect()
    }
}

fn ip(bytes: &[u8]) -> IpAddr {
    match <[u8; 4]>::try_from(bytes) {
        Ok(bytes) => bytes.into(),
        Err(_) => <[u8; 16]>::try_from(bytes).expect("an address").into(),
    }
}
