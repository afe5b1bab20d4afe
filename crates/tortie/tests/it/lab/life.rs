//! Labs are created, used, killed, and removed; the machine stays as it is.

use super::{Lab, finish, told};
use serde_json::Value;
use std::io::Write as _;
use std::process::Command;
use testkit::Signal;

/// The state of the machine's own network, as far as labs could have touched it.
fn machine() -> String {
    let run = |words: &[&str]| {
        let output = Command::new(words[0]).args(&words[1..]).output().expect(words[0]);
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let links: Vec<String> = run(&["ip", "-o", "link"])
        .lines()
        .filter_map(|line| line.split(": ").nth(1).map(str::to_owned))
        .filter(|name| {
            ["cali", "vxlan", "tunl", "subnet", "to-node"].iter().any(|start| name.starts_with(start))
        })
        .collect();
    let tables = run(&["nft", "list", "tables"]);
    let routes = run(&["ip", "route", "show", "table", "main"]);
    format!("{links:?}\n{tables}\n{routes}")
}

#[test]
fn two_labs_at_once_leave_the_machine_alone() {
    let before = machine();
    let one = Lab::up(&["--nodes", "1", "--pods", "2"]);
    let other = Lab::up(&["--nodes", "1", "--pods", "2"]);
    assert_eq!(one.matrix(&[]), (4, 0));
    assert_eq!(other.matrix(&[]), (4, 0));
    assert_eq!(machine(), before);
    // A second lab of the same name is refused, and does no harm.
    let again = one.run(&["up"]);
    assert!(!again.status.success() && told(&again).contains("already"), "{}", told(&again));
    assert_eq!(one.matrix(&["--ports", "80"]), (2, 0));
    one.succeed(&["down"]);
    one.assert_gone();
    assert_eq!(other.matrix(&[]), (4, 0));
    other.succeed(&["down"]);
    other.assert_gone();
    assert_eq!(machine(), before);
}

#[test]
fn a_killed_lab_is_removed() {
    let lab = Lab::up(&["--nodes", "2", "--pods", "2"]);
    assert!(lab.processes().len() > 4);
    testkit::signal(lab.keeper(), Signal::KILL).expect("a kill");
    // On a busy machine a killed process lives for a moment.
    let stat = format!("/proc/{}/stat", lab.keeper());
    let has_ended = || !std::fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z "));
    testkit::eventually("the keeper ends", has_ended).expect("an end");
    // It can no longer be used, and the message contains the remedy.
    let output = lab.run(&["matrix"]);
    assert!(!output.status.success() && told(&output).contains(" down` removes"), "{}", told(&output));
    let list = lab.succeed(&["list"]);
    assert!(list.contains("not running"), "{list}");
    // It can be removed, or created again.
    let again = lab.succeed(&["up", "--nodes", "1", "--pods", "0"]);
    assert!(again.contains("which was no longer running"), "{again}");
    lab.succeed(&["status"]);
    lab.succeed(&["down"]);
    lab.assert_gone();
}

#[test]
fn pods_are_added_removed_and_shown() {
    let lab = Lab::up(&["--nodes", "2", "--pods", "1"]);
    lab.succeed(&[
        "pod",
        "add",
        "shop/extra",
        "--node",
        "node2",
        "--labels",
        "app=extra",
        "--ports",
        "80,53",
    ]);
    assert_eq!(lab.matrix(&["--ports", "80"]), (2, 0));
    assert_eq!(lab.matrix(&["--ports", "80", "--protocol", "udp"]), (2, 0));
    let twice = lab.run(&["pod", "add", "shop/extra"]);
    assert!(!twice.status.success() && told(&twice).contains("already"), "{}", told(&twice));
    let status: Value = serde_json::from_str(&lab.succeed(&["status", "-o", "json"])).expect("JSON");
    assert_eq!(status["pods"]["shop/extra"]["node"], "node2");
    assert_eq!(status["pods"]["shop/extra"]["labels"]["app"], "extra");
    let text = lab.succeed(&["status"]);
    assert!(text.contains("node2   ready   1        10.65.1.2/24"), "{text}");
    assert!(text.contains("shop/extra") && text.contains("53,80") && text.contains("logs: "), "{text}");
    // Invalid labels are refused before anything is done.
    let refused = lab.run(&["pod", "add", "shop/odd", "--labels", "a=b c"]);
    assert!(
        !refused.status.success() && told(&refused).contains("'a=b c' is not a label"),
        "{}",
        told(&refused)
    );
    assert!(!lab.succeed(&["status"]).contains("shop/odd"));
    // An HTTP request gets an HTTP response.
    let address = status["pods"]["shop/extra"]["addresses"][0].as_str().expect("an address");
    let page = lab.succeed(&[
        "exec",
        "node1",
        "--",
        "busybox",
        "wget",
        "-q",
        "-O",
        "-",
        &format!("http://{address}:80/"),
    ]);
    assert_eq!(page, "shop/extra\n");
    // A failed write is an error.
    let mut full = lab.command(&["matrix", "--ports", "80"]);
    full.stdout(std::fs::File::create("/dev/full").expect("/dev/full"));
    let full = finish(full, "");
    assert_eq!(full.status.code(), Some(1), "{}", told(&full));
    assert!(told(&full).contains("writing standard output"), "{}", told(&full));
    // In the pod: its own address and Calico's gateway.
    let routes = lab.succeed(&["exec", "shop/extra", "--", "ip", "route"]);
    assert!(routes.contains("default via 169.254.1.1 dev eth0"), "{routes}");
    let page = lab.folder.path().join("page.html");
    lab.succeed(&["matrix", "--ports", "80", "--html", &page.display().to_string()]);
    let page = std::fs::read_to_string(page).expect("the page");
    assert!(page.contains("shop/extra") && !page.contains("http://"), "{page}");
    let shown = lab.succeed(&["ctl", "get", "wep", "-A"]);
    assert!(shown.contains("extra"), "{shown}");
    // The command's exit code is that of the program.
    assert_eq!(lab.run(&["exec", "node1", "--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    lab.succeed(&["pod", "del", "shop/extra"]);
    let shown = lab.succeed(&["ctl", "get", "wep", "-A"]);
    assert!(!shown.contains("extra"), "{shown}");
    let blocks = lab.succeed(&["ctl", "ipam", "check"]);
    assert!(blocks.contains("0"), "{blocks}");
    let missing = lab.run(&["pod", "del", "shop/extra"]);
    assert!(!missing.status.success() && told(&missing).contains("no pod"), "{}", told(&missing));
}

/// A pod whose responder died is named, and its cells are counted separately.
#[test]
fn a_responder_that_died() {
    let lab = Lab::up(&["--nodes", "1", "--pods", "3"]);
    let status: Value = serde_json::from_str(&lab.succeed(&["status", "-o", "json"])).expect("JSON");
    let pid = status["programs"]["pod/shop/cart"]["pid"].as_u64().expect("a process");
    testkit::signal(u32::try_from(pid).expect("a number"), Signal::KILL).expect("a kill");
    let output = lab.run(&["matrix", "--ports", "80", "--patience", "60"]);
    let text = told(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("+ reached (4)") && text.contains("refused (0)"), "{text}");
    assert!(text.contains("2 cells are not as expected (!):"), "{text}");
    assert!(text.contains("the responder of shop/cart ended"), "{text}");
    let status = lab.run(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(told(&status).contains("the responder of pod shop/cart ended"), "{}", told(&status));
}

#[test]
fn a_topology_file() {
    let lab = Lab::new();
    let file = lab.folder.path().join("topology.yaml");
    std::fs::write(
        &file,
        "nodes: [{name: left}, {name: right}]\nsubnets: 1\npods:\n- {name: web, namespace: shop, node: right, labels: {app: web}, \
         ports: [443]}\n- {name: db, namespace: shop, node: left}\nblockSize: 28\n",
    )
    .expect("the file");
    lab.succeed(&["up", "--quiet", "--file", &file.display().to_string()]);
    assert_eq!(lab.matrix(&[]), (3, 0));
    let pools = lab.succeed(&["ctl", "get", "ippool", "-o", "json"]);
    assert!(pools.contains("\"blockSize\": 28"), "{pools}");
}

/// An unprivileged user can create a lab if the kernel allows user namespaces, and gets an explanation if it does not.
#[test]
fn a_lab_without_root() {
    let lab = Lab::new();
    let folder = lab.folder.path().join("user");
    std::fs::create_dir(&folder).expect("a folder");
    // The user must be able to reach the folder.
    for path in lab
        .folder
        .path()
        .ancestors()
        .filter(|path| path.starts_with(std::env::temp_dir().join("tortie-testkit")))
    {
        let _ = Command::new("chmod").arg("a+x").arg(path).status();
    }
    std::os::unix::fs::chown(&folder, Some(65534), Some(65534)).expect("chown");
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"])
            .arg(TORTIE_COPY.path());
        command.args(["lab", "--lab", "mine"]).args(arguments).env("TORTIE_LAB_DIR", &folder);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{path}", folder.join("bin").display()));
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        command.stderr(std::process::Stdio::piped());
        finish(command, "")
    };
    let allowed = Command::new("setpriv")
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"])
        .args(["unshare", "--user", "--map-root-user", "--net", "true"])
        .status()
        .expect("setpriv")
        .success();
    let up = as_nobody(&["up", "--quiet", "--nodes", "2", "--pods", "3"]);
    if !allowed {
        // `mistakes::no_permission` checks the explanation itself on every machine.
        // Not with `println!`, whose output is hidden for passing tests.
        let _ = writeln!(
            std::io::stderr(),
            "NOT TESTED HERE: labs without root, because this kernel allows ordinary users no user namespaces"
        );
        assert!(!up.status.success() && told(&up).contains("user namespaces"), "{}", told(&up));
        assert!(!folder.join("mine").exists(), "something is left");
        return;
    }
    assert!(up.status.success(), "{}", told(&up));
    let matrix = as_nobody(&["matrix", "--patience", "30"]);
    assert!(matrix.status.success(), "{}", told(&matrix));
    let exec = as_nobody(&["exec", "node1", "--", "ip", "-o", "link"]);
    assert!(told(&exec).contains("vxlan.calico"), "{}", told(&exec));
    let env = as_nobody(&["env"]);
    assert!(
        told(&env).contains(&format!("export EMBEDDED_PATH={}", folder.join("mine/store").display())),
        "{}",
        told(&env)
    );
    // Most builds of tcpdump fail like this in such a lab; the command explains it.
    let fake = folder.join("bin/tcpdump");
    std::fs::create_dir(folder.join("bin")).expect("a folder");
    std::fs::write(&fake, "#!/bin/sh\nexit 1\n").expect("a file");
    std::fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("permissions");
    let watch = as_nobody(&["tcpdump", "node1"]);
    assert!(!watch.status.success() && told(&watch).contains("made without root"), "{}", told(&watch));
    let down = as_nobody(&["down"]);
    assert!(down.status.success(), "{}", told(&down));
    assert!(!folder.join("mine").exists());
}

/// A copy of the program that every user can start.
struct Copy(std::sync::OnceLock<tempfile::TempDir>);

static TORTIE_COPY: Copy = Copy(std::sync::OnceLock::new());

impl Copy {
    fn path(&self) -> String {
        use std::os::unix::fs::PermissionsExt;
        let folder = self.0.get_or_init(|| {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
            let file = folder.path().join("tortie");
            std::fs::copy(super::TORTIE, &file).expect("a copy");
            std::fs::set_permissions(file, PermissionsExt::from_mode(0o755)).expect("permissions");
            folder
        });
        folder.path().join("tortie").display().to_string()
    }
}

/// Sends a signal to a command as soon as its first node has been started; returns its output.
fn interrupted(lab: &Lab, arguments: &[&str], signal: Signal) -> String {
    let maker = lab.command(arguments).spawn().expect("the program");
    let log = lab.path().join("logs/node1.log");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while !log.exists() {
        assert!(std::time::Instant::now() < deadline, "no node was started");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    testkit::signal(maker.id(), signal).expect("a signal");
    let output = maker.wait_with_output().expect("an end");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    told(&output)
}

/// Interrupts leave nothing behind: neither of a lab that was to stay nor of a demonstration, which uses the given
/// name.
#[test]
fn interrupts_leave_nothing() {
    let lab = Lab::new();
    for (arguments, signal) in [
        (["up", "--nodes", "3"], Signal::INT),
        (["demo", "--nodes", "2"], Signal::INT),
        (["up", "--pods", "2"], Signal::TERM),
    ] {
        let text = interrupted(&lab, &arguments, signal);
        assert!(text.contains("interrupted: "), "{arguments:?}: {text}");
        lab.assert_gone();
    }
}

/// An incomplete lab ends with the command that creates it.
#[test]
fn a_killed_up_command_leaves_no_lab() {
    let lab = Lab::new();
    let mut maker = lab.command(&["up", "--nodes", "3"]).spawn().expect("the program");
    let log = lab.path().join("logs/node1.log");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !log.exists() {
        assert!(std::time::Instant::now() < deadline, "no node was started");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    maker.kill().expect("a kill");
    maker.wait().expect("an end");
    while !lab.processes().is_empty() {
        assert!(std::time::Instant::now() < deadline, "{:?} are left", lab.processes());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    lab.succeed(&["down"]);
    lab.assert_gone();
}
