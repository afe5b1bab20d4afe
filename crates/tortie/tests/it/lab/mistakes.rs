//! Invalid input: one clear sentence, exit code 1, nothing left behind.

use super::{Lab, TORTIE, told};
use std::process::{Command, Stdio};

#[test]
fn impossible_wishes_get_a_one_sentence_error() {
    let lab = Lab::new();
    let file = lab.folder.path().join("bad.yaml");
    std::fs::write(&file, "nodes: [{name: a}, {name: a}]\n").expect("the file");
    let file = file.display().to_string();
    for (arguments, expected) in [
        (vec!["up", "--nodes", "0"], "0 nodes"),
        (vec!["up", "--nodes", "2", "--subnets", "5"], "5 subnets for 2 nodes"),
        (vec!["up", "--encap", "ipip", "--ipv6"], "IP in IP carries IPv4 only"),
        (vec!["up", "--file", &file], "two nodes named 'a'"),
        (vec!["up", "--file", "/nowhere.yaml"], "/nowhere.yaml"),
        (vec!["down"], "not found"),
        (vec!["matrix"], "not found"),
        (vec!["status"], "not found"),
        (vec!["exec", "node1", "--", "true"], "not found"),
        (vec!["pod", "add", "x"], "not found"),
    ] {
        let output = lab.run(&arguments);
        let text = told(&output);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text} should say {expected}");
        assert_eq!(text.trim().lines().count(), 1, "{arguments:?}: {text}");
        lab.assert_gone();
    }
}

/// A topology file is read as strictly as manifests: errors show line, caret, and a suggestion.
#[test]
fn a_topology_file_with_mistakes() {
    let lab = Lab::new();
    let file = lab.folder.path().join("topology.yaml");
    std::fs::write(&file, "nodes:\n- {name: a}\npodz: []\nencap: vxlann\n").expect("the file");
    let output = lab.run(&["up", "--file", &file.display().to_string()]);
    let text = told(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    for expected in
        ["topology.yaml:3:1", "^^^^", "did you mean `pods`?", "topology.yaml:4:", "did you mean `vxlan`?"]
    {
        assert!(text.contains(expected), "{text} should say {expected}");
    }
    lab.assert_gone();
}

/// For a full disk, the error names the file that could not be written.
#[test]
fn a_full_disk() {
    let lab = Lab::new();
    let script = "mount -t tmpfs -o size=128k tmpfs \"$0\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(lab.folder.path());
    command.args([TORTIE, "lab", "--lab", &lab.name, "up"]).env("TORTIE_LAB_DIR", lab.folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = super::finish(command, "");
    let text = told(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("writing ") && text.contains("No space left"), "{text}");
    assert!(text.contains(&lab.path().display().to_string()), "{text}");
}

/// Whether the kernel has IP in IP is checked before anything is built.
#[test]
fn a_missing_kernel_feature() {
    let lab = Lab::new();
    let output = lab.run(&["up", "--encap", "ipip", "--nodes", "1", "--pods", "0"]);
    if output.status.success() {
        lab.succeed(&["down"]);
    } else {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("this kernel has no IP in IP tunnels"), "{text}");
        assert_eq!(text.trim().lines().count(), 1, "{text}");
    }
    lab.assert_gone();
}

#[test]
fn a_folder_that_cannot_be_used() {
    let lab = Lab::new();
    let mut command = lab.command(&["up", "--pods", "0"]);
    command.env("TORTIE_LAB_DIR", "/proc/nothing");
    let output = super::finish(command, "");
    assert_eq!(output.status.code(), Some(1));
    assert!(told(&output).contains("/proc/nothing"), "{}", told(&output));
}

#[test]
fn a_manifest_with_a_mistake() {
    let lab = Lab::up(&["--nodes", "1", "--pods", "0"]);
    let output = lab.run_with(
        &["apply", "-f", "-"],
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: x}\nspec: {selektor: all()}\n",
    );
    assert!(!output.status.success() && told(&output).contains("selektor"), "{}", told(&output));
    // Folders are applied, and objects that only Kubernetes understands are named.
    let folder = lab.folder.path().join("manifests/below");
    std::fs::create_dir_all(&folder).expect("folders");
    std::fs::write(folder.join("deny.yaml"), super::DENY).expect("a file");
    let path = lab.folder.path().join("manifests").display().to_string();
    let none = lab.run(&["apply", "-f", &path]);
    assert!(!none.status.success() && told(&none).contains("-R"), "{}", told(&none));
    let applied = lab.succeed(&["apply", "-R", "-f", &path]);
    assert!(applied.contains("Successfully applied 1"), "{applied}");
    let foreign =
        "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: x, namespace: shop}\n";
    let output = lab.run_with(&["apply", "-f", "-"], foreign);
    let text = told(&output);
    assert!(!output.status.success() && text.contains("up --datastore kubernetes"), "{text}");
    let output = lab.run(&["exec", "nobody/here", "--", "true"]);
    assert!(!output.status.success() && told(&output).contains("no node or pod"), "{}", told(&output));
    let output = lab.run(&["exec", "node1", "--", "no-such-program"]);
    assert!(!output.status.success() && told(&output).contains("no-such-program"), "{}", told(&output));
}

/// An unprivileged user, on a kernel that allows no user namespaces: the error names the setting.
#[test]
fn no_permission() {
    let lab = Lab::new();
    let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "sh",
        "-c",
        script,
        "sh",
        TORTIE,
        "lab",
        "--lab",
        &lab.name,
        "up",
    ]);
    command.env("TORTIE_LAB_DIR", lab.folder.path());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = super::finish(command, "");
    let text = told(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("needs root, or user namespaces") && text.contains("max_user_namespaces is 0"),
        "{text}"
    );
    assert_eq!(text.trim().lines().count(), 1, "{text}");
    lab.assert_gone();
}
