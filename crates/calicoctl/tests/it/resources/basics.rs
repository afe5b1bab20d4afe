//! Each command on resources, with its flags and messages.

use crate::harness::Shell;

const POLICY: &str = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata:\n  name: p1\nspec:\n  selector: all()\n";
const POOL: &str =
    "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: a\nspec:\n  cidr: 10.0.0.0/16\n";

fn policy(name: &str) -> String {
    POLICY.replace("p1", name)
}

#[test]
fn create_fails_on_existing_objects_or_skips_them() {
    let shell = Shell::embedded();
    assert_eq!(shell.pipe("create -f -", POOL).text(), "Successfully created 1 'IPPool' resource(s)\n");
    let error = shell.pipe("create -f -", POOL).error();
    assert_eq!(error, "failed to create 'IPPool' resource: [resource already exists: IPPool(a)]\n");
    let text = shell.pipe("create --skip-exists -f -", POOL).text();
    assert_eq!(text, "Successfully created 1 'IPPool' resource(s)\n");
    let two = format!("{POOL}---\n{}", policy("x"));
    let output = shell.pipe("create -f -", &two);
    assert_eq!(output.stdout, "Partial success: created the first 1 out of 2 resources:\n");
    assert_eq!(output.stderr, "hit error: [resource already exists: IPPool(a)]\n");
    assert!(!output.success);
}

#[test]
fn apply_creates_and_updates() {
    let shell = Shell::embedded();
    assert_eq!(
        shell.pipe("apply -f -", POLICY).text(),
        "Successfully applied 1 'GlobalNetworkPolicy' resource(s)\n"
    );
    let uid = shell.run_with("get gnp p1 -o", &["go-template={{range .}}{{.UID}}{{end}}"]).text();
    let changed = POLICY.replace("all()", "has(x)");
    assert_eq!(
        shell.pipe("apply -f -", &changed).text(),
        "Successfully applied 1 'GlobalNetworkPolicy' resource(s)\n"
    );
    let columns = shell.run("get gnp p1 -o custom-columns=SELECTOR").text();
    assert_eq!(columns, "SELECTOR   \nhas(x)     \n\n");
    assert_eq!(shell.run_with("get gnp p1 -o", &["go-template={{range .}}{{.UID}}{{end}}"]).text(), uid);
    let mixed = format!("{POOL}---\n{POLICY}");
    assert_eq!(shell.pipe("apply -f -", &mixed).text(), "Successfully applied 2 resource(s)\n");
}

#[test]
fn apply_attempts_every_document_and_reports_each() {
    let shell = Shell::embedded();
    let good = policy("good");
    let bad = policy("bad").replace("all()", "all(");
    let worse = policy("Worse");
    let path = shell.file("many.yaml", format!("{bad}---\n{good}---\n{worse}"));
    let output = shell.run(&format!("apply -f {path}"));
    assert!(!output.success);
    assert_eq!(
        output.stdout,
        "Partial success: applied the first 1 out of 3 'GlobalNetworkPolicy' resources:\n"
    );
    for part in [
        "hit error: 2 mistakes, shown above",
        "metadata.name",
        "many.yaml:6:",
        "many.yaml:18:",
        "2 mistakes in",
    ] {
        assert!(output.stderr.contains(part), "{part}: {}", output.stderr);
    }
    assert_eq!(shell.run("get gnp -o name").text(), "globalnetworkpolicy/good\n");
}

#[test]
fn a_policy_may_come_before_its_tier() {
    let shell = Shell::embedded();
    let tiered = policy("sec.p1").replace("  selector", "  tier: sec\n  selector");
    let tier = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata:\n  name: sec\nspec:\n  order: 5\n";
    let text = shell.pipe("create -f -", format!("{tiered}---\n{tier}")).text();
    assert_eq!(text, "Successfully created 2 resource(s)\n");
    let error = shell.run("delete tier sec").error();
    assert!(error.starts_with("Failed to delete 'Tier' resource: operation "), "{error}");
    assert!(error.contains("Cannot delete a non-empty tier"), "{error}");
    // And both are deleted by one delete, the policy first.
    let text = shell.pipe("delete -f -", format!("{tier}---\n{tiered}")).text();
    assert_eq!(text, "Successfully deleted 2 resource(s)\n");
}

#[test]
fn replace_wants_the_object_and_the_latest_version() {
    let shell = Shell::embedded();
    let error = shell.pipe("replace -f -", POLICY).error();
    assert_eq!(
        error,
        "failed to replace 'GlobalNetworkPolicy' resource: [resource does not exist: GlobalNetworkPolicy(p1)]\n"
    );
    shell.pipe("create -f -", POLICY).text();
    assert_eq!(
        shell.pipe("replace -f -", POLICY).text(),
        "Successfully replaced 1 'GlobalNetworkPolicy' resource(s)\n"
    );
    let old = shell.run("get gnp p1 -o yaml").text();
    assert_eq!(
        shell.pipe("replace -f -", &old).text(),
        "Successfully replaced 1 'GlobalNetworkPolicy' resource(s)\n"
    );
    let error = shell.pipe("replace -f -", &old).error();
    assert!(
        error.contains("update conflict: GlobalNetworkPolicy(p1)") && error.contains("is out of date"),
        "{error}"
    );
    let error = shell.pipe("apply -f -", &old).error();
    assert!(error.contains("is out of date"), "{error}");
}

#[test]
fn delete_by_name_and_by_file() {
    let shell = Shell::embedded();
    shell.pipe("create -f -", format!("{}---\n{}---\n{}", policy("a"), policy("b"), policy("c"))).text();
    assert_eq!(
        shell.run("delete gnp a").text(),
        "Successfully deleted 1 'GlobalNetworkPolicy' resource(s)\n"
    );
    let output = shell.run("delete gnp a b");
    assert_eq!(output.stdout, "Successfully deleted 1 'GlobalNetworkPolicy' resource(s)\n");
    assert_eq!(
        output.stderr,
        "Failed to delete 'GlobalNetworkPolicy' resource: resource does not exist: GlobalNetworkPolicy(a)\n"
    );
    let text = shell.run("delete gnp a -s").text();
    assert_eq!(text, "Successfully deleted 1 'GlobalNetworkPolicy' resource(s)\n");
    assert_eq!(
        shell.pipe("delete -f -", policy("c")).text(),
        "Successfully deleted 1 'GlobalNetworkPolicy' resource(s)\n"
    );
    assert_eq!(shell.run("get gnp -o name").text(), "");
    assert!(shell.run("delete gnp").error().starts_with("resource name may not be empty"));
    assert!(
        shell
            .run("delete clusterinfo default")
            .error()
            .contains("operation delete is not supported on ClusterInformation")
    );
}

#[test]
fn get_shows_existing_objects_and_fails_for_the_rest() {
    let shell = Shell::embedded();
    shell.pipe("create -f -", POOL).text();
    let output = shell.run("get ippool a nosuch");
    assert_eq!(output.stdout, "NAME   CIDR          SELECTOR   \na      10.0.0.0/16   all()      \n\n");
    assert_eq!(output.stderr, "resource does not exist: IPPool(nosuch)\n");
    assert!(!output.success);
    assert_eq!(shell.run("get ippool nosuch -o yaml").stdout, "null\n");
    assert_eq!(shell.run("get ippool a a -o json").text().matches("\"kind\": \"IPPool\"").count(), 2);
    assert_eq!(shell.pipe("get -o name -f -", POOL).text(), "ippool/a\n");
    assert_eq!(shell.run("get ippool/a -o name").text(), "ippool/a\n");
    for (line, message) in [
        ("get ippool -n x", "IPPool is not namespaced\n"),
        ("get np -n x -A", "cannot use both --namespace and --all-namespaces flags at the same time\n"),
        ("get np a -A", "cannot use --all-namespace flag for getting a single resource\n"),
        ("get ippool -o xml", "unrecognized output format 'xml'\n"),
        ("get xyz", "resource type 'xyz' is not supported"),
    ] {
        assert!(shell.run(line).error().starts_with(message), "{line}");
    }
    let template = shell.file("t.tmpl", "{{range .}}{{range .Items}}{{.Name}}={{.Spec.CIDR}};{{end}}{{end}}");
    assert_eq!(shell.run(&format!("get ippool -o go-template-file={template}")).text(), "a=10.0.0.0/16;");
}

#[test]
fn patches_of_all_three_types_are_honoured() {
    let shell = Shell::embedded();
    let policy = "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata:\n  name: p\n  labels: {a: '1', b: '2'}\nspec:\n  order: 5\n  selector: all()\n  ingress:\n  - action: Allow\n  - action: Deny\n";
    shell.pipe("create -f -", policy).text();
    let actions = || {
        shell
            .run_with("get gnp p -o", &["go-template={{range .}}{{range .Spec.Ingress}}{{.Action}} {{end}}{{.Spec.Order}} {{.Labels}}{{end}}"])
            .text()
    };
    let patched = "Successfully patched 1 'GlobalNetworkPolicy' resource\n";
    let text = shell
        .run_with("patch gnp p -p", &[r#"{"spec":{"order":7},"metadata":{"labels":{"b":null}}}"#])
        .text();
    assert_eq!(text, patched);
    assert_eq!(actions(), "Allow Deny 7 map[a:1 projectcalico.org/tier:default]");
    let text =
        shell.run_with("patch gnp p --type merge -p", &[r#"{"spec":{"ingress":[{"action":"Log"}]}}"#]).text();
    assert_eq!(text, patched);
    assert_eq!(actions(), "Log 7 map[a:1 projectcalico.org/tier:default]");
    let operations = r#"[{"op":"test","path":"/spec/order","value":7},{"op":"add","path":"/spec/ingress/0","value":{"action":"Pass"}},{"op":"remove","path":"/metadata/labels/a"}]"#;
    assert_eq!(shell.run_with("patch gnp p -t json -p", &[operations]).text(), patched);
    assert_eq!(actions(), "Pass Log 7 map[projectcalico.org/tier:default]");
    for (kind, patch, message) in [
        ("json", r#"[{"op":"test","path":"/spec/order","value":8}]"#, "hit error: performing json patch"),
        ("strategic", "{", "hit error: the patch is not valid JSON"),
        ("strategic", r#"{"spec":{"nosuch":1}}"#, "hit error: creating resource from patched data"),
        ("merge", r#"{"metadata":{"name":"q"}}"#, "hit error: a patch cannot change"),
        ("merge", r#"{"spec":{"selector":"'x"}}"#, "hit error: updating existing resource"),
        ("other", "{}", "unknown patch type 'other'"),
    ] {
        let error = shell.run_with(&format!("patch gnp p --type {kind} -p"), &[patch]).error();
        assert!(error.starts_with(message), "{error}");
    }
    assert_eq!(actions(), "Pass Log 7 map[projectcalico.org/tier:default]");
    let error = shell.run_with("patch gnp nosuch -p", &["{}"]).error();
    assert_eq!(error, "hit error: resource does not exist: GlobalNetworkPolicy(nosuch)\n");
}

#[test]
fn labels_are_set_changed_and_removed() {
    let shell = Shell::embedded();
    shell.pipe("create -f -", POOL).text();
    assert_eq!(shell.run("label ippool a x=1").text(), "Successfully set label x on ippool a\n");
    assert_eq!(shell.run("label ippool a x=1").text(), "Successfully updated label x on ippool a\n");
    let error = shell.run("label ippool a x=2").error();
    assert_eq!(
        error,
        "failed to update label of ippool a, key x is already present. please use '--overwrite' to set a new value\n"
    );
    assert_eq!(
        shell.run("label ippool a x=2 --overwrite").text(),
        "Successfully updated label x on ippool a\n"
    );
    assert_eq!(shell.run("label ippool a x --remove").text(), "Successfully removed label x from ippool a\n");
    let error = shell.run("label ippool a x --remove").error();
    assert_eq!(error, "cannot remove label of ippool a, key x does not exist\n");
    assert_eq!(shell.run("label ippool a x").error(), "invalid label x\n");
    assert_eq!(shell.run("label ippool b x=1").error(), "ippool b not found\n");
}

#[test]
fn validation_needs_no_datastore() {
    let shell =
        Shell::with(&[("DATASTORE_TYPE", "nonsense")], testkit::Folder::new("calicoctl").expect("a folder"));
    assert_eq!(shell.pipe("validate -f -", POOL).text(), "Successfully validated 1 'IPPool' resource(s)\n");
    let output = shell.pipe("validate -f -", POOL.replace("/16", "/33"));
    assert!(
        output.stderr.contains("failed to validate 'IPPool' resource: 1 mistake, shown above\n"),
        "{output:?}"
    );
    assert!(output.stderr.contains("stdin:6:9"), "{output:?}");
    assert!(!output.success);
}

#[test]
fn diff_and_dry_run_show_and_do_not_write() {
    let mut shell = Shell::embedded();
    let created = shell.pipe("apply --dry-run -f -", POOL).text();
    assert!(created.contains("+  cidr: 10.0.0.0/16\n"), "{created}");
    assert!(created.ends_with(
        "Dry run: 1 resource would be created, 0 changed, 0 left unchanged; nothing was written\n"
    ));
    assert_eq!(shell.run("get ippool -o name").text(), "");
    shell.pipe("apply -f -", POOL).text();
    let same = shell.pipe("diff -f -", POOL).text();
    assert_eq!(
        same,
        "Dry run: 0 resources would be created, 0 changed, 1 left unchanged; nothing was written\n"
    );
    let changed = shell.pipe("diff -f -", format!("{POOL}  natOutgoing: true\n")).text();
    assert!(changed.contains("--- IPPool(a) (stored)\n+++ IPPool(a) (new)\n"), "{changed}");
    assert!(changed.contains("\n+  natOutgoing: true\n"), "{changed}");
    assert!(!changed.contains('\u{1b}'));
    shell.colours = true;
    let changed = shell.pipe("diff -f -", format!("{POOL}  natOutgoing: true\n")).text();
    assert!(changed.contains("\u{1b}[32m+  natOutgoing: true\u{1b}[0m\n"), "{changed}");
    shell.colours = false;
    let error = shell.pipe("create --dry-run -f -", POOL).error();
    assert!(error.contains("resource already exists: IPPool(a)"), "{error}");
    let error = shell.pipe("replace --dry-run -f -", POOL.replace("name: a", "name: b")).error();
    assert!(error.contains("resource does not exist: IPPool(b)"), "{error}");
    let error = shell.pipe("diff -f -", POOL.replace("/16", "/17")).error();
    assert!(error.contains("spec.cidr"), "{error}");
    let deleted = shell.run("delete ippool a --dry-run").text();
    assert!(deleted.contains("-  cidr: 10.0.0.0/16\n") && deleted.contains("would be deleted"), "{deleted}");
    let patched = shell.run_with("patch ippool a --dry-run -p", &[r#"{"spec":{"disabled":true}}"#]).text();
    assert!(patched.contains("+  disabled: true\n"), "{patched}");
    assert_eq!(
        shell.run("get ippool -o custom-columns=NAME,DISABLED").text(),
        "NAME   DISABLED   \na      false      \n\n"
    );
}

#[test]
fn directories_are_read_in_order_and_recursively_on_request() {
    let shell = Shell::embedded();
    shell.file("d/b.yaml", policy("b"));
    shell.file("d/a.json", r#"{"apiVersion":"projectcalico.org/v3","kind":"GlobalNetworkPolicy","metadata":{"name":"a"},"spec":{}}"#);
    shell.file("d/ignored.txt", "not ours");
    shell.file("d/deep/c.yml", policy("c"));
    let directory = shell.path("d").display().to_string();
    let text = shell.run(&format!("apply -f {directory}")).text();
    assert_eq!(text, "Successfully applied 2 'GlobalNetworkPolicy' resource(s)\n");
    let text = shell.run(&format!("apply -R -f {directory}")).text();
    assert_eq!(text, "Successfully applied 3 'GlobalNetworkPolicy' resource(s)\n");
    assert_eq!(
        shell.run(&format!("get -R -f {directory} -o name")).text(),
        "globalnetworkpolicy/a\nglobalnetworkpolicy/b\nglobalnetworkpolicy/c\n"
    );
}

#[test]
fn lists_and_printed_objects_can_be_fed_back() {
    let shell = Shell::embedded();
    shell.pipe("apply -f -", format!("{}---\n{}", policy("a"), policy("b"))).text();
    for format in ["yaml", "json"] {
        let printed = shell.run(&format!("get gnp -o {format}")).text();
        let other = Shell::embedded();
        let text = other.pipe("apply -f -", &printed).text();
        assert_eq!(text, "Successfully applied 2 'GlobalNetworkPolicy' resource(s)\n");
        let exported = shell.run(&format!("get gnp a b --export -o {format}")).text();
        let text = other.pipe("delete -f -", &exported).text();
        assert_eq!(text, "Successfully deleted 2 'GlobalNetworkPolicy' resource(s)\n");
    }
}

#[test]
fn many_objects_are_applied_at_once_and_counted_correctly() {
    let shell = Shell::embedded();
    let many: Vec<String> = (0..200).map(|number| policy(&format!("p{number}"))).collect();
    let text = shell.pipe("apply -f -", many.join("---\n")).text();
    assert_eq!(text, "Successfully applied 200 'GlobalNetworkPolicy' resource(s)\n");
    // Some exist, some are new: each is counted separately.
    let more: Vec<String> = (150..350).map(|number| policy(&format!("p{number}"))).collect();
    let output = shell.pipe("create -f -", more.join("---\n"));
    assert_eq!(
        output.stdout,
        "Partial success: created the first 150 out of 200 'GlobalNetworkPolicy' resources:\n"
    );
    assert_eq!(output.stderr.matches("resource already exists").count(), 50);
    let text = shell.pipe("apply -f -", more.join("---\n")).text();
    assert_eq!(text, "Successfully applied 200 'GlobalNetworkPolicy' resource(s)\n");
    assert_eq!(shell.run("get gnp -o name").text().lines().count(), 350);
    let tier = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata:\n  name: t\nspec:\n  order: 1\n";
    let output = shell.pipe("apply -f -", format!("{tier}---\n{}", tier.replace("order: 1", "order: 2")));
    assert!(output.success, "{output:?}");
    assert_eq!(shell.run("get tier t").text(), "NAME   ORDER   \nt      2       \n\n");
    // The same name twice: the later one wins, as if applied in sequence.
    let twice = format!("{}---\n{}", policy("same"), policy("same").replace("all()", "has(second)"));
    let output = shell.pipe("apply -f -", twice);
    assert!(output.success, "{output:?}");
    assert_eq!(
        output.stderr,
        "Warning: GlobalNetworkPolicy(same) is in the input 2 times; they are written in order\n"
    );
    assert!(shell.run("get gnp same -o custom-columns=SELECTOR").text().contains("has(second)"));
}

#[test]
fn help_completion_and_manual_pages() {
    let shell = Shell::embedded();
    for line in ["--help", "get -h", "apply --help", "", "-h"] {
        let text = shell.run(line).text();
        assert!(text.contains("Usage: calicoctl"), "{line}: {text}");
    }
    assert!(shell.run("get -h").text().contains("Examples:"));
    for line in ["nosuch", "get --nosuch", "patch a", "-l nosuch get ippool", "get ippool --log-level nosuch"]
    {
        assert!(!shell.run(line).error().is_empty(), "{line}");
    }
    for shell_name in ["bash", "zsh", "fish"] {
        assert!(shell.run(&format!("completion {shell_name}")).text().contains("calicoctl"));
    }
    let pages = shell.path("man").display().to_string();
    assert!(shell.run(&format!("man {pages}")).text().starts_with("Wrote "));
    let page = std::fs::read_to_string(shell.path("man").join("calicoctl-get.1")).expect("a page");
    assert!(page.contains("calicoctl\\-get"), "{page}");
    assert!(shell.run("man").text().contains(".TH calicoctl"));
}

#[test]
fn a_cluster_of_another_version_is_judged_by_possible_damage() {
    use api::{ClusterInformationSpec, Object};
    let shell = Shell::embedded();
    shell.pipe("apply -f -", POLICY).text();
    let set = |version: &str| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let mut config = client::ClientConfig {
            datastore_type: client::DatastoreType::Embedded,
            etcd: Default::default(),
            kubernetes: Default::default(),
            embedded_path: String::new(),
        };
        config.embedded_path = shell.variables["EMBEDDED_PATH"].clone();
        runtime.block_on(async {
            let client = client::Client::open(&config).await.expect("the store");
            let informations = client.resource::<ClusterInformationSpec>();
            informations
                .update_with_retry("", "default", |information: &mut Object<ClusterInformationSpec>| {
                    version.clone_into(&mut information.spec.calico_version);
                    true
                })
                .await
                .expect("an update");
        });
    };
    set("v3.31.0");
    let output = shell.pipe("apply -f -", POLICY);
    assert!(output.success && output.stderr.starts_with("Warning: version mismatch"), "{output:?}");
    shell.pipe("apply --allow-version-mismatch -f -", POLICY).text();
    set("v4.1.0");
    let error = shell.pipe("apply -f -", POLICY).error();
    assert!(error.starts_with("version mismatch.\nClient Version:   v"), "{error}");
    assert!(error.ends_with("Use --allow-version-mismatch to override\n"), "{error}");
    let output = shell.run("get gnp -o name");
    assert!(
        output.success && output.stdout == "globalnetworkpolicy/p1\n" && !output.stderr.is_empty(),
        "{output:?}"
    );
    shell.pipe("apply --allow-version-mismatch -f -", POLICY).text();
}
