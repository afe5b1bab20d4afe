//! What users of kubectl expect: selectors, paths, several files, `describe`, `edit`, `help`.

use crate::capture::program;
use crate::harness::Shell;
use std::process::ExitCode;

const POOL: &str =
    "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: a\nspec:\n  cidr: 10.0.0.0/16\n";

fn policy(name: &str, labels: &str) -> String {
    format!(
        "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata:\n  name: {name}\n  labels: {labels}\nspec:\n  selector: all()\n"
    )
}

#[test]
fn objects_are_selected_by_label_in_both_languages() {
    let shell = Shell::embedded();
    let all = [policy("a", "{app: web, env: prod}"), policy("b", "{app: db}"), policy("c", "{}")];
    shell.pipe("apply -f -", all.join("---\n")).text();
    for (selector, expected) in [
        ("app=web", "a"),
        ("app!=web", "b c"),
        ("app in (web,db)", "a b"),
        ("!app", "c"),
        ("app,env=prod", "a"),
        ("app == 'db' || has(env)", "a b"),
    ] {
        let text = shell.run_with("get gnp -o name -l", &[selector]).text();
        let names: Vec<&str> = text.lines().filter_map(|line| line.split('/').nth(1)).collect();
        assert_eq!(names.join(" "), expected, "{selector}");
    }
    assert!(shell.run_with("get gnp -l", &["a b"]).error().starts_with("invalid selector 'a b'"));
    assert_eq!(
        shell.run("get gnp a -l app=web").error(),
        "name cannot be provided when a selector is specified\n"
    );
    // Before the command, `-l` still is the log level.
    shell.run("-l error get gnp").text();
    assert!(shell.run("-l nosuch get gnp").error().starts_with("unknown log level"));
    shell.run("ipam show -l error").text();
}

#[test]
fn paths_print_fields() {
    let shell = Shell::embedded();
    shell
        .pipe(
            "apply -f -",
            format!("{POOL}---\n{}", POOL.replace("name: a", "name: b").replace("10.0", "10.1")),
        )
        .text();
    let path = |words: &str, template: &str| shell.run_with(words, &[template]).text();
    assert_eq!(path("get ippool a -o", "jsonpath={.spec.cidr}"), "10.0.0.0/16");
    assert_eq!(
        path("get ippool -o", "jsonpath={range .items[*]}{.metadata.name}={.spec.cidr}{\"\\n\"}{end}"),
        "a=10.0.0.0/16\nb=10.1.0.0/16\n"
    );
    assert_eq!(path("get ippool b a -o", "jsonpath={.items[*].metadata.name} {.kind}"), "b a List");
    let file = shell.file("path.txt", "{.items[?(@.spec.cidr==\"10.1.0.0/16\")].metadata.name}\n");
    assert_eq!(shell.run(&format!("get ippool -o jsonpath-file={file}")).text(), "b");
    assert!(shell.run_with("get ippool -o", &["jsonpath={.a"]).error().contains("unclosed action"));
}

#[test]
fn several_files_and_folders_are_one_input() {
    let shell = Shell::embedded();
    let one = shell.file("one.yaml", policy("a", "{}"));
    shell.file("folder/two.yaml", policy("b", "{}"));
    let folder = shell.path("folder").display().to_string();
    let text = shell.pipe(&format!("apply -f {one} -f {folder} -f -"), policy("c", "{}")).text();
    assert_eq!(text, "Successfully applied 3 'GlobalNetworkPolicy' resource(s)\n");
    // A file that is named twice, or together with its folder, counts once.
    let two = shell.path("folder/two.yaml").display().to_string();
    let text = shell.run(&format!("apply -f {folder} -f {two} -f {one} -f {one}")).text();
    assert_eq!(text, "Successfully applied 2 'GlobalNetworkPolicy' resource(s)\n");
    assert_eq!(
        shell.run(&format!("get -o name -f {one} -f {folder}")).text(),
        "globalnetworkpolicy/a\nglobalnetworkpolicy/b\n"
    );
    let error = shell.run(&format!("apply -f {one} -f /nonexistent.yaml")).error();
    assert!(error.contains("open /nonexistent.yaml: no such file or directory"), "{error}");
}

#[test]
fn removing_a_field_succeeds_whether_or_not_it_exists() {
    let shell = Shell::embedded();
    shell.pipe("apply -f -", POOL).text();
    // As in the example of `patch -h`.
    let patch = r#"{"spec": {"disabled": null}}"#;
    for before in ["true", "false"] {
        shell.run_with("patch ippool a -p", &[&format!(r#"{{"spec":{{"disabled":{before}}}}}"#)]).text();
        let text = shell.run_with("patch ippool a --type=merge -p", &[patch]).text();
        assert_eq!(text, "Successfully patched 1 'IPPool' resource\n");
        assert_eq!(shell.run("get ippool -o custom-columns=DISABLED").text(), "DISABLED   \nfalse      \n\n");
    }
}

#[test]
fn failures_are_printed_one_per_line() {
    let shell = Shell::embedded();
    let two = format!("{}---\n{}", policy("a", "{}"), policy("b", "{}"));
    shell.pipe("create -f -", &two).text();
    assert_eq!(
        shell.pipe("create -f -", &two).error(),
        "failed to create any 'GlobalNetworkPolicy' resources:\n- resource already exists: \
         GlobalNetworkPolicy(a)\n- resource already exists: GlobalNetworkPolicy(b)\n"
    );
}

#[test]
fn differences_set_the_exit_code_on_request() {
    let shell = Shell::embedded();
    let code = |line: &str, input: &str| shell.pipe(line, input).code;
    assert_eq!(code("diff -f -", POOL), ExitCode::SUCCESS);
    assert_eq!(code("diff --exit-code -f -", POOL), ExitCode::from(1));
    shell.pipe("apply -f -", POOL).text();
    assert_eq!(code("diff --exit-code -f -", POOL), ExitCode::SUCCESS);
    let output = shell.pipe("diff --exit-code -f -", POOL.replace("cidr:", "cider:"));
    assert_eq!(output.code, ExitCode::from(2), "{output:?}");
    assert_eq!(code("diff --exit-code -f - --nosuch", POOL), ExitCode::from(2));
    assert_eq!(code("diff -f -", "nonsense"), ExitCode::from(1));
}

#[test]
fn only_files_removed_from_the_folder_are_pruned() {
    let shell = Shell::embedded();
    shell.pipe("apply -f -", policy("by-hand", "{}")).text();
    let one = shell.file("set/one.yaml", policy("one", "{part: x}"));
    let two = shell.file("set/two.yaml", format!("{}---\n{POOL}", policy("two", "{}")));
    shell.file(
        "set/felix.yaml",
        "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata:\n  name: default\nspec: {}\n",
    );
    let folder = shell.path("set").display().to_string();
    let apply = format!("apply -f {folder} --applyset=team --prune");
    assert_eq!(shell.run(&apply).text(), "Successfully applied 4 resource(s)\n");
    assert!(shell.pipe("apply -f - --applyset=other", policy("others", "{}")).success);

    std::fs::remove_file(&two).expect("removing");
    let diff = shell.run(&format!("diff -f {folder} --applyset=team --prune --exit-code"));
    assert_eq!(diff.code, ExitCode::from(1), "{diff:?}");
    assert!(diff.stdout.contains("+++ GlobalNetworkPolicy(two) (pruned)\n"), "{}", diff.stdout);
    assert!(
        diff.stdout.ends_with("Dry run: 2 resources would be pruned; nothing was written\n"),
        "{}",
        diff.stdout
    );
    assert!(shell.run(&format!("{apply} --dry-run")).text().contains("2 resources would be pruned"));
    assert_eq!(shell.run("get gnp -o name").text().lines().count(), 4, "a dry run deletes nothing");

    let text = shell.run(&apply).text();
    assert_eq!(text, "Successfully applied 2 resource(s)\nglobalnetworkpolicy/two pruned\nippool/a pruned\n");
    assert_eq!(
        shell.run("get gnp -o name").text(),
        "globalnetworkpolicy/by-hand\nglobalnetworkpolicy/one\nglobalnetworkpolicy/others\n"
    );
    // Objects that Calico creates itself stay, and are reported.
    std::fs::remove_file(shell.path("set/felix.yaml")).expect("removing");
    let output = shell.run(&apply);
    assert!(output.success, "{output:?}");
    assert_eq!(
        output.stderr,
        "Warning: FelixConfiguration(default) is not pruned: Calico creates it by itself\n"
    );
    assert_eq!(shell.run("get felixconfig -o name").text(), "felixconfiguration/default\n");
    // With labels: unselected objects are neither applied nor pruned.
    shell.file("set/one.yaml", policy("renamed", "{part: x}"));
    let output = shell.run(&format!("{apply} -l part=y"));
    assert!(output.stderr.contains("the whole set team would be pruned"), "{output:?}");
    let output = shell.run(&format!("{apply} -l part=x"));
    assert!(output.stdout.contains("globalnetworkpolicy/one pruned\n"), "{output:?}");
    // A failure prunes nothing.
    std::fs::remove_file(&one).expect("removing");
    shell.file("set/three.yaml", policy("three", "{}").replace("all()", "all("));
    shell.run(&apply).error();
    assert!(shell.run("get gnp -o name").text().contains("/renamed\n"));
    for (flags, message) in [("--prune", "--applyset"), ("--applyset=a/b", "not a name for a set")] {
        let error = shell.run(&format!("apply -f {folder} {flags}")).error();
        assert!(error.contains(message), "{error}");
    }
    // A plain apply removes an object from its set.
    shell.pipe("apply -f -", policy("renamed", "{}")).text();
    shell.file("set/three.yaml", policy("three", "{}"));
    shell.run(&apply);
    assert!(shell.run("get gnp -o name").text().contains("/renamed\n"));
}

#[test]
fn objects_are_described() {
    let shell = Shell::embedded();
    let policy = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata:\n  name: web\n  namespace: shop\nspec:\n  selector: app == 'web'\n  ingress:\n  - action: Allow\n    protocol: TCP\n    source:\n      selector: app == 'cart'\n    destination:\n      ports: [80]\n";
    let endpoint = "apiVersion: projectcalico.org/v3\nkind: WorkloadEndpoint\nmetadata:\n  name: node1-cni-web-eth0\n  namespace: shop\n  labels: {app: web}\nspec:\n  orchestrator: cni\n  node: node1\n  containerID: web\n  endpoint: eth0\n  workload: web\n  interfaceName: cali1\n  ipNetworks: [10.0.0.1/32]\n";
    let output = shell.pipe("apply -f -", format!("{policy}---\n{endpoint}---\n{POOL}"));
    assert!(output.success, "{output:?}");
    let text = shell.run("describe np web -n shop").text();
    for expected in [
        "Name:               web\nNamespace:          shop\n",
        "Ingress rules:\n  0. Allow TCP from endpoints with app == 'cart' to port 80\n",
        "Selected endpoints (1):\n  workload shop/web\n",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let text = shell.run("describe wep -A -l app=web").text();
    assert!(text.contains("Policies (1):\n  tier default: NetworkPolicy shop/web, ingress\n"), "{text}");
    let text = shell.run("describe tier default").text();
    assert!(text.contains("Policies (1):\n  NetworkPolicy(shop/web)\n"), "{text}");
    let text = shell.run("describe ippool").text();
    assert!(text.contains("CIDR:               10.0.0.0/16\n"), "{text}");
    assert!(
        text.contains("Addresses:          65536, of which 0 in use (0%)")
            && text.contains("Blocks (0):\n  <none>\n")
    );
    let error = shell.run("describe ippool nosuch").error();
    assert!(error.starts_with("resource does not exist: IPPool(nosuch)"), "{error}");
}

/// A shell whose editor runs this script on the file `$1`.
fn with_editor(script: &str) -> Shell {
    let mut shell = Shell::embedded();
    let programs = shell.path("programs");
    program(&programs, "editor", script);
    shell.variables.insert("EDITOR".into(), programs.join("editor").display().to_string());
    let drafts = shell.path("drafts");
    std::fs::create_dir_all(&drafts).expect("a folder");
    shell.variables.insert("TMPDIR".into(), drafts.display().to_string());
    shell.pipe("apply -f -", POOL).text();
    shell
}

fn drafts(shell: &Shell) -> Vec<String> {
    let files = std::fs::read_dir(shell.path("drafts")).expect("the folder");
    files.map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("text")).collect()
}

#[test]
fn an_edit_is_stored() {
    let shell = with_editor("sed -i 's/natOutgoing: false//; s/^spec:/spec:\\n  natOutgoing: true/' \"$1\"");
    assert_eq!(shell.run("edit ippool a").text(), "ippool/a edited\n");
    assert_eq!(
        shell.run("get ippool -o custom-columns=NAME,NAT").text(),
        "NAME   NAT    \na      true   \n\n"
    );
    assert_eq!(drafts(&shell), Vec::<String>::new(), "the file is gone when it is not needed any more");
}

#[test]
fn an_edit_without_a_change_is_cancelled() {
    for (script, expected) in [
        ("true", "Edit cancelled, no changes made.\n"),
        (": > \"$1\"", "Edit cancelled, saved file was empty.\n"),
        ("sed -i 's/^#.*//; /^$/d' \"$1\"", "Edit cancelled, no changes made.\n"),
    ] {
        let shell = with_editor(script);
        assert_eq!(shell.run("edit ippool a").text(), expected, "{script}");
        assert_eq!(drafts(&shell), Vec::<String>::new());
    }
    let shell = with_editor("exit 3");
    let error = shell.run("edit ippool a").error();
    assert!(error.contains("failed") && drafts(&shell).is_empty(), "{error}");
    assert!(shell.run("edit ippool nosuch").error().starts_with("resource does not exist"));
    assert!(shell.run("edit ippool").error().contains("NAME"));
}

#[test]
fn a_mistake_reopens_the_editor_with_the_reason() {
    // The first time, a field is misspelt; the second time, the editor finds the reason above the text and corrects it.
    let script = "if grep -q '^# .*unknown field' \"$1\"; then cp \"$1\" \"$TMPDIR\"/../seen; sed -i 's/cider: /cidr: /' \"$1\"\n\
                  else sed -i 's/  cidr: .*/  cider: 10.0.0.0\\/16\\n  natOutgoing: true/' \"$1\"; fi";
    let mut shell = with_editor("true");
    let seen = shell.path("seen").display().to_string();
    program(&shell.path("programs"), "editor", &script.replace("\"$TMPDIR\"/../seen", &seen));
    let output = shell.run("edit ippool a");
    assert!(output.success, "{output:?}");
    let seen = std::fs::read_to_string(&seen).expect("the second file");
    let line = 1 + seen.lines().position(|line| line.starts_with("  cider")).expect("the mistake");
    assert!(seen.contains(&format!("the edited object:{line}:3")), "{seen}");
    // If the editor never corrects it, the command ends with an error and the text is kept.
    program(&shell.path("programs"), "editor", "sed -i 's/  cidr: /  cider: /' \"$1\"");
    let error = shell.run("edit ippool a").error();
    assert!(
        error.contains("no valid changes were saved\nThe edit was not stored. A copy of your changes is in "),
        "{error}"
    );
    let kept = drafts(&shell);
    assert!(kept.len() == 1 && kept[0].contains("  cider: "), "{kept:?}");
    shell.variables.remove("EDITOR");
    assert!(shell.run("get ippool -o yaml").text().contains("  cidr: 10.0.0.0/16\n"));
}

#[test]
fn an_edit_does_not_overwrite_another_edit() {
    // On a server, because an embedded store can have only one user at a time.
    let etcd = testkit::Etcd::start().expect("etcd");
    let mut shell = with_editor("true");
    shell.variables.insert("DATASTORE_TYPE".into(), "etcdv3".into());
    shell.variables.insert("ETCD_ENDPOINTS".into(), etcd.endpoint());
    shell.pipe("apply -f -", POOL).text();
    let (begun, finish) = (shell.path("begun"), shell.path("finish"));
    let script = format!(
        "sed -i 's/^spec:/spec:\\n  disabled: true/; /resourceVersion/d' \"$1\"; touch {}; while [ ! -e {} ]; do sleep 0.05; done",
        begun.display(),
        finish.display()
    );
    program(&shell.path("programs"), "editor", &script);
    let error = std::thread::scope(|scope| {
        let edit = scope.spawn(|| shell.run("edit ippool a").error());
        let begin = std::time::Instant::now();
        while !begun.exists() && begin.elapsed().as_secs() < 60 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let labelled = shell.run("label ippool a x=1");
        std::fs::write(&finish, "").expect("a file");
        labelled.text();
        edit.join().expect("the edit")
    });
    assert!(
        error.contains("update conflict: IPPool(a)") && error.contains("A copy of your changes"),
        "{error}"
    );
    assert!(drafts(&shell)[0].contains("  disabled: true\n"));
    assert_eq!(shell.run("get ippool -o custom-columns=DISABLED").text(), "DISABLED   \nfalse      \n\n");
}

#[test]
fn help_is_a_command_and_fits_the_terminal() {
    let mut shell = Shell::embedded();
    assert!(shell.run("help").text().contains("Usage: calicoctl"));
    assert!(shell.run("help get").text().contains("Usage: calicoctl get"));
    assert!(shell.run("help ipam show").text().contains("--show-blocks"));
    let help = shell.run("get -h").text();
    assert!(help.contains("\nGlobal options:\n") && help.contains("-l, --selector <SELECTOR>"), "{help}");
    assert!(help.contains("      --log-level <LEVEL>"), "{help}");
    assert!(shell.run("label -h").text().contains("-l, --log-level <LEVEL>"));
    shell.width = Some(80);
    for line in ["-h", "get -h", "help apply", "ipam check -h", "node run -h", "explain -h"] {
        let text = shell.run(line).text();
        let options = text.split("Examples:").next().unwrap_or_default();
        for line in options.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}

#[test]
fn completion_knows_kinds_and_formats() {
    let shell = Shell::embedded();
    let script = shell.run("completion bash").text();
    for word in ["workloadendpoint", "globalnetworkpolicy", "jsonpath=", "custom-columns=", "strategic"] {
        assert!(script.contains(word), "{word}");
    }
    assert!(shell.run("get pods").error().contains("'workloadendpoint'"));
}
