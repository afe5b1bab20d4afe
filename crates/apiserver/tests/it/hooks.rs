//! The cluster's admission webhooks, called by our server for writes that come through a real kube-apiserver.

use crate::aggregated::Cluster;
use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use testkit::{Authority, Folder, eventually, free_port};
use tls::{Renewing, TlsFiles};
use tokio::net::TcpListener;

type Reviews = Arc<Mutex<Vec<Value>>>;

/// The webhooks' answers in this test: `/mutate` labels every object, `/validate` refuses one network and the deletion
/// of objects to be kept.
fn answer(path: &str, request: &Value) -> Value {
    let uid = &request["uid"];
    if path == "/mutate" && request["operation"] == "DELETE" {
        return json!({"uid": uid, "allowed": true});
    }
    if path == "/mutate" {
        let has_labels = request.pointer("/object/metadata/labels").is_some_and(Value::is_object);
        let mut patch = if has_labels {
            json!([])
        } else {
            json!([{"op": "add", "path": "/metadata/labels", "value": {}}])
        };
        if let Some(operations) = patch.as_array_mut() {
            operations.push(json!({"op": "add", "path": "/metadata/labels/mutated", "value": "yes"}));
        }
        let patch = STANDARD.encode(patch.to_string());
        return json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["it was looked at"]});
    }
    let nets = request.pointer("/object/spec/nets").cloned().unwrap_or_default();
    if nets.as_array().is_some_and(|nets| nets.contains(&json!("10.66.0.0/16"))) {
        return json!({"uid": uid, "allowed": false, "status": {"code": 403, "message": "this net is taken", "reason": "Forbidden"}});
    }
    let is_kept = request.pointer("/oldObject/metadata/labels/keep") == Some(&json!("yes"));
    json!({"uid": uid, "allowed": request["operation"] != "DELETE" || !is_kept})
}

/// Serves the webhooks, and records the reviews they receive.
async fn serve(listener: TcpListener, certificates: Renewing, reviews: Reviews) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let (acceptor, _) = certificates.current_or_last()?;
        let reviews = Arc::clone(&reviews);
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = service_fn(move |request: Request<Incoming>| {
                let reviews = Arc::clone(&reviews);
                async move {
                    let path = request.uri().path().to_owned();
                    let body = request
                        .into_body()
                        .collect()
                        .await
                        .map(http_body_util::Collected::to_bytes)
                        .unwrap_or_default();
                    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
                    let response = answer(&path, &review["request"]);
                    reviews.lock().expect("reviews").push(review["request"].clone());
                    let review = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
                    Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(review.to_string()))))
                }
            });
            let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

fn set(name: &str, net: &str, labels: &Value) -> Value {
    json!({"apiVersion": "projectcalico.org/v3", "kind": "GlobalNetworkSet", "metadata": {"name": name, "labels": labels},
           "spec": {"nets": [net]}})
}

fn configuration(flavour: &str, client: &Value, failure: &str, namespaces: &Value) -> Value {
    let (name, path) = (flavour.to_lowercase(), if flavour == "Mutating" { "/mutate" } else { "/validate" });
    let mut client = client.clone();
    if let Some(server) = client["url"].as_str() {
        client["url"] = format!("{server}{path}").into();
    }
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": format!("{flavour}WebhookConfiguration"),
        "metadata": {"name": "test"},
        "webhooks": [{
            "name": format!("{name}.example.org"), "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "failurePolicy": failure, "timeoutSeconds": 30, "clientConfig": client, "namespaceSelector": namespaces,
            "rules": [{"operations": ["*"], "apiGroups": ["projectcalico.org"], "apiVersions": ["v3"],
                       "resources": ["globalnetworksets", "networksets"]}],
        }],
    })
}

/// Mutating and validating webhooks of the cluster apply to the objects of our server.
pub(crate) fn the_webhooks_of_the_cluster_are_asked(c: &Cluster) -> Result<()> {
    let folder = Folder::new("hooks")?;
    let authority = Authority::new(folder.path())?;
    let server = authority.sign("server", "webhooks", &[])?;
    let reviews = Reviews::default();
    let listener = c.runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
    let port = listener.local_addr()?.port();
    let certificates = Renewing::new(TlsFiles {
        certificate: server.certificate,
        key: server.key,
        protocols: &["h2", "http/1.1"],
        ..TlsFiles::default()
    });
    let serving = c.runtime.spawn(serve(listener, certificates, Arc::clone(&reviews)));
    let bundle = STANDARD.encode(std::fs::read(&authority.certificate)?);
    let client = json!({"url": format!("https://127.0.0.1:{port}"), "caBundle": bundle});
    let apply = |object: &Value| c.kube.kubectl_with_input(&["apply", "-f", "-"], &object.to_string());
    apply(&configuration("Mutating", &client, "Fail", &json!({})))?;
    apply(&configuration("Validating", &client, "Fail", &json!({"matchLabels": {"team": "red"}})))?;
    eventually("the webhooks are asked", || {
        let made = apply(&set("first", "10.66.0.0/16", &json!({})));
        c.kube.kubectl(&["delete", "globalnetworksets", "first", "--ignore-not-found"])?;
        Ok(made.is_err()
            && c.kube
                .kubectl_with_input(
                    &["create", "--dry-run=server", "-o", "json", "-f", "-"],
                    &set("dry", "10.1.0.0/16", &json!({})).to_string(),
                )?
                .contains("mutated"))
    })?;
    let dry = reviews
        .lock()
        .expect("reviews")
        .iter()
        .any(|review| review["dryRun"] == true && review["name"] == "dry");
    ensure!(dry, "a dry run is marked as one");
    // Creations and changes.
    apply(&set("kept", "10.1.0.0/16", &json!({"keep": "yes"})))?;
    let labels = c.run(&["get", "globalnetworksets", "kept", "-o", "jsonpath={.metadata.labels}"])?;
    assert_eq!(serde_json::from_str::<Value>(&labels)?, json!({"keep": "yes", "mutated": "yes"}));
    reviews.lock().expect("reviews").clear();
    let patch = |net: &str| {
        let patch = json!({"spec": {"nets": [net]}}).to_string();
        let output = c.kube.kubectl(&["patch", "globalnetworksets", "kept", "--type=merge", "-p", &patch])?;
        anyhow::Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (is_done, said) = patch("10.2.0.0/16")?;
    assert!(is_done && said.contains("Warning: it was looked at"), "{said}");
    let (is_done, said) = patch("10.66.0.0/16")?;
    let denied = "admission webhook \"validating.example.org\" denied the request: this net is taken";
    assert!(!is_done && said.contains(denied), "{said}");
    let seen = reviews.lock().expect("reviews").clone();
    let first = seen.first().context("a review")?;
    assert_eq!((&first["operation"], &first["userInfo"]["username"]), (&json!("UPDATE"), &json!("admin")));
    assert_eq!(first.pointer("/oldObject/spec/nets"), Some(&json!(["10.1.0.0/16"])));
    assert_eq!(first.pointer("/object/spec/nets"), Some(&json!(["10.2.0.0/16"])));
    let applied = c.kube.kubectl_with_input(
        &["apply", "--server-side", "-f", "-"],
        &set("applied", "10.66.0.0/16", &json!({})).to_string(),
    );
    assert!(applied.is_err_and(|error| error.to_string().contains(denied)), "server-side apply");
    // Deletion of one object and of many.
    for line in [&["delete", "globalnetworksets", "kept"][..], &["delete", "globalnetworksets", "--all"]] {
        let output = c.kube.kubectl(line)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("denied the request"), "{line:?}: {said}");
    }
    let path = "/apis/projectcalico.org/v3/globalnetworksets";
    let output = c.kube.kubectl(&["delete", "--raw", path])?;
    assert!(String::from_utf8_lossy(&output.stderr).contains("denied the request"), "{output:?}");
    // Selection by namespace.
    let spaced = |namespace: &str| {
        let mut object = set("spaced", "10.66.0.0/16", &json!({}));
        object["kind"] = "NetworkSet".into();
        object["metadata"]["namespace"] = namespace.into();
        apply(&object)
    };
    spaced("default").context("a namespace without the label")?;
    c.run(&["label", "namespace", "shop", "team=red"])?;
    eventually("the label of the namespace counts", || {
        let made = spaced("shop");
        c.kube.kubectl(&[
            "delete",
            "networksets.projectcalico.org",
            "spaced",
            "-n",
            "shop",
            "--ignore-not-found",
        ])?;
        Ok(made.is_err())
    })?;
    // A webhook that cannot be reached.
    let nowhere = json!({"url": format!("https://127.0.0.1:{}", free_port()?), "caBundle": bundle});
    apply(&configuration("Validating", &nowhere, "Fail", &json!({})))?;
    eventually("a webhook that cannot be asked refuses", || {
        let made = apply(&set("lost", "10.3.0.0/16", &json!({})));
        Ok(made.is_err_and(|error| {
            error.to_string().contains("failed calling webhook \"validating.example.org\"")
        }))
    })?;
    apply(&configuration("Validating", &nowhere, "Ignore", &json!({})))?;
    eventually("unless it may be ignored", || apply(&set("lost", "10.3.0.0/16", &json!({}))).map(|_| true))?;
    c.run(&["delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "test"])?;
    eventually("configurations that are gone are forgotten", || {
        let object = set("free", "10.4.0.0/16", &json!({}));
        let made = c.kube.kubectl_with_input(
            &["create", "--dry-run=server", "-o", "json", "-f", "-"],
            &object.to_string(),
        )?;
        Ok(!made.contains("mutated"))
    })?;
    for (kind, namespace) in [("globalnetworksets", ""), ("networksets.projectcalico.org", "default")] {
        let mut line = vec!["delete", kind, "--all"];
        if !namespace.is_empty() {
            line.extend(["-n", namespace]);
        }
        c.run(&line)?;
    }
    serving.abort();
    Ok(())
}
