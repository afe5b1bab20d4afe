//! The configuration from files and variables, in an environment made of maps.

use super::environment;
use super::parameters::{PARAMETERS, reference_page};
use super::*;
use daemon::Variables;

fn variables(pairs: &[(&str, &str)]) -> Variables {
    Variables::new(pairs.iter().copied()).with_files::<PathBuf, String>([])
}

fn from_variables(pairs: &[(&str, &str)]) -> ClientConfig {
    ClientConfig::from_environment(&variables(pairs)).expect("valid variables")
}

fn from_text(text: &str) -> Result<ClientConfig, ConfigError> {
    ClientConfig::from_text("calicoctl.cfg", text, &variables(&[]))
}

fn spec(lines: &str) -> String {
    format!("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n{lines}")
}

#[test]
fn the_type_of_store_is_detected() {
    let cases: &[(&[(&str, &str)], DatastoreType)] = &[
        (&[], DatastoreType::Kubernetes),
        (&[("ETCD_ENDPOINTS", "http://127.0.0.1:2379")], DatastoreType::EtcdV3),
        (&[("EMBEDDED_PATH", "/var/lib/tortie")], DatastoreType::Embedded),
        (&[("EMBEDDED_PATH", "/d"), ("ETCD_ENDPOINTS", "http://e:2379")], DatastoreType::EtcdV3),
        (&[("EMBEDDED_PATH", "/d"), ("DATASTORE_TYPE", "embedded")], DatastoreType::Embedded),
        (&[("DATASTORE_TYPE", "kubernetes"), ("ETCD_ENDPOINTS", "http://e:2379")], DatastoreType::Kubernetes),
        (&[("CALICO_DATASTORE_TYPE", "etcdv3"), ("DATASTORE_TYPE", "kubernetes")], DatastoreType::EtcdV3),
    ];
    for (pairs, expected) in cases {
        assert_eq!(from_variables(pairs).datastore_type, *expected, "{pairs:?}");
    }
}

#[test]
fn every_variable_is_read_with_and_without_prefix() {
    for parameter in PARAMETERS {
        for name in environment::variables(parameter) {
            // A truth value is valid text, and 1 is a valid number.
            let value = match parameter.field {
                "datastoreType" => "etcdv3",
                _ => "1",
            };
            let config = from_variables(&[(name.as_str(), value), ("CALICO_DATASTORE_TYPE", "etcdv3")]);
            let plain = from_variables(&[("CALICO_DATASTORE_TYPE", "etcdv3")]);
            assert_eq!(config == plain, parameter.field == "datastoreType", "{name}");
        }
    }
}

#[test]
fn a_prefixed_variable_wins_even_when_it_is_empty() {
    let config = from_variables(&[
        ("ETCD_ENDPOINTS", "http://bare:2379"),
        ("CALICO_ETCD_ENDPOINTS", "http://prefixed:2379"),
    ]);
    assert_eq!(config.etcd.endpoints, "http://prefixed:2379");
    let config = from_variables(&[("ETCD_ENDPOINTS", "http://bare:2379"), ("CALICO_ETCD_ENDPOINTS", "")]);
    assert_eq!(config.etcd.endpoints, "");
    assert_eq!(config.datastore_type, DatastoreType::Kubernetes);
}

#[test]
fn the_token_has_a_prefixed_variable_only_and_inline_secrets_have_none() {
    let config =
        from_variables(&[("CALICO_K8SAPITOKEN", "abc"), ("ETCD_KEY", "no"), ("KUBECONFIG_INLINE", "no")]);
    assert_eq!(config.kubernetes.api_token.expose(), "abc");
    assert!(config.etcd.key.is_empty() && config.kubernetes.kubeconfig_inline.is_empty());
    assert!(from_variables(&[("K8SAPITOKEN", "abc")]).kubernetes.api_token.is_empty());
}

#[test]
fn all_mistakes_of_the_environment_are_reported() {
    let environment = variables(&[
        ("DATASTORE_TYPE", "etcd"),
        ("K8S_CLIENT_QPS", "fast"),
        ("K8S_INSECURE_SKIP_TLS_VERIFY", "maybe"),
    ]);
    let error = ClientConfig::from_environment(&environment).expect_err("three mistakes").to_string();
    assert_eq!(
        error,
        "3 mistakes in the configuration:\n\
         DATASTORE_TYPE: unknown datastore type 'etcd': must be one of etcdv3, kubernetes, embedded\n\
         K8S_INSECURE_SKIP_TLS_VERIFY: must be true or false\n\
         K8S_CLIENT_QPS: 'fast' is not a number in its range"
    );
}

#[test]
fn a_kubeconfig_in_the_home_directory_is_found() {
    let home = |files: &[&str], more: &[(&str, &str)]| {
        let environment = variables(&[("HOME", "/root")])
            .with(more.iter().copied())
            .with_files(files.iter().map(|path| (path, "")));
        ClientConfig::from_environment(&environment).expect("valid").kubernetes.kubeconfig
    };
    assert_eq!(home(&["/root/.kube/config"], &[]), "/root/.kube/config");
    assert_eq!(home(&[], &[]), "");
    assert_eq!(home(&["/root/.kube/config"], &[("KUBECONFIG", "/a:/b")]), "/a:/b");
    assert_eq!(home(&["/root/.kube/config"], &[("K8S_API_ENDPOINT", "https://k")]), "");
    assert_eq!(home(&["/root/.kube/config"], &[("ETCD_ENDPOINTS", "http://e")]), "");
}

#[test]
fn messages_name_the_setting_that_was_set() {
    let target = |pairs: &[(&str, &str)]| {
        let environment = variables(pairs).with_files([("/root/.kube/config", "")]);
        ClientConfig::from_environment(&environment).expect("valid").target()
    };
    for (pairs, expected) in [
        (&[("ETCD_ENDPOINTS", "http://e")][..], "etcd at http://e, set by ETCD_ENDPOINTS"),
        (&[("EMBEDDED_PATH", "/d")], "the embedded store in /d, set by EMBEDDED_PATH"),
        (&[("KUBECONFIG", "/a")], "the Kubernetes API of kubeconfig /a, set by KUBECONFIG"),
        (&[("K8S_API_ENDPOINT", "https://k")], "the Kubernetes API at https://k, set by K8S_API_ENDPOINT"),
        (
            &[("HOME", "/root")],
            "the Kubernetes API of /root/.kube/config, the default; KUBECONFIG is not set",
        ),
        (&[], "the Kubernetes API of this pod's cluster"),
    ] {
        assert_eq!(target(pairs), expected, "{pairs:?}");
    }
}

#[test]
fn the_interface_prefix_is_read_from_felixs_variable() {
    let config = from_variables(&[("FELIX_INTERFACEPREFIX", "eni,cali")]);
    assert_eq!(config.kubernetes.interface_prefix, "eni,cali");
    assert_eq!(from_variables(&[]).kubernetes.interface_prefix, "");
}

#[test]
fn a_file_is_the_whole_configuration() {
    let environment = variables(&[("ETCD_USERNAME", "from-the-environment")]);
    let text = spec("  etcdEndpoints: http://file:2379\n");
    let with_file = environment.clone().with_files([(DEFAULT_CONFIG_PATH, &text)]);
    let config = ClientConfig::load(None, &with_file).expect("valid");
    assert_eq!((config.etcd.endpoints.as_str(), config.etcd.username.as_str()), ("http://file:2379", ""));

    let config = ClientConfig::load(None, &environment).expect("the environment alone");
    assert_eq!(config.etcd.username, "from-the-environment");

    let error = ClientConfig::load(Some(Path::new("/no/such.cfg")), &environment)
        .expect_err("a named file must exist");
    assert!(error.to_string().starts_with("cannot read the configuration file /no/such.cfg: "), "{error}");

    let environment = environment.with_unreadable_file(DEFAULT_CONFIG_PATH);
    let error =
        ClientConfig::load(None, &environment).expect_err("a default file that is there must be readable");
    assert!(
        error.to_string().starts_with("cannot read the configuration file /etc/calico/calicoctl.cfg: "),
        "{error}"
    );

    let environment = environment.with_files([("/my.cfg", text)]);
    assert_eq!(
        ClientConfig::load(Some(Path::new("/my.cfg")), &environment).expect("valid").etcd.endpoints,
        "http://file:2379"
    );
}

#[test]
fn yaml_and_json_give_the_same_result() {
    let yaml = spec(
        "  datastoreType: etcdv3\n  etcdEndpoints: 'https://a:2379,https://b:2379'\n  etcdUsername: root\n  \
         etcdPassword: 007\n  etcdkeyfile: /k\n  k8sClientQPS: 12.5\n  k8sClientBurst: 7\n  usePodCIDR: true\n  \
         kubeconfig:\n  etcdCert: |\n    -----BEGIN\n    END\n",
    );
    let json = r#"{"apiVersion": "projectcalico.org/v3", "kind": "CalicoAPIConfig", "metadata": {}, "spec": {
        "datastoreType": "etcdv3", "etcdEndpoints": "https://a:2379,https://b:2379", "etcdUsername": "root",
        "etcdPassword": "007", "etcdKeyFile": "/k", "k8sClientQPS": 12.5, "k8sClientBurst": 7, "usePodCIDR": true,
        "kubeconfig": null, "etcdCert": "-----BEGIN\nEND\n"}}"#;
    let config = from_text(&yaml).expect("valid YAML");
    assert_eq!(config, from_text(json).expect("valid JSON"));
    for variant in [json.replace("        ", "\t"), yaml.replace('\n', "\r\n"), format!("\u{feff}{yaml}")] {
        let mut same = from_text(&variant).expect("the same in another dress");
        // Line breaks inside a block of text are the file's own.
        same.etcd.cert = same.etcd.cert.replace("\r\n", "\n");
        assert_eq!(config, same, "{variant:?}");
    }
    assert_eq!(config.etcd.password.expose(), "007");
    assert_eq!(config.etcd.key_file, "/k");
    assert_eq!((config.kubernetes.client_qps, config.kubernetes.client_burst), (12.5, 7));
    assert!(config.kubernetes.use_pod_cidr);
}

#[test]
fn all_mistakes_of_a_file_are_reported_with_their_places() {
    let text =
        spec("  etcdEndpoint: http://e:2379\n  datastoreType: [a]\n  usePodCIDR: \"yes\"\n  zebra: 1\n");
    let error = from_text(&text).expect_err("four mistakes").to_string();
    assert_eq!(
        error,
        "4 mistakes in the configuration:\n\
         calicoctl.cfg:5:3: unknown field spec.etcdEndpoint; did you mean 'etcdEndpoints'?\n  \
         5 |   etcdEndpoint: ***\n    |   ^\n\
         calicoctl.cfg:6:18: spec.datastoreType: must be a single value, not a list or a map\n  \
         6 |   datastoreType: [a]\n    |                  ^\n\
         calicoctl.cfg:7:15: spec.usePodCIDR: must be true or false\n  \
         7 |   usePodCIDR: \"yes\"\n    |               ^\n\
         calicoctl.cfg:8:3: unknown field spec.zebra\n  \
         8 |   zebra: ***\n    |   ^"
    );
}

#[test]
fn files_of_another_shape_are_refused() {
    let cases = [
        ("", "the file is empty"),
        ("kind: Node\napiVersion: v1\nspec: {x: 1}\n", "expected kind 'CalicoAPIConfig', got 'Node'"),
        ("kind: CalicoAPIConfig\n", "unknown apiVersion ''"),
        ("kind: CalicoAPIConfig\napiVersion: v1\n", "unknown apiVersion 'v1'"),
        ("just text", "expected kind 'CalicoAPIConfig', got ''"),
        ("a: [", "calicoctl.cfg:"),
        ("a: 1\n---\nb: 2\n", "more than one document"),
    ];
    for (text, expected) in cases {
        let error = from_text(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text:?} gave {error}");
    }
    let error = from_text("kind: CalicoAPIConfig\napiVersion: projectcalico.org/v3\nmetadata: {nmae: x}\n");
    let error = error.expect_err("misspelt metadata").to_string();
    assert!(error.contains("unknown field metadata.nmae; did you mean 'name'?"), "{error}");
    assert!(from_text(&spec("  etcdUsername: a\n  etcdusername: b\n")).is_err());
}

#[test]
fn secrets_are_not_printed() {
    let config = from_text(&spec(
        "  etcdPassword: hunter2\n  etcdKey: hunter3\n  k8sAPIToken: hunter4\n  kubeconfigInline: hunter5\n",
    ));
    assert!(!format!("{config:?}").contains("hunter"));
    for line in
        ["  etcdPasword: hunter2\n", "  etcdPassword: [hunter2]\n", "  {etcdPassword: hunter2, foo: 1}\n"]
    {
        let error = from_text(&spec(line)).expect_err(line);
        assert!(!format!("{error} {error:?}").contains("hunter"), "{error}");
    }
}

#[test]
fn the_embedded_store_needs_a_path() {
    let error =
        ClientConfig::from_environment(&variables(&[("DATASTORE_TYPE", "embedded")])).expect_err("no path");
    assert!(error.to_string().contains("embeddedPath"), "{error}");
    let config = from_text(&spec("  datastoreType: embedded\n  embeddedPath: /data\n")).expect("valid");
    assert_eq!((config.datastore_type, config.embedded_path.as_str()), (DatastoreType::Embedded, "/data"));
}

#[test]
fn the_reference_page_names_every_parameter() {
    let page = reference_page();
    for parameter in PARAMETERS {
        assert!(page.contains(&format!("| `{}` |", parameter.field)), "{}", parameter.field);
    }
    assert!(page.contains("`ETCD_ENDPOINTS`, `CALICO_ETCD_ENDPOINTS`"));
}
