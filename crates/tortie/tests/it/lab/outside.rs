//! A lab from outside its namespaces: variables for other programs, lists, logs, pictures, and commands that can be
//! pasted.

use super::{Lab, TORTIE, finish, told};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Runs a script as a user outside the lab, with `calicoctl` and the lab's variables.
fn script(lab: &Lab, text: &str) -> Output {
    let tools = lab.folder.path().join("bin");
    std::fs::create_dir_all(&tools).expect("a folder");
    let link = tools.join("calicoctl");
    if !link.exists() {
        std::os::unix::fs::symlink(TORTIE, &link).expect("a link");
    }
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("sh");
    command.args(["-ec", &format!("eval $({TORTIE} lab --lab {} env)\n{text}", lab.name)]);
    command.env("PATH", path).env("TORTIE_LAB_DIR", lab.folder.path());
    for name in ["DATASTORE_TYPE", "KUBECONFIG", "ETCD_ENDPOINTS", "EMBEDDED_PATH", "TORTIE_LAB"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(command, "")
}

#[track_caller]
fn succeed(lab: &Lab, text: &str) -> String {
    let output = script(lab, text);
    assert!(output.status.success(), "{text}: {}\n{}", told(&output), lab.logs());
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn programs_outside_work_on_the_embedded_store() {
    let lab = Lab::up(&["--nodes", "2", "--pods", "3"]);
    let nodes = succeed(&lab, "calicoctl get nodes");
    assert!(nodes.contains("node1") && nodes.contains("node2"), "{nodes}");
    let why = succeed(&lab, "calicoctl explain --from shop/cart --to shop/database:80");
    assert!(why.contains("ALLOWED") || why.to_lowercase().contains("allow"), "{why}");
    // The variable selects the lab for its own commands, too.
    let status = succeed(&lab, &format!("{TORTIE} lab status"));
    assert!(status.contains(&format!("lab '{}'", lab.name)), "{status}");
    let unset = lab.succeed(&["env", "--unset"]);
    assert!(unset.contains("unset EMBEDDED_PATH;"), "{unset}");
}

#[test]
fn programs_outside_work_on_etcd() {
    let lab = Lab::up(&["--nodes", "1", "--pods", "2", "--datastore", "etcd"]);
    let nodes = succeed(&lab, "calicoctl get nodes");
    assert!(nodes.contains("node1"), "{nodes}");
    let why = succeed(&lab, "calicoctl explain --from shop/cart --to shop/frontend:80");
    assert!(why.contains("shop/frontend"), "{why}");
    lab.succeed(&["down"]);
    lab.assert_gone();
}

/// `kubectl` shows pods as on a cluster; nodes and plugin did all their work with the rights of Calico's manifests.
#[test]
fn programs_outside_work_on_kubernetes() {
    let lab = Lab::up(&["--nodes", "2", "--pods", "2", "--datastore", "kubernetes"]);
    let kubectl = testkit::kubernetes_program("kubectl").expect("kubectl").display().to_string();
    let pods = succeed(&lab, &format!("{kubectl} get pods -A -o wide"));
    let rows: Vec<&str> = pods.lines().filter(|line| line.contains("shop")).collect();
    assert_eq!(rows.len(), 2, "{pods}");
    assert!(
        rows.iter().all(|row| row.contains("1/1") && row.contains("Running") && row.contains("172.16.")),
        "{pods}"
    );
    let nodes = succeed(&lab, "calicoctl get nodes");
    assert!(nodes.contains("node2"), "{nodes}");
    let why = succeed(&lab, "calicoctl explain --from shop/cart --to shop/frontend:80");
    assert!(why.contains("shop/frontend"), "{why}");
    for account in ["calico-node", "calico-cni-plugin"] {
        let words = format!("{kubectl} --kubeconfig {}/kubeconfig-{account}", lab.path().display());
        let may = lab.run(&["exec", "router", "--", "sh", "-c", &format!("{words} auth can-i delete nodes")]);
        assert!(told(&may).contains("no"), "{account}: {}", told(&may));
    }
    // The second time uses the same gate, which ends with the lab.
    let nodes = succeed(&lab, &format!("{kubectl} get nodes"));
    assert_eq!(nodes.matches(" Ready ").count(), 2, "{nodes}");
    lab.succeed(&["down"]);
    lab.assert_gone();
}

#[test]
fn commands_can_be_pasted() {
    let lab = Lab::new();
    let text = lab.succeed(&["up", "--nodes", "1", "--pods", "1", "--encap", "none"]);
    let called = format!("{TORTIE} lab --lab {}", lab.name);
    for words in ["matrix", "exec node1 -- ip route", "down"] {
        assert!(text.contains(&format!("`{called} {words}`")), "{text}");
    }
    assert!(text.contains("starting 1 node ...") && text.contains("1 pod wired"), "{text}");
    assert!(!text.contains("tunnel address") && !text.contains("router between"), "{text}");
    let missing = {
        let mut command = lab.command(&["status"]);
        command.env("TORTIE_LAB", "nobody");
        command.args(["--lab", "another"]);
        finish(command, "")
    };
    assert!(told(&missing).contains(&format!("existing labs: {}", lab.name)), "{}", told(&missing));
}

#[test]
fn labs_are_listed_and_removed_together() {
    let lab = Lab::up(&["--nodes", "1", "--pods", "1"]);
    let other = format!("{}-b", lab.name);
    let mut up = lab.command(&["up", "--quiet", "--nodes", "1", "--pods", "0"]);
    up.args(["--lab", &other]);
    let up = finish(up, "");
    assert!(up.status.success(), "{}", told(&up));
    let text = lab.succeed(&["list"]);
    let row = |name: &str| {
        let row = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .unwrap_or_else(|| panic!("{text}"));
        row.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row("NAME"), ["NAME", "STATE", "AGE", "OWNER", "NODES", "PODS", "DATASTORE"]);
    let first = row(&lab.name);
    assert_eq!(
        (first[1].as_str(), &first[4..]),
        ("running", &["1".to_owned(), "1".to_owned(), "embedded".to_owned()][..])
    );
    let json: Value = serde_json::from_str(&lab.succeed(&["list", "-o", "json"])).expect("JSON");
    assert_eq!(json.as_array().map(Vec::len), Some(2), "{json}");
    let removed = lab.succeed(&["down", "--all", "--yes"]);
    assert!(removed.contains(&format!("lab '{other}' is removed")) && removed.contains("NAME"), "{removed}");
    lab.assert_gone();
    assert!(lab.succeed(&["list"]).contains("no labs"));
}

#[test]
fn logs_shells_and_pictures() {
    let lab = Lab::up(&["--nodes", "2", "--pods", "2"]);
    let node = lab.succeed(&["logs", "node1"]);
    assert!(!node.trim().is_empty());
    let last = lab.succeed(&["logs", "node1", "-n", "1"]);
    assert_eq!(last.lines().count(), 1, "{last}");
    let all = lab.succeed(&["logs"]);
    assert!(
        all.contains("==> node2 <==") && all.contains("==> store <==") && all.contains("==> shop/cart <=="),
        "{all}"
    );
    lab.succeed(&["logs", "shop/cart"]);
    let missing = lab.run(&["logs", "nothing"]);
    assert!(!missing.status.success() && told(&missing).contains("node1"), "{}", told(&missing));
    // Following continues until the lab ends.
    let mut follower = lab.command(&["logs", "node1", "-f"]).spawn().expect("the program");
    let shell = lab.run_with(&["shell", "shop/cart"], "ip -o -4 addr show dev eth0\nexit 3\n");
    assert_eq!(shell.status.code(), Some(3), "{}", told(&shell));
    assert!(told(&shell).contains("172.16."), "{}", told(&shell));
    let file = lab.folder.path().join("lab.svg");
    lab.succeed(&["picture", "-o", &file.display().to_string()]);
    let picture = std::fs::read_to_string(file).expect("the picture");
    assert!(
        picture.starts_with("<svg ") && picture.contains("shop/cart") && picture.contains("10.65.1.2/24"),
        "{picture}"
    );
    assert!(follower.try_wait().expect("a state").is_none(), "it follows");
    lab.succeed(&["down"]);
    assert!(follower.wait().expect("an end").success());
    lab.assert_gone();
}

/// Process lists show them by the program's name.
#[test]
fn processes_have_the_programs_name() {
    let lab = Lab::up(&["--nodes", "1", "--pods", "1"]);
    let names: Vec<String> = lab
        .processes()
        .into_iter()
        .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")).ok())
        .map(|name| name.trim().to_owned())
        .collect();
    assert!(names.len() > 3 && names.iter().all(|name| name == "tortie"), "{names:?}");
}
