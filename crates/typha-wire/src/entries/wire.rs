//! The values of Calico's first data model in JSON. Field order and which fields are left out when empty are Calico's.

use api::scalars::{GoFloat, Port};
use api::{HTTPMatch, QoSControls};
use ipnet::IpNet;
use model::feed::Labels;
use model::{ProfileName, TierName};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Reads `null` as empty: Go writes it for a list or a map that was never created.
fn null_or<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

type Texts = Vec<String>;

/// Networks, read from and written as text without copying.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Nets<'a>(pub Cow<'a, [IpNet]>);

impl Nets<'_> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Nets<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|net| Shown(net.trunc())))
    }
}

struct Shown(IpNet);

impl Serialize for Shown {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Nets<'_> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(NetsReader).map(|nets| Self(Cow::Owned(nets)))
    }
}

struct NetsReader;

impl<'de> Visitor<'de> for NetsReader {
    type Value = Vec<IpNet>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of networks")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<IpNet>, A::Error> {
        #[derive(Deserialize)]
        struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
        let mut nets = Vec::new();
        while let Some(Text(text)) = list.next_element()? {
            let net = super::decode::net(&text).map_err(A::Error::custom)?;
            if nets.is_empty() {
                // Nearly always the only one.
                nets.reserve_exact(1);
            }
            nets.push(net);
        }
        Ok(nets)
    }
}
type Map = BTreeMap<String, String>;

/// A protocol: a number, or a name in lower case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Protocol {
    /// By number.
    Number(u8),
    /// By name.
    Name(String),
}

/// A policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct Policy {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub tier: TierName,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<GoFloat>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub inbound_rules: Vec<Rule>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub outbound_rules: Vec<Rule>,
    pub selector: String,
    #[serde(skip_serializing_if = "is_false")]
    pub untracked: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub pre_dnat: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub apply_on_forward: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub types: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub performance_hints: Texts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged_action: Option<String>,
}

/// A rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct Rule {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub action: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_version: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(rename = "!protocol", skip_serializing_if = "Option::is_none")]
    pub not_protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<i64>,
    #[serde(rename = "!icmp_type", skip_serializing_if = "Option::is_none")]
    pub not_icmp_type: Option<i64>,
    #[serde(rename = "!icmp_code", skip_serializing_if = "Option::is_none")]
    pub not_icmp_code: Option<i64>,
    #[serde(skip_serializing)]
    pub src_net: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub src_nets: Texts,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub src_ports: Vec<Port>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src_service: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub src_service_ns: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_selector: String,
    #[serde(skip_serializing)]
    pub dst_net: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub dst_nets: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub dst_ports: Vec<Port>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_service: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub dst_service_ns: String,
    #[serde(rename = "!src_net", skip_serializing)]
    pub not_src_net: Option<String>,
    #[serde(rename = "!src_nets", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub not_src_nets: Texts,
    #[serde(rename = "!src_selector", skip_serializing_if = "String::is_empty")]
    pub not_src_selector: String,
    #[serde(rename = "!src_ports", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub not_src_ports: Vec<Port>,
    #[serde(rename = "!dst_selector", skip_serializing_if = "String::is_empty")]
    pub not_dst_selector: String,
    #[serde(rename = "!dst_net", skip_serializing)]
    pub not_dst_net: Option<String>,
    #[serde(rename = "!dst_nets", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub not_dst_nets: Texts,
    #[serde(rename = "!dst_ports", skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub not_dst_ports: Vec<Port>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_src_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_src_namespace_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_dst_selector: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_dst_namespace_selector: String,
    #[serde(rename = "!orig_src_selector", skip_serializing_if = "String::is_empty")]
    pub not_orig_src_selector: String,
    #[serde(rename = "!orig_dst_selector", skip_serializing_if = "String::is_empty")]
    pub not_orig_dst_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub orig_src_service_acct_names: Texts,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_src_service_acct_selector: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub orig_dst_service_acct_names: Texts,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub orig_dst_service_acct_selector: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<Box<HTTPMatch>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metadata: Option<RuleMetadata>,
}

/// Notes on a rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct RuleMetadata {
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "null_or")]
    pub annotations: Map,
}

/// The rules of a profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct ProfileRules {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub inbound_rules: Vec<Rule>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub outbound_rules: Vec<Rule>,
}

/// A tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct Tier {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<GoFloat>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_action: String,
}

/// A workload endpoint. In most clusters most entries are of this kind: fields are borrowed where possible instead of
/// copied.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct WorkloadEndpoint<'a> {
    pub state: Cow<'a, str>,
    pub name: Cow<'a, str>,
    pub active_instance_id: Cow<'a, str>,
    pub mac: Option<Cow<'a, str>>,
    pub profile_ids: Option<Cow<'a, [ProfileName]>>,
    pub ipv4_nets: Option<Nets<'a>>,
    pub ipv6_nets: Option<Nets<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub ipv4_nat: Vec<Nat>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub ipv6_nat: Vec<Nat>,
    #[serde(deserialize_with = "null_or")]
    pub labels: Cow<'a, Labels>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub ports: Vec<EndpointPort>,
    #[serde(skip_serializing_if = "str::is_empty")]
    pub generate_name: Cow<'a, str>,
    #[serde(
        rename = "allow_spoofed_source_ips",
        skip_serializing_if = "Nets::is_empty",
        deserialize_with = "null_or"
    )]
    pub allow_spoofed_source_prefixes: Nets<'a>,
    #[serde(skip_serializing_if = "Map::is_empty", deserialize_with = "null_or")]
    pub annotations: Cow<'a, Map>,
    #[serde(rename = "qosControls", skip_serializing_if = "Option::is_none")]
    pub qos_controls: Option<Box<QoSControls>>,
}

/// A second address.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct Nat {
    pub int_ip: String,
    pub ext_ip: String,
}

/// A port of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct EndpointPort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

/// A host endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct HostEndpoint {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub expected_ipv4_addrs: Texts,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub expected_ipv6_addrs: Texts,
    pub labels: Option<Labels>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub profile_ids: Vec<ProfileName>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub ports: Vec<EndpointPort>,
    #[serde(rename = "qosControls", skip_serializing_if = "Option::is_none")]
    pub qos_controls: Option<Box<QoSControls>>,
}

/// A network set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct NetworkSet {
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub nets: Texts,
    pub labels: Option<Labels>,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub profile_ids: Vec<ProfileName>,
}

/// An address pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct IpPool {
    pub cidr: String,
    pub ipip: String,
    pub ipip_mode: String,
    pub vxlan_mode: String,
    pub masquerade: bool,
    pub ipam: bool,
    pub disabled: bool,
    #[serde(rename = "disableBGPExport")]
    pub disable_bgp_export: bool,
    pub assignment_mode: String,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_or")]
    pub allowed_uses: Texts,
}

/// WireGuard keys and addresses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[expect(missing_docs, reason = "the fields of Calico's JSON, one to one")]
pub struct Wireguard {
    #[serde(rename = "interfaceIPv4Addr", skip_serializing_if = "Option::is_none")]
    pub interface_ipv4: Option<String>,
    #[serde(rename = "publicKey", skip_serializing_if = "String::is_empty")]
    pub public_key: String,
    #[serde(rename = "interfaceIPv6Addr", skip_serializing_if = "Option::is_none")]
    pub interface_ipv6: Option<String>,
    #[serde(rename = "publicKeyV6", skip_serializing_if = "String::is_empty")]
    pub public_key_v6: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for this signature")]
fn is_false(value: &bool) -> bool {
    !*value
}
