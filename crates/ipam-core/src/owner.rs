//! The recorded owner of an address, and changes of that record.
//!
//! A KubeVirt machine keeps its address while its pods are replaced: the pod that runs it is the active owner, the
//! target of a live migration the alternate one. A change names the owner that it expects, so that a late message of an
//! old pod cannot undo a migration.

use crate::address;
use crate::block::Block;
use model::{AllocationBlock, HandleId};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The attribute with a pod's name.
pub const ATTRIBUTE_POD: &str = "pod";
/// The attribute with a pod's namespace.
pub const ATTRIBUTE_NAMESPACE: &str = "namespace";

/// Attributes of an owner.
pub type Attributes = BTreeMap<String, String>;

/// A pod as owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodOwner {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl PodOwner {
    fn is_recorded_in(&self, attributes: &Attributes) -> bool {
        attributes.get(ATTRIBUTE_POD) == Some(&self.name)
            && attributes.get(ATTRIBUTE_NAMESPACE) == Some(&self.namespace)
    }
}

/// The change of one owner record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Change {
    /// It is kept.
    #[default]
    Keep,
    /// It is replaced by these attributes.
    Set(Attributes),
    /// It is emptied.
    Clear,
}

/// The condition on an owner record for a change of it. Not checked when the record is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Expected {
    /// Anything.
    #[default]
    Any,
    /// Nothing.
    Empty,
    /// This pod.
    Pod(PodOwner),
}

/// A change of both records at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerUpdate {
    /// The change of the active owner.
    pub active: Change,
    /// The change of the alternate owner.
    pub alternate: Change,
}

/// The conditions of a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerCheck {
    /// The condition on the active owner.
    pub active: Expected,
    /// The condition on the alternate owner.
    pub alternate: Expected,
}

/// Why a change of owner was refused; the block must then not be written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OwnerRefused {
    /// The address is not assigned.
    #[error("resource does not exist: {0} with error: IP is unassigned")]
    NotAssigned(IpAddr),
    /// Another handle holds the address.
    #[error("IP {address} is not assigned to handle {handle}")]
    OtherHandle {
        /// The address.
        address: IpAddr,
        /// The handle of the request.
        handle: HandleId,
    },
    /// Another owner is recorded.
    #[error(
        "update conflict: {address}: cannot set {field}: expected pod={} namespace={} but found pod={} namespace={}",
        expected.name, expected.namespace, found.name, found.namespace
    )]
    OtherOwner {
        /// The address.
        address: IpAddr,
        /// The name of the record.
        field: &'static str,
        /// The expected owner; both parts empty for none.
        expected: Box<PodOwner>,
        /// The recorded owner.
        found: Box<PodOwner>,
    },
}

impl OwnerRefused {
    /// Whether the address is not assigned.
    #[must_use]
    pub fn is_not_assigned(&self) -> bool {
        matches!(self, Self::NotAssigned(_))
    }

    /// Whether the request is based on an outdated state.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::OtherOwner { .. })
    }
}

/// Changes the owners of an address that this handle holds. Other addresses that share the record keep theirs.
///
/// # Errors
/// When the address belongs to another handle, or an owner is not the expected one; then nothing changes.
pub fn set_owners(
    block: &mut AllocationBlock,
    address: IpAddr,
    handle: &HandleId,
    update: &OwnerUpdate,
    check: &OwnerCheck,
) -> Result<(), OwnerRefused> {
    let allocation = Block::new(block).allocation(address).filter(|allocation| !allocation.is_resting());
    let Some(allocation) = allocation else { return Err(OwnerRefused::NotAssigned(address)) };
    let attribute = allocation.attribute.filter(|_| allocation.is_held_under(handle));
    let Some(attribute) = attribute else {
        return Err(OwnerRefused::OtherHandle { address, handle: handle.clone() });
    };
    let mut changed = attribute.clone();
    verify(address, "ActiveOwnerAttrs", &changed.active_owner_attrs, &update.active, &check.active)?;
    verify(
        address,
        "AlternateOwnerAttrs",
        &changed.alternate_owner_attrs,
        &update.alternate,
        &check.alternate,
    )?;
    apply(&mut changed.active_owner_attrs, &update.active);
    apply(&mut changed.alternate_owner_attrs, &update.alternate);

    let Some(ordinal) = address::ordinal(&block.cidr, address) else {
        return Err(OwnerRefused::NotAssigned(address));
    };
    let Some(Some(index)) = block.allocations.get(ordinal).copied() else {
        return Err(OwnerRefused::NotAssigned(address));
    };
    let is_shared = block.allocations.iter().flatten().filter(|other| **other == index).count() > 1;
    if is_shared {
        block.allocations[ordinal] = Some(block.attributes.len());
        block.attributes.push(changed);
    } else if let Some(slot) = block.attributes.get_mut(index) {
        *slot = changed;
    }
    Ok(())
}

fn verify(
    address: IpAddr,
    field: &'static str,
    current: &Attributes,
    change: &Change,
    expected: &Expected,
) -> Result<(), OwnerRefused> {
    let expected = match (change, expected) {
        (Change::Keep, _) | (_, Expected::Any) => return Ok(()),
        (_, Expected::Empty) if current.is_empty() => return Ok(()),
        (_, Expected::Pod(pod)) if pod.is_recorded_in(current) => return Ok(()),
        (_, Expected::Empty) => PodOwner { namespace: String::new(), name: String::new() },
        (_, Expected::Pod(pod)) => pod.clone(),
    };
    let part = |name: &str| current.get(name).cloned().unwrap_or_default();
    let found = PodOwner { namespace: part(ATTRIBUTE_NAMESPACE), name: part(ATTRIBUTE_POD) };
    Err(OwnerRefused::OtherOwner { address, field, expected: Box::new(expected), found: Box::new(found) })
}

fn apply(record: &mut Attributes, change: &Change) {
    match change {
        Change::Keep => {}
        Change::Set(attributes) => record.clone_from(attributes),
        Change::Clear => record.clear(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str) -> PodOwner {
        PodOwner { namespace: "ns".to_owned(), name: name.to_owned() }
    }

    fn attributes(name: &str) -> Attributes {
        [("pod".to_owned(), name.to_owned()), ("namespace".to_owned(), "ns".to_owned())].into()
    }

    /// Two addresses of one machine that runs in pod p1.
    fn block() -> AllocationBlock {
        serde_json::from_str(
            r#"{"cidr":"10.0.0.0/30","affinity":"host:n1","allocations":[0,0,1,null],"unallocated":[3],"attributes":[
                {"handle_id":"vm","secondary":{"pod":"p1","namespace":"ns"}},{"handle_id":"other"}]}"#,
        )
        .expect("a block")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_migration_records_swaps_and_clears_owners() {
        let mut block = block();
        let target = OwnerUpdate { active: Change::Keep, alternate: Change::Set(attributes("p2")) };
        let nobody = OwnerCheck { active: Expected::Any, alternate: Expected::Empty };
        set_owners(&mut block, address("10.0.0.0"), &"vm".into(), &target, &nobody).expect("a target");
        assert_eq!(
            block.allocations,
            [Some(2), Some(0), Some(1), None],
            "the other address keeps its record"
        );
        let refused = set_owners(&mut block, address("10.0.0.0"), &"vm".into(), &target, &nobody)
            .expect_err("there is one");
        assert_eq!(
            refused.to_string(),
            "update conflict: 10.0.0.0: cannot set AlternateOwnerAttrs: expected pod= namespace= but found pod=p2 namespace=ns"
        );
        assert!(refused.is_conflict());

        let swap =
            OwnerUpdate { active: Change::Set(attributes("p2")), alternate: Change::Set(attributes("p1")) };
        let both = OwnerCheck { active: Expected::Pod(pod("p1")), alternate: Expected::Pod(pod("p2")) };
        set_owners(&mut block, address("10.0.0.0"), &"vm".into(), &swap, &both).expect("a swap");
        let late = OwnerUpdate { active: Change::Clear, alternate: Change::Keep };
        let old = OwnerCheck { active: Expected::Pod(pod("p1")), alternate: Expected::Any };
        set_owners(&mut block, address("10.0.0.0"), &"vm".into(), &late, &old)
            .expect_err("p1 is no longer active");
        let clear = OwnerUpdate { active: Change::Keep, alternate: Change::Clear };
        let p1 = OwnerCheck { active: Expected::Empty, alternate: Expected::Pod(pod("p1")) };
        set_owners(&mut block, address("10.0.0.0"), &"vm".into(), &clear, &p1)
            .expect("the record that is kept is not checked");
        assert_eq!(block.attributes[2].active_owner_attrs, attributes("p2"));
        assert!(block.attributes[2].alternate_owner_attrs.is_empty());
    }

    #[test]
    fn only_the_holder_is_changed() {
        let mut block = block();
        let clear = OwnerUpdate { active: Change::Clear, alternate: Change::Clear };
        let any = OwnerCheck::default();
        for (text, message) in [
            ("10.0.0.2", "IP 10.0.0.2 is not assigned to handle vm"),
            ("10.0.0.3", "resource does not exist: 10.0.0.3 with error: IP is unassigned"),
            ("10.0.0.9", "resource does not exist: 10.0.0.9 with error: IP is unassigned"),
        ] {
            let before = block.clone();
            let refused =
                set_owners(&mut block, address(text), &"vm".into(), &clear, &any).expect_err("refused");
            assert_eq!(refused.to_string(), message);
            assert_eq!(block, before);
        }
    }
}
