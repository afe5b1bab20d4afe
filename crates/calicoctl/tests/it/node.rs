//! `calicoctl node`: a simulated BIRD, a real one, and a machine described by files.

use crate::capture::{context, program, unpacked};
use crate::harness::{Buffer, Shell};
use calicoctl::for_tests::{checksystem, node_diags, status};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use testkit::{Folder, Process};

/// A machine on which these programs run, with two socket folders.
fn machine(folder: &Folder, commands: &[&str]) -> status::Host {
    let processes = folder.path().join("proc");
    for (pid, command) in commands.iter().enumerate() {
        let process = processes.join(format!("{}", pid + 1));
        std::fs::create_dir_all(&process).expect("a folder");
        std::fs::write(process.join("cmdline"), format!("{}\0", command.replace(' ', "\0"))).expect("a file");
    }
    std::fs::create_dir_all(processes.join("sys")).expect("a folder");
    let sockets = ["calico", "bird"].map(|name| folder.path().join(name));
    for folder in &sockets {
        std::fs::create_dir_all(folder).expect("a folder");
    }
    status::Host { processes, sockets: sockets.to_vec() }
}

/// A simulated BIRD that greets, waits for the command, and answers.
fn play_bird(socket: &Path, answer: &'static str) {
    let listener = UnixListener::bind(socket).expect("a socket");
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let (greeting, table) = answer.split_once('\n').expect("lines");
            writeln!(stream, "{greeting}").expect("greeting");
            let mut question = String::new();
            BufReader::new(stream.try_clone().expect("a stream"))
                .read_line(&mut question)
                .expect("a question");
            assert_eq!(question, "show protocols\n");
            stream.write_all(table.as_bytes()).expect("answering");
        }
    });
}

async fn report(host: &status::Host) -> (String, Option<String>) {
    let (mut context, printed) = context(&[]);
    let outcome = status::report(host, &mut context).await;
    (printed.text(), outcome.err().map(|failure| failure.message().to_owned()))
}

#[tokio::test]
async fn peers_of_both_birds() {
    let folder = Folder::new("status").expect("a folder");
    let host = machine(
        &folder,
        &["calico-node -felix", "bird -R -s /var/run/calico/bird.ctl", "bird6 -R", "sh -c x"],
    );
    play_bird(
        &host.sockets[0].join("bird.ctl"),
        "0001 BIRD v0.3.3+birdv1.6.8 ready.\n2002-name     proto    table    state  since       info\n\
         1002-static1  Static   master   up     2026-11-14  \n kernel1  Kernel   master   up     2026-11-14  \n \
         Mesh_172_17_8_102 BGP      master   up     2026-11-14  Established   \n \
         Global_10_20_30_40 BGP      master   start  09:12:01    Connect       Socket: Connection refused\n0000 \n",
    );
    // The second folder is used when the first one has no socket.
    play_bird(
        &host.sockets[1].join("bird6.ctl"),
        "0001 BIRD v0.3.3+birdv1.6.8 ready.\n2002-name     proto    table    state  since       info\n\
         1002-device1  Device   master   up     2026-11-14  \n0000 \n",
    );
    let expected = "Calico process is running.\n\nIPv4 BGP status\n\
        +--------------+-------------------+-------+------------+------------------------------------+\n\
        | PEER ADDRESS | PEER TYPE         | STATE | SINCE      | INFO                               |\n\
        +--------------+-------------------+-------+------------+------------------------------------+\n\
        | 172.17.8.102 | node-to-node mesh | up    | 2026-11-14 | Established                        |\n\
        | 10.20.30.40  | global            | start | 09:12:01   | Connect Socket: Connection refused |\n\
        +--------------+-------------------+-------+------------+------------------------------------+\n\
        \nIPv6 BGP status\nNo IPv6 peers found.\n\n";
    assert_eq!(report(&host).await, (expected.to_owned(), None));
}

#[tokio::test]
async fn missing_processes_are_reported() {
    let folder = Folder::new("status").expect("a folder");
    let host = machine(&folder, &["sh -c calico-node"]);
    assert_eq!(report(&host).await, (String::new(), Some("Calico process is not running.".to_owned())));

    let folder = Folder::new("status").expect("a folder");
    let host = machine(&folder, &["calico-felix"]);
    let expected = "Calico process is running.\n\nThe BGP backend process (BIRD) is not running.\n\n";
    assert_eq!(report(&host).await, (expected.to_owned(), None));

    let folder = Folder::new("status").expect("a folder");
    let host = machine(&folder, &["/usr/bin/tortie felix", "/usr/sbin/bird6"]);
    let socket = host.sockets[1].join("bird6.ctl");
    let expected = format!(
        "Calico process is running.\n\nINFO: BIRDv4 process: 'bird' is not running.\n\nIPv6 BGP status\n\
         Error querying BIRD: unable to connect to BIRDv6 socket: dial unix {}: connect: no such file or directory\n",
        socket.display()
    );
    assert_eq!(report(&host).await, (expected, None));

    play_bird(&socket, "0001 BIRD 1.6.8 ready.\n2002-something else\n");
    let (_, failure) = report(&host).await;
    assert_eq!(failure.as_deref(), Some("error executing command: unknown BIRD table output format"));
}

#[tokio::test]
async fn a_real_bird() {
    let bird = testkit::program("bird", "install Debian's bird2 (`make setup` does)").expect("bird");
    let folder = Folder::new("bird").expect("a folder");
    let host = machine(&folder, &["calico-node -felix", "bird"]);
    let (port, nobody) = (testkit::free_port().expect("a port"), testkit::free_port().expect("a port"));
    let peer = |name: &str, address: &str, source: &str, family: &str| {
        format!(
            "protocol bgp {name} {{ local {source} port {port} as 64512; neighbor {address} port {nobody} as 64513; \
             strict bind on; multihop; {family} {{ import none; export none; }}; }}\n"
        )
    };
    let configuration = format!(
        "router id 127.0.0.1;\nprotocol device {{ }}\n{}{}",
        peer("Mesh_127_0_0_2", "127.0.0.2", "127.0.0.1", "ipv4"),
        peer("Node_127_0_0_3", "127.0.0.3", "127.0.0.1", "ipv4"),
    );
    let file = folder.path().join("bird.conf");
    std::fs::write(&file, configuration).expect("a configuration");
    let socket = host.sockets[0].join("bird.ctl");
    let arguments = [
        "-f".to_owned(),
        "-c".to_owned(),
        file.display().to_string(),
        "-s".to_owned(),
        socket.display().to_string(),
    ];
    let mut process = Process::start(&bird, &arguments, &folder.path().join("log")).expect("starting bird");
    for _ in 0..600 {
        if std::os::unix::net::UnixStream::connect(&socket).is_ok() {
            break;
        }
        process.check_running().expect("bird");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (text, failure) = report(&host).await;
    assert_eq!(failure, None, "{text}");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| 127."))
        .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    let known: Vec<&[&str]> = rows.iter().map(|row| &row[..3]).collect();
    assert_eq!(
        known,
        [&["127.0.0.2", "node-to-node mesh", "start"][..], &["127.0.0.3", "node specific", "start"][..]],
        "{text}"
    );
    assert!(rows.iter().all(|row| row.len() == 5), "{text}");
    // This version of BIRD answers for both families.
    assert!(text.ends_with("IPv6 BGP status\nNo IPv6 peers found.\n\n"), "{text}");
}

#[test]
fn checks_of_the_kernel() {
    let check = |host: &checksystem::Host| {
        let (mut context, printed) = context(&[]);
        (
            checksystem::check(host, None, &mut context).err().map(|failure| failure.message().to_owned()),
            printed.text(),
        )
    };
    let mut host = checksystem::Host {
        release: "6.1.0-13-amd64".into(),
        module_files: "kernel/net/netfilter/xt_ipvs.ko: a.ko\nkernel/drivers/vfio/pci/vfio-pci.ko.xz:\n".into(),
        loaded: ["ip_set", "ip_tables", "xt_set", "xt_mark", "xt_multiport", "xt_conntrack"].map(str::to_owned).into(),
        configuration: "CONFIG_NFT_REJECT=m\nCONFIG_IP_NF_MATCH_RPFILTER=y\nCONFIG_NF_CT_NETLINK=y\nCONFIG_NETFILTER_XT_MATCH_ADDRTYPE=m\n"
            .into(),
    };
    let (failure, text) = check(&host);
    assert_eq!(failure, None, "{text}");
    let line = |name: &str, verdict: &str| format!("\t\t{name:<20}\t\t\t\t\t{verdict}\n");
    assert!(text.starts_with(&format!(
        "Checking kernel version...\n{}Checking kernel modules...\n",
        line("6.1.0-13-amd64", "OK")
    )));
    assert!(text.contains(&format!(
        "WARNING: Unable to detect optional module/feature xt_u32; continuing\n{}",
        line("xt_u32", "SKIP")
    )));
    assert!(text.ends_with("System meets minimum system requirements to run Calico!\n"));

    host.loaded.remove("xt_set");
    host.release = "2.6.23".into();
    let (failure, text) = check(&host);
    assert_eq!(
        failure.as_deref(),
        Some("system doesn't meet one or more minimum systems requirements to run Calico")
    );
    assert!(
        text.contains("Minimum kernel version to run Calico is 2.6.24. Detected kernel version: 2.6.23\n")
    );
    assert!(text.contains(&format!(
        "WARNING: Unable to detect the xt_set module as Loaded/Builtin module or lsmod\n{}",
        line("xt_set", "FAIL")
    )));
    assert!(!text.contains("System meets"));

    // A machine for nftables, without the modules of iptables, IPVS or virtual functions.
    let configuration =
        ["NF_CT_NETLINK", "NF_TABLES", "NFT_CT", "NFT_NAT", "NFT_MASQ", "NFT_REJECT", "NFT_FIB_INET"]
            .map(|option| format!("CONFIG_{option}=m\n"))
            .concat();
    let host = checksystem::Host { release: "6.12.1".into(), configuration, ..checksystem::Host::default() };
    let (failure, text) = check(&host);
    assert_eq!(failure, None, "{text}");
    for expected in [
        line("ip_tables", "SKIP"),
        line("ipt_ipvs", "SKIP"),
        line("vfio-pci", "SKIP"),
        line("nf_tables", "OK"),
    ] {
        assert!(text.contains(&expected), "{expected} is not in {text}");
    }
    assert!(text.contains("Judged for the nftables dataplane.\n"), "{text}");
}

#[test]
fn a_missing_kernel_configuration() {
    let error = Shell::embedded().run("node checksystem -f /nowhere/config").error();
    let is_root = rustix::process::getuid().is_root();
    let expected = if is_root {
        "cannot read the kernel configuration /nowhere/config"
    } else {
        "Need super user privileges"
    };
    assert!(error.starts_with(expected), "{error}");
}

async fn collected(folder: &Folder, path: &Path, logs: &Path) -> (Buffer, String) {
    let (mut context, printed) = context(&[("PATH", &path.display().to_string())]);
    node_diags(logs, folder.path(), &mut context).await.unwrap_or_else(|failure| panic!("{failure}"));
    let text = printed.text();
    let archive =
        text.lines().find_map(|line| line.strip_prefix("Diags saved to ")).expect("an archive").to_owned();
    (printed, archive)
}

#[tokio::test]
async fn diagnostics_of_a_machine() {
    let folder = Folder::new("diags").expect("a folder");
    let programs = folder.path().join("programs");
    program(&programs, "ip", "echo ip $*");
    program(&programs, "ipset", "echo broken >&2; exit 1");
    program(
        &programs,
        "docker",
        "case \"$*\" in\n*-q) echo 4b8c;;\nps*) echo 'calico-node: today'; echo 'k8s_POD_calico: today';;\n\
         logs*) echo the log of $2; echo and its errors >&2;;\nexec*) echo the sets of $2;;\nesac",
    );
    let logs = folder.path().join("logs");
    std::fs::create_dir_all(logs.join("cni")).expect("a folder");
    std::fs::write(logs.join("felix.log"), "felix").expect("a log");
    std::fs::write(logs.join("cni/cni.log"), "cni").expect("a log");
    let (printed, archive) = collected(&folder, &programs, &logs).await;
    let files = unpacked(Path::new(&archive));
    for (name, content) in [
        ("ipv4_route", "ip -4 route\n"),
        ("ipv6_addr", "ip -6 addr\n"),
        ("ipset_container", "the sets of 4b8c\n"),
        ("logs/felix.log", "felix"),
        ("logs/cni/cni.log", "cni"),
        ("logs/calico-node.log", "the log of calico-node\nand its errors\n"),
        ("logs/container_creation_time", "calico-node: today\n"),
    ] {
        assert_eq!(
            files.get(&format!("diagnostics/{name}")).map(String::as_str),
            Some(content),
            "{name} in {files:?}"
        );
    }
    assert!(files.contains_key("diagnostics/date") && files.contains_key("diagnostics/hostname"));
    assert!(!files.contains_key("diagnostics/ipsets") && !files.contains_key("diagnostics/nft_ruleset"));
    let text = printed.text();
    for line in [
        "Collecting diagnostics\nUsing temp dir: ",
        "Dumping ipsets\nFailed to run command: ipset list\nError: broken\n",
        "Dumping nftables\nFailed to run command: nft -n -a list ruleset\nError: exec: \"nft\": executable file not found in $PATH\n",
        "Dumping ss\n",
        "Copying logs from Calico containers (docker)\n",
        "If required, you can upload the diagnostics bundle to a file sharing service.\n",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

#[tokio::test]
async fn diagnostics_without_any_tool() {
    let folder = Folder::new("diags").expect("a folder");
    let (printed, archive) = collected(&folder, Path::new("/nowhere"), Path::new("/nowhere/logs")).await;
    let files = unpacked(Path::new(&archive));
    assert_eq!(
        files.keys().map(String::as_str).collect::<Vec<_>>(),
        ["diagnostics/date", "diagnostics/hostname"]
    );
    let text = printed.text();
    assert!(text.contains(
        "Could not collect container logs: no container runtime found (tried docker, nerdctl, crictl)\n"
    ));
    assert!(text.contains("Error copying log files: /nowhere/logs: "), "{text}");
}

fn etcd_shell(more: &[(&str, &str)]) -> Shell {
    let variables: Vec<(&str, &str)> =
        [("ETCD_ENDPOINTS", "http://192.0.2.5:2379")].iter().chain(more).copied().collect();
    Shell::with(&variables, Folder::new("run").expect("a folder"))
}

#[test]
fn the_command_of_the_container() {
    let shell = etcd_shell(&[
        ("ETCD_CA_CERT_FILE", "/certs/ca"),
        ("ETCD_CERT_FILE", "/certs/cert"),
        ("ETCD_KEY_FILE", "/certs/key"),
    ]);
    let text = shell
        .run("node run --dryrun --name=node-a --ip=192.0.2.7 --as=1.10 --no-default-ippools --ip6-autodetection-method=interface=eth.*")
        .text();
    assert_eq!(
        text,
        "Use the following command to start the calico/node container:\n\n\
         docker run --net=host --privileged --name=calico-node -d --restart=always \
         -e AS=65546 -e CALICO_MANAGE_CNI=false -e CALICO_NETWORKING_BACKEND=bird \
         -e ETCD_CA_CERT_FILE=/etc/calico/certs/ca_cert.crt -e ETCD_CERT_FILE=/etc/calico/certs/cert.crt \
         -e ETCD_DISCOVERY_SRV= -e ETCD_ENDPOINTS=http://192.0.2.5:2379 -e ETCD_KEY_FILE=/etc/calico/certs/key.pem \
         -e IP=192.0.2.7 -e IP6_AUTODETECTION_METHOD=interface=eth.* -e NODENAME=node-a -e NO_DEFAULT_POOLS=true \
         -v /var/log/calico:/var/log/calico -v /var/run/calico:/var/run/calico -v /var/lib/calico:/var/lib/calico \
         -v /lib/modules:/lib/modules -v /run:/run -v /certs/ca:/etc/calico/certs/ca_cert.crt \
         -v /certs/key:/etc/calico/certs/key.pem -v /certs/cert:/etc/calico/certs/cert.crt \
         quay.io/calico/node:latest\n\n\
         If you are running calico/node in an init system, use the --init-system flag\n\
         to display the appropriate start and stop commands.\n"
    );
    let text = etcd_shell(&[])
        .run("node run --dryrun --init-system --name=a --backend=none --felix-config=/f.cfg")
        .text();
    assert!(
        text.contains(
            "--name=calico-node --rm -e CALICO_MANAGE_CNI=false -e CALICO_NETWORKING_BACKEND=none "
        ),
        "{text}"
    );
    assert!(text.contains(" -v /f.cfg:/etc/calico/felix.cfg quay.io/calico/node:latest\n"), "{text}");
    assert!(text.ends_with("to stop the calico/node container:\n\ndocker stop calico-node\n\n"), "{text}");
}

#[test]
fn wrong_flags_of_the_container() {
    for (flags, expected) in [
        ("--ip=fd00::1", "error executing command: --ip is wrong IP version\n"),
        ("--ip6=10.0.0.1", "error executing command: --ip6 is wrong IP version\n"),
        ("--ip=10.0.0.1/24", "Error executing command: invalid IP address specified: 10.0.0.1/24\n"),
        ("--as=x", "Error executing command: invalid AS Number specified: x\n"),
        ("--backend=gobgp", "error executing command: unknown backend 'gobgp'\n"),
        (
            "--ip-autodetection-method=last",
            "error executing command: invalid IP autodetection method: last\n",
        ),
    ] {
        assert_eq!(etcd_shell(&[]).run(&format!("node run --dryrun {flags}")).error(), expected);
    }
    let error = Shell::embedded().run("node run --dryrun").error();
    assert!(error.starts_with("error executing command: unsupported backend specified in config"), "{error}");
}

#[test]
fn a_container_that_starts() {
    if !rustix::process::getuid().is_root() {
        let error = etcd_shell(&[]).run("node run --name=a").error();
        assert_eq!(error, "Need super user privileges: Operation not permitted\n");
        return;
    }
    let folder = Folder::new("docker").expect("a folder");
    let programs = folder.path().join("programs");
    let log = folder.path().join("asked");
    let script = |answer: &str| format!("echo \"$1 $2\" >> {}\ncase $1 in\n{answer}\nesac", log.display());
    program(
        &programs,
        "docker",
        &script("logs) echo Starting; echo Calico node started successfully; sleep 60;;"),
    );
    let path = programs.display().to_string();
    // The machine itself stays as it is.
    let shell = etcd_shell(&[("PATH", &path), ("CALICO_CTL_CONTAINER", "1")]);
    let text = shell.run("node run --name=a").text();
    assert!(
        text.starts_with("Removing old calico-node container (if running).\nRunning the following command"),
        "{text}"
    );
    assert!(
        text.ends_with("checking progress logs.\n\nStarting\nCalico node started successfully\n"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&log).expect("the log"), "rm -f\nrun --net=host\nlogs --follow\n");

    program(&programs, "docker", &script("logs) echo Failed;;"));
    let error = shell.run("node run --name=a").error();
    assert_eq!(error, "error executing command: calico/node has terminated, check logs for details\n");
    program(&programs, "docker", &script("run) echo no such image >&2; exit 125;;"));
    let error = shell.run("node run --name=a").error();
    assert!(error.starts_with("Error executing command: exit status: 125\n | no such image\n"), "{error}");
}
