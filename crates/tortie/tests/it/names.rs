//! The program under its other names.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

fn started_as(name: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let link = folder.path().join(name);
    symlink(env!("CARGO_BIN_EXE_tortie"), &link).expect("a link");
    Command::new(&link)
        .args(arguments)
        .env_clear()
        .envs(variables.iter().copied())
        .output()
        .expect("the program")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn probes_of_both_generations_fail_and_say_why() {
    let port = testkit::free_port().expect("a port").to_string();
    let variables = [("FELIX_HEALTHPORT", port.as_str()), ("FELIX_HEALTHHOST", "127.0.0.1")];
    for (name, arguments) in [
        ("calico-node", &["-felix-live"] as &[&str]),
        ("calico", &["component", "node", "health", "--felix-live"]),
        ("tortie", &["node", "health", "--felix-live"]),
    ] {
        let output = started_as(name, arguments, &variables);
        assert_eq!(output.status.code(), Some(1), "{name}");
        let expected =
            format!("calico/node is not ready: Felix is not live: Get \"http://127.0.0.1:{port}/liveness\"");
        assert!(text(&output.stdout).starts_with(&expected), "{name}: {output:?}");
    }
    let output = started_as("calico", &["health", "--port", &port, "--host", "127.0.0.1"], &[]);
    assert!(!output.status.success() && text(&output.stderr).contains("health check failed"), "{output:?}");
    // The probe of Goldmane in older images.
    for question in ["-ready", "-live"] {
        let output = started_as("health", &[question], &[("HEALTH_PORT", &port)]);
        assert!(
            !output.status.success() && text(&output.stderr).contains("health check failed"),
            "{output:?}"
        );
        let output = started_as("health", &[question], &[("HEALTH_ENABLED", "false")]);
        assert!(output.status.success(), "{output:?}");
    }
}

#[test]
fn a_felix_without_its_supervisor_does_not_start() {
    // Its parent is this test, not the process with this number.
    let output = started_as("tortie", &["component", "felix"], &[("TORTIE_SUPERVISOR", "1")]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("the supervisor, process 1, has ended"), "{output:?}");
}

#[test]
fn missing_components_and_flags_are_reported() {
    for (name, arguments, expected) in [
        (
            "calico",
            &["component", "guardian"] as &[&str],
            "component guardian is not part of this version yet",
        ),
        ("calico-node", &["-nonsense"], "flag provided but not defined: -nonsense"),
        ("calico", &["component", "node", "bpf", "routes"], "calico-bpf routes"),
    ] {
        let output = started_as(name, arguments, &[]);
        assert!(!output.status.success(), "{name} {arguments:?}");
        assert!(text(&output.stderr).contains(expected), "{name} {arguments:?}: {output:?}");
    }
}

#[test]
fn goldmane_by_its_names() {
    for (name, arguments) in [
        ("calico", &["component", "goldmane"] as &[&str]),
        ("tortie", &["goldmane"]),
        ("tortie", &["component", "goldmane"]),
    ] {
        let output = started_as(name, arguments, &[("PORT", "nonsense")]);
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {output:?}");
        assert!(
            text(&output.stderr).contains("environment variable PORT"),
            "{name} {arguments:?}: {output:?}"
        );
    }
}

#[test]
fn whisker_by_its_names() {
    for (name, arguments) in [
        ("calico", &["component", "whisker-backend"] as &[&str]),
        ("tortie", &["whisker"]),
        ("tortie", &["component", "whisker-backend"]),
    ] {
        let output = started_as(name, arguments, &[("PORT", "nonsense")]);
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {output:?}");
        assert!(
            text(&output.stderr).contains("environment variable PORT"),
            "{name} {arguments:?}: {output:?}"
        );
    }
}

#[test]
fn drivers_and_certificates_by_their_names() {
    for (name, arguments, said) in [
        ("calico", &["component", "csi"] as &[&str], "--nodeid is needed"),
        ("csi-driver", &["-loglevel", "warn"], "--nodeid is needed"),
        ("calico", &["component", "node-driver-registrar"], "--kubelet-registration-path is needed"),
        ("csi-node-driver-registrar", &["-v=5"], "--kubelet-registration-path is needed"),
        ("node-driver-registrar", &[], "--kubelet-registration-path is needed"),
        ("calico", &["component", "key-cert-provisioner"], "POD_IP"),
        ("key-cert-provisioner", &[], "POD_IP"),
        ("calico", &["component", "flexvol", "install", "--target", "/nowhere/other"], "must be \"uds\""),
    ] {
        let output = started_as(name, arguments, &[("POD_IP", "nonsense")]);
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {output:?}");
        assert!(text(&output.stderr).contains(said), "{name} {arguments:?}: {output:?}");
    }
    // The kubelet reads this output, and there is nothing else in it.
    for (name, arguments, code, said) in [
        (
            "uds",
            &["init"] as &[&str],
            0,
            r#"{"status":"Success","message":"Init ok.","capabilities":{"attach":false}}"#,
        ),
        (
            "calico",
            &["component", "flexvol", "init"],
            0,
            r#"{"status":"Success","message":"Init ok.","capabilities":{"attach":false}}"#,
        ),
        ("uds", &["waitforattach", "x"], 0, r#"{"status":"Not supported","#),
        ("uds", &["mount"], 0, r#"{"status":"Not supported","#),
        ("uds", &["mount", "/a/b/c", "{}"], 1, r#"{"status":"Failure","#),
        ("flexvol", &["version"], 0, "Version is 0.1"),
        ("flexvol.sh", &["-t", "/nowhere", "-s", "/nowhere"], 2, "Image not present /nowhere/flexvol"),
        ("flexvol.sh", &["-x"], 2, "Invalid option: -x"),
    ] {
        let output = started_as(name, arguments, &[]);
        assert_eq!(output.status.code(), Some(code), "{name} {arguments:?}: {output:?}");
        assert!(
            output.stderr.is_empty() && text(&output.stdout).starts_with(said),
            "{name} {arguments:?}: {output:?}"
        );
    }
}

#[test]
fn confd_by_its_names() {
    for (name, arguments) in [
        ("calico-node", &["-confd", "-confd-run-once", "-confd-confdir", "/nowhere"] as &[&str]),
        ("calico", &["component", "confd", "--run-once", "--keep-stage-file"]),
        ("tortie", &["confd", "--run-once", "--confdir", "/nowhere"]),
    ] {
        let output = started_as(name, arguments, &[("DATASTORE_TYPE", "nonsense"), ("NODENAME", "n1")]);
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {output:?}");
        let error = text(&output.stderr);
        assert!(error.contains("reading the datastore's configuration"), "{name} {arguments:?}: {error}");
    }
}

#[test]
fn plugins_by_name_and_by_variable() {
    for (name, arguments, variables) in [
        ("calico", &[] as &[&str], &[("CNI_COMMAND", "VERSION")] as &[(&str, &str)]),
        ("calico-ipam", &[], &[("CNI_COMMAND", "VERSION")]),
        ("tortie", &["cni", "plugin"], &[("CNI_COMMAND", "VERSION")]),
        ("calico", &["component", "cni", "ipam"], &[("CNI_COMMAND", "VERSION")]),
    ] {
        let output = started_as(name, arguments, variables);
        assert!(text(&output.stdout).contains("supportedVersions"), "{name} {arguments:?}: {output:?}");
    }
}

#[test]
fn all_names_report_the_same_kind_of_version() {
    let client = text(&started_as("calicoctl", &["version", "--client"], &[]).stdout);
    let client = client.lines().find_map(|line| line.strip_prefix("Client Version:")).map(str::trim);
    let client = client.expect("a version").to_owned();
    assert!(client.starts_with("v3."), "{client}");
    for (name, arguments) in [
        ("calico", &["-v"] as &[&str]),
        ("calico-ipam", &["-v"]),
        ("calico-node", &["-v"]),
        ("calico", &["component", "node", "version"]),
    ] {
        let output = started_as(name, arguments, &[]);
        assert_eq!(text(&output.stdout).trim(), client, "{name} {arguments:?}: {output:?}");
    }
    let output = started_as("tortie", &["--version"], &[]);
    assert!(output.status.success() && text(&output.stdout).starts_with("tortie "), "{output:?}");
}

#[test]
fn help_is_help() {
    for (name, arguments, expected) in [
        ("calico-node", &["--help"] as &[&str], "-felix-live"),
        ("calico-node", &["-h"], "-startup"),
        ("calico-ipam", &["-h"], "IPAM plugin"),
        ("calico", &["-h"], "Usage"),
        ("calico", &["-help"], "Usage"),
        ("tortie", &["help"], "Usage"),
        ("tortie", &["help", "node"], "node-services"),
    ] {
        let output = started_as(name, arguments, &[]);
        let told = text(&output.stdout);
        assert!(output.status.success() && told.contains(expected), "{name} {arguments:?}: {output:?}");
        assert!(!told.contains("not part of this version"), "{name} {arguments:?}: {told}");
    }
}

#[test]
fn settings_that_cannot_be_used_are_named() {
    let output = started_as("calico-node", &["-startup"], &[("AS", "1.2.3"), ("FELIX_HEALTHPORT", "x")]);
    assert_eq!(output.status.code(), Some(1));
    let told = text(&output.stderr);
    assert!(told.contains("AS=1.2.3") && told.contains("FELIX_HEALTHPORT=x"), "{told}");
}
