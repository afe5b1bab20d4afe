//! A real kube-apiserver with our server as its etcd: it starts, accepts a custom resource, `kubectl` applies, gets,
//! watches and deletes, and everything is still there after both were killed.

use anyhow::{Context, Result, ensure};
use testkit::ApiServer;

use crate::support::Server;

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: cats.example.test
spec:
  group: example.test
  scope: Cluster
  names: { plural: cats, singular: cat, kind: Cat }
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: { spec: { type: object, properties: { coat: { type: string } } } }
"#;

fn kubectl(api: &ApiServer, arguments: &[&str]) -> Result<String> {
    let output = api.kubectl(arguments)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(text)
}

fn config_map(number: usize, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: map-{number}, namespace: default }}\ndata: {{ key: {value} }}\n---\n"
    )
}

#[test]
fn kube_apiserver_runs_on_the_store() -> Result<()> {
    let mut server = Server::start(&["--experimental-watch-progress-notify-interval=5s"])?;
    let mut api = ApiServer::start(&server.endpoint())?;
    assert!(kubectl(&api, &["get", "namespaces", "-o", "name"])?.contains("namespace/default"));
    api.kubectl_with_input(&["apply", "-f", "-"], DEFINITION)?;
    kubectl(&api, &["wait", "--for=condition=Established", "crd/cats.example.test", "--timeout=60s"])?;
    let cat = "apiVersion: example.test/v1\nkind: Cat\nmetadata: { name: tortie }\nspec: { coat: orange }\n";
    api.kubectl_with_input(&["apply", "-f", "-"], cat)?;
    assert_eq!(kubectl(&api, &["get", "cat", "tortie", "-o", "jsonpath={.spec.coat}"])?, "orange");
    let maps: String = (0..50).map(|number| config_map(number, "first")).collect();
    api.kubectl_with_input(&["apply", "-f", "-"], &maps)?;
    let maps: String = (0..50).map(|number| config_map(number, "second")).collect();
    let applied = api.kubectl_with_input(&["apply", "-f", "-"], &maps)?;
    assert_eq!(applied.matches("configured").count(), 50, "{applied}");
    let names = kubectl(&api, &["get", "configmaps", "-n", "default", "-o", "name", "--chunk-size=20"])?;
    assert_eq!(names.matches("configmap/map-").count(), 50);
    kubectl(&api, &["delete", "configmap", "map-0", "-n", "default"])?;
    let gone = api.kubectl(&["get", "configmap", "map-0", "-n", "default"])?;
    assert!(!gone.status.success());
    // A conflict: an update of an old resource version is refused.
    let stale = kubectl(&api, &["get", "configmap", "map-1", "-n", "default", "-o", "json"])?;
    api.kubectl_with_input(&["apply", "-f", "-"], &config_map(1, "third"))?;
    let refused = api.kubectl_with_input(&["replace", "-f", "-"], &stale);
    let refused = refused.err().context("a stale update was accepted")?;
    assert!(refused.to_string().contains("the object has been modified"), "{refused}");
    api.kill();
    server.restart()?;
    api.restart()?;
    assert_eq!(kubectl(&api, &["get", "cat", "tortie", "-o", "jsonpath={.spec.coat}"])?, "orange");
    let value = kubectl(&api, &["get", "configmap", "map-1", "-n", "default", "-o", "jsonpath={.data.key}"])?;
    assert_eq!(value, "third");
    Ok(())
}
