//! Features of devices: switched, read back, refused.

use crate::namespaces::TestNamespace;
use anyhow::Result;
use netlink::ethtool::{Features, GENERIC_RECEIVE_OFFLOAD};
use netlink::{DeviceKind, Handle, Kernel as _, NewLink, Operation, Peer, first_failure};

#[test]
fn only_the_named_feature_is_switched() -> Result<()> {
    let there = TestNamespace::new()?;
    let mut handle = there.namespace.run(Handle::open)??;
    let peer = Peer { name: "eth1".into(), namespace: None, mac: None };
    first_failure(handle.apply(&[Operation::AddLink(NewLink::new("eth0", DeviceKind::Veth(peer)))]))?;
    let device = handle.link(&"eth0".into())?.expect("it was created").index;
    let mut features = there.namespace.run(Features::open)??;
    for on in [true, false, true, true, false] {
        features.switch(device, GENERIC_RECEIVE_OFFLOAD, on)?;
        assert_eq!(features.is_on(device, GENERIC_RECEIVE_OFFLOAD)?, Some(on));
        assert_eq!(features.is_on(device, "tx-generic-segmentation")?, Some(true));
    }

    let refusal = features.switch(device, "rx-no-such-feature", false).expect_err("no such feature");
    assert!(refusal.to_string().contains("rx-no-such-feature"), "{refusal}");
    assert_eq!(features.is_on(1_000_000, GENERIC_RECEIVE_OFFLOAD)?, None);
    features.switch(1_000_000, GENERIC_RECEIVE_OFFLOAD, false).expect_err("no such device");
    Ok(())
}
