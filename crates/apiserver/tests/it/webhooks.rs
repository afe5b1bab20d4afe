//! The webhooks before a real kube-apiserver that serves `projectcalico.org/v3` as custom resources.

use anyhow::{Context as _, Result, bail};
use apiserver::for_tests::install_admission;
use apiserver::webhooks::{ServerArguments, run};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use daemon::{ShutdownHandle, Variables};
use kube_access::KubeAccess;
use kube_access::cluster::Cluster;
use manifests::webhooks::webhook_configuration;
use serde_json::{Value, json};
use testkit::{ApiServer, Authority, Etcd, Folder, eventually, free_port};
use tokio::runtime::Runtime;

const ROLES: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: alice}
rules:
- {apiGroups: [projectcalico.org], resources: [networkpolicies, globalnetworkpolicies], verbs: ["*"]}
- {apiGroups: [projectcalico.org], resources: [tiers], resourceNames: [red], verbs: [get]}
- {apiGroups: [projectcalico.org], resources: [tier.globalnetworkpolicies], resourceNames: ["red.*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: alice}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: alice}
subjects: [{kind: User, name: alice, apiGroup: rbac.authorization.k8s.io}]
"#;

/// A kube-apiserver that serves the definitions of `projectcalico.org/v3`, with webhooks and admission policies.
struct World {
    kube: ApiServer,
    _etcd: Etcd,
    _folder: Folder,
    _handle: ShutdownHandle,
    _runtime: Runtime,
}

impl World {
    fn start() -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let etcd = Etcd::start()?;
        let kube = ApiServer::start(&etcd.endpoint())?;
        let folder = Folder::new("webhooks")?;
        let authority = Authority::new(folder.path())?;
        let server = authority.sign("server", "webhooks", &[])?;
        std::fs::write(folder.path().join("namespace"), "calico-system\n")?;
        let port = free_port()?;
        let arguments = ServerArguments {
            tls_cert_file: server.certificate,
            tls_private_key_file: server.key,
            client_ca_file: None,
            port,
            log_level: "info".into(),
        };
        let (handle, shutdown) = ShutdownHandle::new();
        let variables = Variables::new([("KUBECONFIG", kube.kubeconfig())]);
        kube.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &api::crds::to_yaml_v3())?;
        kube.kubectl_with_input(&["apply", "-f", "-"], ROLES)?;
        // The objects of the manifest, and the webhooks with the rights that they get there.
        let bundle = STANDARD.encode(std::fs::read(&authority.certificate)?);
        let options = manifests::Options::new(manifests::Like::Calico, "registry.example.org", "v1");
        let objects = manifests::webhooks::objects(&options, &bundle);
        let text = manifests::to_yaml("", &objects);
        let strictly = ["apply", "--server-side", "--validate=strict", "-f", "-"];
        assert_eq!(kube.kubectl_with_input(&strictly, &text)?.lines().count(), objects.len());
        let token = kube.kubectl(&["create", "token", "calico-webhooks", "-n", "kube-system"])?;
        assert!(token.status.success(), "{token:?}");
        let account = json!({
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": kube.endpoint(), "insecure-skip-tls-verify": true}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {"token": String::from_utf8(token.stdout)?.trim()}}],
        });
        let file = folder.path().join("account.json");
        std::fs::write(&file, account.to_string())?;
        let (place, environment) = (folder.path().to_owned(), Variables::new([("KUBECONFIG", file)]));
        runtime.spawn(async move { run(&arguments, &environment, &place, shutdown).await });
        runtime.block_on(async {
            let access = KubeAccess::open(&variables, folder.path()).await?;
            let cluster = Cluster::new(&access);
            install_admission(&cluster).await?;
            // Installing again changes nothing.
            install_admission(&cluster).await
        })?;
        // Service addresses are not reachable here.
        let hooks = webhook_configuration(
            |path| json!({"url": format!("https://127.0.0.1:{port}{path}"), "caBundle": bundle}),
        );
        kube.kubectl_with_input(&["replace", "-f", "-"], &hooks.to_string())?;
        Ok(Self { kube, _etcd: etcd, _folder: folder, _handle: handle, _runtime: runtime })
    }

    fn create(&self, user: &str, object: &Value) -> Result<Value> {
        let arguments = ["create", "-o", "json", "-f", "-", "--as", user];
        // The administrator's groups come with the name.
        let arguments = if user == "admin" { &arguments[..5] } else { &arguments[..] };
        let mut answer = Ok(String::new());
        eventually("the admission policies know the definition", || {
            answer = self.kube.kubectl_with_input(arguments, &object.to_string());
            let is_early = |error: &anyhow::Error| error.to_string().contains("There can be a delay between");
            Ok(!answer.as_ref().is_err_and(is_early))
        })?;
        Ok(serde_json::from_str(&answer?)?)
    }
}

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    let mut metadata = json!({"name": name});
    if matches!(kind, "NetworkPolicy" | "StagedNetworkPolicy" | "StagedKubernetesNetworkPolicy") {
        metadata["namespace"] = "default".into();
    }
    json!({"apiVersion": "projectcalico.org/v3", "kind": kind, "metadata": metadata, "spec": spec})
}

/// Writes of policies and of the ClusterInformation: Calico's own cases of its webhooks.
fn writes_are_judged(w: &World) -> Result<()> {
    let tier = |name: &str| object("Tier", name, &json!({"order": 1}));
    w.create("admin", &tier("red"))?;
    let mut ending = tier("ending");
    ending["metadata"]["finalizers"] = json!(["example.org/stays"]);
    w.create("admin", &ending)?;
    w.kube.kubectl(&["delete", "tiers.projectcalico.org", "ending", "--wait=false"])?;
    eventually("the webhooks are asked", || {
        let refused = w.create("admin", &object("ClusterInformation", "default", &json!({})));
        let _ = w.kube.kubectl(&["delete", "clusterinformations.projectcalico.org", "default"]);
        let refused = refused.err().context("it was stored")?;
        Ok(refused.to_string().contains("ClusterInformation is a read-only resource (user: admin)"))
    })?;
    let policy = |name: &str, tier: &str| {
        object("GlobalNetworkPolicy", name, &json!({"tier": tier, "selector": "all()"}))
    };
    for (user, name, tier, refused) in [
        ("alice", "red.a", "red", ""),
        (
            "alice",
            "b",
            "default",
            "Authorization failed: globalnetworkpolicies.projectcalico.org \"b\" is forbidden: User \"alice\" cannot create \
             globalnetworkpolicies.projectcalico.org in tier \"default\" (user cannot get tier)",
        ),
        ("admin", "c", "no-such", "Tier \"no-such\" does not exist"),
        ("admin", "d", "ending", "Tier \"ending\" is being deleted"),
    ] {
        match (w.create(user, &policy(name, tier)), refused) {
            (Ok(_), "") => {}
            (Ok(made), _) => bail!("{user} could make {made}"),
            (Err(error), _) => assert!(!refused.is_empty() && error.to_string().contains(refused), "{error}"),
        }
    }
    let patch = |patch: Value| {
        let patch = patch.to_string();
        let line = [
            "patch",
            "globalnetworkpolicies.projectcalico.org",
            "red.a",
            "--type=merge",
            "-p",
            &patch,
            "--as",
            "alice",
        ];
        let output = w.kube.kubectl(&line)?;
        anyhow::Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (moved, said) = patch(json!({"spec": {"tier": "default"}}))?;
    assert!(!moved && said.contains("in tier \"default\""), "{said}");
    let (changed, said) = patch(json!({"spec": {"order": 7}}))?;
    assert!(changed, "the tier is the same: {said}");
    let gone =
        w.kube.kubectl(&["delete", "globalnetworkpolicies.projectcalico.org", "red.a", "--as", "alice"])?;
    assert!(gone.status.success(), "{gone:?}");
    w.kube.kubectl(&[
        "patch",
        "tiers.projectcalico.org",
        "ending",
        "--type=merge",
        "-p",
        r#"{"metadata":{"finalizers":null}}"#,
    ])?;
    Ok(())
}

/// The admission policies fill in the same defaults as `client`.
fn policies_fill_in(w: &World) -> Result<()> {
    eventually("the admission policies work", || {
        let made =
            w.create("admin", &object("GlobalNetworkPolicy", "first", &json!({"selector": "all()"})))?;
        w.kube.kubectl(&["delete", "globalnetworkpolicies.projectcalico.org", "first"])?;
        Ok(made["spec"]["types"] == json!(["Ingress"]))
    })?;
    let rule = json!([{"action": "Allow"}]);
    let rules = [
        json!({}),
        json!({"ingress": rule}),
        json!({"egress": rule}),
        json!({"ingress": rule, "egress": rule}),
        json!({"ingress": [], "egress": []}),
        json!({"tier": ""}),
        json!({"tier": "red", "types": ["Egress"], "ingress": rule}),
    ];
    for kind in [
        api::Kind::NetworkPolicy,
        api::Kind::GlobalNetworkPolicy,
        api::Kind::StagedNetworkPolicy,
        api::Kind::StagedGlobalNetworkPolicy,
        api::Kind::StagedKubernetesNetworkPolicy,
    ] {
        for (number, spec) in rules.iter().enumerate() {
            let mut spec = spec.clone();
            let is_kubernetes = kind == api::Kind::StagedKubernetesNetworkPolicy;
            if is_kubernetes {
                if spec.get("tier").is_some() {
                    continue;
                }
                spec = serde_json::from_str(&spec.to_string().replace(r#"{"action":"Allow"}"#, "{}"))?;
            }
            let name = format!("p{number}");
            let sent = object(kind.as_str(), &name, &spec);
            let made = w.create("admin", &sent).with_context(|| sent.to_string())?;
            let mut wanted = api::Resource::from_value(kind, sent.clone())?;
            wanted.set_defaults();
            let wanted = serde_json::to_value(&wanted)?;
            if is_kubernetes {
                let has_egress = spec.get("egress").is_some_and(|rules| rules != &json!([]));
                let types = if has_egress { json!(["Ingress", "Egress"]) } else { json!(["Ingress"]) };
                assert_eq!(made["spec"]["policyTypes"], types, "{sent}");
                continue;
            }
            assert_eq!(made["spec"]["types"], wanted["spec"]["types"], "{sent}");
            assert_eq!(made["spec"]["tier"], wanted["spec"]["tier"], "{sent}");
            let label = "/metadata/labels/projectcalico.org~1tier";
            assert_eq!(made.pointer(label), wanted.pointer("/spec/tier"), "{sent}");
        }
    }
    Ok(())
}

fn built_in_tiers_stay(w: &World) -> Result<()> {
    let delete = |name: &str| {
        let output = w.kube.kubectl(&["delete", "tiers.projectcalico.org", name])?;
        anyhow::Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    for tier in api::BUILT_IN_TIERS {
        let spec = json!({"order": tier.order, "defaultAction": tier.default_action});
        w.create("admin", &object("Tier", tier.name, &spec))?;
        let (is_gone, said) = delete(tier.name)?;
        let wanted = format!("The built-in tier {} cannot be deleted", tier.name);
        assert!(!is_gone && said.contains(&wanted), "{said}");
    }
    let (is_gone, said) = delete("red")?;
    assert!(is_gone, "{said}");
    w.create("admin", &object("Tier", "red", &json!({"order": 1})))?;
    Ok(())
}

#[test]
fn definitions_with_webhooks_and_admission_policies() -> Result<()> {
    let world = World::start()?;
    eventually("the definitions are served", || {
        let tiers = world.kube.kubectl(&["get", "tiers.projectcalico.org"])?;
        let policies =
            world.kube.kubectl(&["get", "stagedkubernetesnetworkpolicies.projectcalico.org", "-A"])?;
        Ok(tiers.status.success() && policies.status.success())
    })?;
    writes_are_judged(&world)?;
    built_in_tiers_stay(&world)?;
    policies_fill_in(&world)
}
