//! Permissions: every verb against a matrix of roles, decided by a real kube-apiserver.
//!
//! alice has tier red, bob no tier, carol nothing (the recorded roles of Calico's server); dave has one policy of tier
//! red by its name.

use crate::aggregated::{Cluster, Datastore};
use anyhow::{Context as _, Result};
use http::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use std::path::Path;

const DAVE: &str = r#"
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dave}
rules:
- {apiGroups: [projectcalico.org], resources: [networkpolicies, globalnetworkpolicies], verbs: ["*"]}
- {apiGroups: [projectcalico.org], resources: [tiers], resourceNames: [red], verbs: [get]}
- {apiGroups: [projectcalico.org], resources: [tier.networkpolicies], resourceNames: ["red.np"], verbs: [get, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dave}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dave}
subjects: [{kind: User, name: dave, apiGroup: rbac.authorization.k8s.io}]
"#;

/// Sends a request through kube-apiserver as this user.
fn ask(
    client: &kube::Client,
    cluster: &Cluster,
    user: &str,
    method: &str,
    path: &str,
    body: &Value,
) -> Result<(u16, Value)> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let text = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let mut request = Request::builder()
        .method(method)
        .uri(format!("/apis/projectcalico.org/v3/{path}"))
        .header("Content-Type", content)
        .header("Accept", "application/json");
    if user != "admin" {
        request = request.header("Impersonate-User", user);
    }
    let request = request.body(kube::client::Body::from(text))?;
    cluster.runtime.block_on(async {
        let answer = client.send(request).await?;
        let code = answer.status().as_u16();
        // A watch that would never end.
        if code == 200 && path.contains("watch=1") && !path.contains("timeoutSeconds") {
            return Ok((code, Value::Null));
        }
        let bytes = answer.into_body().collect().await?.to_bytes();
        Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
    })
}

fn names(answer: &Value) -> Vec<String> {
    let items = answer["items"].as_array().into_iter().flatten();
    items.filter_map(|item| Some(item.pointer("/metadata/name")?.as_str()?.to_owned())).collect()
}

/// Erin's roles: all of tier red; in tier blue all kinds and verbs but not the tier itself; in tier green the tier and
/// reading one policy of each kind.
const ERIN: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: erin}
rules:
- {apiGroups: [projectcalico.org], resources: [networkpolicies, globalnetworkpolicies, stagednetworkpolicies, stagedglobalnetworkpolicies], verbs: ["*"]}
- {apiGroups: [projectcalico.org], resources: [tiers], resourceNames: [red, green], verbs: [get]}
- apiGroups: [projectcalico.org]
  resources: [tier.networkpolicies, tier.globalnetworkpolicies, tier.stagednetworkpolicies, tier.stagedglobalnetworkpolicies]
  resourceNames: ["red.*", "blue.*"]
  verbs: ["*"]
- apiGroups: [projectcalico.org]
  resources: [tier.networkpolicies, tier.globalnetworkpolicies, tier.stagednetworkpolicies, tier.stagedglobalnetworkpolicies]
  resourceNames: ["green.one"]
  verbs: [get]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: erin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: erin}
subjects: [{kind: User, name: erin, apiGroup: rbac.authorization.k8s.io}]
"#;

/// Every verb on every kind of policy, in a tier that is allowed, in one that cannot be seen, and in one where a single
/// policy can be read.
fn all_kinds_of_policies(c: &Cluster, client: &kube::Client) -> Result<()> {
    c.kube.kubectl_with_input(&["apply", "-f", "-"], ERIN)?;
    let ask = |user: &str, method: &str, path: &str, body: &Value| ask(client, c, user, method, path, body);
    for tier in ["blue", "green"] {
        ask("admin", "POST", "tiers", &json!({"metadata": {"name": tier}, "spec": {"order": 50}}))?;
    }
    for plural in
        ["networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"]
    {
        let is_global = plural.contains("global");
        let base = if is_global { plural.to_owned() } else { format!("namespaces/shop/{plural}") };
        let policy = |name: &str, tier: &str| json!({"metadata": {"name": name}, "spec": {"tier": tier, "selector": "all()"}});
        for tier in ["red", "blue", "green"] {
            for name in ["one", "two"] {
                let name = format!("{tier}.{name}");
                let (code, answer) = ask("admin", "POST", &base, &policy(&name, tier))?;
                assert_eq!(code, 201, "{base} {answer}");
            }
        }
        let everything = [("red", true), ("blue", false), ("green", false)];
        for (tier, is_allowed) in everything {
            let (one, selected) =
                (format!("{base}/{tier}.one?dryRun=All"), format!("{base}?fieldSelector=spec.tier%3D{tier}"));
            let patch = json!({"spec": {"order": 7}});
            for (what, method, path, body) in [
                ("get", "GET", format!("{base}/{tier}.one"), Value::Null),
                ("list", "GET", selected.clone(), Value::Null),
                ("watch", "GET", format!("{selected}&watch=1"), Value::Null),
                ("create", "POST", format!("{base}?dryRun=All"), policy(&format!("{tier}.new"), tier)),
                ("patch", "PATCH", one.clone(), patch),
                ("delete", "DELETE", one.clone(), Value::Null),
                ("deletecollection", "DELETE", format!("{selected}&dryRun=All"), Value::Null),
            ] {
                let (code, answer) = ask("erin", method, &path, &body)?;
                let is_allowed = is_allowed || (tier == "green" && what == "get");
                let expected = if is_allowed { [200, 201] } else { [403, 403] };
                assert!(expected.contains(&code), "{plural} {what} in {tier}: {code} {answer}");
                let message = answer["message"].as_str().unwrap_or_default();
                let is_hidden = message.contains("(user cannot get tier)");
                assert_eq!(!is_allowed && tier == "blue", is_hidden, "{plural} {what} in {tier}: {message}");
            }
        }
        // Moving a policy needs permission for both tiers.
        let one = format!("{base}/red.one?dryRun=All");
        let (code, answer) = ask("erin", "PATCH", &one, &json!({"spec": {"tier": "blue"}}))?;
        assert_eq!(code, 403, "{answer}");
        let (code, answer) = ask("erin", "GET", &base, &Value::Null)?;
        let seen: Vec<String> = names(&answer)
            .into_iter()
            .filter(|name| !name.ends_with(".np") && name != "red.only-this")
            .collect();
        assert_eq!((code, seen), (200, vec!["red.one".to_owned(), "red.two".to_owned()]), "{plural}");
    }
    for plural in
        ["networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"]
    {
        let is_global = plural.contains("global");
        let base = if is_global { plural.to_owned() } else { format!("namespaces/shop/{plural}") };
        for tier in ["red", "blue", "green"] {
            for name in ["one", "two"] {
                ask("admin", "DELETE", &format!("{base}/{tier}.{name}"), &Value::Null)?;
            }
        }
    }
    Ok(())
}

const READER: &str = r#"
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: [projectcalico.org], resources: [globalnetworksets], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: shop}]
"#;

/// A client of our server itself is identified by a token, and Kubernetes reports its owner.
fn tokens_are_kubernetes(c: &Cluster) -> Result<()> {
    c.kube.kubectl_with_input(&["apply", "-f", "-"], READER)?;
    let token = c.run(&["create", "token", "reader", "-n", "shop"])?;
    let (head, rest) = token.trim().rsplit_once('.').context("a signed token")?;
    let forged = format!("{head}.{}", rest.chars().rev().collect::<String>());
    let name = "system:serviceaccount:shop:reader";
    let cannot = |user: &str| {
        format!(
            "tiers.projectcalico.org is forbidden: User \"{user}\" cannot list resource \"tiers\" in API group \
             \"projectcalico.org\" at the cluster scope"
        )
    };
    let proxied = [("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")];
    for (what, token, headers, path, code, message) in [
        ("a good token", token.trim(), &[][..], "globalnetworksets", 200, String::new()),
        ("a good token without the permission", token.trim(), &[][..], "tiers", 403, cannot(name)),
        ("a forged token", &*forged, &[][..], "globalnetworksets", 401, "Unauthorized".into()),
        ("rubbish", "rubbish", &[][..], "globalnetworksets", 401, "Unauthorized".into()),
        ("nothing", "", &[][..], "tiers", 403, cannot("system:anonymous")),
        ("a stranger who claims to be the proxy", "", &proxied[..], "tiers", 403, cannot("system:anonymous")),
        ("the same with a token", token.trim(), &proxied[..], "tiers", 403, cannot(name)),
    ] {
        let client = c.direct(token)?;
        let mut request = Request::builder().uri(format!("/apis/projectcalico.org/v3/{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(kube::client::Body::empty())?;
        let (found, answer) = c.runtime.block_on(async {
            let answer = client.send(request).await?;
            let code = answer.status().as_u16();
            let bytes = answer.into_body().collect().await?.to_bytes();
            anyhow::Ok((code, serde_json::from_slice(&bytes).unwrap_or(Value::Null)))
        })?;
        assert_eq!(found, code, "{what}: {answer}");
        if !message.is_empty() {
            assert_eq!(answer["message"], message, "{what}");
        }
    }
    Ok(())
}

/// Nothing can be created in a terminating namespace; existing objects can be changed and deleted.
fn namespaces_that_end(c: &Cluster) -> Result<()> {
    c.run(&["create", "namespace", "ending"])?;
    let set = |name: &str| {
        json!({"apiVersion": "projectcalico.org/v3", "kind": "NetworkSet", "metadata": {"name": name, "namespace": "ending"}})
            .to_string()
    };
    c.kube.kubectl_with_input(&["create", "-f", "-"], &set("before"))?;
    c.run(&["delete", "namespace", "ending", "--wait=false"])?;
    // A namespace that was found is assumed to exist for a few seconds.
    testkit::eventually("new objects are refused", || {
        let refused = c.kube.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], &set("after"));
        let wanted = "unable to create new content in namespace ending because it is being terminated";
        Ok(refused.is_err_and(|error| error.to_string().contains(wanted)))
    })?;
    c.run(&["label", "networksets.projectcalico.org", "before", "-n", "ending", "a=b"])?;
    c.run(&["delete", "networksets.projectcalico.org", "before", "-n", "ending", "--timeout=60s"])?;
    Ok(())
}

#[test]
fn every_verb_against_a_matrix_of_roles() -> Result<()> {
    let cluster = Cluster::start(Datastore::Etcd)?;
    let roles = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rbac.yaml"))?;
    cluster.kube.kubectl_with_input(&["apply", "-f", "-"], &format!("{roles}{DAVE}"))?;
    let kubeconfig = kube::config::Kubeconfig::read_from(cluster.kube.kubeconfig())?;
    let client = cluster.runtime.block_on(async {
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await?;
        anyhow::Ok(kube::Client::try_from(config)?)
    })?;
    let ask =
        |user: &str, method: &str, path: &str, body: &Value| ask(&client, &cluster, user, method, path, body);
    let policy = |name: &str, tier: &str| json!({"metadata": {"name": name}, "spec": {"tier": tier, "selector": "all()"}});
    let np = "namespaces/shop/networkpolicies";
    for (path, body) in [
        ("tiers", json!({"metadata": {"name": "red"}, "spec": {"order": 100}})),
        (np, policy("red.np", "red")),
        (np, policy("plain", "default")),
        (np, policy("default.old", "default")),
        ("globalnetworkpolicies", policy("red.only-this", "red")),
    ] {
        let (code, answer) = ask("admin", "POST", path, &body)?;
        assert_eq!(code, 201, "{path} {answer}");
    }
    // What Calico's server answered to the same requests of the same users.
    let exchanges = include_str!("../data/exchanges.txt");
    let recorded = exchanges
        .lines()
        .skip_while(|line| *line != "## tier RBAC")
        .skip(1)
        .take_while(|line| !line.starts_with("##"));
    let mut count = 0;
    for line in recorded {
        let mut words = line.splitn(5, ' ');
        let (user, method, path) =
            (words.next().context("user")?, words.next().context("method")?, words.next().context("path")?);
        let code: u16 = words.next().context("code")?.parse()?;
        let captured: Value = serde_json::from_str(words.next().context("answer")?)?;
        let body = match (method, code) {
            ("PATCH", 200) => json!({"spec": {"order": 5}}),
            ("PATCH", _) => json!({"spec": {"tier": "default"}}),
            _ => Value::Null,
        };
        let (found, answer) = ask(user, method, path, &body)?;
        assert_eq!(found, code, "{line}\n{answer}");
        if code == 200 && captured["items"].is_array() {
            assert_eq!(json!(names(&answer)), captured["items"], "{line}");
        }
        if code != 200 {
            assert_eq!(answer["message"], captured["message"], "{line}");
            assert_eq!(answer["details"], captured["details"], "{line}");
        }
        count += 1;
    }
    assert!(count >= 14, "the recording has {count} requests");
    all_kinds_of_policies(&cluster, &client)?;
    // Every verb of every role: yes or no.
    let verbs: [(&str, &str, &str); 9] = [
        ("get red", "GET", "namespaces/shop/networkpolicies/red.np"),
        ("get default", "GET", "namespaces/shop/networkpolicies/plain"),
        ("list red", "GET", "namespaces/shop/networkpolicies?fieldSelector=spec.tier%3Dred"),
        ("list", "GET", "namespaces/shop/networkpolicies"),
        ("watch", "GET", "namespaces/shop/networkpolicies?watch=1"),
        ("create red", "POST", "namespaces/shop/networkpolicies?dryRun=All"),
        ("patch red", "PATCH", "namespaces/shop/networkpolicies/red.np?dryRun=All"),
        ("delete red", "DELETE", "namespaces/shop/networkpolicies/red.np?dryRun=All"),
        (
            "deletecollection red",
            "DELETE",
            "namespaces/shop/networkpolicies?fieldSelector=spec.tier%3Dred&dryRun=All",
        ),
    ];
    for (user, allowed) in [
        (
            "admin",
            vec![
                "get red",
                "get default",
                "list red",
                "list",
                "watch",
                "create red",
                "patch red",
                "delete red",
                "deletecollection red",
            ],
        ),
        (
            "alice",
            vec![
                "get red",
                "list red",
                "list",
                "watch",
                "create red",
                "patch red",
                "delete red",
                "deletecollection red",
            ],
        ),
        ("bob", vec![]),
        ("carol", vec![]),
        ("dave", vec!["get red", "patch red"]),
    ] {
        for (what, method, path) in verbs {
            let body = match method {
                "POST" => policy("red.new", "red"),
                "PATCH" => json!({"spec": {"order": 7}}),
                _ => Value::Null,
            };
            let (code, answer) = ask(user, method, path, &body)?;
            let expected = if allowed.contains(&what) { [200, 201] } else { [403, 403] };
            assert!(expected.contains(&code), "{user} {what}: {code} {answer}");
        }
    }
    tokens_are_kubernetes(&cluster)?;
    namespaces_that_end(&cluster)?;
    // A watch shows only what its user may see.
    let (_, first) =
        ask("alice", "GET", "namespaces/shop/networkpolicies?watch=1&timeoutSeconds=1", &Value::Null)?;
    assert_eq!(first.pointer("/object/metadata/name"), Some(&json!("red.np")), "{first}");
    Ok(())
}
