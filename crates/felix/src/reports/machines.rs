//! Virtual machines that moved to this node: the pod that they run in now becomes the active owner of their addresses,
//! and the pod that they came from the alternate one. Otherwise their addresses would count as the old pod's, and be
//! released after it.
//!
//! A machine keeps its addresses under a handle of its own, which the CNI plugin created. The record may change at any
//! moment, so every change states the expected current values. A machine whose target pod is not recorded as alternate
//! owner was deleted or moved on in the meantime, and is left alone.

use super::Latest;
use api::AllocationAttribute;
use daemon::Backoff;
use ipam::{Change, Expected, Ipam, OwnerCheck, OwnerUpdate, PodOwner};
use messages::FromDataplane;
use model::HandleId;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// The number of attempts, the first pause between them (which doubles each time), and the total time limit.
const ATTEMPTS: u32 = 5;
const PAUSES: Backoff = Backoff::new(Duration::from_millis(100), PATIENCE);
const PATIENCE: Duration = Duration::from_secs(30);

/// A machine that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arrived {
    machine: String,
    pod: PodOwner,
}

impl Arrived {
    /// Felix does not know the CNI configuration with the network's name.
    pub(crate) fn handle(&self) -> HandleId {
        ipam::machine_handle("", &self.pod.namespace, &self.machine)
    }
}

/// The machine in a report, if it concerns one.
pub(crate) fn arrived(report: &FromDataplane) -> Option<Arrived> {
    let FromDataplane::MachineArrived { id, machine } = report else { return None };
    let Some((namespace, name)) = id.workload.split_once('/') else {
        tracing::warn!(?id, "a machine's workload names no pod; its addresses keep their owner");
        return None;
    };
    let pod = PodOwner { namespace: namespace.to_owned(), name: name.to_owned() };
    Some(Arrived { machine: machine.to_string(), pod })
}

/// Records new owners for as long as it is polled.
pub(crate) async fn write(ipam: Ipam, machines: Latest<HandleId, Arrived>) {
    loop {
        for arrived in machines.take().await.into_values() {
            // Several may arrive at once, and one that has to wait must not delay the others.
            tokio::spawn(take_over(ipam.clone(), arrived));
        }
    }
}

async fn take_over(ipam: Ipam, arrived: Arrived) {
    let Arrived { machine, pod } = &arrived;
    let attempts = async {
        let mut backoff = PAUSES;
        for attempt in 1..=ATTEMPTS {
            match exchange(&ipam, &arrived).await {
                Ok(()) => {
                    tracing::info!(
                        machine,
                        ?pod,
                        "a machine's addresses now belong to the pod that it runs in"
                    );
                    return;
                }
                Err(Failure::Final(reason)) => {
                    tracing::warn!(machine, ?pod, reason, "a machine's addresses keep their owner");
                    return;
                }
                Err(Failure::Passing(reason)) => {
                    tracing::warn!(machine, ?pod, attempt, reason, "cannot record a machine's new owner");
                }
            }
            if attempt < ATTEMPTS {
                tokio::time::sleep(backoff.pause()).await;
            }
        }
        tracing::warn!(machine, ?pod, "a machine's addresses keep their owner: it could not be recorded");
    };
    if tokio::time::timeout(PATIENCE, attempts).await.is_err() {
        tracing::warn!(
            machine,
            ?pod,
            "a machine's addresses keep their owner: the datastore does not answer"
        );
    }
}

/// Why an owner was not recorded.
#[derive(Debug, PartialEq, Eq)]
enum Failure {
    /// Retrying is pointless.
    Final(String),
    /// A later attempt may succeed.
    Passing(String),
}

/// Makes the target the active owner of all addresses of its machine.
async fn exchange(ipam: &Ipam, arrived: &Arrived) -> Result<(), Failure> {
    let passing = |error: ipam::Error| Failure::Passing(error.to_string());
    let handle = arrived.handle();
    let addresses = ipam.ips_by_handle(&handle).await.map_err(passing)?;
    if addresses.is_empty() {
        return Err(Failure::Passing(format!("the handle {handle} has no addresses")));
    }
    let mut failed = None;
    for address in addresses {
        match exchange_one(ipam, address, &handle, &arrived.pod).await {
            Ok(()) => {}
            Err(Failure::Final(reason)) => return Err(Failure::Final(reason)),
            // The other addresses are processed all the same, and need not be repeated.
            Err(passing @ Failure::Passing(_)) => failed = Some(passing),
        }
    }
    failed.map_or(Ok(()), Err)
}

async fn exchange_one(
    ipam: &Ipam,
    address: IpAddr,
    handle: &HandleId,
    target: &PodOwner,
) -> Result<(), Failure> {
    for _ in 0..ATTEMPTS {
        let record = ipam.allocation(address).await.map_err(|error| Failure::Passing(error.to_string()))?;
        let Some((update, check)) = decide(address, record.as_ref(), handle, target)? else { return Ok(()) };
        match ipam.set_owner_attributes(address, handle, &update, &check).await {
            Ok(()) => return Ok(()),
            // Another client was faster; the next step depends on the current record.
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(Failure::Passing(error.to_string())),
        }
    }
    Err(Failure::Passing(format!("the owners of {address} change all the time")))
}

fn is(pod: &PodOwner, attributes: &BTreeMap<String, String>) -> bool {
    attributes.get("pod") == Some(&pod.name) && attributes.get("namespace") == Some(&pod.namespace)
}

/// The change that makes the target the active owner of an address; `None` if it already is.
fn decide(
    address: IpAddr,
    record: Option<&AllocationAttribute>,
    handle: &HandleId,
    target: &PodOwner,
) -> Result<Option<(OwnerUpdate, OwnerCheck)>, Failure> {
    let Some(record) = record.filter(|record| record.handle_id.as_deref() == Some(handle.as_str())) else {
        return Err(Failure::Passing(format!("{address} is not held by {handle}")));
    };
    let (active, alternate) = (&record.active_owner_attrs, &record.alternate_owner_attrs);
    if is(target, active) {
        return Ok(None);
    }
    if alternate.is_empty() {
        return Err(Failure::Final(format!("{address} has no alternate owner: the pod is gone")));
    }
    if !is(target, alternate) {
        return Err(Failure::Final(format!(
            "the alternate owner of {address} is another pod: {alternate:?}"
        )));
    }
    let text = |name: &str| active.get(name).cloned().unwrap_or_default();
    // The old pod may be gone already; then there is no alternate owner.
    let (old, expected) = match active.is_empty() {
        true => (Change::Clear, Expected::Empty),
        false => {
            let old = PodOwner { namespace: text("namespace"), name: text("pod") };
            (Change::Set(active.clone()), Expected::Pod(old))
        }
    };
    Ok(Some((
        OwnerUpdate { active: Change::Set(alternate.clone()), alternate: old },
        OwnerCheck { active: expected, alternate: Expected::Pod(target.clone()) },
    )))
}

#[cfg(test)]
mod tests {
    use super::{Arrived, Failure, arrived, decide, exchange};
    use api::{AllocationAttribute, IPPool, Node, NodeSpec};
    use datastore::Backend;
    use datastore::etcd::EtcdBackend;
    use ipam::{AutoAssign, Change, Expected, IntendedUse, Ipam, OwnerCheck, OwnerUpdate, PodOwner};
    use messages::{FromDataplane, WorkloadEndpointId};
    use model::KvPair;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const HANDLE: &str = "k8s-pod-network.vmi.shop.db";

    fn pod(name: &str) -> PodOwner {
        PodOwner { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    /// A pod's attributes; empty for an empty name.
    fn owner(name: &str) -> BTreeMap<String, String> {
        let all = [("pod", name), ("namespace", "shop"), ("node", "n1")];
        let all = all.into_iter().filter(|_| !name.is_empty());
        all.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }

    fn record(active: &str, alternate: &str) -> AllocationAttribute {
        AllocationAttribute {
            handle_id: Some(HANDLE.to_owned()),
            active_owner_attrs: owner(active),
            alternate_owner_attrs: owner(alternate),
            ..AllocationAttribute::default()
        }
    }

    #[test]
    fn the_target_and_the_source_are_swapped() {
        let address = [10, 0, 0, 1].into();
        let decided =
            |record: &AllocationAttribute| decide(address, Some(record), &HANDLE.into(), &pod("new"));
        let expected = (
            OwnerUpdate { active: Change::Set(owner("new")), alternate: Change::Set(owner("old")) },
            OwnerCheck { active: Expected::Pod(pod("old")), alternate: Expected::Pod(pod("new")) },
        );
        assert_eq!(decided(&record("old", "new")), Ok(Some(expected)));
        let expected = (
            OwnerUpdate { active: Change::Set(owner("new")), alternate: Change::Clear },
            OwnerCheck { active: Expected::Empty, alternate: Expected::Pod(pod("new")) },
        );
        assert_eq!(decided(&record("", "new")), Ok(Some(expected)), "the source is gone");
        for alternate in ["old", "", "third"] {
            assert_eq!(decided(&record("new", alternate)), Ok(None), "it is done");
        }
        for alternate in ["", "third"] {
            assert!(matches!(decided(&record("old", alternate)), Err(Failure::Final(_))), "{alternate}");
        }
        let other = AllocationAttribute { handle_id: Some("other".to_owned()), ..record("old", "new") };
        assert!(matches!(decided(&other), Err(Failure::Passing(_))));
        assert!(matches!(decide(address, None, &HANDLE.into(), &pod("new")), Err(Failure::Passing(_))));
    }

    #[test]
    fn reports_name_the_pod() {
        let report = |workload: &str| FromDataplane::MachineArrived {
            id: WorkloadEndpointId {
                orchestrator: "k8s".into(),
                workload: workload.into(),
                endpoint: "eth0".into(),
            },
            machine: "db".into(),
        };
        let found = arrived(&report("shop/new")).expect("a machine");
        assert_eq!((found.pod.clone(), found.handle().as_str()), (pod("new"), HANDLE));
        assert_eq!(arrived(&report("new")), None);
        assert_eq!(arrived(&FromDataplane::InSync), None);
    }

    #[tokio::test]
    async fn in_a_real_store_all_addresses_change_owners_once() {
        let folder = testkit::Folder::new("machines").expect("a folder");
        let store =
            kvstore_engine::Store::open(folder.path().join("data"), kvstore_engine::Options::default());
        let backend: Arc<dyn Backend> = Arc::new(EtcdBackend::embedded(store.expect("a store")));
        for (name, cidr) in [("v4", "10.0.0.0/24"), ("v6", "fd00::/120")] {
            let spec = serde_json::from_value(serde_json::json!({ "cidr": cidr })).expect("a spec");
            backend.create(&KvPair::resource(IPPool::new("", name, spec))).await.expect("a pool");
        }
        backend.create(&KvPair::resource(Node::new("", "n1", NodeSpec::default()))).await.expect("a node");
        let ipam = Ipam::new(backend);
        let arrived = Arrived { machine: "db".to_owned(), pod: pod("new") };
        assert!(matches!(exchange(&ipam, &arrived).await, Err(Failure::Passing(_))), "it has no addresses");
        let request = AutoAssign {
            handle: Some(HANDLE.into()),
            attributes: owner("old"),
            num4: 1,
            num6: 1,
            ..AutoAssign::new("n1", IntendedUse::Workload)
        };
        ipam.auto_assign(&request).await.expect("addresses");
        assert!(matches!(exchange(&ipam, &arrived).await, Err(Failure::Final(_))), "no pod takes over");
        let addresses = ipam.ips_by_handle(&HANDLE.into()).await.expect("addresses");
        assert_eq!(addresses.len(), 2);
        let target = OwnerUpdate { active: Change::Keep, alternate: Change::Set(owner("new")) };
        for address in &addresses {
            let any = OwnerCheck::default();
            ipam.set_owner_attributes(*address, &HANDLE.into(), &target, &any)
                .await
                .expect("an alternate owner");
        }
        // Reported twice, it is done once.
        for _ in 0..2 {
            assert_eq!(exchange(&ipam, &arrived).await, Ok(()));
            for address in &addresses {
                let record = ipam.allocation(*address).await.expect("read").expect("it is held");
                assert_eq!(
                    (record.active_owner_attrs, record.alternate_owner_attrs),
                    (owner("new"), owner("old"))
                );
            }
        }
    }
}
