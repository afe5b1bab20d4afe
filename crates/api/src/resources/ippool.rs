//! `IPPool`: a range from which IPAM allocates addresses, and how traffic between its addresses is carried.
//!
//! The client makes the checks that need other objects (overlap with other pools, blocks of another size).

use crate::errors::{FieldErrors, FieldPath};
use crate::kind::Kind;
use crate::meta::{Condition, ObjectMeta};
use crate::object::{Object, Spec};
use crate::rules::{HasRules, Reason, Rule};
use crate::scalars::names::check_metadata;
use crate::scalars::{Cidr, SelectorText};
use crate::text::string_enum;
use api_derive::resource_struct;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde_json::{Map, Value, json};
use std::net::{Ipv4Addr, Ipv6Addr};

/// A range of addresses for pods, tunnels or load balancers.
pub type IPPool = Object<IPPoolSpec>;

/// The range and its uses.
#[resource_struct(rules)]
pub struct IPPoolSpec {
    /// The range. Fixed once the pool exists.
    #[field(always, required, format = "cidr", max_len = 48, schema = fixed_cidr)]
    pub cidr: Cidr,
    /// When traffic of this pool travels in VXLAN.
    pub vxlan_mode: VXLANMode,
    /// When traffic of this pool travels in IPIP. Not available for IPv6.
    pub ipip_mode: IPIPMode,
    /// Whether traffic that leaves all pools gets the node's address as source.
    pub nat_outgoing: bool,
    /// Whether IPAM stops giving out addresses of this pool.
    pub disabled: bool,
    /// Whether routes to this pool are kept out of BGP.
    #[field(name = "disableBGPExport")]
    pub disable_bgp_export: bool,
    /// The prefix length of blocks: 20 to 32 for IPv4 (26 unless set), 116 to 128 for IPv6 (122 unless set). Fixed once
    /// the pool exists.
    #[field(min = 0, max = 128, schema = fixed_block_size)]
    pub block_size: i64,
    /// The nodes that may use the pool.
    #[field(max_len = 1024, default = "\"all()\"")]
    pub node_selector: SelectorText,
    /// The namespaces whose pods may use the pool; empty for all.
    #[field(max_len = 1024)]
    pub namespace_selector: SelectorText,
    /// What addresses of the pool are used for; pods and tunnels unless set.
    #[field(max_items = 10, list = "set")]
    pub allowed_uses: Vec<IPPoolAllowedUse>,
    /// Whether IPAM may choose the pool by itself, or only when it is asked for.
    #[field(default = "\"Automatic\"")]
    pub assignment_mode: Option<AssignmentMode>,
}

/// What the controllers say about a pool.
#[resource_struct]
pub struct IPPoolStatus {
    /// Conditions; `Allocatable` says whether IPAM takes addresses from the pool.
    #[field(list = "map:type")]
    pub conditions: Vec<Condition>,
}

/// The condition that shows whether a pool is open for allocation.
pub const IPPOOL_CONDITION_ALLOCATABLE: &str = "Allocatable";

string_enum! {
    /// What a pool's addresses are used for.
    IPPoolAllowedUse { Workload = "Workload", Tunnel = "Tunnel", LoadBalancer = "LoadBalancer" }
}

string_enum! {
    /// When VXLAN is used.
    VXLANMode { Never = "Never", Always = "Always", CrossSubnet = "CrossSubnet" }
}

string_enum! {
    /// When IPIP is used.
    IPIPMode { Never = "Never", Always = "Always", CrossSubnet = "CrossSubnet" }
}

string_enum! {
    /// How addresses of a pool are assigned.
    AssignmentMode { Automatic = "Automatic", Manual = "Manual" }
}

fn fixed(field: &mut Map<String, Value>, what: &str) {
    let message = format!("{what} cannot be changed; move to a new pool instead");
    let rule = json!({"rule": "self == oldSelf", "message": message, "reason": "FieldValueInvalid"});
    field.insert("x-kubernetes-validations".into(), json!([rule]));
}

fn fixed_cidr(field: &mut Map<String, Value>) {
    fixed(field, "cidr");
}

fn fixed_block_size(field: &mut Map<String, Value>) {
    fixed(field, "blockSize");
}

impl IPPoolSpec {
    /// The range, if the text is one.
    fn net(&self) -> Option<IpNet> {
        self.cidr.parse().ok().map(|network| network.as_written())
    }

    fn has_use(&self, wanted: &IPPoolAllowedUse) -> bool {
        self.allowed_uses.contains(wanted)
    }

    fn is_load_balancer(&self) -> bool {
        self.has_use(&IPPoolAllowedUse::LoadBalancer)
    }

    /// The block size in effect: the configured one, or the default for the family of `net`.
    fn effective_block_size(&self, net: &IpNet) -> i64 {
        match (self.block_size, net) {
            (0, IpNet::V4(_)) => 26,
            (0, IpNet::V6(_)) => 122,
            (size, _) => size,
        }
    }

    /// Whether `old` has the same range. A different spelling is accepted if it is the canonical one.
    fn is_same_range(&self, old: &Self) -> bool {
        if self.cidr == old.cidr {
            return true;
        }
        match (self.net(), old.net()) {
            (Some(new), Some(old)) => {
                new.trunc() == old.trunc() && new.trunc().to_string() == self.cidr.as_str()
            }
            _ => false,
        }
    }

    fn has_ipip(&self) -> bool {
        !matches!(self.ipip_mode, IPIPMode::Unset | IPIPMode::Never)
    }

    fn has_vxlan(&self) -> bool {
        !matches!(self.vxlan_mode, VXLANMode::Unset | VXLANMode::Never)
    }
}

impl HasRules for IPPoolSpec {
    // Text that is not a CIDR satisfies the rules about addresses: it has an error of its own.
    fn rules() -> &'static [Rule<Self>] {
        &[
            Rule {
                cel: "!(has(self.ipipMode) && !(self.ipipMode in ['', 'Never']) && has(self.vxlanMode) && !(self.vxlanMode in ['', 'Never']))",
                message: "ipipMode and vxlanMode cannot both be enabled",
                reason: Reason::Forbidden,
                holds: |pool| !(pool.has_ipip() && pool.has_vxlan()),
            },
            Rule {
                cel: "!has(self.allowedUses) || !('LoadBalancer' in self.allowedUses) || (!has(self.ipipMode) || self.ipipMode in ['', 'Never']) && (!has(self.vxlanMode) || self.vxlanMode in ['', 'Never'])",
                message: "a LoadBalancer pool cannot have ipipMode or vxlanMode enabled",
                reason: Reason::Forbidden,
                holds: |pool| !pool.is_load_balancer() || !pool.has_ipip() && !pool.has_vxlan(),
            },
            Rule {
                cel: "!has(self.allowedUses) || !('LoadBalancer' in self.allowedUses) || !('Workload' in self.allowedUses || 'Tunnel' in self.allowedUses)",
                message: "allowed use LoadBalancer cannot be combined with Workload or Tunnel",
                reason: Reason::Forbidden,
                holds: |pool| {
                    !pool.is_load_balancer()
                        || !pool.has_use(&IPPoolAllowedUse::Workload)
                            && !pool.has_use(&IPPoolAllowedUse::Tunnel)
                },
            },
            Rule {
                cel: "cidr(self.cidr).ip().family() == 4 || !has(self.ipipMode) || self.ipipMode in ['', 'Never']",
                message: "IPIP is not available for IPv6 pools",
                reason: Reason::Forbidden,
                holds: |pool| !matches!(pool.net(), Some(IpNet::V6(_))) || !pool.has_ipip(),
            },
            Rule {
                cel: "!has(self.allowedUses) || !('LoadBalancer' in self.allowedUses) || !has(self.disableBGPExport) || !self.disableBGPExport",
                message: "a LoadBalancer pool cannot set disableBGPExport",
                reason: Reason::Forbidden,
                holds: |pool| !pool.is_load_balancer() || !pool.disable_bgp_export,
            },
            Rule {
                cel: "!has(self.allowedUses) || !('LoadBalancer' in self.allowedUses) || self.nodeSelector == 'all()'",
                message: "a LoadBalancer pool must have nodeSelector all()",
                reason: Reason::Invalid,
                // An empty selector becomes all() before it is stored.
                holds: |pool| !pool.is_load_balancer() || matches!(pool.node_selector.as_str(), "" | "all()"),
            },
            Rule {
                cel: "!has(self.allowedUses) || !('Tunnel' in self.allowedUses) || !has(self.namespaceSelector) || self.namespaceSelector == ''",
                message: "a pool with allowed use Tunnel cannot have a namespaceSelector",
                reason: Reason::Forbidden,
                holds: |pool| !pool.has_use(&IPPoolAllowedUse::Tunnel) || pool.namespace_selector.is_empty(),
            },
            Rule {
                cel: "!has(self.nodeSelector) || !self.nodeSelector.contains('global(')",
                message: "nodeSelector cannot use global()",
                reason: Reason::Invalid,
                holds: |pool| !pool.node_selector.mentions_global(),
            },
            Rule {
                cel: "!has(self.namespaceSelector) || !self.namespaceSelector.contains('global(')",
                message: "namespaceSelector cannot use global()",
                reason: Reason::Invalid,
                holds: |pool| !pool.namespace_selector.mentions_global(),
            },
            Rule {
                cel: "cidr(self.cidr).masked() == cidr(self.cidr)",
                message: "cidr must be strictly masked: no address bits after the prefix",
                reason: Reason::Invalid,
                holds: |pool| pool.net().is_none_or(|net| net.trunc() == net),
            },
            Rule {
                cel: "!(cidr(self.cidr).containsIP('169.254.0.0') || cidr('169.254.0.0/16').containsIP(cidr(self.cidr).ip()))",
                message: "cidr overlaps the IPv4 link-local range 169.254.0.0/16",
                reason: Reason::Invalid,
                holds: |pool| pool.net().is_none_or(|net| !overlaps(&net, &IPV4_LINK_LOCAL)),
            },
            Rule {
                cel: "!(cidr(self.cidr).containsIP('fe80::') || cidr('fe80::/10').containsIP(cidr(self.cidr).ip()))",
                message: "cidr overlaps the IPv6 link-local range fe80::/10",
                reason: Reason::Invalid,
                holds: |pool| pool.net().is_none_or(|net| !overlaps(&net, &IPV6_LINK_LOCAL)),
            },
            Rule {
                cel: "!has(self.blockSize) || self.blockSize == 0 || (cidr(self.cidr).ip().family() == 4 ? 20 <= self.blockSize && self.blockSize <= 32 : 116 <= self.blockSize && self.blockSize <= 128)",
                message: "blockSize must be 20 to 32 for IPv4 pools and 116 to 128 for IPv6 pools",
                reason: Reason::Invalid,
                holds: |pool| match pool.net() {
                    _ if pool.block_size == 0 => true,
                    None => true,
                    Some(IpNet::V4(_)) => (20..=32).contains(&pool.block_size),
                    Some(IpNet::V6(_)) => (116..=128).contains(&pool.block_size),
                },
            },
            Rule {
                cel: "has(self.disabled) && self.disabled || cidr(self.cidr).prefixLength() <= (has(self.blockSize) && self.blockSize != 0 ? self.blockSize : cidr(self.cidr).ip().family() == 4 ? 26 : 122)",
                message: "the pool is smaller than one block: make cidr larger or blockSize longer",
                reason: Reason::Invalid,
                holds: |pool| {
                    pool.disabled
                        || pool
                            .net()
                            .is_none_or(|net| i64::from(net.prefix_len()) <= pool.effective_block_size(&net))
                },
            },
        ]
    }
}

const IPV4_LINK_LOCAL: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(169, 254, 0, 0), 16));
const IPV6_LINK_LOCAL: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10));

fn overlaps(one: &IpNet, other: &IpNet) -> bool {
    one.contains(&other.network()) || other.contains(&one.network())
}

impl Spec for IPPoolSpec {
    const KIND: Kind = Kind::IPPool;
    type Status = Option<IPPoolStatus>;

    fn set_defaults(&mut self, metadata: &mut ObjectMeta) {
        // Only the spelling is made canonical: validation must still see, and refuse, an unmasked range.
        if let Some(net) = self.net()
            && net.trunc() == net
        {
            self.cidr = Cidr::new(net.to_string());
        }
        self.set_read_defaults(metadata);
    }

    fn set_read_defaults(&mut self, _metadata: &mut ObjectMeta) {
        // Calico rejects a pool whose range it cannot read; there is no size to fill in for it, the rest is harmless.
        if self.block_size == 0
            && let Some(net) = self.net()
        {
            self.block_size = self.effective_block_size(&net);
        }
        if self.allowed_uses.is_empty() {
            self.allowed_uses = vec![IPPoolAllowedUse::Workload, IPPoolAllowedUse::Tunnel];
        }
        if self.node_selector.is_empty() {
            self.node_selector = SelectorText::new("all()");
        }
        if self.ipip_mode.is_unset() {
            self.ipip_mode = IPIPMode::Never;
        }
        if self.vxlan_mode.is_unset() {
            self.vxlan_mode = VXLANMode::Never;
        }
        self.assignment_mode.get_or_insert(AssignmentMode::Automatic);
    }

    fn validate(&self, metadata: &ObjectMeta, errors: &mut FieldErrors) {
        check_metadata(metadata, errors);
        let spec = FieldPath::new("spec");
        if self.cidr.is_empty() {
            errors.add(spec.child("cidr"), "", "must be set");
        } else if let Err(reason) = self.cidr.parse() {
            errors.add(spec.child("cidr"), &self.cidr, reason);
        }
        for (name, selector) in
            [("nodeSelector", &self.node_selector), ("namespaceSelector", &self.namespace_selector)]
        {
            selector.validate(&spec.child(name), errors);
        }
        self.check_rules(&spec, errors);
    }

    fn validate_update(&self, old: &Self, errors: &mut FieldErrors) {
        let spec = FieldPath::new("spec");
        errors.require(
            self.is_same_range(old),
            spec.child("cidr"),
            &self.cidr,
            format!("cannot be changed (it was {}); move to a new pool instead", old.cidr),
        );
        let size = |pool: &Self| pool.net().map_or(pool.block_size, |net| pool.effective_block_size(&net));
        errors.require(
            size(self) == size(old),
            spec.child("blockSize"),
            self.block_size,
            format!("cannot be changed (it was {}); move to a new pool instead", size(old)),
        );
        // An empty list means Workload and Tunnel.
        let load_balancer_only = !self.allowed_uses.is_empty()
            && self.allowed_uses.iter().all(|used| *used == IPPoolAllowedUse::LoadBalancer);
        errors.require(
            !old.is_load_balancer() || load_balancer_only,
            spec.child("allowedUses"),
            "",
            "cannot be changed from LoadBalancer to Workload or Tunnel",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_fields_are_fixed_once_a_pool_exists() {
        use IPPoolAllowedUse::{LoadBalancer, Tunnel, Workload};
        let pool = |cidr: &str, block_size: i64, uses: &[IPPoolAllowedUse]| IPPoolSpec {
            cidr: cidr.into(),
            block_size,
            allowed_uses: uses.to_vec(),
            ..Default::default()
        };
        for (old, new, refused) in [
            (pool("10.0.0.0/16", 26, &[]), pool("10.0.0.0/16", 26, &[]), &[][..]),
            (pool("10.0.0.0/16", 26, &[]), pool("10.1.0.0/16", 26, &[]), &["spec.cidr"]),
            (pool("10.0.0.0/16", 26, &[]), pool("10.0.0.0/17", 26, &[]), &["spec.cidr"]),
            // Stored text that is not canonical may become so, but not the reverse.
            (pool("FD00:0::/48", 122, &[]), pool("fd00::/48", 122, &[]), &[]),
            (pool("fd00::/48", 122, &[]), pool("FD00:0::/48", 122, &[]), &["spec.cidr"]),
            (pool("nonsense", 26, &[]), pool("nonsense", 26, &[]), &[]),
            (pool("nonsense", 26, &[]), pool("10.0.0.0/16", 26, &[]), &["spec.cidr"]),
            (pool("10.0.0.0/16", 26, &[]), pool("10.0.0.0/16", 27, &[]), &["spec.blockSize"]),
            // No size means the default one.
            (pool("10.0.0.0/16", 0, &[]), pool("10.0.0.0/16", 26, &[]), &[]),
            (pool("fd00::/48", 0, &[]), pool("fd00::/48", 26, &[]), &["spec.blockSize"]),
            (pool("10.0.0.0/16", 26, &[Workload]), pool("10.0.0.0/16", 26, &[Tunnel]), &[]),
            (pool("10.0.0.0/16", 26, &[LoadBalancer]), pool("10.0.0.0/16", 26, &[LoadBalancer]), &[]),
            (
                pool("10.0.0.0/16", 26, &[LoadBalancer]),
                pool("10.0.0.0/16", 26, &[Workload]),
                &["spec.allowedUses"],
            ),
            (pool("10.0.0.0/16", 26, &[LoadBalancer]), pool("10.0.0.0/16", 26, &[]), &["spec.allowedUses"]),
        ] {
            let mut errors = FieldErrors::new();
            new.validate_update(&old, &mut errors);
            let paths: Vec<&str> = errors.as_slice().iter().map(|error| error.path.as_str()).collect();
            assert_eq!(paths, refused, "{} {} {:?}", old.cidr, new.cidr, new.allowed_uses);
        }
    }
}
