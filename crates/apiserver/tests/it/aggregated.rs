//! The server behind a real kube-apiserver, driven by a real `kubectl`, on both datastores.

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use client::{Client, ClientConfig};
use daemon::{ShutdownHandle, Variables};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use testkit::{ApiServer, Etcd, Folder, eventually, free_port, kubernetes_program};
use tokio::runtime::Runtime;

/// Where Calico's objects are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Datastore {
    Etcd,
    Kubernetes,
}

/// A cluster with this API in it.
pub(crate) struct Cluster {
    pub(crate) etcd: Etcd,
    pub(crate) kube: ApiServer,
    datastore: Datastore,
    server: Option<ShutdownHandle>,
    task: Option<tokio::task::JoinHandle<Result<()>>>,
    port: u16,
    folder: Folder,
    pub(crate) runtime: Runtime,
}

impl Cluster {
    pub(crate) fn start(datastore: Datastore) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let etcd = Etcd::start()?;
        let kube = ApiServer::start(&etcd.endpoint())?;
        let (folder, port) = (Folder::new("aggregated")?, free_port()?);
        let mut cluster = Self { etcd, kube, datastore, server: None, task: None, port, folder, runtime };
        if datastore == Datastore::Kubernetes {
            let config = ClientConfig::load(None, &cluster.variables())?;
            cluster.runtime.block_on(async {
                Client::open(&config).await?.backend().install().await.map_err(anyhow::Error::from)
            })?;
        }
        cluster.serve()?;
        cluster.register()?;
        Ok(cluster)
    }

    pub(crate) fn is_on_kubernetes(&self) -> bool {
        self.datastore == Datastore::Kubernetes
    }

    pub(crate) fn variables(&self) -> Variables {
        let kubeconfig = self.kube.kubeconfig();
        match self.datastore {
            Datastore::Etcd => Variables::new([
                ("DATASTORE_TYPE", "etcdv3".to_owned()),
                ("ETCD_ENDPOINTS", self.etcd.endpoint()),
            ]),
            Datastore::Kubernetes => Variables::new([
                ("DATASTORE_TYPE", "kubernetes".to_owned()),
                ("KUBECONFIG", kubeconfig.display().to_string()),
            ]),
        }
    }

    /// Starts our server.
    pub(crate) fn serve(&mut self) -> Result<()> {
        use clap::Parser as _;
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            arguments: apiserver::cli::Arguments,
        }
        let kubeconfig = self.kube.kubeconfig();
        let line = Line::try_parse_from([
            "apiserver".to_owned(),
            format!("--secure-port={}", self.port),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--cert-dir={}", self.folder.path().display()),
            // Roles change during a test.
            "--authorization-webhook-cache-unauthorized-ttl=0s".to_owned(),
            "-v=5".to_owned(),
        ])?;
        let (handle, shutdown) = ShutdownHandle::new();
        let variables = self.variables();
        let task = self
            .runtime
            .spawn(async move { apiserver::for_tests::run(&line.arguments, &variables, shutdown).await });
        self.server = Some(handle);
        self.task = Some(task);
        eventually("a serving certificate", || self.certificate().exists())
    }

    /// Stops our server and waits for it to exit.
    pub(crate) fn end(&mut self) -> Result<()> {
        self.server = None;
        match self.task.take() {
            Some(task) => self.runtime.block_on(task)?,
            None => Ok(()),
        }
    }

    fn certificate(&self) -> PathBuf {
        self.folder.path().join("apiserver.crt")
    }

    fn register(&self) -> Result<()> {
        let bundle = STANDARD.encode(std::fs::read(self.certificate())?);
        let objects = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "calico-apiserver"}},
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
            {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "calico-api", "namespace": "calico-apiserver"},
             "spec": {"type": "ExternalName", "externalName": "localhost"}},
            {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v3.projectcalico.org"},
             "spec": {"group": "projectcalico.org", "version": "v3", "groupPriorityMinimum": 1500, "versionPriority": 200,
                      "caBundle": bundle,
                      "service": {"name": "calico-api", "namespace": "calico-apiserver", "port": self.port}}},
        ]});
        self.kube.kubectl_with_input(&["apply", "-f", "-"], &objects.to_string())?;
        self.wait()
    }

    /// Waits until the API answers through kube-apiserver.
    pub(crate) fn wait(&self) -> Result<()> {
        let wanted = ["get", "tiers.projectcalico.org", "default", "-o", "name"];
        eventually("projectcalico.org/v3 behind kube-apiserver", || self.run(&wanted).map(|_| true))
    }

    /// A client of our server itself with this token, bypassing kube-apiserver.
    pub(crate) fn direct(&self, token: &str) -> Result<kube::Client> {
        let kubeconfig = json!({
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port), "insecure-skip-tls-verify": true,
            }}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": if token.is_empty() { json!({}) } else { json!({"token": token}) }}],
        });
        let kubeconfig = serde_json::from_value(kubeconfig)?;
        self.runtime.block_on(async {
            let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
            Ok(kube::Client::try_from(config)?)
        })
    }

    /// The output of a `kubectl` command, which must succeed.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<String> {
        let output = self.kube.kubectl(arguments)?;
        if !output.status.success() {
            bail!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A `kubectl` command for uses that [`ApiServer::kubectl`] does not cover.
    fn command(&self) -> Result<Command> {
        let mut command = Command::new(kubernetes_program("kubectl")?);
        command
            .arg("--kubeconfig")
            .arg(self.kube.kubeconfig())
            .arg("--cache-dir")
            .arg(self.folder.path().join("cache"));
        Ok(command)
    }

    fn apply(&self, flags: &[&str], document: &Value) -> Result<String> {
        let arguments: Vec<&str> = ["apply", "-f", "-"].iter().chain(flags).copied().collect();
        self.kube.kubectl_with_input(&arguments, &document.to_string())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Before kube-apiserver stops, so that the log of a failed test ends with its cause.
        let _ = self.end();
    }
}

fn policy(order: u32) -> Value {
    json!({
        "apiVersion": "projectcalico.org/v3", "kind": "NetworkPolicy",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"order": order, "selector": "app == 'web'", "ingress": [{"action": "Allow", "protocol": "TCP"}]},
    })
}

/// Another client library lists, writes and watches the same.
fn a_second_client(c: &Cluster) -> Result<()> {
    use futures::StreamExt as _;
    use kube::api::{Api, DynamicObject, ListParams, PostParams, WatchEvent, WatchParams};
    let resource = kube::core::ApiResource {
        group: "projectcalico.org".into(),
        version: "v3".into(),
        api_version: "projectcalico.org/v3".into(),
        kind: "GlobalNetworkSet".into(),
        plural: "globalnetworksets".into(),
    };
    let kubeconfig = kube::config::Kubeconfig::read_from(c.kube.kubeconfig())?;
    c.runtime.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        let sets: Api<DynamicObject> = Api::all_with(kube::Client::try_from(config)?, &resource);
        let listed = sets.list(&ListParams::default()).await?;
        let revision = listed.metadata.resource_version.context("a revision")?;
        let new = DynamicObject::new("second", &resource).data(json!({"spec": {"nets": ["10.0.0.0/8"]}}));
        let made = sets.create(&PostParams::default(), &new).await?;
        assert_eq!(made.data["spec"]["nets"], json!(["10.0.0.0/8"]));
        let mut events = sets.watch(&WatchParams::default(), &revision).await?.boxed();
        match events.next().await.context("an event")?? {
            WatchEvent::Added(set) => assert_eq!(set.metadata.name.as_deref(), Some("second")),
            other => bail!("{other:?}"),
        }
        sets.delete("second", &Default::default()).await?;
        match events.next().await.context("an event")?? {
            WatchEvent::Deleted(set) => assert_eq!(set.metadata.name.as_deref(), Some("second")),
            other => bail!("{other:?}"),
        }
        Ok(())
    })
}

fn everything_that_kubectl_does(datastore: Datastore) -> Result<()> {
    let mut c = Cluster::start(datastore)?;
    let names = c.run(&["api-resources", "--api-group=projectcalico.org", "-o", "name"])?;
    assert_eq!(names.lines().count(), apiserver::for_tests::SERVED.len(), "{names}");
    let full = "networkpolicies.projectcalico.org";
    // apply, apply again, diff, get in several forms.
    assert!(c.apply(&[], &policy(1))?.contains("web created"));
    assert!(c.apply(&[], &policy(1))?.contains("web unchanged"));
    assert!(c.apply(&[], &policy(2))?.contains("web configured"));
    let path = c.folder.path().join("policy.json");
    std::fs::write(&path, policy(3).to_string())?;
    let file = path.to_str().context("a path")?;
    let diff = c.command()?.args(["diff", "-f", file]).output()?;
    assert_eq!(diff.status.code(), Some(1), "{diff:?}");
    assert!(String::from_utf8_lossy(&diff.stdout).contains("+  order: 3"), "{diff:?}");
    let table = c.run(&["get", full, "-n", "shop"])?;
    assert!(table.starts_with("NAME") && table.contains("CREATED AT") && table.contains("web"), "{table}");
    assert_eq!(c.run(&["get", "cnp", "-A", "-o", "name"])?, "networkpolicy.projectcalico.org/web\n");
    let order = c.run(&["get", full, "web", "-n", "shop", "-o", "jsonpath={.spec.order}"])?;
    assert_eq!(order, "2");
    // patch of the three types, label, edit.
    for (flavour, patch) in [
        ("merge", json!({"spec": {"order": 5}})),
        ("json", json!([{"op": "replace", "path": "/spec/order", "value": 5}])),
        ("strategic", json!({"spec": {"order": 5}})),
    ] {
        let output = c.kube.kubectl(&[
            "patch",
            full,
            "web",
            "-n",
            "shop",
            "--type",
            flavour,
            "-p",
            &patch.to_string(),
        ])?;
        // `kubectl` itself refuses the strategic one for kinds that it was not built with.
        assert!(output.status.success() || flavour == "strategic", "{flavour}: {output:?}");
    }
    c.run(&["label", full, "web", "-n", "shop", "team=red"])?;
    let wait =
        ["wait", full, "web", "-n", "shop", "--for=jsonpath={.metadata.labels.team}=red", "--timeout=60s"];
    c.run(&wait)?;
    let edit = c
        .command()?
        .env("KUBE_EDITOR", "sed -i s/order:.5/order:\\ 6/")
        .args(["edit", full, "web", "-n", "shop"])
        .output()?;
    assert!(edit.status.success(), "{edit:?}");
    assert_eq!(c.run(&["get", full, "web", "-n", "shop", "-o", "jsonpath={.spec.order}"])?, "6");
    // Server-side apply, with a conflict and by force.
    let conflict = c.apply(&["--server-side", "--field-manager=other"], &policy(9));
    assert!(
        conflict.is_err_and(|error| error.to_string().contains("conflict")),
        "the edit belongs to another manager"
    );
    c.apply(&["--server-side", "--force-conflicts", "--field-manager=other"], &policy(9))?;
    assert_eq!(c.run(&["get", full, "web", "-n", "shop", "-o", "jsonpath={.spec.order}"])?, "9");
    let managers = c.run(&[
        "get",
        full,
        "web",
        "-n",
        "shop",
        "--show-managed-fields",
        "-o",
        "jsonpath={.metadata.managedFields[*].manager}",
    ])?;
    assert!(managers.contains("other"), "{managers}");
    // Errors name the invalid field.
    let mut wrong = policy(1);
    wrong["spec"]["selector"] = json!("this is wrong");
    let refused = c.apply(&[], &wrong).expect_err("an invalid selector").to_string();
    assert!(refused.contains("spec.selector"), "{refused}");
    wrong = policy(1);
    wrong["spec"]["sellector"] = json!("all()");
    let refused = c.apply(&[], &wrong).expect_err("an unknown field").to_string();
    assert!(refused.contains("unknown field") && refused.contains("spec.sellector"), "{refused}");
    wrong = policy(1);
    wrong["metadata"]["namespace"] = json!("nowhere");
    let refused = c.apply(&[], &wrong).expect_err("no such namespace").to_string();
    assert!(refused.contains("namespaces \"nowhere\" not found"), "{refused}");
    // Documentation.
    let explain = ["explain", "networkpolicies.spec.ingress", "--api-version=projectcalico.org/v3"];
    eventually("explain", || c.run(&explain).map(|text| text.contains("action") && text.contains("GROUP:")))?;
    a_second_client(&c)?;
    crate::restarts::every_change_once(&mut c)?;
    // Deletions.
    c.run(&["delete", full, "web", "-n", "shop", "--cascade=foreground", "--timeout=60s"])?;
    assert_eq!(c.run(&["get", full, "-A", "-o", "name"])?, "");
    c.apply(&[], &policy(1))?;
    c.run(&["delete", full, "-n", "shop", "--all", "--timeout=60s"])?;
    let refused = c.kube.kubectl(&["delete", "tier", "default"])?;
    assert!(String::from_utf8_lossy(&refused.stderr).contains("Cannot delete default tier"), "{refused:?}");
    if datastore == Datastore::Etcd {
        crate::hooks::the_webhooks_of_the_cluster_are_asked(&c)?;
        others_are_served_without_us(&mut c)?;
    }
    Ok(())
}

/// While our server is down, discovery and every other kind work, ours is reported as unavailable, and then comes back.
fn others_are_served_without_us(c: &mut Cluster) -> Result<()> {
    c.end()?;
    let kinds = c.command()?.args(["api-resources", "--no-headers"]).output()?;
    let listed = String::from_utf8_lossy(&kinds.stdout).into_owned();
    assert!(listed.contains("configmaps") && listed.contains("deployments"), "{kinds:?}");
    c.run(&["get", "configmaps", "-A"])?;
    let refused = c.kube.kubectl(&["get", "--raw", "/apis/projectcalico.org/v3/tiers"])?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("unable to handle the request"), "{said}");
    c.serve()?;
    c.wait()
}

#[test]
fn kubectl_on_etcd() -> Result<()> {
    everything_that_kubectl_does(Datastore::Etcd)
}

#[test]
fn kubectl_on_kubernetes() -> Result<()> {
    everything_that_kubectl_does(Datastore::Kubernetes)
}
