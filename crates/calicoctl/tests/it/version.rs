//! `calicoctl version`.

use crate::harness::Shell;
use testkit::Folder;

fn client_lines() -> String {
    format!(
        "Client Version:    {}\nGit commit:        {}\n",
        calicoctl::client_version(),
        calicoctl::for_tests::GIT_COMMIT
    )
}

#[test]
fn client_and_cluster() {
    let shell = Shell::embedded();
    assert_eq!(shell.run("version --client").text(), client_lines());
    let before = shell.run("version");
    assert_eq!((before.stdout.as_str(), before.success), (client_lines().as_str(), false));
    assert!(
        before.stderr.starts_with("unable to retrieve Cluster Version or Type: resource does not exist"),
        "{before:?}"
    );
    // Locking initializes a datastore whose cluster has no recorded information yet.
    shell.run("datastore migrate lock").text();
    let unknown = format!("{}Cluster Version:   unknown\nCluster Type:      unknown\n", client_lines());
    assert_eq!(shell.run("version").text(), unknown);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/migration/all-kinds.yaml");
    assert!(shell.run_with("datastore migrate import -f", &[file]).success);
    let known = format!("{}Cluster Version:   v3.32.1\nCluster Type:      k8s,bgp\n", client_lines());
    assert_eq!(shell.run("version").text(), known);
}

#[test]
fn wrong_durations_and_unreachable_clusters_are_reported() {
    let shell = Shell::embedded();
    let error = shell.run("version --poll=soon").error();
    assert_eq!(error, "invalid poll duration specified: soon\n");
    let folder = Folder::new("version").expect("a folder");
    let port = testkit::free_port().expect("a port").to_string();
    let endpoint = format!("http://127.0.0.1:{port}");
    let shell = Shell::with(&[("ETCD_ENDPOINTS", &endpoint)], folder);
    let output = shell.run("version");
    assert_eq!(output.stdout, format!("{}Unable to detect installed Calico version\n", client_lines()));
    assert!(output.success && output.stderr.contains(&endpoint), "{output:?}");
}
