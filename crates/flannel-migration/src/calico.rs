//! The Calico part of the migration: pools with flannel's range, Felix's VXLAN settings, blocks and tunnel addresses of
//! nodes.

use crate::config::{FlannelConfig, FlannelNetwork};
use crate::facts::{NodeError, NodeFacts, Tunnel};
use api::{FelixConfigurationSpec, IPIPMode, IPPool, IPPoolSpec, NodeBGPSpec, NodeSpec, Object, VXLANMode};
use client::{Client, DeleteOptions};
use ipam::{AssignIp, Ipam, Owner};
use ipnet::IpNet;
use model::{AffinityType, IpVersion};

/// The name of the settings that apply to every node.
const DEFAULT: &str = api::words::GLOBAL_NAME;
/// The type of VXLAN tunnel addresses.
const VXLAN_TYPE: &str = "vxlanTunnelAddress";

/// Why a step on Calico's resources failed.
#[derive(Debug, thiserror::Error)]
pub enum CalicoError {
    /// The datastore returned an error.
    #[error("cannot {what}: {source}")]
    Store {
        /// What was attempted.
        what: String,
        /// The error.
        #[source]
        source: client::Error,
    },
    /// Address management returned an error.
    #[error("cannot {what}: {source}")]
    Addresses {
        /// What was attempted.
        what: String,
        /// The error.
        #[source]
        source: ipam::Error,
    },
    /// A pool exists with different settings.
    #[error(
        "the IP pool {name} is there already with other settings: {is}; flannel's network needs {wanted}"
    )]
    OtherPool {
        /// The name of the pool.
        name: &'static str,
        /// Its settings.
        is: String,
        /// The required settings.
        wanted: String,
    },
    /// Blocks in a node's range belong to other nodes.
    #[error("blocks of node {node} belong to others: {blocks}")]
    Claimed {
        /// The node.
        node: String,
        /// The blocks, separated by commas.
        blocks: String,
    },
    /// The address of flannel's tunnel device is in use by something else.
    #[error("the tunnel address {address} of node {node} is already in use")]
    Occupied {
        /// The node.
        node: String,
        /// The address.
        address: std::net::IpAddr,
    },
    /// The node's range or annotations cannot be used.
    #[error(transparent)]
    Node(#[from] NodeError),
}

/// What to do about a default pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolStep {
    /// Create it.
    Create,
    /// Keep it: it matches.
    Use,
    /// Replace it: it is Canal's and has no VXLAN.
    Replace,
    /// Stop: it has other settings, so the user created it.
    Refuse {
        /// Its settings.
        is: String,
        /// The required settings.
        wanted: String,
    },
}

/// The pool for one of flannel's ranges.
#[must_use]
pub fn wanted_pool(cidr: IpNet, block_size: u8, masquerades: bool) -> IPPool {
    let name = match IpVersion::of(&cidr) {
        IpVersion::V4 => "default-ipv4-ippool",
        IpVersion::V6 => "default-ipv6-ippool",
    };
    let spec = IPPoolSpec {
        cidr: cidr.to_string().into(),
        block_size: i64::from(block_size),
        nat_outgoing: masquerades,
        ipip_mode: IPIPMode::Never,
        vxlan_mode: VXLANMode::Always,
        ..IPPoolSpec::default()
    };
    Object::new("", name, spec)
}

/// Decides what to do, given the existing pool.
#[must_use]
pub fn pool_step(wanted: &IPPoolSpec, existing: Option<&IPPoolSpec>, is_canal: bool) -> PoolStep {
    let Some(existing) = existing else { return PoolStep::Create };
    if is_canal && existing.vxlan_mode != VXLANMode::Always {
        return PoolStep::Replace;
    }
    let describe = |spec: &IPPoolSpec| {
        format!(
            "range {}, blocks of /{}, outgoing NAT {}, VXLAN {}",
            spec.cidr,
            spec.block_size,
            spec.nat_outgoing,
            spec.vxlan_mode.as_str()
        )
    };
    let (is, wanted) = (describe(existing), describe(wanted));
    if is == wanted { PoolStep::Use } else { PoolStep::Refuse { is, wanted } }
}

/// Sets flannel's end of the tunnel in a node. Returns false if the node has it already.
pub fn set_tunnel(spec: &mut NodeSpec, tunnel: &Tunnel) -> bool {
    // Later readers of this address expect a prefix length.
    let public = format!("{}/32", tunnel.public);
    let address = tunnel.address.to_string();
    let is_set = spec.ipv4_vxlan_tunnel_addr.as_str() == address
        && spec.vxlan_tunnel_mac_addr.as_str() == tunnel.mac
        && spec.bgp.as_ref().is_some_and(|bgp| bgp.ipv4_address.as_str() == public);
    if is_set {
        return false;
    }
    spec.bgp = Some(NodeBGPSpec { ipv4_address: public.into(), ..NodeBGPSpec::default() });
    spec.ipv4_vxlan_tunnel_addr = address.into();
    spec.vxlan_tunnel_mac_addr = tunnel.mac.clone().into();
    true
}

/// Carries out the migration's steps on Calico's resources.
#[derive(Clone, Debug)]
pub struct CalicoSide {
    /// For resources.
    pub client: Client,
    /// For addresses.
    pub ipam: Ipam,
}

impl CalicoSide {
    /// Switches VXLAN off for every node, or lets the pools decide again.
    ///
    /// # Errors
    /// When the datastore returns an error.
    pub async fn set_vxlan(&self, enabled: Option<bool>) -> Result<(), CalicoError> {
        self.change_felix("change Felix's VXLAN switch", |spec| {
            let changes = spec.vxlan_enabled != enabled;
            spec.vxlan_enabled = enabled;
            changes
        })
        .await
    }

    /// Sets flannel's VXLAN identifier, port and MTU in Felix' settings.
    ///
    /// # Errors
    /// When the datastore returns an error.
    pub async fn set_vxlan_parameters(&self, vni: u32, port: u16, mtu: u32) -> Result<(), CalicoError> {
        let wanted = (Some(i64::from(vni)), Some(i64::from(port)), Some(i64::from(mtu)));
        self.change_felix("set flannel's VXLAN settings in Felix", |spec| {
            let changes = (spec.vxlan_vni, spec.vxlan_port, spec.vxlan_mtu) != wanted;
            (spec.vxlan_vni, spec.vxlan_port, spec.vxlan_mtu) = wanted;
            changes
        })
        .await
    }

    async fn change_felix(
        &self,
        what: &str,
        change: impl Fn(&mut FelixConfigurationSpec) -> bool + Send + Sync,
    ) -> Result<(), CalicoError> {
        let settings = self.client.resource::<FelixConfigurationSpec>();
        let mut outcome =
            settings.update_with_retry("", DEFAULT, |object| change(&mut object.spec)).await.map(drop);
        if outcome.as_ref().is_err_and(client::Error::is_does_not_exist) {
            let mut object = Object::new("", DEFAULT, FelixConfigurationSpec::default());
            change(&mut object.spec);
            outcome = settings.create(object).await.map(drop);
        }
        outcome.map_err(|source| CalicoError::Store { what: what.to_owned(), source })
    }

    /// Creates the pools of flannel's network.
    ///
    /// # Errors
    /// [`CalicoError::OtherPool`] when a pool exists that does not fit.
    pub async fn make_pools(
        &self,
        config: &FlannelConfig,
        network: &FlannelNetwork,
    ) -> Result<(), CalicoError> {
        for cidr in [Some(network.cidr), network.cidr6].into_iter().flatten() {
            let block_size = config.block_size_of(IpVersion::of(&cidr));
            self.make_pool(wanted_pool(cidr, block_size, network.masquerades), config.is_canal()).await?;
        }
        Ok(())
    }

    async fn make_pool(&self, wanted: IPPool, is_canal: bool) -> Result<(), CalicoError> {
        let pools = self.client.resource::<IPPoolSpec>();
        let name = wanted.metadata.name.clone();
        let failed = |source| CalicoError::Store { what: format!("create the IP pool {name}"), source };
        let existing = match pools.get("", &name).await {
            Ok(pool) => Some(pool),
            Err(error) if error.is_does_not_exist() => None,
            Err(error) => return Err(failed(error)),
        };
        let step = pool_step(&wanted.spec, existing.as_ref().map(|pool| &pool.spec), is_canal);
        match step {
            PoolStep::Use => return Ok(()),
            PoolStep::Refuse { is, wanted } => {
                let name = if name.contains("ipv6") { "default-ipv6-ippool" } else { "default-ipv4-ippool" };
                return Err(CalicoError::OtherPool { name, is, wanted });
            }
            PoolStep::Replace => {
                tracing::info!(pool = name, "replacing Canal's pool, which has no VXLAN");
                pools.delete("", &name, &DeleteOptions::default()).await.map_err(failed)?;
            }
            PoolStep::Create => {}
        }
        tracing::info!(pool = name, cidr = %wanted.spec.cidr, "creating a pool for flannel's network");
        pools.create(wanted).await.map(drop).map_err(failed)
    }

    /// Assigns a node the blocks of its range, and takes over flannel's end of its tunnel. A node on which flannel
    /// never ran gets its tunnel address from Calico itself.
    ///
    /// # Errors
    /// When the node's range or annotations cannot be used, or the addresses are in use.
    pub async fn take_node(&self, node: &NodeFacts, config: &FlannelConfig) -> Result<(), CalicoError> {
        let range = node.range()?.trunc();
        let tunnel = match node.has_flannel(&config.annotation_prefix) {
            true => Some(node.tunnel(&config.annotation_prefix)?),
            false => None,
        };
        let owner = Owner { affinity_type: AffinityType::Host, host: node.name.clone() };
        let failed = |what: String| move |source| CalicoError::Addresses { what, source };
        let (claimed, lost) = self
            .ipam
            .claim_affinity(range, &owner)
            .await
            .map_err(failed(format!("claim the blocks of {range} for node {}", node.name)))?;
        if !lost.is_empty() {
            let blocks: Vec<String> = lost.iter().map(ToString::to_string).collect();
            return Err(CalicoError::Claimed { node: node.name.clone(), blocks: blocks.join(", ") });
        }
        tracing::info!(node = node.name, blocks = claimed.len(), "the node has the blocks of its range");
        match tunnel {
            Some(tunnel) => self.take_tunnel(&node.name, &tunnel).await,
            None => Ok(()),
        }
    }

    async fn take_tunnel(&self, node: &str, tunnel: &Tunnel) -> Result<(), CalicoError> {
        let address = tunnel.address;
        let what = || format!("take the tunnel address {address} for node {node}");
        let failed = |source| CalicoError::Addresses { what: what(), source };
        match self.ipam.allocation(address).await.map_err(failed)? {
            Some(attribute) => {
                let attributes = &attribute.active_owner_attrs;
                let is = |name: &str, value: &str| attributes.get(name).is_some_and(|found| found == value);
                if !is("type", VXLAN_TYPE) || !is("node", node) {
                    return Err(CalicoError::Occupied { node: node.to_owned(), address });
                }
            }
            None => {
                let attributes = [("node", node), ("type", VXLAN_TYPE)];
                let attributes = attributes.map(|(name, value)| (name.to_owned(), value.to_owned()));
                let request = AssignIp {
                    handle: Some(format!("vxlan-tunnel-addr-{node}").into()),
                    attributes: attributes.into_iter().collect(),
                    ..AssignIp::new(address, node)
                };
                self.ipam.assign_ip(&request).await.map_err(failed)?;
            }
        }
        let nodes = self.client.resource::<NodeSpec>();
        let outcome = nodes.update_with_retry("", node, |object| set_tunnel(&mut object.spec, tunnel)).await;
        let what = || format!("write flannel's tunnel to node {node}");
        outcome.map(drop).map_err(|source| CalicoError::Store { what: what(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(text: &str) -> IpNet {
        text.parse().expect("a range")
    }

    #[test]
    fn pools_are_created_used_replaced_or_refused() {
        let wanted = wanted_pool(range("10.244.0.0/16"), 26, true);
        assert_eq!(wanted.metadata.name, "default-ipv4-ippool");
        assert_eq!(wanted_pool(range("fd00::/56"), 122, true).metadata.name, "default-ipv6-ippool");
        let step = |existing: Option<&IPPoolSpec>, is_canal| pool_step(&wanted.spec, existing, is_canal);
        assert_eq!(step(None, false), PoolStep::Create);
        assert_eq!(step(Some(&wanted.spec), false), PoolStep::Use);
        assert_eq!(step(Some(&wanted.spec), true), PoolStep::Use);
        let plain = IPPoolSpec { vxlan_mode: VXLANMode::Never, ..wanted.spec.clone() };
        assert_eq!(step(Some(&plain), true), PoolStep::Replace);
        assert!(matches!(step(Some(&plain), false), PoolStep::Refuse { .. }));
        let other = IPPoolSpec { block_size: 24, ..wanted.spec.clone() };
        assert!(matches!(step(Some(&other), true), PoolStep::Refuse { is, .. } if is.contains("/24")));
    }

    #[test]
    fn a_node_gets_flannels_tunnel_once() {
        let tunnel = Tunnel {
            address: "10.244.1.0".parse().expect("an address"),
            mac: "56:1d:8d:30:79:97".to_owned(),
            public: "172.16.0.1".parse().expect("an address"),
        };
        let mut spec = NodeSpec::default();
        assert!(set_tunnel(&mut spec, &tunnel));
        assert_eq!(spec.bgp.as_ref().map(|bgp| bgp.ipv4_address.as_str()), Some("172.16.0.1/32"));
        assert!(!set_tunnel(&mut spec, &tunnel));
    }
}
