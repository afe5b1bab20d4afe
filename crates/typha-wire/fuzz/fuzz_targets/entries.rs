//! Keys and values of a stranger: an error, nothing, or an entry that can be encoded again with the same meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use model::convert::Faults;
use typha_wire::entries;

fuzz_target!(|input: (u8, &str, &[u8])| {
    let (kind, rest, value) = input;
    // Most texts are not keys: the beginnings of real ones get further.
    const BEGINNINGS: [&str; 10] = [
        "",
        "/calico/v1/host/n1/workload/k8s/",
        "/calico/v1/policy/",
        "/calico/v1/netset/",
        "/calico/v1/ipam/v4/pool/",
        "/calico/v1/config/",
        "/calico/v1/Ready",
        "/calico/resources/v3/projectcalico.org/nodes/",
        "/calico/ipam/v2/assignment/ipv4/block/",
        "/calico/v1/host/n1/endpoint/",
    ];
    let path = format!("{}{rest}", BEGINNINGS[usize::from(kind) % BEGINNINGS.len()]);
    let _ = entries::gone(&path);
    let Ok(Some(entry)) = entries::entry(&path, value, "7", &mut Faults::new()) else { return };
    let Ok(encoded) = entries::encode(&entry) else { return };
    for one in encoded {
        let Some(value) = one.value else { continue };
        let again = entries::entry(&one.path, &value, &one.resource_version, &mut Faults::new());
        assert!(again.is_ok(), "{}: {again:?}", one.path);
    }
});
