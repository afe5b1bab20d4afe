//! The messages of the gRPC service `felix.PolicySync`, as far as it sends them. Numbers and names are Calico's, so
//! that a proxy built for Calico can read them.

use prost::{Enumeration, Message, Oneof};
use std::collections::BTreeMap;

/// The request for a stream of messages.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SyncRequest {}

/// One message of the stream.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ToDataplane {
    #[prost(oneof = "Payload", tags = "1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 19, 20, 21, 22")]
    pub(crate) payload: Option<Payload>,
}

/// The content of a message.
#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Payload {
    #[prost(message, tag = "1")]
    InSync(InSync),
    #[prost(message, tag = "2")]
    IpSetUpdate(IpSetUpdate),
    #[prost(message, tag = "3")]
    IpSetDelta(IpSetDelta),
    #[prost(message, tag = "4")]
    IpSetRemove(IpSetRemove),
    #[prost(message, tag = "5")]
    ProfileUpdate(ProfileUpdate),
    #[prost(message, tag = "6")]
    ProfileRemove(ProfileRemove),
    #[prost(message, tag = "7")]
    PolicyUpdate(PolicyUpdate),
    #[prost(message, tag = "8")]
    PolicyRemove(PolicyRemove),
    #[prost(message, tag = "11")]
    EndpointUpdate(Box<EndpointUpdate>),
    #[prost(message, tag = "12")]
    EndpointRemove(EndpointRemove),
    #[prost(message, tag = "19")]
    ServiceAccountUpdate(ServiceAccountUpdate),
    #[prost(message, tag = "20")]
    ServiceAccountRemove(ServiceAccountRemove),
    #[prost(message, tag = "21")]
    NamespaceUpdate(NamespaceUpdate),
    #[prost(message, tag = "22")]
    NamespaceRemove(NamespaceRemove),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct InSync {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IpSetUpdate {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) members: Vec<String>,
    #[prost(enumeration = "IpSetType", tag = "3")]
    pub(crate) set_type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(crate) enum IpSetType {
    Ip = 0,
    IpAndPort = 1,
    Net = 2,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IpSetDelta {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) added_members: Vec<String>,
    #[prost(string, repeated, tag = "3")]
    pub(crate) removed_members: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IpSetRemove {
    #[prost(string, tag = "1")]
    pub(crate) id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfileId {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfileUpdate {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ProfileId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) profile: Option<Profile>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ProfileRemove {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ProfileId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Profile {
    #[prost(message, repeated, tag = "1")]
    pub(crate) inbound_rules: Vec<Rule>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) outbound_rules: Vec<Rule>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PolicyId {
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) namespace: String,
    #[prost(string, tag = "4")]
    pub(crate) kind: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PolicyUpdate {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<PolicyId>,
    #[prost(message, optional, tag = "2")]
    pub(crate) policy: Option<Policy>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PolicyRemove {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<PolicyId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Policy {
    #[prost(message, repeated, tag = "1")]
    pub(crate) inbound_rules: Vec<Rule>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) outbound_rules: Vec<Rule>,
    #[prost(bool, tag = "3")]
    pub(crate) untracked: bool,
    #[prost(bool, tag = "4")]
    pub(crate) pre_dnat: bool,
    #[prost(string, tag = "5")]
    pub(crate) namespace: String,
    #[prost(string, tag = "6")]
    pub(crate) original_selector: String,
    #[prost(string, repeated, tag = "7")]
    pub(crate) perf_hints: Vec<String>,
    #[prost(string, tag = "8")]
    pub(crate) tier: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Rule {
    #[prost(string, tag = "1")]
    pub(crate) action: String,
    /// 0 for any, 4 or 6.
    #[prost(int32, tag = "2")]
    pub(crate) ip_version: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) protocol: Option<Protocol>,
    #[prost(string, repeated, tag = "4")]
    pub(crate) src_net: Vec<String>,
    #[prost(message, repeated, tag = "5")]
    pub(crate) src_ports: Vec<PortRange>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) dst_net: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) dst_ports: Vec<PortRange>,
    #[prost(oneof = "Icmp", tags = "8, 9")]
    pub(crate) icmp: Option<Icmp>,
    #[prost(string, repeated, tag = "10")]
    pub(crate) src_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub(crate) dst_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "12")]
    pub(crate) src_named_port_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "13")]
    pub(crate) dst_named_port_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "15")]
    pub(crate) dst_ip_port_set_ids: Vec<String>,
    #[prost(message, optional, tag = "102")]
    pub(crate) not_protocol: Option<Protocol>,
    #[prost(string, repeated, tag = "103")]
    pub(crate) not_src_net: Vec<String>,
    #[prost(message, repeated, tag = "104")]
    pub(crate) not_src_ports: Vec<PortRange>,
    #[prost(string, repeated, tag = "105")]
    pub(crate) not_dst_net: Vec<String>,
    #[prost(message, repeated, tag = "106")]
    pub(crate) not_dst_ports: Vec<PortRange>,
    #[prost(oneof = "NotIcmp", tags = "107, 108")]
    pub(crate) not_icmp: Option<NotIcmp>,
    #[prost(string, repeated, tag = "109")]
    pub(crate) not_src_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "110")]
    pub(crate) not_dst_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "112")]
    pub(crate) not_src_named_port_ip_set_ids: Vec<String>,
    #[prost(string, repeated, tag = "113")]
    pub(crate) not_dst_named_port_ip_set_ids: Vec<String>,
    #[prost(string, tag = "114")]
    pub(crate) original_src_selector: String,
    #[prost(string, tag = "115")]
    pub(crate) original_dst_selector: String,
    #[prost(string, tag = "116")]
    pub(crate) original_src_namespace_selector: String,
    #[prost(string, tag = "117")]
    pub(crate) original_dst_namespace_selector: String,
    #[prost(string, tag = "118")]
    pub(crate) original_not_src_selector: String,
    #[prost(string, tag = "119")]
    pub(crate) original_not_dst_selector: String,
    #[prost(message, optional, tag = "120")]
    pub(crate) src_service_account_match: Option<ServiceAccountMatch>,
    #[prost(message, optional, tag = "121")]
    pub(crate) dst_service_account_match: Option<ServiceAccountMatch>,
    #[prost(message, optional, tag = "122")]
    pub(crate) http_match: Option<HttpMatch>,
    #[prost(message, optional, tag = "123")]
    pub(crate) metadata: Option<RuleMetadata>,
    #[prost(string, tag = "130")]
    pub(crate) original_dst_service: String,
    #[prost(string, tag = "131")]
    pub(crate) original_dst_service_namespace: String,
    #[prost(string, tag = "132")]
    pub(crate) original_src_service: String,
    #[prost(string, tag = "133")]
    pub(crate) original_src_service_namespace: String,
    #[prost(string, tag = "201")]
    pub(crate) rule_id: String,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum Icmp {
    #[prost(int32, tag = "8")]
    Type(i32),
    #[prost(message, tag = "9")]
    TypeAndCode(IcmpTypeAndCode),
}

#[derive(Clone, Copy, PartialEq, Oneof)]
pub(crate) enum NotIcmp {
    #[prost(int32, tag = "107")]
    Type(i32),
    #[prost(message, tag = "108")]
    TypeAndCode(IcmpTypeAndCode),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct IcmpTypeAndCode {
    #[prost(int32, tag = "1")]
    pub(crate) icmp_type: i32,
    #[prost(int32, tag = "2")]
    pub(crate) code: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Protocol {
    #[prost(oneof = "NumberOrName", tags = "1, 2")]
    pub(crate) number_or_name: Option<NumberOrName>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum NumberOrName {
    #[prost(int32, tag = "1")]
    Number(i32),
    #[prost(string, tag = "2")]
    Name(String),
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct PortRange {
    #[prost(int32, tag = "1")]
    pub(crate) first: i32,
    #[prost(int32, tag = "2")]
    pub(crate) last: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServiceAccountMatch {
    #[prost(string, tag = "1")]
    pub(crate) selector: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpMatch {
    #[prost(string, repeated, tag = "1")]
    pub(crate) methods: Vec<String>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) paths: Vec<HttpPath>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HttpPath {
    #[prost(oneof = "PathMatch", tags = "1, 2")]
    pub(crate) path_match: Option<PathMatch>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum PathMatch {
    #[prost(string, tag = "1")]
    Exact(String),
    #[prost(string, tag = "2")]
    Prefix(String),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RuleMetadata {
    #[prost(btree_map = "string, string", tag = "1")]
    pub(crate) annotations: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointId {
    #[prost(string, tag = "2")]
    pub(crate) orchestrator_id: String,
    #[prost(string, tag = "3")]
    pub(crate) workload_id: String,
    #[prost(string, tag = "4")]
    pub(crate) endpoint_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointUpdate {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<EndpointId>,
    #[prost(message, optional, tag = "5")]
    pub(crate) endpoint: Option<WorkloadEndpoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct EndpointRemove {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<EndpointId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WorkloadEndpoint {
    #[prost(string, tag = "1")]
    pub(crate) state: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
    #[prost(string, tag = "3")]
    pub(crate) mac: String,
    #[prost(string, repeated, tag = "4")]
    pub(crate) profile_ids: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) ipv4_nets: Vec<String>,
    #[prost(string, repeated, tag = "6")]
    pub(crate) ipv6_nets: Vec<String>,
    #[prost(message, repeated, tag = "7")]
    pub(crate) tiers: Vec<TierInfo>,
    #[prost(message, repeated, tag = "8")]
    pub(crate) ipv4_nat: Vec<NatInfo>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) ipv6_nat: Vec<NatInfo>,
    #[prost(string, repeated, tag = "10")]
    pub(crate) allow_spoofed_source_prefixes: Vec<String>,
    #[prost(btree_map = "string, string", tag = "11")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[prost(message, optional, tag = "12")]
    pub(crate) qos_controls: Option<QosControls>,
    #[prost(message, optional, tag = "13")]
    pub(crate) local_bgp_peer: Option<LocalBgpPeer>,
    #[prost(message, optional, tag = "14")]
    pub(crate) skip_redir: Option<SkipRedirect>,
    #[prost(message, repeated, tag = "15")]
    pub(crate) qos_policies: Vec<QosPolicy>,
    #[prost(bool, tag = "16")]
    pub(crate) is_istio_ambient: bool,
    #[prost(int32, tag = "17")]
    pub(crate) live_migration_role: i32,
    #[prost(string, tag = "18")]
    pub(crate) live_migration_uid: String,
    #[prost(string, tag = "19")]
    pub(crate) live_migration_vmi_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct TierInfo {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) ingress_policies: Vec<PolicyId>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) egress_policies: Vec<PolicyId>,
    #[prost(string, tag = "4")]
    pub(crate) default_action: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NatInfo {
    #[prost(string, tag = "1")]
    pub(crate) ext_ip: String,
    #[prost(string, tag = "2")]
    pub(crate) int_ip: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct QosControls {
    #[prost(int64, tag = "1")]
    pub(crate) ingress_bandwidth: i64,
    #[prost(int64, tag = "2")]
    pub(crate) egress_bandwidth: i64,
    #[prost(int64, tag = "3")]
    pub(crate) ingress_burst: i64,
    #[prost(int64, tag = "4")]
    pub(crate) egress_burst: i64,
    #[prost(int64, tag = "5")]
    pub(crate) ingress_packet_rate: i64,
    #[prost(int64, tag = "6")]
    pub(crate) egress_packet_rate: i64,
    #[prost(int64, tag = "7")]
    pub(crate) ingress_max_connections: i64,
    #[prost(int64, tag = "8")]
    pub(crate) egress_max_connections: i64,
    #[prost(int64, tag = "9")]
    pub(crate) ingress_peakrate: i64,
    #[prost(int64, tag = "10")]
    pub(crate) egress_peakrate: i64,
    #[prost(int64, tag = "11")]
    pub(crate) ingress_minburst: i64,
    #[prost(int64, tag = "12")]
    pub(crate) egress_minburst: i64,
    #[prost(int64, tag = "13")]
    pub(crate) ingress_packet_burst: i64,
    #[prost(int64, tag = "14")]
    pub(crate) egress_packet_burst: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LocalBgpPeer {
    #[prost(string, tag = "1")]
    pub(crate) bgp_peer_name: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SkipRedirect {
    #[prost(bool, tag = "1")]
    pub(crate) egress: bool,
    #[prost(bool, tag = "2")]
    pub(crate) ingress: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QosPolicy {
    #[prost(string, tag = "1")]
    pub(crate) destination: String,
    #[prost(int32, tag = "2")]
    pub(crate) dscp: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServiceAccountId {
    #[prost(string, tag = "1")]
    pub(crate) namespace: String,
    #[prost(string, tag = "2")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServiceAccountUpdate {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ServiceAccountId>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ServiceAccountRemove {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<ServiceAccountId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NamespaceId {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NamespaceUpdate {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<NamespaceId>,
    #[prost(btree_map = "string, string", tag = "2")]
    pub(crate) labels: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NamespaceRemove {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<NamespaceId>,
}

/// A proxy's statistics of a connection. They are not processed here; fields are ignored.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct DataplaneStats {}

/// Whether the report was processed.
#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct ReportResult {
    #[prost(bool, tag = "1")]
    pub(crate) successful: bool,
}
