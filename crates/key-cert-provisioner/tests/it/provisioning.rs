//! Provisioning with exactly the rights that Calico's operator grants.

use crate::signer::Signer;
use anyhow::{Context as _, Result, ensure};
use daemon::Variables;
use key_cert_provisioner::for_tests::run;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::thread::JoinHandle;
use testkit::{ApiServer, Etcd, Folder};

/// The rights from Calico's operator: no list, no get.
const RIGHTS: &str = r#"{"apiVersion": "v1", "kind": "List", "items": [
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "tigera-csr-creator"},
        "rules": [{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"],
            "verbs": ["create", "watch", "delete"]}]},
    {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "nobody:csr-creator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "tigera-csr-creator"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nobody"}]}]}"#;

const NAME: &str = "typha-certs:calico-typha-x";

fn variables(api: &ApiServer, folder: &Path) -> Variables {
    let kubeconfig = api.kubeconfig_without_rights().display().to_string();
    let folder = folder.display().to_string();
    Variables::new([
        ("KUBECONFIG", kubeconfig.as_str()),
        ("CERTIFICATE_PATH", folder.as_str()),
        ("SECRET_NAME", "typha-certs"),
        ("SIGNER", "example.com/signer"),
        ("COMMON_NAME", "typha-server"),
        ("KEY_ALGORITHM", "ECDSAWithCurve256"),
        ("KEY_NAME", "tls.key"),
        ("CERT_NAME", "tls.crt"),
        ("CA_CERT_NAME", "ca.crt"),
        ("CA_CERT", "LS0tLS1CRUdJTg=="),
        ("APP_NAME", "calico-typha"),
        ("DNS_NAMES", "typha-server,typha.calico-system.svc"),
        ("POD_IP", "10.1.2.3"),
        ("POD_NAME", "calico-typha-x"),
        ("TIMEOUT_DURATION", "5m"),
    ])
}

/// Starts the provisioning of a pod.
fn start(variables: Variables) -> JoinHandle<Result<()>> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(&variables))
    })
}

fn end(pod: JoinHandle<Result<()>>) -> Result<()> {
    pod.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn names(folder: &Folder) -> Vec<String> {
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<String> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn world() -> Result<(Etcd, ApiServer)> {
    let etcd = Etcd::start()?;
    let api = ApiServer::start(&etcd.endpoint())?;
    api.kubectl_with_input(&["apply", "-f", "-"], RIGHTS)?;
    Ok((etcd, api))
}

#[test]
fn keys_are_certified_with_the_rights_of_calicos_operator() -> Result<()> {
    let (_etcd, api) = world()?;
    let signer = Signer::new(&api)?;
    for (kind, head) in
        [("", "-----BEGIN RSA PRIVATE KEY-----"), ("ECDSAWithCurve384", "-----BEGIN PRIVATE KEY-----")]
    {
        // The second round finds the request of the first one, like a pod that was restarted.
        let folder = Folder::new("key-cert")?;
        let known = api.kubectl(&["get", "csr", NAME, "-o", "jsonpath={.metadata.uid}"])?.stdout;
        let pod = start(variables(&api, folder.path()).with([("KEY_ALGORITHM", kind)]));
        let request = testkit::eventually("a new request", || {
            let request = signer.request(NAME)?;
            ensure!(
                request["metadata"]["uid"].as_str().map(str::as_bytes) != Some(&known),
                "it is the old one"
            );
            Ok(Some(request))
        })?;
        let spec = &request["spec"];
        assert_eq!(
            (&spec["signerName"], &spec["username"]),
            (&Value::from("example.com/signer"), &Value::from("nobody"))
        );
        assert_eq!(spec["usages"].as_array().context("usages")?.len(), 5);
        for label in ["k8s-app", "operator.tigera.io/csr"] {
            assert_eq!(request["metadata"]["labels"][label], "calico-typha");
        }
        assert_eq!(names(&folder), [""; 0], "nothing before there is a certificate");
        signer.approve(NAME)?;
        let certificate = signer.sign(&request)?;
        end(pod)?;
        assert_eq!(names(&folder), ["ca.crt", "tls.crt", "tls.key"]);
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        assert_eq!(read("tls.crt")?, certificate);
        assert_eq!(read("ca.crt")?, "-----BEGIN");
        assert!(read("tls.key")?.starts_with(head), "{kind}");
        let mode = std::fs::metadata(folder.path().join("tls.key"))?.permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        // A server accepts the two as a pair.
        let chain =
            CertificateDer::pem_file_iter(folder.path().join("tls.crt"))?.collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_file(folder.path().join("tls.key"))?;
        CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider())?.keys_match()?;
    }
    Ok(())
}

#[test]
fn denials_end_the_wait_and_a_wrong_certificate_is_refused() -> Result<()> {
    let (_etcd, api) = world()?;
    let signer = Signer::new(&api)?;
    let folder = Folder::new("key-cert-refused")?;
    let pod = start(variables(&api, folder.path()));
    signer.request(NAME)?;
    signer.deny(NAME)?;
    let error = end(pod).expect_err("denied").to_string();
    assert!(error.contains("the request was denied"), "{error}");

    let pod = start(variables(&api, folder.path()).with([("SECRET_NAME", "other")]));
    let request = signer.request("other:calico-typha-x")?;
    signer.approve("other:calico-typha-x")?;
    signer.sign_another(&request)?;
    let error = format!("{:#}", end(pod).expect_err("another key"));
    assert!(error.contains("is for another key"), "{error}");

    let pod =
        start(variables(&api, folder.path()).with([("SECRET_NAME", "late"), ("TIMEOUT_DURATION", "3s")]));
    let error = end(pod).expect_err("no approval").to_string();
    assert!(error.contains("TIMEOUT_DURATION") && error.contains("it has not been approved"), "{error}");

    api.kubectl(&["delete", "clusterrolebinding", "nobody:csr-creator"])?;
    let pod =
        start(variables(&api, folder.path()).with([("SECRET_NAME", "rights"), ("TIMEOUT_DURATION", "3s")]));
    let error = end(pod).expect_err("no rights").to_string();
    assert!(error.contains("a permission is missing"), "{error}");
    assert_eq!(names(&folder), [""; 0]);
    Ok(())
}

#[test]
fn a_deleted_request_is_repeated_and_a_server_restart_is_survived() -> Result<()> {
    let (_etcd, mut api) = world()?;
    let folder = Folder::new("key-cert-again")?;
    let pod = start(variables(&api, folder.path()));
    let first = Signer::new(&api)?.request(NAME)?;
    api.kubectl(&["delete", "csr", NAME])?;
    let second = testkit::eventually("another request", || {
        let request = Signer::new(&api)?.request(NAME)?;
        ensure!(request["metadata"]["uid"] != first["metadata"]["uid"], "it is the old one");
        Ok(Some(request))
    })?;
    api.kill();
    api.restart()?;
    let signer = Signer::new(&api)?;
    signer.approve(NAME)?;
    signer.sign(&second)?;
    end(pod)?;
    assert_eq!(names(&folder).len(), 3);
    Ok(())
}
