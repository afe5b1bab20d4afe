//! BGPPeer: which nodes peer with whom. The selectors are evaluated elsewhere.

use super::bgpconfiguration::BGPPassword;
use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::ObjectMeta;
use crate::object::{NoStatus, Object, Spec};
use crate::resources::setting_checks::{check_duration, check_text, respell};
use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::names::{check_metadata, is_dns_subdomain};
use crate::scalars::{ASNumber, Duration, Ip, SelectorText};
use crate::text::{string_enum, text_newtype};
use api_derive::resource_struct;
use std::net::IpAddr;

/// A BGP peering.
pub type BGPPeer = Object<BGPPeerSpec>;

/// A BGP peering.
#[resource_struct(rules)]
pub struct BGPPeerSpec {
    /// The node that has this peer. With neither this nor `nodeSelector`, all nodes have it.
    #[field(max_len = 253)]
    pub node: String,
    /// The nodes that have this peer.
    #[field(max_len = 1024)]
    pub node_selector: SelectorText,
    /// The address of the peer, perhaps with a port: `10.0.0.1`, `10.0.0.1:179`, `[fd00::1]:179`.
    #[field(name = "peerIP", max_len = 64)]
    pub peer_ip: PeerAddress,
    /// The AS number of the peer.
    pub as_number: ASNumber,
    /// The AS number that the nodes use towards this peer, if not their own.
    #[field(name = "localASNumber")]
    pub local_as_number: Option<ASNumber>,
    /// The nodes that are the peers.
    #[field(max_len = 1024)]
    pub peer_selector: SelectorText,
    /// Deprecated: see `nextHopMode`.
    pub keep_original_next_hop: bool,
    /// What the nodes write as next hop: BGP's own choice, themselves, or what they received.
    pub next_hop_mode: Option<NextHopMode>,
    /// The password of the sessions.
    pub password: Option<BGPPassword>,
    /// Whether sessions start from the node's own address.
    pub source_address: SourceAddress,
    /// How long a restarting peer is waited for. Default 120s.
    pub max_restart_time: Option<Duration>,
    /// The time between keepalive messages; a third of the hold time when absent.
    pub keepalive_time: Option<Duration>,
    /// How often the local AS number may be in the path of a received route.
    #[field(name = "numAllowedLocalASNumbers")]
    pub num_allowed_local_as_numbers: Option<i32>,
    /// How many hops away the peer is at most, for the check of the TTL.
    pub ttl_security: Option<u8>,
    /// The gateway towards the peer, for a route of its own.
    #[field(max_len = 64)]
    pub reachable_by: Ip,
    /// The BGPFilters that routes pass, in order.
    #[field(list = "atomic")]
    pub filters: Vec<String>,
    /// The workloads of the node that are the peers.
    #[field(max_len = 1024)]
    pub local_workload_selector: SelectorText,
    /// Whether the other direction between Calico nodes is set up too. Default Auto.
    pub reverse_peering: Option<ReversePeering>,
}

text_newtype! {
    /// The address of a peer and perhaps its port.
    PeerAddress => (IpAddr, Option<u16>), parse_peer_address, {"type": "string"}
}

string_enum! {
    /// What a node writes as next hop.
    NextHopMode {
        Auto = "Auto",
        Itself = "Self",
        Keep = "Keep",
    }
}

string_enum! {
    /// The address that sessions start from.
    SourceAddress { UseNodeIP = "UseNodeIP", None = "None" }
}

string_enum! {
    /// Whether the other direction of a peering is set up too.
    ReversePeering { Auto = "Auto", Manual = "Manual" }
}

impl HasRules for BGPPeerSpec {
    fn rules() -> &'static [Rule<Self>] {
        &[
            Rule {
                cel: "!has(self.node) || self.node == '' || !has(self.nodeSelector) || self.nodeSelector == ''",
                message: "node and nodeSelector cannot both be set",
                reason: Reason::Forbidden,
                holds: |peer| peer.node.is_empty() || peer.node_selector.is_empty(),
            },
            Rule {
                cel: "!has(self.peerIP) || self.peerIP == '' || !has(self.peerSelector) || self.peerSelector == ''",
                message: "peerIP and peerSelector cannot both be set",
                reason: Reason::Forbidden,
                holds: |peer| peer.peer_ip.is_empty() || peer.peer_selector.is_empty(),
            },
            Rule {
                cel: "!has(self.peerSelector) || self.peerSelector == '' || !has(self.asNumber) || self.asNumber == 0",
                message: "asNumber must be empty when peerSelector is set",
                reason: Reason::Forbidden,
                holds: |peer| peer.peer_selector.is_empty() || peer.as_number.0 == 0,
            },
            Rule {
                cel: "!has(self.localWorkloadSelector) || self.localWorkloadSelector == '' \
                      || !has(self.peerIP) || self.peerIP == ''",
                message: "peerIP must be empty when localWorkloadSelector is set",
                reason: Reason::Forbidden,
                holds: |peer| peer.local_workload_selector.is_empty() || peer.peer_ip.is_empty(),
            },
            Rule {
                cel: "!has(self.localWorkloadSelector) || self.localWorkloadSelector == '' \
                      || !has(self.peerSelector) || self.peerSelector == ''",
                message: "peerSelector must be empty when localWorkloadSelector is set",
                reason: Reason::Forbidden,
                holds: |peer| peer.local_workload_selector.is_empty() || peer.peer_selector.is_empty(),
            },
            Rule {
                cel: "!has(self.localWorkloadSelector) || self.localWorkloadSelector == '' \
                      || (has(self.asNumber) && self.asNumber != 0)",
                message: "asNumber is required when localWorkloadSelector is set",
                reason: Reason::Invalid,
                holds: |peer| peer.local_workload_selector.is_empty() || peer.as_number.0 != 0,
            },
            Rule {
                cel: "!has(self.reachableBy) || self.reachableBy == '' || (has(self.peerIP) && self.peerIP != '')",
                message: "reachableBy must be empty when peerIP is empty",
                reason: Reason::Forbidden,
                holds: |peer| peer.reachable_by.is_empty() || !peer.peer_ip.is_empty(),
            },
            Rule {
                cel: "!has(self.nextHopMode) || !has(self.keepOriginalNextHop) || !self.keepOriginalNextHop",
                message: "keepOriginalNextHop and nextHopMode cannot both be set; keepOriginalNextHop is deprecated, \
                          use nextHopMode instead",
                reason: Reason::Forbidden,
                holds: |peer| peer.next_hop_mode.is_none() || !peer.keep_original_next_hop,
            },
        ]
    }
}

impl Spec for BGPPeerSpec {
    const KIND: Kind = Kind::BGPPeer;
    type Status = NoStatus;

    fn set_defaults(&mut self, _metadata: &mut ObjectMeta) {
        respell(&mut self.max_restart_time);
        respell(&mut self.keepalive_time);
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        self.check_rules(&spec, errors);
        check_text(&self.node, is_dns_subdomain, "is not the name of a node", &spec.child("node"), errors);
        self.node_selector.validate(&spec.child("nodeSelector"), errors);
        self.peer_selector.validate(&spec.child("peerSelector"), errors);
        self.local_workload_selector.validate(&spec.child("localWorkloadSelector"), errors);
        check_duration(self.max_restart_time.as_ref(), &spec.child("maxRestartTime"), errors);
        check_duration(self.keepalive_time.as_ref(), &spec.child("keepaliveTime"), errors);
        for (index, name) in self.filters.iter().enumerate() {
            let path = spec.child("filters").index(index);
            errors.require(is_dns_subdomain(name), path, name, "is not the name of a BGPFilter");
        }
        let peer = self.peer_ip.parse();
        if !self.peer_ip.is_empty()
            && let Err(reason) = &peer
        {
            errors.add(spec.child("peerIP"), &self.peer_ip, reason);
        }
        if !self.reachable_by.is_empty() {
            let path = spec.child("reachableBy");
            match (self.reachable_by.parse(), peer) {
                (Err(reason), _) => errors.add(path, &self.reachable_by, reason),
                (Ok(gateway), Ok((address, _))) if gateway.is_ipv4() != address.is_ipv4() => {
                    errors.add(path, &self.reachable_by, "ReachableBy and PeerIP address family mismatched");
                }
                (Ok(_), _) => {}
            }
        }
    }
}

/// Reads `IP`, `IPv4:port` or `[IPv6]:port`.
fn parse_peer_address(text: &str) -> Result<(IpAddr, Option<u16>), String> {
    let wrong = || format!("'{text}' must be <IP>, <IPv4>:<port> or [<IPv6>]:<port>");
    if let Ok(address) = Ip::new(text).parse() {
        return Ok((address, None));
    }
    let (address, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let address = match address.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) if inner.contains(':') => inner,
        Some(_) => return Err(wrong()),
        None if address.contains(':') => return Err(wrong()),
        None => address,
    };
    let address = Ip::new(address).parse().map_err(|_| wrong())?;
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    match port.parse::<u16>() {
        Ok(port) if port > 0 => Ok((address, Some(port))),
        _ => Err("the port must be between 1 and 65535".to_owned()),
    }
}
