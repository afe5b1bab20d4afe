//! The walk-throughs of real clusters, on a real kube-apiserver: every line of them holds.

use super::{Lab, told};

fn play(which: &str) {
    let lab = Lab::new();
    let output = lab.run(&["scenario", which]);
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" lines hold."), "{text}");
    let left: Vec<_> = std::fs::read_dir(lab.folder.path()).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "{left:?} is left");
}

#[test]
fn block_ipam_and_tunnels() {
    play("A");
}

#[test]
fn policy_only_with_the_nodes_own_ranges() {
    play("B");
}
