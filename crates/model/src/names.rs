//! Computed names: of endpoints, interfaces, IPAM's custom resources, translated uids, stored policies.
//!
//! Other Calico components compute the same names on their own, so each must be correct to the letter.

use crate::HandleId;
use crate::key::v1::WorkloadEndpointKey;
use crate::key::{BlockAffinityKey, ResourceKey};
use api::meta::ObjectMeta;
use api::words::DEFAULT_TIER;
use api::{Kind, Resource};
use data_encoding::{BASE32_NOPAD, HEXLOWER};
use ipnet::IpNet;
use sha1::Sha1;
use sha2::Sha256;
use sha3::{Digest, Sha3_256};
use std::collections::BTreeMap;

pub use api::{NameError, WorkloadEndpointIdentifiers};

/// The annotation that holds a resource's metadata inside its stored form.
pub const METADATA_ANNOTATION: &str = api::words::STORED_METADATA;
/// The label with the hash of a block's owner.
pub const HOSTNAME_HASH_LABEL: &str = api::words::LABEL_HOSTNAME_HASH;
/// The label with the type of a block's owner.
pub const AFFINITY_TYPE_LABEL: &str = api::words::LABEL_AFFINITY_TYPE;
/// The label with a block's IP version.
pub const IP_VERSION_LABEL: &str = api::words::LABEL_IP_VERSION;
/// The default prefix of the names of workload interfaces on the host.
pub const INTERFACE_PREFIX: &str = "cali";

/// The longest name of a Kubernetes object. Calico shortens names of this length already, not only longer ones.
const MAX_NAME: usize = 253;

/// Returns the name of the host's end of a pod's interface: the prefix, and eleven digits of a hash of namespace and
/// pod.
#[must_use]
pub fn interface_name(prefix: &str, namespace: &str, pod: &str) -> String {
    let hash = HEXLOWER.encode(&Sha1::digest(format!("{namespace}.{pod}")));
    format!("{prefix}{}", hash.get(..11).unwrap_or(&hash))
}

/// Returns the key by which Felix knows a workload endpoint; `None` when the name does not have the form of one.
#[must_use]
pub fn workload_endpoint_key(key: &ResourceKey) -> Option<WorkloadEndpointKey> {
    if key.kind != Kind::WorkloadEndpoint || key.namespace.is_empty() {
        return None;
    }
    let parts = api::split_workload_endpoint_name(&key.name)?;
    let [host, orchestrator, workload, endpoint] = <[String; 4]>::try_from(parts).ok()?;
    Some(WorkloadEndpointKey {
        host: host.into(),
        orchestrator,
        workload: format!("{}/{workload}", key.namespace),
        endpoint,
    })
}

/// Returns a network as a name of a Kubernetes object: `.`, `:` and `/` become `-`.
#[must_use]
pub fn cidr_name(cidr: &IpNet) -> String {
    cidr.trunc().to_string().replace(['.', ':', '/'], "-")
}

/// Returns the name of the custom resource for a claim on a block: owner and block. A name that is too long for
/// Kubernetes is shortened and gets a hash.
#[must_use]
pub fn block_affinity_name(key: &BlockAffinityKey) -> String {
    let (host, cidr) = (&key.host, cidr_name(&key.cidr));
    let name = format!("{host}-{cidr}");
    if name.len() < MAX_NAME {
        return name;
    }
    // Leaves room for the block, eleven digits and the two dashes between the parts.
    let mut room = (MAX_NAME - 1).saturating_sub(cidr.len() + 13).min(host.len());
    while !host.is_char_boundary(room) {
        room -= 1;
    }
    let hash = HEXLOWER.encode(&Sha256::digest(format!("{host}+{cidr}")));
    format!("{}-{cidr}-{}", &host[..room], hash.get(..11).unwrap_or(&hash))
}

/// Returns the name of the custom resource of a handle.
#[must_use]
pub fn handle_name(handle_id: &HandleId) -> String {
    handle_id.to_lowercase()
}

/// Returns the hash of an owner's name, for a label: names may be too long for one.
#[must_use]
pub fn hostname_hash(host: &str) -> String {
    BASE32_NOPAD.encode(&Sha3_256::digest(host))
}

/// Returns the labels of a claim on a block, by which claims are listed.
#[must_use]
pub fn block_affinity_labels(host: &str, affinity_type: &str, cidr: &str) -> BTreeMap<String, String> {
    let version = if cidr.contains(':') { "6" } else { "4" };
    BTreeMap::from([
        (HOSTNAME_HASH_LABEL.to_owned(), hostname_hash(host)),
        (AFFINITY_TYPE_LABEL.to_owned(), affinity_type.to_owned()),
        (IP_VERSION_LABEL.to_owned(), version.to_owned()),
    ])
}

/// The error for a text that is not a uid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a UUID")]
pub struct UidError(pub String);

/// Translates a uid: a custom resource and the Calico object in it must have different ones. The bits of each byte are
/// reversed, except in the two bytes with the UUID's version and variant. Translating twice gives the original uid.
///
/// # Errors
/// When the text is not a UUID.
pub fn translate_uid(uid: &str) -> Result<String, UidError> {
    let wrong = || UidError(uid.to_owned());
    let digits: String = match uid.as_bytes() {
        text if text.len() == 36 && [8, 13, 18, 23].iter().all(|&dash| text[dash] == b'-') => {
            uid.replace('-', "")
        }
        _ => return Err(wrong()),
    };
    let mut bytes = data_encoding::HEXLOWER_PERMISSIVE.decode(digits.as_bytes()).map_err(|_| wrong())?;
    if bytes.len() != 16 {
        return Err(wrong());
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        if index != 6 && index != 8 {
            *byte = byte.reverse_bits();
        }
    }
    let hex = HEXLOWER.encode(&bytes);
    let group = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    Ok([group(0, 8), group(8, 12), group(12, 16), group(16, 20), group(20, 32)].join("-"))
}

/// Writes a policy's name into its own annotations, as in the stored form.
pub fn store_policy_name(metadata: &mut ObjectMeta) {
    let stored = serde_json::json!({"name": metadata.name}).to_string();
    metadata.annotations.insert(METADATA_ANNOTATION.to_owned(), stored);
}

/// Restores the name of a policy that was read. It is the name in its annotations (which is removed from them), or else
/// the stored name without the `default.` that releases before 3.30 put in front of names in the default tier.
///
/// # Errors
/// When the annotation is not JSON.
pub fn restore_policy_name(metadata: &mut ObjectMeta, tier: &str) -> Result<(), serde_json::Error> {
    if let Some(stored) = metadata.annotations.get(METADATA_ANNOTATION).filter(|stored| !stored.is_empty()) {
        let name = match bare_name(stored) {
            // Nearly always, this is the name that it is stored under.
            Some(name) if name == metadata.name => String::new(),
            Some(name) => name.to_owned(),
            None => serde_json::from_str::<ObjectMeta>(stored)?.name,
        };
        metadata.annotations.remove(METADATA_ANNOTATION);
        if metadata.annotations.is_empty() {
            // An emptied map keeps its memory, and most policies have no other annotation.
            metadata.annotations = BTreeMap::new();
        }
        if !name.is_empty() {
            metadata.name = name;
        }
    } else {
        let name = policy_name_without_annotation(&metadata.name, tier);
        if name != metadata.name {
            metadata.name = name.to_owned();
        }
    }
    Ok(())
}

/// Returns the name in the annotation if it is in the form in which [`store_policy_name`] and Calico write it, with
/// nothing escaped.
fn bare_name(stored: &str) -> Option<&str> {
    let name = stored.strip_prefix(r#"{"name":""#)?.strip_suffix(r#""}"#)?;
    let plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    name.bytes().all(plain).then_some(name)
}

/// Returns the name of a policy that was stored without the annotation.
pub(crate) fn policy_name_without_annotation<'a>(stored: &'a str, tier: &str) -> &'a str {
    if tier.is_empty() || tier == DEFAULT_TIER {
        stored.strip_prefix("default.").unwrap_or(stored)
    } else {
        stored
    }
}

/// Returns the tier of a policy as it is written, possibly empty; `None` for kinds that have no tier.
#[must_use]
pub fn policy_tier(resource: &Resource) -> Option<&str> {
    match resource {
        Resource::NetworkPolicy(policy) => Some(&policy.spec.tier),
        Resource::GlobalNetworkPolicy(policy) => Some(&policy.spec.tier),
        Resource::StagedNetworkPolicy(policy) => Some(&policy.spec.tier),
        Resource::StagedGlobalNetworkPolicy(policy) => Some(&policy.spec.tier),
        _ => None,
    }
}

/// Returns the name of the file by which Felix reports that a workload endpoint is programmed: its orchestrator, its
/// workload (`namespace/name`) and its own name, each escaped as a segment of a URL's path, separated by spaces.
#[must_use]
pub fn endpoint_status_file(orchestrator: &str, workload: &str, endpoint: &str) -> String {
    [orchestrator, workload, endpoint].map(path_segment).join(" ")
}

fn path_segment(text: &str) -> String {
    let mut segment = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => segment.push(char::from(byte)),
            b'-' | b'_' | b'.' | b'~' | b'$' | b'&' | b'+' | b'=' | b':' | b'@' => {
                segment.push(char::from(byte));
            }
            other => segment.push_str(&format!("%{other:02X}")),
        }
    }
    segment
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{AffinityType, Key};

    fn affinity(host: &str, cidr: &str) -> BlockAffinityKey {
        BlockAffinityKey {
            cidr: cidr.parse().unwrap(),
            host: host.to_owned(),
            affinity_type: AffinityType::Host,
        }
    }

    #[test]
    fn interface_names_are_those_of_a_cluster() {
        assert_eq!(interface_name("cali", "shop", "client-1"), "cali79ec953fb89");
        assert_eq!(interface_name("cali", "shop", "web-1"), "cali751425ce827");
    }

    #[test]
    fn hostname_hashes_are_those_of_a_cluster() {
        assert_eq!(hostname_hash("kc-node1"), "FRXXL4ZJCRAQGLY23LYN5VYK7K3GE2HPCNCTI6NSIBMC6IRCVRRA");
        assert_eq!(hostname_hash("kc-node2"), "WAKF7CWCVLYY5LRKSQPO3MLLBE45JFJ2JH6A46GV5PHQBKECUSQA");
    }

    #[test]
    fn block_and_affinity_names() {
        for (cidr, name) in [
            ("10.0.0.0/26", "10-0-0-0-26"),
            ("10.244.45.7/26", "10-244-45-0-26"),
            ("fd00::1:0/122", "fd00--1-0-122"),
            ("::/120", "---120"),
        ] {
            assert_eq!(cidr_name(&cidr.parse().unwrap()), name);
        }
        assert_eq!(block_affinity_name(&affinity("kc-node1", "10.244.45.0/26")), "kc-node1-10-244-45-0-26");
        // 241 + 1 + 11 characters are one too many.
        let fits = "h".repeat(240);
        assert_eq!(block_affinity_name(&affinity(&fits, "10.0.0.0/26")), format!("{fits}-10-0-0-0-26"));
        let long = "h".repeat(241);
        let name = block_affinity_name(&affinity(&long, "10.0.0.0/26"));
        assert_eq!(name.len(), 252);
        let hash = HEXLOWER.encode(&Sha256::digest(format!("{long}+10-0-0-0-26")));
        assert_eq!(name, format!("{}-10-0-0-0-26-{}", "h".repeat(228), &hash[..11]));
        // Each character has two bytes, and none is cut in half.
        assert!(block_affinity_name(&affinity(&"é".repeat(200), "10.0.0.0/26")).len() <= 252);
    }

    #[test]
    fn uids_are_translated_both_ways() {
        for (uid, other) in [
            ("00000000-0000-0000-0000-000000000000", "00000000-0000-0000-0000-000000000000"),
            ("01020304-0506-4708-8910-111213141516", "8040c020-a060-4710-8908-8848c828a868"),
        ] {
            assert_eq!(translate_uid(uid).unwrap(), other);
            assert_eq!(translate_uid(other).unwrap(), uid);
        }
        for wrong in ["", "x", "01020304-0506-4708-8910-11121314151", "01020304050647088910111213141516----"]
        {
            assert_eq!(translate_uid(wrong), Err(UidError(wrong.to_owned())));
        }
    }

    #[test]
    fn policy_names_are_restored() {
        for (stored, annotation, tier, name) in [
            ("default.a", None, "default", "a"),
            ("default.a", None, "", "a"),
            ("a", None, "default", "a"),
            ("default.a", Some(r#"{"name":"default.a"}"#), "default", "default.a"),
            ("default.a", Some(r#"{"name":"a"}"#), "default", "a"),
            ("default.a", Some("{}"), "default", "default.a"),
            ("sec.a", None, "sec", "sec.a"),
            ("default.a", None, "sec", "default.a"),
        ] {
            let mut metadata = ObjectMeta { name: stored.into(), ..Default::default() };
            if let Some(annotation) = annotation {
                metadata.annotations.insert(METADATA_ANNOTATION.into(), annotation.into());
            }
            restore_policy_name(&mut metadata, tier).unwrap();
            assert_eq!(metadata.name, name, "{stored} {annotation:?} {tier}");
            assert!(metadata.annotations.is_empty());
        }
        let mut metadata = ObjectMeta { name: "a".into(), ..Default::default() };
        metadata.annotations.insert(METADATA_ANNOTATION.into(), "no JSON".into());
        assert!(restore_policy_name(&mut metadata, "default").is_err());
    }

    #[test]
    fn felix_keys_of_workload_endpoints() {
        let key = |name: &str| match Key::resource(Kind::WorkloadEndpoint, "shop", name) {
            Key::Resource(key) => workload_endpoint_key(&key),
            _ => None,
        };
        let found = key("kc--node2-k8s-client--1-eth0").unwrap();
        assert_eq!(
            Key::V1(crate::key::V1Key::WorkloadEndpoint(found)).path().unwrap(),
            "/calico/v1/host/kc-node2/workload/k8s/shop%2fclient-1/endpoint/eth0"
        );
        assert_eq!(key("three-parts-only"), None);
    }
}
