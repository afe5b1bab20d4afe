//! Decodes keys and values to entries.

use super::wire;
use api::scalars;
use api::{IPIPMode, IPPoolAllowedUse, Resource, StagedAction, VXLANMode};
use ipnet::IpNet;
use model::convert::{self, Faults};
use model::feed::{
    EndpointPort, FeedEntry, FeedKey, HostEndpoint, IcmpMatch, IpPool, NamespacedName, Nat, NetworkSet,
    OriginalMatches, Policy, PolicyType, Port, PortRange, ProfileRules, Protocol, ReadyFlag, Rule,
    RuleAction, RuleEnd, Tier, Wireguard, WorkloadEndpoint,
};
use model::{IpVersion, Key, ResourceKey, V1Key, Value};
use selector::Selector;
use serde::Deserialize;
use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;

/// Why a value cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// It is not the JSON that the key requires.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A field contains an invalid value.
    #[error("{field} is '{value}'")]
    Field {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// It is not a stored value.
    #[error("{0}")]
    Value(#[from] model::ValueError),
    /// It is not text.
    #[error("the value is not text")]
    NotText,
}

fn bad(field: &'static str, value: &dyn std::fmt::Display) -> DecodeError {
    DecodeError::Field { field, value: value.to_string() }
}

/// The entry for a path; `None` for a path that does not occur in our feeds, which a newer server may send, and for the
/// labels of a profile, which are also in the profile itself. Unreadable fields of objects that are useful without them
/// are added to the faults.
///
/// # Errors
/// When the value cannot be read.
pub fn entry(
    path: &str,
    value: &[u8],
    resource_version: &str,
    faults: &mut Faults,
) -> Result<Option<FeedEntry>, DecodeError> {
    match Key::parse(path) {
        Some(Key::V1(key)) => v1_entry(key, value, path),
        Some(key @ (Key::Resource(_) | Key::Block { .. } | Key::BlockAffinity(_))) => {
            let decoded = model::decode(&key, value)?;
            Ok(match (key, decoded) {
                (Key::Resource(key), Value::Resource(mut resource)) => {
                    resource_version.clone_into(&mut resource.metadata_mut().resource_version);
                    resource_entry(key, resource, faults)
                }
                (Key::Block { cidr }, Value::Block(block)) => {
                    Some(FeedEntry::Block(cidr, Some(Box::new(block))))
                }
                (Key::BlockAffinity(key), Value::BlockAffinity(affinity)) => {
                    Some(FeedEntry::BlockAffinity(key, Some(affinity)))
                }
                _ => None,
            })
        }
        _ => Ok(None),
    }
}

/// The removal of the entry for a path.
#[must_use]
pub fn gone(path: &str) -> Option<FeedEntry> {
    let key = match Key::parse(path)? {
        Key::V1(key) => v1_key(key)?,
        Key::Resource(key) => resource_key(key)?,
        Key::Block { cidr } => FeedKey::Block(cidr),
        Key::BlockAffinity(key) => FeedKey::BlockAffinity(key),
        _ => return None,
    };
    Some(key.gone())
}

fn v1_key(key: V1Key) -> Option<FeedKey> {
    Some(match key {
        V1Key::ReadyFlag => FeedKey::Ready(ReadyFlag),
        V1Key::GlobalConfig { name } => FeedKey::GlobalConfig(name),
        V1Key::HostConfig(key) => FeedKey::HostConfig(key),
        V1Key::Policy(key) => FeedKey::Policy(key),
        V1Key::Tier { name } => FeedKey::Tier(name),
        V1Key::ProfileRules { name } => FeedKey::ProfileRules(name),
        V1Key::WorkloadEndpoint(key) => FeedKey::WorkloadEndpoint(key),
        V1Key::HostEndpoint(key) => FeedKey::HostEndpoint(key),
        V1Key::NetworkSet { name } => FeedKey::NetworkSet(name),
        V1Key::IpPool { cidr } => FeedKey::IpPool(cidr),
        V1Key::Wireguard { node } => FeedKey::Wireguard(node),
        _ => return None,
    })
}

fn namespaced(key: ResourceKey) -> NamespacedName {
    NamespacedName { namespace: key.namespace, name: key.name }
}

fn resource_key(key: ResourceKey) -> Option<FeedKey> {
    use api::Kind;
    Some(match key.kind {
        Kind::Profile => FeedKey::Profile(key.name.into()),
        Kind::Node => FeedKey::Node(key.name.into()),
        Kind::BGPConfiguration => FeedKey::BgpConfiguration(key.name),
        Kind::BGPPeer => FeedKey::BgpPeer(key.name),
        Kind::BGPFilter => FeedKey::BgpFilter(key.name),
        Kind::FelixConfiguration => FeedKey::FelixConfiguration(key.name),
        Kind::CalicoNodeStatus => FeedKey::NodeStatus(key.name),
        Kind::KubernetesService => FeedKey::Service(namespaced(key)),
        Kind::KubernetesEndpointSlice => FeedKey::EndpointSlice(namespaced(key)),
        Kind::LiveMigration => FeedKey::LiveMigration(namespaced(key)),
        _ => return None,
    })
}

fn resource_entry(key: ResourceKey, resource: Resource, faults: &mut Faults) -> Option<FeedEntry> {
    Some(match resource {
        Resource::Profile(object) => FeedEntry::Profile(key.name.into(), Some(object)),
        Resource::Node(object) => {
            FeedEntry::Node(key.name.into(), Some(Box::new(convert::node::node(*object, faults))))
        }
        Resource::BGPConfiguration(object) => FeedEntry::BgpConfiguration(key.name, Some(object)),
        Resource::BGPPeer(object) => {
            FeedEntry::BgpPeer(key.name, Some(Box::new(convert::object::bgp_peer(*object, faults))))
        }
        Resource::BGPFilter(object) => FeedEntry::BgpFilter(key.name, Some(object)),
        Resource::FelixConfiguration(object) => FeedEntry::FelixConfiguration(key.name, Some(object)),
        Resource::CalicoNodeStatus(object) => FeedEntry::NodeStatus(key.name, Some(object)),
        Resource::KubernetesService(object) => FeedEntry::Service(namespaced(key), Some(object)),
        Resource::KubernetesEndpointSlice(object) => FeedEntry::EndpointSlice(namespaced(key), Some(object)),
        Resource::LiveMigration(object) => {
            let value = convert::object::live_migration(*object, faults);
            FeedEntry::LiveMigration(namespaced(key), Some(Box::new(value)))
        }
        _ => return None,
    })
}

fn v1_entry(key: V1Key, bytes: &[u8], path: &str) -> Result<Option<FeedEntry>, DecodeError> {
    let text = || std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| DecodeError::NotText);
    Ok(Some(match key {
        V1Key::ReadyFlag => FeedEntry::Ready(ReadyFlag, Some(bytes == b"true")),
        V1Key::GlobalConfig { name } => FeedEntry::GlobalConfig(name, Some(text()?)),
        V1Key::HostConfig(key) => FeedEntry::HostConfig(key, Some(text()?)),
        V1Key::Policy(key) => {
            let mut policy = policy(json(bytes)?)?;
            // Servers before v3.32 put the tier into the path.
            if policy.tier.is_empty() {
                policy.tier = model::v1::parse_legacy_policy(path)
                    .map_or_else(|| "default".into(), |legacy| legacy.tier);
            }
            FeedEntry::Policy(key, Some(Box::new(policy)))
        }
        V1Key::ProfileRules { name } => {
            let rules: wire::ProfileRules = json(bytes)?;
            let rules = ProfileRules {
                inbound_rules: rules.inbound_rules.into_iter().map(rule).collect::<Result<_, _>>()?,
                outbound_rules: rules.outbound_rules.into_iter().map(rule).collect::<Result<_, _>>()?,
            };
            FeedEntry::ProfileRules(name, Some(Box::new(rules)))
        }
        V1Key::Tier { name } => FeedEntry::Tier(name, Some(tier(&json(bytes)?))),
        V1Key::WorkloadEndpoint(key) => {
            FeedEntry::WorkloadEndpoint(key, Some(Box::new(workload(json(bytes)?)?)))
        }
        V1Key::HostEndpoint(key) => FeedEntry::HostEndpoint(key, Some(Box::new(host(json(bytes)?)?))),
        V1Key::NetworkSet { name } => FeedEntry::NetworkSet(name, Some(Box::new(set(json(bytes)?)?))),
        V1Key::IpPool { cidr } => FeedEntry::IpPool(cidr, Some(Box::new(pool(json(bytes)?)?))),
        V1Key::Wireguard { node } => FeedEntry::Wireguard(node, Some(Box::new(wireguard(json(bytes)?)?))),
        _ => return Ok(None),
    }))
}

fn json<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, DecodeError> {
    Ok(serde_json::from_slice(bytes)?)
}

fn nets(texts: Vec<String>) -> Result<Vec<IpNet>, DecodeError> {
    texts.into_iter().map(|text| net(&text)).collect()
}

/// Parses a network; a plain address is a network of its own.
pub(super) fn net(text: &str) -> Result<IpNet, DecodeError> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| bad("a network", &text))
}

fn ip(text: &str) -> Result<IpAddr, DecodeError> {
    text.parse().map_err(|_| bad("an address", &text))
}

fn ips(texts: &[String]) -> Result<Vec<IpAddr>, DecodeError> {
    texts.iter().map(|text| ip(text)).collect()
}

fn protocol(protocol: wire::Protocol) -> Result<Protocol, DecodeError> {
    match protocol {
        wire::Protocol::Number(number) => Ok(Protocol::Number(number)),
        wire::Protocol::Name(name) => match name.parse() {
            Ok(number) => Ok(Protocol::Number(number)),
            Err(_) => Protocol::try_from(scalars::Protocol::from_name(&name))
                .map_err(|other| bad("protocol", &other)),
        },
    }
}

fn selector(text: &str) -> Result<Option<Selector>, DecodeError> {
    if text.is_empty() {
        return Ok(None);
    }
    let parse = || Selector::parse(text).map_err(|_| bad("a selector", &text));
    if text.len() > LONGEST_RECENT {
        return parse().map(Some);
    }
    RECENT.with_borrow_mut(|recent| recent.get_or_parse(text, parse)).map(Some)
}

/// How many selectors are kept, and how long they may be.
const RECENT_SELECTORS: usize = 64;
const LONGEST_RECENT: usize = 512;

thread_local! {
    static RECENT: RefCell<Recent> = RefCell::default();
}

/// The most recent selectors. The policies of one namespace arrive together and name the same few endpoints.
#[derive(Default)]
struct Recent {
    hasher: RandomState,
    selectors: Vec<Option<Selector>>,
}

impl Recent {
    /// Servers send selectors in canonical form; one in another form is parsed every time.
    fn get_or_parse(
        &mut self,
        text: &str,
        parse: impl FnOnce() -> Result<Selector, DecodeError>,
    ) -> Result<Selector, DecodeError> {
        let hash = self.hasher.hash_one(text) % RECENT_SELECTORS as u64;
        self.selectors.resize(RECENT_SELECTORS, None);
        let place = usize::try_from(hash).ok().and_then(|place| self.selectors.get_mut(place));
        let Some(place) = place else { return parse() };
        if let Some(have) = place
            && have.canonical() == text
        {
            return Ok(have.clone());
        }
        let parsed = parse()?;
        *place = Some(parsed.clone());
        Ok(parsed)
    }
}

fn action(text: &str) -> Result<RuleAction, DecodeError> {
    match text {
        "allow" => Ok(RuleAction::Allow),
        "deny" => Ok(RuleAction::Deny),
        "log" => Ok(RuleAction::Log),
        "next-tier" | "pass" => Ok(RuleAction::Pass),
        other => Err(bad("action", &other)),
    }
}

fn policy(policy: wire::Policy) -> Result<Policy, DecodeError> {
    let types = policy.types.iter().map(|one| match one.to_ascii_lowercase().as_str() {
        "ingress" => Ok(PolicyType::Ingress),
        "egress" => Ok(PolicyType::Egress),
        other => Err(bad("types", &other)),
    });
    Ok(Policy {
        namespace: policy.namespace,
        tier: policy.tier,
        order: policy.order.map(|order| order.0),
        inbound_rules: policy.inbound_rules.into_iter().map(rule).collect::<Result<_, _>>()?,
        outbound_rules: policy.outbound_rules.into_iter().map(rule).collect::<Result<_, _>>()?,
        selector: selector(&policy.selector)?.unwrap_or_default(),
        do_not_track: policy.untracked,
        pre_dnat: policy.pre_dnat,
        apply_on_forward: policy.apply_on_forward,
        types: types.collect::<Result<_, _>>()?,
        performance_hints: policy.performance_hints,
        staged_action: policy.staged_action.map(|action| StagedAction::from(action.as_str())),
    })
}

fn rule(rule: wire::Rule) -> Result<Rule, DecodeError> {
    let with = |one: Option<String>, mut many: Vec<String>| {
        many.extend(one);
        nets(many)
    };
    let service = |namespace: String, name: String| (!name.is_empty()).then_some((namespace, name));
    let original =
        |original: OriginalMatches| (original != OriginalMatches::default()).then(|| Box::new(original));
    Ok(Rule {
        action: action(&rule.action)?,
        ip_version: match rule.ip_version {
            None => None,
            Some(4) => Some(IpVersion::V4),
            Some(6) => Some(IpVersion::V6),
            Some(other) => return Err(bad("ip_version", &other)),
        },
        protocol: rule.protocol.map(protocol).transpose()?,
        not_protocol: rule.not_protocol.map(protocol).transpose()?,
        icmp: icmp(rule.icmp_type, rule.icmp_code)?,
        not_icmp: icmp(rule.not_icmp_type, rule.not_icmp_code)?,
        source: RuleEnd {
            nets: with(rule.src_net, rule.src_nets)?,
            not_nets: with(rule.not_src_net, rule.not_src_nets)?,
            selector: selector(&rule.src_selector)?,
            not_selector: selector(&rule.not_src_selector)?,
            ports: ports(rule.src_ports)?,
            not_ports: ports(rule.not_src_ports)?,
            service: service(rule.src_service_ns, rule.src_service),
            original: original(OriginalMatches {
                selector: rule.orig_src_selector,
                namespace_selector: rule.orig_src_namespace_selector,
                not_selector: rule.not_orig_src_selector,
                service_account_names: rule.orig_src_service_acct_names,
                service_account_selector: rule.orig_src_service_acct_selector,
            }),
        },
        destination: RuleEnd {
            nets: with(rule.dst_net, rule.dst_nets)?,
            not_nets: with(rule.not_dst_net, rule.not_dst_nets)?,
            selector: selector(&rule.dst_selector)?,
            not_selector: selector(&rule.not_dst_selector)?,
            ports: ports(rule.dst_ports)?,
            not_ports: ports(rule.not_dst_ports)?,
            service: service(rule.dst_service_ns, rule.dst_service),
            original: original(OriginalMatches {
                selector: rule.orig_dst_selector,
                namespace_selector: rule.orig_dst_namespace_selector,
                not_selector: rule.not_orig_dst_selector,
                service_account_names: rule.orig_dst_service_acct_names,
                service_account_selector: rule.orig_dst_service_acct_selector,
            }),
        },
        http: rule.http,
        annotations: rule.metadata.map(|metadata| metadata.annotations).unwrap_or_default(),
    })
}

fn icmp(icmp_type: Option<i64>, code: Option<i64>) -> Result<Option<IcmpMatch>, DecodeError> {
    let byte = |number: i64| u8::try_from(number).map_err(|_| bad("an ICMP type or code", &number));
    let Some(icmp_type) = icmp_type else { return Ok(None) };
    Ok(Some(IcmpMatch { icmp_type: byte(icmp_type)?, code: code.map(byte).transpose()? }))
}

fn ports(ports: Vec<scalars::Port>) -> Result<Vec<Port>, DecodeError> {
    let port = |port| match port {
        scalars::Port::Range { min, max } => Ok(Port::Range(PortRange { first: min, last: max })),
        scalars::Port::Named(name) => Ok(Port::Named(name)),
        scalars::Port::Other(other) => Err(bad("a port", &other)),
    };
    ports.into_iter().map(port).collect()
}

fn tier(tier: &wire::Tier) -> Tier {
    let default_action = if tier.default_action == "Pass" { RuleAction::Pass } else { RuleAction::Deny };
    Tier { order: tier.order.map(|order| order.0), default_action }
}

fn endpoint_ports(ports: Vec<wire::EndpointPort>) -> Result<Vec<EndpointPort>, DecodeError> {
    ports
        .into_iter()
        .map(|port| Ok(EndpointPort { name: port.name, protocol: protocol(port.protocol)?, port: port.port }))
        .collect()
}

fn workload(endpoint: wire::WorkloadEndpoint<'_>) -> Result<WorkloadEndpoint, DecodeError> {
    let nat = |nat: wire::Nat| Ok(Nat { internal: ip(&nat.int_ip)?, external: ip(&nat.ext_ip)? });
    Ok(WorkloadEndpoint {
        state: endpoint.state.into_owned(),
        name: endpoint.name.into_owned(),
        active_instance_id: endpoint.active_instance_id.into_owned(),
        mac: endpoint.mac.unwrap_or_default().into_owned(),
        profile_ids: endpoint.profile_ids.unwrap_or_default().into_owned(),
        ipv4_nets: endpoint.ipv4_nets.unwrap_or_default().0.into_owned(),
        ipv6_nets: endpoint.ipv6_nets.unwrap_or_default().0.into_owned(),
        ipv4_nat: endpoint.ipv4_nat.into_iter().map(nat).collect::<Result<_, DecodeError>>()?,
        ipv6_nat: endpoint.ipv6_nat.into_iter().map(nat).collect::<Result<_, DecodeError>>()?,
        labels: endpoint.labels.into_owned(),
        ports: endpoint_ports(endpoint.ports)?,
        generate_name: endpoint.generate_name.into_owned(),
        allow_spoofed_source_prefixes: endpoint.allow_spoofed_source_prefixes.0.into_owned(),
        annotations: endpoint.annotations.into_owned(),
        qos_controls: endpoint.qos_controls,
    })
}

fn host(endpoint: wire::HostEndpoint) -> Result<HostEndpoint, DecodeError> {
    Ok(HostEndpoint {
        name: endpoint.name,
        expected_ipv4_addrs: ips(&endpoint.expected_ipv4_addrs)?,
        expected_ipv6_addrs: ips(&endpoint.expected_ipv6_addrs)?,
        labels: endpoint.labels.unwrap_or_default(),
        profile_ids: endpoint.profile_ids,
        ports: endpoint_ports(endpoint.ports)?,
        qos_controls: endpoint.qos_controls,
    })
}

fn set(set: wire::NetworkSet) -> Result<NetworkSet, DecodeError> {
    Ok(NetworkSet {
        nets: nets(set.nets)?,
        labels: set.labels.unwrap_or_default(),
        profile_ids: set.profile_ids,
    })
}

fn pool(pool: wire::IpPool) -> Result<IpPool, DecodeError> {
    Ok(IpPool {
        cidr: net(&pool.cidr)?,
        ipip_interface: pool.ipip,
        ipip_mode: match pool.ipip_mode.as_str() {
            "always" => IPIPMode::Always,
            "cross-subnet" => IPIPMode::CrossSubnet,
            _ => IPIPMode::Never,
        },
        vxlan_mode: match pool.vxlan_mode.as_str() {
            "always" => VXLANMode::Always,
            "cross-subnet" => VXLANMode::CrossSubnet,
            _ => VXLANMode::Never,
        },
        masquerade: pool.masquerade,
        ipam: pool.ipam,
        disabled: pool.disabled,
        disable_bgp_export: pool.disable_bgp_export,
        assigned_automatically: pool.assignment_mode != "Manual",
        allowed_uses: pool.allowed_uses.iter().map(|one| IPPoolAllowedUse::from(one.as_str())).collect(),
    })
}

fn wireguard(wireguard: wire::Wireguard) -> Result<Wireguard, DecodeError> {
    let address =
        |text: Option<String>| text.filter(|text| !text.is_empty()).map(|text| ip(&text)).transpose();
    Ok(Wireguard {
        interface_ipv4: address(wireguard.interface_ipv4)?,
        interface_ipv6: address(wireguard.interface_ipv6)?,
        public_key: wireguard.public_key,
        public_key_v6: wireguard.public_key_v6,
    })
}
