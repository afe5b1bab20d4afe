//! `calicoctl cluster diags`, with a simulated `kubectl`.

use crate::capture::{context, program, unpacked};
use crate::harness::Shell;
use calicoctl::for_tests::{ConfigFlag, DiagsArgs, cluster_diags};
use testkit::Folder;

const KUBECTL: &str = r#"case "$*" in
--kubeconfig=*) shift;;
esac
case "$*" in
"get nodes -o json") echo '{"items":[{"metadata":{"name":"n1"}},{"metadata":{"name":"n2"}}]}';;
"get namespaces -o json") echo '{"items":[{"metadata":{"name":"default"}},{"metadata":{"name":"calico-system"}},{"metadata":{"name":"kube-system"}}]}';;
"get daemonsets -n kube-system -o json") echo '{"items":[{"metadata":{"name":"canal"},"spec":{"selector":{"matchLabels":{"k8s-app":"canal"}}}},{"metadata":{"name":"kube-proxy"},"spec":{"selector":{"matchLabels":{"k8s-app":"kube-proxy"}}}}]}';;
"get deployments -n kube-system -o json"|"get statefulsets -n kube-system -o json") echo '{"items":[]}';;
"get pods -n kube-system --selector=k8s-app=canal -o json") echo '{"items":[{"metadata":{"name":"canal-x","namespace":"kube-system"},"spec":{"nodeName":"n1"}}]}';;
"get pods -n kube-system "*) echo "this one is not ours" >&2; exit 1;;
*"canal-x -c calico-node -- calico component node dump "*) echo "native $*";;
*"canal-x -c calico-node -- "*) echo "no such program in an empty image" >&2; exit 1;;
"get daemonsets -n calico-system -o json") echo '{"items":[{"spec":{"selector":{"matchLabels":{"k8s-app":"calico-node"}}}}]}';;
"get deployments -n calico-system -o json"|"get statefulsets -n calico-system -o json") echo '{"items":[]}';;
"get pods -n calico-system --selector=k8s-app=calico-node -o json") echo '{"items":[
  {"metadata":{"name":"calico-node-a","namespace":"calico-system"},"spec":{"nodeName":"n1"}},
  {"metadata":{"name":"calico-node-b","namespace":"calico-system"},"spec":{"nodeName":"n2"},
   "status":{"containerStatuses":[{"name":"calico-node","restartCount":3}]}}]}';;
"get customresourcedefinitions -o json") echo '{"items":[{"metadata":{"name":"ippools.crd.projectcalico.org"},"spec":{"versions":[{"name":"v1","storage":true}]}}]}';;
"get secret typha-certs -n calico-system -o json") echo '{"metadata":{"name":"typha-certs","namespace":"calico-system"},"data":{"tls.crt":"Y2VydA==","tls.key":"c2VjcmV0"}}';;
"get secret "*) echo NotFound >&2; exit 1;;
*"ls /var/log/calico/cni") echo cni.log;;
*"ipset list"|*"node dump ipset") echo not here >&2; exit 1;;
"get configmaps --all-namespaces -o yaml") echo unsupported.operator.tigera.io/x;;
*) echo "answer to $*";;
esac"#;

fn args() -> DiagsArgs {
    DiagsArgs {
        config: ConfigFlag { config: client::config::DEFAULT_CONFIG_PATH.into() },
        since: String::new(),
        max_logs: 1,
        max_parallelism: 4,
        focus_nodes: "n2".into(),
        skip_temp_dir_cleanup: false,
    }
}

#[tokio::test]
async fn a_bundle_of_the_cluster() {
    let folder = Folder::new("cluster").expect("a folder");
    let programs = folder.path().join("programs");
    program(&programs, "kubectl", KUBECTL);
    let data = folder.path().join("data").display().to_string();
    let variables = [
        ("PATH", &*programs.display().to_string()),
        ("DATASTORE_TYPE", "embedded"),
        ("EMBEDDED_PATH", data.as_str()),
    ];
    let (mut context, printed) = context(&variables);
    cluster_diags(&args(), folder.path(), &mut context).await.unwrap_or_else(|failure| panic!("{failure}"));
    let text = printed.text();
    let archive =
        text.lines().find_map(|line| line.strip_prefix("Diagnostic bundle created at ")).expect("an archive");
    let files = unpacked(archive.as_ref());
    let file = |name: &str| {
        let found = files.iter().find(|(path, _)| path.split_once('/').is_some_and(|(_, rest)| rest == name));
        found.unwrap_or_else(|| panic!("{name} in {:?}", files.keys())).1.as_str()
    };
    // One log per component was requested, from the focus node.
    assert_eq!(
        file("nodes/n2/calico-system/calico-node-b.log"),
        "answer to logs --since=0s -n calico-system calico-node-b --all-containers\n"
    );
    assert!(files.keys().all(|path| !path.contains("calico-node-a")), "{:?}", files.keys());
    assert_eq!(
        file("nodes/n2/calico-system/calico-node-b.calico-node.previous.log"),
        "answer to logs --previous --since=0s -n calico-system calico-node-b -c calico-node\n"
    );
    assert_eq!(
        file("links/calico-system/calico-node-b.log"),
        "-> ../../nodes/n2/calico-system/calico-node-b.log"
    );
    assert_eq!(
        file("nodes/n2/cni.log.log"),
        "answer to exec -n calico-system -t calico-node-b -c calico-node -- cat /var/log/calico/cni/cni.log\n"
    );
    // An image without programs reports by itself; in a shared namespace, only Calico's pods are inspected.
    for (name, what) in [
        ("ip-route.txt", "route"),
        ("nft-ruleset.txt", "nft"),
        ("ipset-list.txt", "ipset"),
        ("conntrack-list.txt", "conntrack"),
        ("tc-qdisc.txt", "qdisc"),
        ("cni.log.log", "cni-logs"),
    ] {
        let expected = format!(
            "native exec -n kube-system -t canal-x -c calico-node -- calico component node dump {what}\n"
        );
        assert_eq!(file(&format!("nodes/n1/{name}")), expected);
    }
    assert!(!text.contains("kube-proxy"), "{text}");
    // Nothing reports that eBPF is off, so its dumps are requested.
    assert!(file("nodes/n2/bpf-routes.json").contains("bpf routes dump --json"));
    assert_eq!(file("nodes/n2/ipset-list.txt"), "not here\n");
    assert_eq!(
        file("cluster/crd/ippools.crd.projectcalico.org.yaml"),
        "answer to get ippools.v1.crd.projectcalico.org -A -o yaml\n"
    );
    assert_eq!(file("cluster/version.yaml"), "answer to version -o yaml\n");
    assert!(file("cluster/kubernetes/networkpolicies.txt").contains("networkpolicies.networking.k8s.io"));
    assert!(file("tls/calico-system_typha-certs.yaml").contains("tls.key: <censored>\n"));
    assert!(files.values().all(|content| !content.contains("c2VjcmV0")));
    assert_eq!(file("files_with_unsupported_annotation.txt"), "cluster/kubernetes/configmaps.yaml");
    for line in [
        "==== Begin collecting diagnostics. ====\nCreated temporary directory: ",
        "unable to get secret calico-system/node-certs, skipping...\n",
        "Collecting detailed diags for pod calico-node-b in namespace calico-system on node n2...\n",
        "==== WARNING: Unsupported annotation usage detected in the cluster ====\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let temporary =
        text.lines().find_map(|line| line.strip_prefix("Created temporary directory: ")).expect("a folder");
    assert!(!std::path::Path::new(temporary).exists());
}

#[tokio::test]
async fn without_a_cluster_no_bundle_is_written() {
    let folder = Folder::new("cluster").expect("a folder");
    let programs = folder.path().join("programs");
    program(
        &programs,
        "kubectl",
        "echo E1117 noise >&2; echo 'connection to the server was refused' >&2; exit 1",
    );
    let (mut context, printed) = context(&[("PATH", &*programs.display().to_string())]);
    let failure = cluster_diags(&args(), folder.path(), &mut context).await.expect_err("no cluster");
    assert_eq!(
        failure.message(),
        "cannot reach a cluster with kubectl, so there is nothing to collect: connection to the server was refused"
    );
    assert_eq!(printed.text(), "");
}

#[test]
fn wrong_flags() {
    let shell = Shell::embedded();
    for (flags, expected) in [
        (
            "--since=soon",
            "Error executing command: invalid duration for since flag (try 10s, 5m, or 1h): soon\n",
        ),
        ("--max-logs=-1", "Error executing command: negative value for max-logs flag\n"),
        ("", "missing dependency: unable to locate kubectl in PATH\n"),
    ] {
        assert_eq!(shell.run(&format!("cluster diags {flags}")).error(), expected);
    }
}
