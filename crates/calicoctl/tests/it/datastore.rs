//! `calicoctl datastore`: the same data through all stores, in cycles, with nothing lost.

use crate::harness::Shell;
use calicoctl::for_tests::bundle::{self, Bundle};
use calicoctl::for_tests::sameness;
use serde_json::Value;
use std::collections::BTreeMap;
use testkit::{ApiServer, Etcd, Folder};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/migration/all-kinds.yaml");
const IMPORTED: &str = "Datastore information successfully imported. Point every component at this datastore, then run `calicoctl datastore migrate unlock`.\n";

/// The relevant contents of a file: each object and each entry by name.
fn contents(text: &str, in_kubernetes: bool) -> BTreeMap<String, Value> {
    let bundle: Bundle = bundle::read("a file", text).unwrap_or_else(|failure| panic!("{failure}\n{text}"));
    let mut contents = BTreeMap::new();
    let is_ours = |name: &str| !["default", "kube-admin", "kube-baseline"].contains(&name);
    for resource in bundle.resources.iter().chain(&bundle.supplement.resources) {
        let kind = resource.kind();
        let from_kubernetes = matches!(kind, api::Kind::Profile | api::Kind::WorkloadEndpoint)
            || resource.name().starts_with("knp.default.");
        if (kind == api::Kind::Tier && !is_ours(resource.name())) || (in_kubernetes && from_kubernetes) {
            continue;
        }
        let name = format!("{kind} {}/{}", resource.namespace(), resource.name());
        let essence = sameness::essence(resource).expect("JSON");
        let status = sameness::status(resource).expect("JSON");
        contents.insert(name, serde_json::json!({"essence": essence, "status": status}));
    }
    for entry in bundle.ipam.into_entries().expect("entries") {
        let bytes = model::encode(&entry.key, &entry.value).expect("a value");
        contents.insert(entry.key.to_string(), serde_json::from_slice(&bytes).expect("JSON"));
    }
    let mut spec = serde_json::to_value(&bundle.cluster_information.spec).expect("JSON");
    if let Some(words) = spec.get_mut("clusterType") {
        *words = words.as_str().unwrap_or_default().trim_end_matches(",kdd").into();
    }
    contents.insert("cluster".into(), spec);
    contents
}

fn compare(found: &str, wanted: &str, in_kubernetes: bool) {
    let (found, wanted) = (contents(found, in_kubernetes), contents(wanted, in_kubernetes));
    let names = |contents: &BTreeMap<String, Value>| contents.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&wanted));
    for (name, value) in wanted {
        assert_eq!(found[&name], value, "{name}");
    }
}

fn import(shell: &Shell, text: &str) -> crate::harness::Output {
    shell.pipe("datastore migrate import -f -", text)
}

#[test]
fn from_etcd_to_kubernetes_to_embedded_and_back() {
    let file = std::fs::read_to_string(FILE).expect("the file");
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let old = Shell::with(&[("ETCD_ENDPOINTS", &endpoint)], Folder::new("old").expect("a folder"));
    let output = old.run_with("datastore migrate import -f", &[FILE]);
    assert!(output.success, "{output:?}");
    assert_eq!(
        output.stdout,
        format!(
            "Datastore locked.\nSuccessfully applied 22 resource(s)\nImporting IPAM resources\n\
             Successfully applied 7 IPAM resource(s)\n{IMPORTED}"
        )
    );
    let from_etcd = old.run("datastore migrate export").text();
    compare(&from_etcd, &file, false);
    let identity = "uid\": \"7f5a2f3c-9d1b-4c57-8a54-2d2f6c1b9e01\"";
    assert!(from_etcd.contains(identity) && from_etcd.contains("2024-02-29T12:00:00Z"));

    // Kubernetes: without definitions at first; its nodes and namespaces already exist.
    let below = Etcd::start().expect("etcd");
    let api_server = ApiServer::start(&below.endpoint()).expect("kube-apiserver");
    for object in [
        r#"{"apiVersion":"v1","kind":"Node","metadata":{"name":"node-1"}}"#,
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}"#,
    ] {
        api_server.kubectl_with_input(&["create", "-f", "-"], object).expect("creating");
    }
    let kubeconfig = api_server.kubeconfig().display().to_string();
    let variables = [("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", kubeconfig.as_str())];
    let new = Shell::with(&variables, Folder::new("new").expect("a folder"));
    let output = import(&new, &from_etcd);
    assert!(output.success, "{output:?}");
    assert!(output.stdout.ends_with(IMPORTED), "{output:?}");
    for notice in [
        "[INFO] 1 'NetworkPolicy' resource(s) are not imported: Kubernetes' own objects represent them.",
        "[INFO] 1 'Profile' resource(s) are not imported",
        "[INFO] 1 'WorkloadEndpoint' resource(s) are not imported",
    ] {
        assert!(output.stderr.contains(notice), "{output:?}");
    }
    let from_kubernetes = new.run("datastore migrate export").text();
    compare(&from_kubernetes, &file, true);
    // A second time: everything exists, and stays as it is.
    let again = import(&new, &from_etcd);
    assert!(
        again.success && again.stderr.contains("resources were already stored, as in the file"),
        "{again:?}"
    );
    compare(&new.run("datastore migrate export").text(), &from_kubernetes, true);
    let version = new.run("version").text();
    assert!(version.ends_with("Cluster Version:   v3.32.1\nCluster Type:      k8s,bgp,kdd\n"), "{version}");
    policy_names_in_kubernetes(&new, &api_server);

    let embedded = Shell::embedded();
    assert!(import(&embedded, &from_kubernetes).success);
    compare(&embedded.run("datastore migrate export").text(), &file, true);
    // And directly from etcd, where identities and what Kubernetes derives itself are exported, too.
    let embedded = Shell::embedded();
    assert!(import(&embedded, &from_etcd).success);
    let from_embedded = embedded.run("datastore migrate export").text();
    compare(&from_embedded, &file, false);
    // Every store creates the built-in tiers itself.
    let identities = |text: &str| {
        let identities = bundle::read("", text).expect("a file").supplement.identities;
        identities
            .into_iter()
            .filter(|(path, _)| !path.contains("/tiers/") || path.ends_with("/security"))
            .collect::<Vec<_>>()
    };
    assert_eq!(identities(&from_embedded), identities(&from_etcd));
    let back = Etcd::start().expect("etcd");
    let endpoint = back.endpoint();
    let back = Shell::with(&[("ETCD_ENDPOINTS", &endpoint)], Folder::new("back").expect("a folder"));
    assert!(import(&back, &from_embedded).success);
    compare(&back.run("datastore migrate export").text(), &from_etcd, false);
}

fn policy_names_in_kubernetes(shell: &Shell, api_server: &ApiServer) {
    let object = r#"{"apiVersion":"crd.projectcalico.org/v1","kind":"NetworkPolicy","metadata":{"name":"default.old",
        "namespace":"shop","annotations":{"projectcalico.org/metadata":"{\"creationTimestamp\":null}"}},
        "spec":{"order":1,"selector":"all()","types":["Ingress"]}}"#;
    api_server.kubectl_with_input(&["create", "-f", "-"], object).expect("creating");
    let names = || {
        let arguments = ["get", "networkpolicies.crd.projectcalico.org", "-n", "shop", "-o", "name"];
        String::from_utf8(api_server.kubectl(&arguments).expect("kubectl").stdout).expect("text")
    };
    assert!(names().contains("/default.old\n"), "{}", names());
    let moved = "Policy name migration complete, migrated 1 policies.\n";
    assert_eq!(shell.run("datastore migrate-policy-names").text(), moved);
    assert!(names().contains("/old\n") && !names().contains("/default.old\n"), "{}", names());
    let none = "Policy name migration complete, migrated 0 policies.\n";
    assert_eq!(shell.run("datastore migrate-policy-names").text(), none);
}

#[test]
fn old_policy_names_in_etcd() {
    let etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let shell = Shell::with(&[("ETCD_ENDPOINTS", &endpoint)], Folder::new("names").expect("a folder"));
    let folder = "/calico/resources/v3/projectcalico.org";
    let put = |path: &str, name: &str, tier: &str, order: u32, annotation: &str| {
        let annotation = match annotation {
            "" => String::new(),
            name => format!(r#","annotations":{{"projectcalico.org/metadata":"{{\"name\":\"{name}\"}}"}}"#),
        };
        let value = format!(
            r#"{{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{{"name":"{name}"{annotation}}},"spec":{{"tier":"{tier}","order":{order},"selector":"all()"}}}}"#
        );
        let output = etcd
            .etcdctl(&["put", &format!("{folder}/globalnetworkpolicies/{path}"), &value])
            .expect("etcdctl");
        assert!(output.status.success());
    };
    put("default.legacy", "default.legacy", "", 1, "");
    put("bare", "bare", "default", 2, "bare");
    put("sec.stale", "sec.stale", "sec", 3, "sec.renamed");
    // Both names exist: the plain one is the policy, the old one a leftover.
    put("default.twice", "default.twice", "default", 4, "");
    put("twice", "twice", "default", 5, "twice");
    assert_eq!(
        shell.run("datastore migrate-policy-names").text(),
        "Policy name migration complete, migrated 2 policies.\n"
    );
    let keys = etcd.etcdctl(&["get", "--prefix", "--keys-only", folder]).expect("etcdctl").stdout;
    let keys = String::from_utf8(keys).expect("text");
    let names: Vec<&str> =
        keys.lines().filter_map(|line| line.rsplit('/').next()).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["bare", "legacy", "sec.stale", "twice"]);
    let kept =
        etcd.etcdctl(&["get", &format!("{folder}/globalnetworkpolicies/twice")]).expect("etcdctl").stdout;
    assert!(String::from_utf8(kept).expect("text").contains("\"order\":5"));
    assert_eq!(
        shell.run("datastore migrate-policy-names").text(),
        "Policy name migration complete, migrated 0 policies.\n"
    );
}

#[test]
fn only_a_locked_datastore_is_exported() {
    let shell = Shell::embedded();
    let error = shell.run("datastore migrate export").error();
    assert!(error.contains("error while checking if datastore was locked"), "{error}");
    assert!(
        shell
            .run("datastore migrate unlock")
            .error()
            .starts_with("error retrieving ClusterInformation for unlocking")
    );
    assert_eq!(shell.run("datastore migrate lock").text(), "Datastore locked.\n");
    let text = shell.run("datastore migrate export").text();
    assert_eq!(text.matches("---\n").count(), bundle::KINDS.len());
    assert!(
        text.starts_with(
            "apiVersion: projectcalico.org/v3\nitems: []\nkind: IPPoolList\nmetadata:\n  resourceVersion: "
        ),
        "{text}"
    );
    assert_eq!(shell.run("datastore migrate unlock").text(), "Datastore unlocked.\n");
    assert_eq!(
        shell.run("datastore migrate export").error(),
        "datastore is not locked. Run the `calicoctl datastore migrate lock` command in order to begin migration\n"
    );
}

#[test]
fn an_interrupted_import_is_run_again() {
    let file = std::fs::read_to_string(FILE).expect("the file");
    // The state after an interrupted import: some resources, and no addresses.
    let (resources, rest) = file.split_once("===\n").expect("parts");
    let some: Vec<&str> = resources.split("---\n").take(9).collect();
    let information = rest.split("===\n").next().expect("the second part");
    let shell = Shell::embedded();
    let first = import(&shell, &format!("{}---\n===\n{information}===\n{{}}\n", some.join("---\n")));
    // The peer in the file needs a filter that was cut off.
    assert!(first.error().contains("BGPPeer(rack): error with field spec.filters"));
    let again = import(&shell, &file);
    assert!(again.success, "{again:?}");
    assert!(again.stderr.contains("8 resources were already stored"), "{again:?}");
    compare(&shell.run("datastore migrate export").text(), &file, false);
}

#[test]
fn a_datastore_that_goes_away_during_an_import() {
    use std::fmt::Write as _;
    let file = std::fs::read_to_string(FILE).expect("the file");
    let mut many = String::new();
    for number in 0..5000 {
        let name = format!("set-{number:04}");
        write!(many, "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {{name: {name}}}\nspec: {{nets: [10.0.0.0/8]}}\n---\n")
            .expect("text");
    }
    let file = format!("{many}{file}");
    let mut etcd = Etcd::start().expect("etcd");
    let endpoint = etcd.endpoint();
    let shell = Shell::with(&[("ETCD_ENDPOINTS", &endpoint)], Folder::new("away").expect("a folder"));
    let sets = "/calico/resources/v3/projectcalico.org/globalnetworksets/";
    std::thread::scope(|scope| {
        let import = scope.spawn(|| import(&shell, &file));
        loop {
            let output = etcd.etcdctl(&["get", "--prefix", "--keys-only", sets]).expect("etcdctl").stdout;
            if output.len() > 20 * sets.len() || import.is_finished() {
                break;
            }
        }
        etcd.kill();
        let error = import.join().expect("the import").error();
        assert!(
            error.contains("What was stored stays: repair the cause and run the same import again."),
            "{error}"
        );
        // It does not try the remaining thousands one by one.
        assert!(error.lines().count() < 40, "{error}");
    });
    etcd.restart().expect("etcd");
    let again = import(&shell, &file);
    assert!(
        again.success && again.stderr.contains("resources were already stored, as in the file"),
        "{again:?}"
    );
    compare(&shell.run("datastore migrate export").text(), &file, false);
}

#[test]
fn other_data_is_not_overwritten() {
    let file = std::fs::read_to_string(FILE).expect("the file");
    let shell = Shell::embedded();
    assert!(import(&shell, &file).success);
    let other = file
        .replace("natOutgoing: true", "natOutgoing: false")
        .replace("name: office\n", "name: bureau\n")
        .replace("\"maxBlocksPerHost\": 4", "\"maxBlocksPerHost\": 5");
    assert_eq!(
        import(&shell, &other).error(),
        "datastore already has Calico resources:\n  IPPool(pool-v4) differs from the file\n  \
         GlobalNetworkSet(office) is not in the file\n  IPAMConfigKey() differs from the file\n\
         Nothing was changed. Clear out all Calico resources first, or use --force to overwrite what differs from the \
         file and to leave what is not in it.\n"
    );
    compare(&shell.run("datastore migrate export").text(), &file, false);
    let forced = shell.pipe("datastore migrate import --force -f -", &other);
    assert!(forced.success, "{forced:?}");
    let mut found = contents(&shell.run("datastore migrate export").text(), false);
    assert!(found.remove("GlobalNetworkSet /office").is_some());
    assert_eq!(found, contents(&other, false));
}

#[test]
fn unknown_newer_fields_are_kept() {
    let file = std::fs::read_to_string(FILE).expect("the file");
    let newer = file.replace("  selector: all()\n", "  selector: all()\n  fromTheFuture: {a: [1, two]}\n");
    assert_ne!(newer, file);
    let shell = Shell::embedded();
    let output = import(&shell, &newer);
    assert!(output.success && output.stderr.is_empty(), "{output:?}");
    let exported = shell.run("datastore migrate export").text();
    assert!(exported.contains("    fromTheFuture:\n      a:\n      - 1\n      - two\n"), "{exported}");
}

#[test]
fn mistakes_are_found_before_anything_is_written() {
    let file = std::fs::read_to_string(FILE).expect("the file");
    let shell = Shell::embedded();
    for (text, expected) in [
        (file.replace("cidr: 10.244.0.0/16", "cidr: not-a-range"), "IPPool(pool-v4): error with field"),
        (file.replace("===\n", "==\n"), "is improperly formatted"),
        (file.replace("name: partners\n", "name: partners\n  namespace: [\n"), "resources: line "),
        (String::new(), "is improperly formatted"),
    ] {
        let error = import(&shell, &text).error();
        assert!(error.contains(expected), "{error}");
        assert!(shell.run("datastore migrate export").error().contains("resource does not exist"));
    }
    let error = shell.run("datastore migrate import -f /nowhere/file").error();
    assert!(error.starts_with("error while reading migration file: /nowhere/file: No such file"), "{error}");
    assert!(!shell.run("datastore migrate import").success);
}

#[test]
fn nodes_without_kubernetes() {
    let file = std::fs::read_to_string(FILE).expect("the file");
    let bare = file.replace("  orchRefs:\n  - {nodeName: node-1, orchestrator: k8s}\n", "");
    let renamed =
        file.replace("{nodeName: node-1, orchestrator: k8s}", "{nodeName: kube-1, orchestrator: k8s}");
    let shell = Shell::embedded();
    assert!(import(&shell, &bare).success);
    let error = shell.run("datastore migrate export").error();
    assert!(error.contains("node node-1 missing a 'k8s' orchestrator reference"), "{error}");
    compare(&shell.run("datastore migrate export --keep-node-names").text(), &bare, false);

    let shell = Shell::embedded();
    assert!(import(&shell, &renamed).success);
    let found = contents(&shell.run("datastore migrate export").text(), false);
    for name in [
        "Node /kube-1",
        "FelixConfiguration /node.kube-1",
        "WorkloadEndpoint shop/kube--1-k8s-web--1-eth0",
        "BlockAffinityKey(cidr=10.244.45.0/26, host=kube-1, affinityType=host)",
        "IPAMHandleKey(id=vxlan-tunnel-addr-kube-1)",
    ] {
        assert!(found.contains_key(name), "{name} in {:?}", found.keys());
    }
    assert_eq!(found["BlockKey(cidr=10.244.45.0/26)"]["affinity"], "host:kube-1");
    assert_eq!(found["BGPPeer /rack"]["essence"]["spec"]["node"], "kube-1");
    assert_eq!(found["HostEndpoint /node-1-eth0"]["essence"]["spec"]["node"], "kube-1");
}
