//! Parses paths in etcd. A path that is not one of Calico's gives `None`; nothing is guessed.

use super::{AffinityType, BlockAffinityKey, Key, ResourceKey, unescape, v1};
use api::Kind;
use ipnet::IpNet;

/// The prefix of the paths of all resources.
const RESOURCES: &str = "/calico/resources/v3/projectcalico.org/";

/// More parts than any usual path has: that many need no allocation.
const MOST_PARTS: usize = 12;

/// See [`Key::parse`].
pub(super) fn parse(path: &str) -> Option<Key> {
    // Most paths, and those of all lists that can be long, are of this kind; they need not be split completely.
    if let Some(rest) = path.strip_prefix(RESOURCES) {
        let mut parts = rest.split('/');
        let first = [parts.next(), parts.next(), parts.next()];
        return match (first, parts.next()) {
            ([Some(plural), Some(name), None], None) => resource(plural, None, name),
            ([Some(plural), Some(namespace), Some(name)], None) => resource(plural, Some(namespace), name),
            _ => None,
        };
    }
    // Old keys are also accepted without the leading slash; those of v3 resources and the ready flag are not.
    let absolute = path.starts_with('/');
    let relative = path.strip_prefix('/').unwrap_or(path);
    let (mut room, mut count) = ([""; MOST_PARTS], 0);
    let mut parts = relative.split('/');
    for (place, part) in room.iter_mut().zip(&mut parts) {
        *place = part;
        count += 1;
    }
    // Only the name of a setting can have so many slashes.
    let all: Vec<&str>;
    let parts = if parts.next().is_some() {
        all = relative.split('/').collect();
        &all
    } else {
        &room[..count]
    };
    match parts {
        ["calico", "ipam", "v2", rest @ ..] => ipam(rest),
        ["calico", "felix", version, rest @ ..] => felix(version, rest),
        ["calico", "v1", "Ready"] if !absolute => None,
        ["calico", "v1", rest @ ..] => v1::parse(rest).map(Key::V1),
        ["calico", "bgp", "v1", rest @ ..] => v1::parse_bgp(rest).map(Key::V1),
        _ => None,
    }
}

fn resource(plural: &str, namespace: Option<&str>, name: &str) -> Option<Key> {
    let kind =
        if plural.contains('%') { Kind::from_plural(&unescape(plural))? } else { Kind::from_plural(plural)? };
    let namespace = match namespace {
        None if !kind.is_namespaced() => String::new(),
        Some(namespace) if kind.is_namespaced() && !namespace.is_empty() => unescape(namespace),
        _ => return None,
    };
    let name = unescape(name);
    if name.is_empty() || name.contains('/') || namespace.contains('/') {
        return None;
    }
    Some(Key::Resource(ResourceKey { kind, namespace, name }))
}

fn ipam(parts: &[&str]) -> Option<Key> {
    match parts {
        ["config"] => Some(Key::IpamConfig),
        ["assignment", version, "block", cidr] if is_version(version) => {
            Some(Key::Block { cidr: undashed(cidr)? })
        }
        ["handle", id] if !id.is_empty() => Some(Key::IpamHandle { handle_id: (*id).into() }),
        ["host", host] if !host.is_empty() => Some(Key::IpamHost { host: (*host).to_owned() }),
        [word @ ("host" | "virtual"), host, version, "block", cidr]
            if is_version(version) && !host.is_empty() =>
        {
            Some(Key::BlockAffinity(BlockAffinityKey {
                cidr: undashed(cidr)?,
                host: (*host).to_owned(),
                affinity_type: AffinityType::from_word(word)?,
            }))
        }
        _ => None,
    }
}

fn felix(version: &str, parts: &[&str]) -> Option<Key> {
    let filled = |text: &&str| !text.is_empty();
    let key = match (version, parts) {
        ("v1", ["host", host, "endpoint", endpoint]) if [host, endpoint].into_iter().all(filled) => {
            Key::HostEndpointStatus { host: (*host).to_owned(), endpoint: unescape(endpoint) }
        }
        ("v2", [region, "host", host, "status"]) if [region, host].into_iter().all(filled) => {
            Key::ActiveStatusReport { region: (*region).to_owned(), host: (*host).to_owned() }
        }
        ("v2", [region, "host", host, "last_reported_status"]) if [region, host].into_iter().all(filled) => {
            Key::LastStatusReport { region: (*region).to_owned(), host: (*host).to_owned() }
        }
        ("v2", [region, "host", host, "workload", orchestrator, workload, "endpoint", endpoint])
            if [region, host, orchestrator, workload, endpoint].into_iter().all(filled) =>
        {
            Key::WorkloadEndpointStatus {
                region: (*region).to_owned(),
                host: (*host).to_owned(),
                orchestrator: unescape(orchestrator),
                workload: unescape(workload),
                endpoint: unescape(endpoint),
            }
        }
        _ => return None,
    };
    Some(key)
}

/// The segment that repeats the IP version. Calico does not compare it with the network that follows.
fn is_version(segment: &str) -> bool {
    segment.strip_prefix("ipv").is_some_and(|rest| rest.chars().count() == 1)
}

/// The network of a segment such as `10.0.0.0-26`.
pub(super) fn undashed(segment: &str) -> Option<IpNet> {
    let net: IpNet = segment.replacen('-', "/", 1).parse().ok()?;
    Some(net.trunc())
}
