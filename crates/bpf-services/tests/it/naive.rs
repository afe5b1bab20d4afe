//! Computes the desired contents of the maps from the JSON of all objects, in the slow and obvious way.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// All objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) services: BTreeMap<(String, String), Value>,
    pub(crate) slices: BTreeMap<(String, String), Value>,
    pub(crate) hosts: BTreeMap<String, IpAddr>,
    pub(crate) zone: String,
    pub(crate) addresses: Vec<IpAddr>,
}

fn texts<'a>(value: &'a Value, pointer: &str) -> Vec<&'a str> {
    let list = value.pointer(pointer).and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("")
}

fn v4(text: &str) -> Option<IpAddr> {
    text.parse().ok().filter(IpAddr::is_ipv4)
}

#[derive(Clone, Debug)]
struct Endpoint {
    address: SocketAddr,
    node: String,
    ready: bool,
    serving: bool,
    terminating: bool,
    zones: Vec<String>,
    nodes: Vec<String>,
}

impl World {
    /// The lines of `Maps::lines`.
    pub(crate) fn lines(&self) -> Vec<String> {
        // The key with everything that decides which service gets it, and the line.
        let mut wanted = Vec::new();
        for ((namespace, name), service) in &self.services {
            let label = |label: &str| service["metadata"]["labels"].get(label).is_some();
            if text(service, "/spec/type") == "ExternalName" || label("service.kubernetes.io/headless") {
                continue;
            }
            let Some(cluster) = texts(service, "/spec/clusterIPs").into_iter().find_map(v4) else { continue };
            for port in service["spec"]["ports"].as_array().expect("ports") {
                let owner = |rank: u8| {
                    let created = text(service, "/metadata/creationTimestamp").to_owned();
                    (rank, created, namespace.clone(), name.clone(), text(port, "/name").to_owned())
                };
                for (rank, key, rest) in self.frontends((namespace, name), service, port, cluster) {
                    let line = format!("{key} {rest}");
                    wanted.push((key, owner(rank), line));
                }
            }
        }
        wanted.sort();
        let mut taken = BTreeSet::new();
        let mut lines: Vec<String> = wanted
            .into_iter()
            .filter(|(key, ..)| taken.insert(key.clone()))
            .map(|(_, _, line)| line)
            .collect();
        lines.sort();
        lines
    }

    fn frontends(
        &self,
        name: (&str, &str),
        service: &Value,
        port: &Value,
        cluster: IpAddr,
    ) -> Vec<(u8, String, String)> {
        let protocol = text(port, "/protocol");
        let number = port["port"].as_u64().expect("a port");
        let node_port = port["nodePort"].as_u64().unwrap_or(0);
        let spec = &service["spec"];
        let outside = matches!(text(spec, "/type"), "NodePort" | "LoadBalancer")
            || !texts(spec, "/externalIPs").is_empty();
        let external =
            if outside && text(spec, "/externalTrafficPolicy") == "Local" { " external-local" } else { "" };
        let is_internal = text(spec, "/internalTrafficPolicy") == "Local";
        let internal = if is_internal { " internal-local" } else { "" };
        let sticky = match spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].as_u64() {
            Some(seconds) => format!(" sticky {seconds}"),
            None => String::new(),
        };
        let exclude = if text(service, "/metadata/annotations/projectcalico.org~1natExcludeService") == "true"
        {
            " exclude"
        } else {
            ""
        };
        let chosen = self.choose(&self.endpoints(name, port));
        let back = |endpoints: &[Endpoint]| {
            let (here, there): (Vec<&Endpoint>, Vec<&Endpoint>) =
                endpoints.iter().partition(|endpoint| endpoint.node == "here");
            let list: Vec<String> =
                here.iter().chain(&there).map(|endpoint| endpoint.address.to_string()).collect();
            format!("{}({}) [{}]{sticky}", list.len(), here.len(), list.join(" "))
        };
        let all = back(&chosen);
        let mut found =
            vec![(0, format!("{cluster}:{number}/{protocol}"), format!("{all}{internal}{exclude}"))];
        let ingress =
            service.pointer("/status/loadBalancer/ingress").and_then(Value::as_array).into_iter().flatten();
        let balancers =
            ingress.filter_map(|one| v4(text(one, "/ip"))).map(|ip| (2, ip, format!("{external}{internal}")));
        let externals =
            texts(spec, "/externalIPs").into_iter().filter_map(v4).map(|ip| (3, ip, external.to_owned()));
        for (rank, ip, flags) in balancers.chain(externals) {
            let key = format!("{ip}:{number}/{protocol}");
            let rest = format!("{all}{flags}{exclude}");
            let ranges: Vec<&str> = texts(spec, "/loadBalancerSourceRanges");
            if ranges.is_empty() || ranges.contains(&"0.0.0.0/0") {
                found.push((rank, key.clone(), rest.clone()));
            } else {
                found.push((rank, key.clone(), "drop".to_owned()));
            }
            for range in ranges.into_iter().filter(|range| *range != "0.0.0.0/0") {
                found.push((rank, format!("{key} from {range}"), rest.clone()));
            }
        }
        if node_port == 0 {
            return found;
        }
        for ip in &self.addresses {
            found.push((
                1,
                format!("{ip}:{node_port}/{protocol}"),
                format!("{all}{external}{internal}{exclude}"),
            ));
        }
        if !is_internal {
            let key = format!("255.255.255.255:{node_port}/{protocol}");
            found.push((1, key, format!("{all}{external}{exclude}")));
            return found;
        }
        for (host, ip) in &self.hosts {
            let theirs: Vec<Endpoint> = chosen
                .iter()
                .filter(|endpoint| endpoint.node != "here" && self.hosts.get(&endpoint.node) == Some(ip))
                .cloned()
                .collect();
            if theirs.iter().any(|endpoint| endpoint.node == *host) {
                found.push((
                    1,
                    format!("{ip}:{node_port}/{protocol}"),
                    format!("{}{exclude}", back(&theirs)),
                ));
            }
        }
        found
    }

    fn endpoints(&self, (namespace, service): (&str, &str), port: &Value) -> Vec<Endpoint> {
        let mut found: BTreeMap<String, Endpoint> = BTreeMap::new();
        for ((of, _), slice) in &self.slices {
            if of != namespace || text(slice, "/metadata/labels/kubernetes.io~1service-name") != service {
                continue;
            }
            for slice_port in slice["ports"].as_array().expect("ports") {
                if slice_port["name"] != port["name"] || slice_port["protocol"] != port["protocol"] {
                    continue;
                }
                for raw in slice["endpoints"].as_array().expect("endpoints") {
                    let Some(ip) = v4(text(raw, "/addresses/0")) else { continue };
                    let number = u16::try_from(slice_port["port"].as_u64().expect("a port")).expect("a port");
                    let condition = |name: &str| raw["conditions"].get(name).and_then(Value::as_bool);
                    let ready = condition("ready").unwrap_or(true);
                    let names = |field: &str| -> Vec<String> {
                        let hints = raw["hints"][field].as_array().into_iter().flatten();
                        hints.map(|hint| text(hint, "/name").to_owned()).collect()
                    };
                    let endpoint = Endpoint {
                        address: SocketAddr::new(ip, number),
                        node: text(raw, "/nodeName").to_owned(),
                        ready,
                        serving: condition("serving").unwrap_or(ready),
                        terminating: condition("terminating").unwrap_or(false),
                        zones: names("forZones"),
                        nodes: names("forNodes"),
                    };
                    let key = endpoint.address.to_string();
                    match found.get(&key) {
                        Some(before) if before.node == "here" || endpoint.node != "here" => {}
                        _ => drop(found.insert(key, endpoint)),
                    }
                }
            }
        }
        found.into_values().collect()
    }

    fn choose(&self, all: &[Endpoint]) -> Vec<Endpoint> {
        let counts = |endpoint: &&Endpoint| endpoint.ready || endpoint.terminating;
        let pick = |test: &dyn Fn(&Endpoint) -> bool| -> Vec<Endpoint> {
            all.iter().filter(counts).filter(|endpoint| test(endpoint)).cloned().collect()
        };
        let mut near = pick(&|endpoint| endpoint.nodes.iter().any(|node| node == "here"));
        if near.is_empty() {
            near = pick(&|endpoint| endpoint.zones.contains(&self.zone));
        }
        if near.is_empty() {
            near = all.to_vec();
        }
        let ready: Vec<Endpoint> = near.iter().filter(|endpoint| endpoint.ready).cloned().collect();
        if ready.is_empty() {
            near.retain(|endpoint| endpoint.serving && endpoint.terminating);
            return near;
        }
        ready
    }
}
