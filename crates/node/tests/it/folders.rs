//! `node hostpath-init` on temporary folders. Needs root, like the command.

use crate::support::TestNode;
use node::for_tests::hostpath;
use std::os::unix::fs::{MetadataExt as _, symlink};

#[test]
fn folders_and_logs_are_given_to_the_nodes_user() {
    let node = TestNode::new(&[("NODE_USER_ID", "12345")]);
    let logs = node.context.path("/var/log/calico/cni/old");
    std::fs::create_dir_all(&logs).expect("a folder");
    std::fs::write(logs.join("cni.log"), "").expect("writing");
    // The owner of a link itself is changed; its target does not belong to the node.
    let foreign = node.context.path("/etc/shadow");
    std::fs::create_dir_all(foreign.parent().expect("a folder")).expect("a folder");
    std::fs::write(&foreign, "").expect("writing");
    symlink(&foreign, logs.join("link")).expect("a link");
    hostpath::run(&node.context).expect("folders");
    let owner = |path: &str| {
        let metadata = std::fs::symlink_metadata(node.context.path(path)).expect(path);
        (metadata.uid(), metadata.gid())
    };
    for path in [
        "/var/lib/calico",
        "/var/run/calico",
        "/var/log/calico",
        "/var/log/calico/cni",
        "/var/log/calico/cni/old",
        "/var/log/calico/cni/old/cni.log",
        "/var/log/calico/cni/old/link",
    ] {
        assert_eq!(owner(path), (12345, 0), "{path}");
    }
    assert_eq!(owner("/etc/shadow"), (0, 0));
    assert_eq!(owner("/var/log"), (0, 0));
}
