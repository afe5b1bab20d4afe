//! The installer on real folders and a real kube-apiserver: it installs everything on a host and removes an old
//! configuration, and its kubeconfig gives the plugin access.

use cni_install::for_tests::{Installation, Settings};
use daemon::Variables;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use testkit::{ApiServer, Etcd, Folder};

/// A container with the host's folders mounted.
struct Container {
    folder: Folder,
}

impl Container {
    fn new() -> Self {
        let container = Self { folder: Folder::new("cni-install").expect("a folder") };
        for folder in ["host/opt/cni/bin", "host/etc/cni/net.d", "opt/cni/bin"] {
            std::fs::create_dir_all(container.path(folder)).expect("a folder");
        }
        container.write("usr/bin/tortie", "the program");
        container.write("opt/cni/bin/portmap", "portmap");
        container
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("writing");
    }

    async fn install(&self, variables: &Variables) -> Result<(), String> {
        self.installed(variables).await.map(drop)
    }

    async fn installed(&self, variables: &Variables) -> Result<Settings, String> {
        let program = self.path("usr/bin/tortie");
        let installation = Installation {
            environment: variables,
            root: self.folder.path(),
            program: &program,
            hostname: "host-a",
        };
        installation.install().await.map_err(|error| error.to_string())
    }

    /// The names in a folder with their modes.
    fn listed(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).expect("a folder").map(|entry| {
            let entry = entry.expect("an entry");
            let mode = entry.metadata().expect("metadata").permissions().mode() & 0o7777;
            format!("{} {mode:o}", entry.file_name().to_string_lossy())
        });
        let mut entries: Vec<String> = entries.collect();
        entries.sort();
        entries
    }
}

#[tokio::test]
async fn everything_is_installed_without_kubernetes() {
    let container = Container::new();
    container.write("host/etc/cni/net.d/10-old.conflist", "{}");
    container.write("calico-secrets/etcd-ca", "ca");
    container.write("calico-secrets/etcd-cert", "cert");
    container.write("calico-secrets/etcd-key", "key");
    let variables = Variables::new([
        ("SLEEP", "false"),
        ("CNI_OLD_CONF_NAME", "10-old.conflist"),
        ("DATASTORE_TYPE", "etcdv3"),
        ("ETCD_ENDPOINTS", "https://10.0.0.1:2379"),
        (
            "CNI_NETWORK_CONFIG",
            r#"{"name": "any", "type": "calico", "etcd_endpoints": "__ETCD_ENDPOINTS__", "etcd_key_file": "__ETCD_KEY_FILE__",
                "nodename": "__KUBERNETES_NODE_NAME__"}"#,
        ),
    ]);
    container.install(&variables).await.expect("an installation");
    assert_eq!(
        container.listed("host/opt/cni/bin"),
        [
            "bandwidth 755",
            "calico 755",
            "calico-ipam 755",
            "host-local 755",
            "loopback 755",
            "portmap 644",
            "tuning 755"
        ]
    );
    assert_eq!(container.listed("host/etc/cni/net.d"), ["10-calico.conflist 600", "calico-tls 700"]);
    assert_eq!(
        container.listed("host/etc/cni/net.d/calico-tls"),
        ["etcd-ca 644", "etcd-cert 644", "etcd-key 600"]
    );
    let text = std::fs::read_to_string(container.path("host/etc/cni/net.d/10-calico.conflist"))
        .expect("a configuration");
    for part in ["\"https://10.0.0.1:2379\"", "\"/etc/cni/net.d/calico-tls/etcd-key\"", "\"host-a\""] {
        assert!(text.contains(part), "{text}");
    }
    // Installs again with an unusable template: the existing files stay.
    let broken = Variables::new([("CNI_NETWORK_CONFIG", "{")]);
    let error = container.install(&broken).await.expect_err("no JSON");
    assert!(error.contains("not valid JSON"), "{error}");
    assert_eq!(
        std::fs::read_to_string(container.path("host/etc/cni/net.d/10-calico.conflist")).expect("text"),
        text
    );
    let broken = broken.with([("CNI_NETWORK_CONFIG_FILE", "/nowhere/at/all")]);
    let error = container.install(&broken).await.expect_err("no template");
    assert!(error.contains("/nowhere/at/all"), "{error}");
}

#[tokio::test]
async fn a_plain_host_is_installed_in_place() {
    let host = Container { folder: Folder::new("cni-install").expect("a folder") };
    host.write("usr/bin/tortie", "the program");
    let variables = Variables::new([
        ("DATASTORE_TYPE", "etcdv3"),
        ("ETCD_ENDPOINTS", "http://10.0.0.5:2379"),
        ("ETCD_KEY_FILE", "/etc/etcd/key.pem"),
    ]);
    let installed = host.installed(&variables).await.expect("an installation");
    assert_eq!(installed.sleep, Some(false), "without credentials to refresh it does not keep running");
    assert_eq!(
        host.listed("opt/cni/bin"),
        [
            "bandwidth 755",
            "calico 755",
            "calico-ipam 755",
            "host-local 755",
            "loopback 755",
            "portmap 755",
            "tuning 755"
        ]
    );
    assert_eq!(host.listed("etc/cni/net.d"), ["10-calico.conflist 600"]);
    let read = || std::fs::read_to_string(host.path("etc/cni/net.d/10-calico.conflist")).expect("text");
    let value: serde_json::Value = serde_json::from_str(&read()).expect("JSON");
    let plugin = &value["plugins"][0];
    assert_eq!(plugin["etcd_endpoints"], "http://10.0.0.5:2379");
    assert_eq!(
        (&plugin["datastore_type"], &plugin["etcd_key_file"]),
        (&"etcdv3".into(), &"/etc/etcd/key.pem".into())
    );
    // Nothing here waits for Kubernetes, and the plugin finds the node's name where the node writes it.
    for absent in ["policy", "kubernetes", "nodename"] {
        assert!(plugin.get(absent).is_none(), "{plugin}");
    }
    // On a host where Calico runs, its configuration and certificates stay; only the plugins are replaced.
    host.write("etc/cni/net.d/10-calico.conflist", "{\"name\": \"calicos\"}");
    host.write("etc/cni/net.d/calico-tls/etcd-key", "key");
    host.write("opt/cni/bin/calico", "an older one");
    host.install(&variables).await.expect("an installation");
    assert_eq!(read(), "{\"name\": \"calicos\"}");
    assert!(host.path("etc/cni/net.d/calico-tls/etcd-key").is_file());
    assert_eq!(std::fs::read_to_string(host.path("opt/cni/bin/calico")).expect("text"), "the program");
    // With a template the configuration is replaced.
    let given = variables;
    let given = given.with([("CNI_NETWORK_CONFIG", "{\"name\": \"mine\"}"), ("SLEEP", "true")]);
    assert_eq!(host.installed(&given).await.expect("an installation").sleep, Some(true));
    assert_eq!(read(), "{\"name\": \"mine\"}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_installs_a_working_kubeconfig() {
    let etcd = Etcd::start().expect("etcd");
    let api_server = ApiServer::start(&etcd.endpoint()).expect("kube-apiserver");
    for account in ["calico-node", "calico-cni-plugin"] {
        let create = ["create", "serviceaccount", account, "-n", "kube-system"];
        assert!(api_server.kubectl(&create).expect("kubectl").status.success());
    }
    let bind = [
        "create",
        "clusterrolebinding",
        "node",
        "--clusterrole=cluster-admin",
        "--serviceaccount=kube-system:calico-node",
    ];
    assert!(api_server.kubectl(&bind).expect("kubectl").status.success());
    let token =
        api_server.kubectl(&["create", "token", "calico-node", "-n", "kube-system"]).expect("kubectl");
    let token = String::from_utf8(token.stdout).expect("text");
    let container = Container::new();
    let account = "var/run/secrets/kubernetes.io/serviceaccount";
    container.write(&format!("{account}/token"), token.trim());
    container.write(&format!("{account}/namespace"), "kube-system");
    let authority = std::fs::read_to_string(api_server.ca_certificate()).expect("a certificate");
    container.write(&format!("{account}/ca.crt"), &authority);
    let endpoint = api_server.endpoint();
    let (host, port) = endpoint.trim_start_matches("https://").split_once(':').expect("a port");
    let variables = Variables::new([
        ("SLEEP", "false"),
        ("KUBERNETES_SERVICE_HOST", host),
        ("KUBERNETES_SERVICE_PORT", port),
        ("KUBERNETES_NODE_NAME", "node-1"),
    ]);
    container.install(&variables).await.expect("an installation");
    assert_eq!(container.listed("host/etc/cni/net.d"), ["10-calico.conflist 600", "calico-kubeconfig 600"]);
    let kubectl = testkit::kubernetes_program("kubectl").expect("kubectl");
    let who = std::process::Command::new(kubectl)
        .arg("--kubeconfig")
        .arg(container.path("host/etc/cni/net.d/calico-kubeconfig"))
        .args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"])
        .output()
        .expect("kubectl");
    assert_eq!(
        String::from_utf8_lossy(&who.stdout),
        "system:serviceaccount:kube-system:calico-cni-plugin",
        "{}",
        String::from_utf8_lossy(&who.stderr)
    );
    // Without permission to create tokens there is no new kubeconfig, and the old one stays.
    let before =
        std::fs::read(container.path("host/etc/cni/net.d/calico-kubeconfig")).expect("the kubeconfig");
    container.write(&format!("{account}/token"), "a.b.c");
    let error = container.install(&variables).await.expect_err("no rights");
    assert!(error.contains("cannot get a token"), "{error}");
    assert_eq!(
        std::fs::read(container.path("host/etc/cni/net.d/calico-kubeconfig")).expect("the kubeconfig"),
        before
    );
}
