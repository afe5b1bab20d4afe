//! The walk-throughs of real clusters, on a real kube-apiserver: every line must hold.

use super::{Lab, TORTIE, told};
use testkit::guest::Guest;

fn play(which: &str, flags: &[&str]) {
    let lab = Lab::new();
    let mut arguments = vec!["scenario", which];
    arguments.extend(flags);
    let output = lab.run(&arguments);
    let text = told(&output);
    assert!(output.status.success(), "{text}");
    assert!(text.contains(" lines hold."), "{text}");
    let left: Vec<_> = std::fs::read_dir(lab.folder.path()).expect("the folder").flatten().collect();
    assert!(left.is_empty(), "{left:?} is left");
}

#[test]
fn block_ipam_and_tunnels() {
    play("A", &[]);
}

#[test]
fn policy_only_with_the_nodes_own_ranges() {
    play("B", &[]);
}

/// The lines that this machine's kernel may not support: `tunl0` in both walk-throughs.
#[test]
fn ip_in_ip_in_a_guest() {
    let guest = Guest::new("lab::scenarios::ip_in_ip_in_a_guest").binary(TORTIE);
    guest.program("ip").program("kube-apiserver").program("kubectl").run(|| {
        for folder in ["/run", "/var/lib", "/var/log", "/tmp"] {
            std::fs::create_dir_all(folder).expect(folder);
        }
        for which in ["A", "B"] {
            play(which, &["--only-ipip"]);
        }
    });
}
