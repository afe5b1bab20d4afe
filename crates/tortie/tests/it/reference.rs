//! Checks that the generated pages of the reference are up to date.

use std::path::Path;
use std::process::Command;

fn check(page: &str) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_tortie")).args(["reference", page]).output().expect("the program");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = format!("docs/reference/{page}.md");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the repository").join(&name);
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let written = String::from_utf8(output.stdout).expect("text");
    let other = kept.lines().zip(written.lines()).find(|(old, new)| old != new);
    assert!(kept == written, "{name} is not what the program writes: run `cargo xtask generate`\n{other:?}");
}

#[test]
fn every_command() {
    check("cli");
}

#[test]
fn the_variables_of_components() {
    check("node");
    check("kube-controllers");
    check("typha");
    check("cni-install");
    check("bgp");
    check("goldmane");
    check("whisker");
    check("key-cert-provisioner");
}

#[test]
fn the_network_configuration_of_the_plugins() {
    check("cni");
}
