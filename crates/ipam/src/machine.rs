//! The handle of a virtual machine (KubeVirt), which keeps its addresses in whichever pod it runs. The CNI plugin takes
//! addresses under it, and Felix finds them there when a machine has moved.

use data_encoding::BASE64URL_NOPAD;
use model::HandleId;
use sha2::{Digest as _, Sha256};

/// The maximum length of a handle.
const MAX_HANDLE: usize = 128;
/// The default name of the network.
const DEFAULT_NETWORK: &str = "k8s-pod-network";

/// The handle that holds a machine's addresses. Without a network's name the default is used.
#[must_use]
pub fn machine_handle(network: &str, namespace: &str, machine: &str) -> HandleId {
    let network = if network.is_empty() { DEFAULT_NETWORK } else { network };
    limited_id(&format!("{network}.vmi."), &format!("{namespace}.{machine}"), MAX_HANDLE).into()
}

/// Joins prefix and suffix; a suffix that makes the result too long is replaced by its hash.
fn limited_id(prefix: &str, suffix: &str, max: usize) -> String {
    let length = prefix.len() + suffix.len();
    if length < max || (length == max && !suffix.starts_with('_')) {
        return format!("{prefix}{suffix}");
    }
    let hash = BASE64URL_NOPAD.encode(&Sha256::digest(suffix));
    let room = max.saturating_sub(prefix.len() + 1).min(hash.len());
    format!("{prefix}_{}", hash.get(..room).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{limited_id, machine_handle};

    #[test]
    fn handles_of_machines() {
        assert_eq!(&*machine_handle("", "default", "vm1"), "k8s-pod-network.vmi.default.vm1");
        assert_eq!(&*machine_handle("net1", "default", "vm1"), "net1.vmi.default.vm1");
        let long = limited_id("net.vmi.", &"x".repeat(200), 128);
        assert!(long.starts_with("net.vmi._") && long.len() == 9 + 43, "{long}");
        assert_eq!(limited_id("p.", &"y".repeat(126), 128).len(), 128);
    }
}
