//! Values: what Calico wrote is written back byte for byte, old forms are read, and anything else is an error.

use super::*;
use crate::key::{AffinityType, BlockAffinityKey};

/// The key and value of each entry that Calico wrote.
fn written_by_calico() -> Vec<(&'static str, &'static str)> {
    let dump = include_str!("../../tests/data/etcd.txt");
    let lines: Vec<&str> = dump.lines().filter(|line| !line.starts_with('#')).collect();
    lines.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn what_calico_wrote_is_written_back_byte_for_byte() {
    let entries = written_by_calico();
    assert!(entries.len() > 30, "{}", entries.len());
    for (path, json) in entries {
        let key = Key::parse(path).unwrap_or_else(|| panic!("no key: {path}"));
        assert_eq!(key.path().as_deref(), Ok(path));
        let value = decode(&key, json.as_bytes()).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert_eq!(text(&encode(&key, &value).unwrap()), json, "{path}");
        if let Value::Resource(resource) = &value {
            assert_eq!(KvPair::resource(resource.clone()).key, key);
        }
    }
}

#[test]
fn policies_carry_their_name_only_in_the_store() {
    let (path, json) = written_by_calico().into_iter().find(|(path, _)| path.ends_with("/host-ssh")).unwrap();
    let key = Key::parse(path).unwrap();
    let Value::Resource(policy) = decode(&key, json.as_bytes()).unwrap() else { panic!("no resource") };
    assert!(json.contains("projectcalico.org/metadata"));
    assert_eq!(policy.name(), "host-ssh");
    assert!(policy.metadata().annotations.is_empty());
}

/// Each stored text with the value that is read from it, and the text that is written for that value.
#[test]
fn stored_forms() {
    let affinity = || {
        Key::BlockAffinity(BlockAffinityKey {
            cidr: "10.0.0.0/26".parse().unwrap(),
            host: "n1".into(),
            affinity_type: AffinityType::Host,
        })
    };
    let block = || Key::Block { cidr: "10.0.0.0/30".parse().unwrap() };
    let resource = |kind| Key::resource(kind, "n", "a");
    let report = || Key::ActiveStatusReport { region: "no-region".into(), host: "n1".into() };
    for (key, stored, written) in [
        (affinity(), "", r#"{"state":"","deleted":false}"#),
        (affinity(), "{}", r#"{"state":"","deleted":false}"#),
        (
            affinity(),
            r#"{"state":"pendingDeletion","new":[1]}"#,
            r#"{"state":"pendingDeletion","deleted":false,"new":[1]}"#,
        ),
        (
            block(),
            r#"{"cidr":"10.0.0.0/30","affinity":null,"allocations":[null,0,null,null],"unallocated":[2,3,0],"attributes":[{}],"sequenceNumber":0,"sequenceNumberForAllocation":null,"deleted":false,"strictAffinity":false,"hostAffinity":"n1"}"#,
            r#"{"cidr":"10.0.0.0/30","affinity":null,"allocations":[null,0,null,null],"unallocated":[2,3,0],"attributes":[{}],"sequenceNumber":0,"sequenceNumberForAllocation":{},"deleted":false,"hostAffinity":"n1","strictAffinity":false}"#,
        ),
        (
            Key::IpamHandle { handle_id: "h".into() },
            r#"{"block":{"10.0.0.0/30":2}}"#,
            r#"{"block":{"10.0.0.0/30":2},"deleted":false}"#,
        ),
        (Key::IpamConfig, "{}", "{}"),
        (
            Key::IpamConfig,
            r#"{"ipCooldownSeconds":5,"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":3,"kubeVirtVMAddressPersistence":"Enabled"}"#,
            r#"{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":3,"kubeVirtVMAddressPersistence":"Enabled","ipCooldownSeconds":5}"#,
        ),
        (Key::IpamHost { host: "n1".into() }, "{}", "{}"),
        (
            Key::HostEndpointStatus { host: "n1".into(), endpoint: "e".into() },
            r#"{"status":"up"}"#,
            r#"{"status":"up"}"#,
        ),
        (
            report(),
            r#"{"time":"2026-11-15T19:48:31Z","uptime":12.5,"first_update":true}"#,
            r#"{"time":"2026-11-15T19:48:31Z","uptime":12.5,"first_update":true}"#,
        ),
        (report(), r#"{"time":"t","uptime":60}"#, r#"{"time":"t","uptime":60,"first_update":false}"#),
        (
            resource(Kind::BlockAffinity),
            r#"{"metadata":{"name":"a","resourceVersion":"7","selfLink":"/x"},"spec":{"state":"pending","node":"n1","cidr":"10.0.0.0/26","deleted":"True","deletedBy":"x"}}"#,
            r#"{"kind":"BlockAffinity","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"state":"pending","node":"n1","cidr":"10.0.0.0/26","deleted":"true","deletedBy":"x"}}"#,
        ),
        (
            resource(Kind::BlockAffinity),
            r#"{"metadata":{"name":"a"},"spec":{"state":"confirmed","node":"n1","type":"host","cidr":"10.0.0.0/26","deleted":"false"},"more":1}"#,
            r#"{"kind":"BlockAffinity","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"state":"confirmed","node":"n1","type":"host","cidr":"10.0.0.0/26","deleted":"false"},"more":1}"#,
        ),
        (
            resource(Kind::NetworkPolicy),
            r#"{"metadata":{"name":"default.a","namespace":"n"},"spec":{"tier":"default"}}"#,
            r#"{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"a","namespace":"n","annotations":{"projectcalico.org/metadata":"{\"name\":\"a\"}"}},"spec":{"tier":"default"}}"#,
        ),
    ] {
        let value = decode(&key, stored.as_bytes()).unwrap_or_else(|error| panic!("{stored}: {error}"));
        assert_eq!(text(&encode(&key, &value).unwrap()), written);
        if let Value::IpamHandle(handle) = value {
            assert_eq!(&*handle.handle_id, "h");
        }
    }
}

#[test]
fn text_that_is_not_a_value_is_an_error() {
    let affinity = Key::resource(Kind::BlockAffinity, "", "a");
    for (key, stored) in [
        (Key::resource(Kind::IPPool, "", "a"), ""),
        (Key::resource(Kind::IPPool, "", "a"), "{"),
        (Key::resource(Kind::IPPool, "", "a"), r#"{"kind":"Node"}"#),
        (Key::resource(Kind::IPPool, "", "a"), r#"{"spec":{"blockSize":"big"}}"#),
        (affinity.clone(), r#"{"spec":{"deleted":"maybe"}}"#),
        (affinity, r#"{"spec":{"deleted":""}}"#),
        (Key::Block { cidr: "10.0.0.0/30".parse().unwrap() }, r#"{"cidr":"ten"}"#),
        (Key::Block { cidr: "10.0.0.0/30".parse().unwrap() }, r#"{"cidr":"10.0.0.0/30","allocations":[-1]}"#),
        (Key::IpamHost { host: "n".into() }, "[]"),
        (Key::IpamConfig, ""),
        (Key::V1(crate::V1Key::ReadyFlag), "true"),
    ] {
        let error = decode(&key, stored.as_bytes()).unwrap_err();
        assert!(error.to_string().starts_with(&key.to_string()), "{stored}: {error}");
    }
    let mismatch = encode(&Key::IpamConfig, &Value::IpamHost).unwrap_err();
    assert_eq!(mismatch.to_string(), "IPAMConfigKey() cannot hold this value");
    let node = Value::Resource(api::Node::new("", "n", api::NodeSpec::default()).into());
    assert!(encode(&Key::resource(Kind::IPPool, "", "n"), &node).is_err());
}

#[test]
fn pairs_have_revision_and_uid() {
    let mut node = api::Node::new("", "n", api::NodeSpec::default());
    node.metadata.resource_version = "5".into();
    let mut pair = KvPair::resource(node);
    assert_eq!((pair.key.to_string().as_str(), pair.revision.as_str(), &pair.uid), ("Node(n)", "5", &None));
    pair.set_revision("6");
    assert_eq!(pair.revision, "6");
    assert_eq!(pair.as_resource().unwrap().metadata().resource_version, "6");
}

proptest::proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
        for (path, _) in written_by_calico() {
            let key = Key::parse(path).unwrap();
            if let Ok(value) = decode(&key, &bytes) {
                let stored = encode(&key, &value).unwrap();
                proptest::prop_assert_eq!(decode(&key, &stored).unwrap(), value);
            }
        }
    }

}

#[test]
fn truncated_values_are_errors() {
    for (path, json) in written_by_calico().into_iter().filter(|(_, json)| json.starts_with('{')) {
        let key = Key::parse(path).unwrap();
        // Very old releases wrote claims as no bytes at all.
        for cut in 1..json.len() {
            assert!(decode(&key, &json.as_bytes()[..cut]).is_err(), "{path}: {cut} bytes of {json}");
        }
    }
}
