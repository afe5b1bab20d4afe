//! `calicoctl cluster diags`: everything useful about the cluster, in one archive.
//!
//! Private keys are left out: of Calico's TLS secrets only the certificates are kept.

use super::DiagsArgs;
use super::collector::Collector;
use super::jobs::{self, Job, items, text};
use crate::context::{CONNECT_DEADLINE, Context};
use crate::failure::{Failure, Result};
use crate::{archive, duration};
use api::FelixConfigurationSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// Calico's TLS secrets, and their namespaces.
const SECRETS: &[(&str, &str)] = &[
    ("calico-kube-controllers-metrics-tls", "calico-system"),
    ("calico-node-prometheus-server-tls", "calico-system"),
    ("node-certs", "calico-system"),
    ("typha-certs", "calico-system"),
    ("calico-apiserver-certs", "calico-apiserver"),
];

/// The only fields of a secret that are shown.
const CERTIFICATES: &[&str] =
    &["tls.crt", "cert", "cert.crt", "apiserver.crt", "managed-cluster.crt", "management-cluster.crt"];

const UNSUPPORTED: &[u8] = b"unsupported.operator.tigera.io";

/// Collects everything and writes the archive into the folder `output`.
///
/// # Errors
/// When a flag is wrong, `kubectl` is missing or reaches no cluster, or the archive cannot be written. Queries that
/// fail are reported and left out.
pub async fn run(args: &DiagsArgs, output: &Path, context: &mut Context) -> Result<()> {
    // kubectl's value for no limit.
    let since = if args.since.is_empty() { "0s" } else { args.since.as_str() };
    if duration::parse(since).is_none() {
        return Err(Failure::new(format!(
            "Error executing command: invalid duration for since flag (try 10s, 5m, or 1h): {since}"
        )));
    }
    let max_logs = usize::try_from(args.max_logs)
        .map_err(|_| Failure::new("Error executing command: negative value for max-logs flag"))?;
    let config = context.client_config(&args.config)?;
    let mut collector = Collector::new(&config, args.max_parallelism, context)?;
    // Without a cluster every query would fail, each after a wait.
    collector.reach().await.map_err(|reason| {
        Failure::new(format!("cannot reach a cluster with kubectl, so there is nothing to collect: {reason}"))
    })?;

    context.print("==== Begin collecting diagnostics. ====\n")?;
    let now = jiff::Timestamp::now();
    let name = format!("calico-diagnostics-{}", now.strftime("%Y%m%d_%H%M%S"));
    let temporary = Temporary::new(args.skip_temp_dir_cleanup)?;
    context.print(&format!("Created temporary directory: {}\n", temporary.path.display()))?;
    let folder = temporary.path.join(&name);
    std::fs::create_dir(&folder)?;

    // The dumps of the eBPF dataplane are long, and empty where it is not used.
    let is_bpf = is_bpf_enabled(args, context).await;
    secrets(&collector, &folder.join("tls"), context).await?;
    let selection = Selection { since, max_logs, focus: &args.focus_nodes, is_bpf };
    pods(&mut collector, &selection, &folder, context).await?;
    cluster(&mut collector, &folder.join("cluster"), context).await?;
    unsupported_annotations(&folder, context)?;

    context.print("\n==== Producing a diagnostics bundle. ====\n")?;
    let archive = output.join(format!("{name}.tar.gz"));
    archive::write(&archive, &folder, &name).map_err(|error| {
        Failure::new(format!("Could not create new archive {}: {error}", archive.display()))
    })?;
    context.print(&format!("Diagnostic bundle created at {}\n", archive.display()))
}

/// A folder that is removed with this value, unless it is to be kept.
struct Temporary {
    path: std::path::PathBuf,
    stays: bool,
}

impl Temporary {
    fn new(stays: bool) -> Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        let moment = jiff::Timestamp::now().as_nanosecond();
        let path = std::env::temp_dir().join(format!("calicoctl-{}-{moment}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self { path, stays })
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.stays {
            // Leftovers are in the folder for temporary files, which the system cleans up.
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Whether the eBPF dataplane is in use. True if that cannot be determined: its dumps are then worth a try.
async fn is_bpf_enabled(args: &DiagsArgs, context: &Context) -> bool {
    let Ok(client) = context.connect(&args.config).await else { return true };
    let configurations = client.resource::<FelixConfigurationSpec>();
    let read = configurations.get("", api::words::GLOBAL_NAME);
    match tokio::time::timeout(CONNECT_DEADLINE, read).await {
        Ok(Ok(configuration)) => {
            let spec = serde_json::to_value(&configuration.spec).unwrap_or_default();
            spec["bpfEnabled"].as_bool().unwrap_or(false)
        }
        _ => true,
    }
}

async fn secrets(collector: &Collector, folder: &Path, context: &mut Context) -> Result<()> {
    context.print("Collecting (censored) TLS secrets\n")?;
    std::fs::create_dir_all(folder)?;
    for (name, own_namespace) in SECRETS {
        for namespace in [own_namespace, &"tigera-operator"] {
            context.print(&format!("Collecting secret {namespace}/{name} (censoring sensitive data) \n"))?;
            match collector.list(&format!("get secret {name} -n {namespace} -o json")).await {
                Ok(secret) => {
                    let text = api::yaml::to_string(&censored(&secret));
                    std::fs::write(folder.join(format!("{namespace}_{name}.yaml")), text)?;
                }
                Err(_) => {
                    context.print(&format!("unable to get secret {namespace}/{name}, skipping...\n"))?;
                }
            }
        }
    }
    Ok(())
}

/// A secret reduced to its certificates. Annotations are removed, too: kubectl keeps the whole object in one.
fn censored(secret: &Value) -> Value {
    let mut data = serde_json::Map::new();
    for (name, value) in secret["data"].as_object().into_iter().flatten() {
        let is_shown = CERTIFICATES.contains(&name.as_str());
        data.insert(name.clone(), if is_shown { value.clone() } else { "<censored>".into() });
    }
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": text(secret, "/metadata/name"),
            "namespace": text(secret, "/metadata/namespace"),
            "creationTimestamp": text(secret, "/metadata/creationTimestamp"),
        },
        "type": text(secret, "/type"),
        "data": data,
    })
}

/// The namespace of installations by manifest; it has pods of others, too.
const SHARED: &str = "kube-system";

/// Whether a workload is part of Calico, by its name.
fn is_calicos(owner: &Value) -> bool {
    let name = text(owner, "/metadata/name");
    name.starts_with("calico-") || name == "canal"
}

/// Which pods to look at.
struct Selection<'a> {
    since: &'a str,
    max_logs: usize,
    focus: &'a str,
    is_bpf: bool,
}

/// Collects from the pods of Calico's namespaces: some of every DaemonSet, Deployment and StatefulSet, those on the
/// focus nodes first.
async fn pods(
    collector: &mut Collector,
    selection: &Selection<'_>,
    folder: &Path,
    context: &mut Context,
) -> Result<()> {
    let mut nodes: Vec<String> =
        selection.focus.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    match collector.list("get nodes -o json").await {
        Ok(list) => {
            for name in items(&list).map(|node| text(node, "/metadata/name")) {
                if !nodes.iter().any(|known| known == name) {
                    nodes.push(name.to_owned());
                }
            }
        }
        // The focus nodes are still known.
        Err(reason) => context.print(&format!("ERROR listing all nodes in cluster: {reason}\n"))?,
    }
    let namespaces = match collector.list("get namespaces -o json").await {
        Ok(list) => list,
        Err(reason) => return context.print(&format!("ERROR listing namespaces: {reason}\n")),
    };
    let names = items(&namespaces).map(|namespace| text(namespace, "/metadata/name"));
    for namespace in
        names.filter(|name| name.contains("calico") || name.contains("tigera") || *name == SHARED)
    {
        context.print(&format!("Collecting detailed diags for namespace {namespace}...\n"))?;
        for (kind, plural) in
            [("DaemonSets", "daemonsets"), ("Deployments", "deployments"), ("StatefulSets", "statefulsets")]
        {
            match collector.list(&format!("get {plural} -n {namespace} -o json")).await {
                Ok(list) => {
                    for owner in items(&list).filter(|owner| namespace != SHARED || is_calicos(owner)) {
                        pods_of(collector, owner, namespace, &nodes, selection, folder, context).await?;
                    }
                }
                Err(reason) => {
                    context.print(&format!("ERROR listing {kind} in namespace {namespace}: {reason}\n"))?;
                }
            }
        }
    }
    Ok(())
}

async fn pods_of(
    collector: &mut Collector,
    owner: &Value,
    namespace: &str,
    nodes: &[String],
    selection: &Selection<'_>,
    folder: &Path,
    context: &mut Context,
) -> Result<()> {
    let labels = owner.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let labels: Vec<String> = labels
        .into_iter()
        .flatten()
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    let selector = labels.join(",");
    let list = match collector.list(&format!("get pods -n {namespace} --selector={selector} -o json")).await {
        Ok(list) => list,
        Err(reason) => {
            return context.print(&format!(
                "ERROR listing pods in namespace {namespace} matching '{selector}': {reason}\n"
            ));
        }
    };
    let mut by_node: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for pod in items(&list) {
        by_node.entry(text(pod, "/spec/nodeName")).or_default().push(pod);
    }
    let chosen =
        nodes.iter().filter_map(|node| by_node.get(node.as_str())).flatten().take(selection.max_logs);
    let mut wanted: Vec<Job> = Vec::new();
    let (all_nodes, links) = (folder.join("nodes"), folder.join("links"));
    for pod in chosen {
        let (name, node) = (text(pod, "/metadata/name"), text(pod, "/spec/nodeName"));
        context.print(&format!(
            "Collecting detailed diags for pod {name} in namespace {namespace} on node {node}...\n"
        ))?;
        if name.starts_with("calico-node-") || name.starts_with("canal-") {
            inside_node(collector, node, namespace, name, selection.is_bpf, &all_nodes.join(node), context)
                .await?;
        }
        wanted.extend(jobs::pod(pod, selection.since, &all_nodes, &links));
    }
    collector.run(&wanted, context).await
}

/// Collects from a node's container, with further queries that depend on its answers.
async fn inside_node(
    collector: &mut Collector,
    node: &str,
    namespace: &str,
    pod: &str,
    is_bpf: bool,
    folder: &Path,
    context: &mut Context,
) -> Result<()> {
    context.print(&format!("Collecting dataplane diags for calico-node: {pod}\n"))?;
    collector.run(&jobs::node(node, namespace, pod, is_bpf, folder), context).await?;
    let words = |line: &str| -> Vec<String> {
        format!("{} {line}", jobs::inside(namespace, pod)).split_whitespace().map(str::to_owned).collect()
    };
    if is_bpf {
        let report = collector.ask(&words("bpftool map list")).await;
        let list = String::from_utf8_lossy(&report.output).into_owned();
        if report.succeeded {
            collector.run(&jobs::bpf_maps(&list, node, namespace, pod, folder), context).await?;
        } else {
            context.print(&format!("Could not retrieve eBPF maps: {}\n", list.trim_end()))?;
        }
    }
    let report = collector.ask(&words("ls /var/log/calico/cni")).await;
    let list = String::from_utf8_lossy(&report.output).into_owned();
    let logs = match report.succeeded {
        true => jobs::cni_logs(&list, node, namespace, pod, folder),
        // An image without programs has no `ls`; it lists the logs itself.
        false => vec![jobs::native_cni_logs(node, namespace, pod, folder)],
    };
    collector.run(&logs, context).await
}

/// Collects the objects of the cluster.
async fn cluster(collector: &mut Collector, folder: &Path, context: &mut Context) -> Result<()> {
    context.print("Collecting kubernetes version...\n")?;
    let version = Job::new(
        "Collect kubernetes Client and Server version",
        "version -o yaml",
        folder.join("version.yaml"),
    );
    collector.run(&[version], context).await?;
    match collector.list("get customresourcedefinitions -o json").await {
        Ok(definitions) => collector.run(&jobs::calico(&definitions, &folder.join("crd")), context).await?,
        Err(reason) => context.print(&format!("Couldn't list CRDs: {reason}\n"))?,
    }
    for namespace in ["tigera-operator", "calico-system"] {
        collector.run(&jobs::namespace(namespace, folder), context).await?;
    }
    context.print("Collecting core kubernetes resources...\n")?;
    collector.run(&jobs::kubernetes(&folder.join("kubernetes")), context).await?;
    context.print("Collecting third party resources...\n")?;
    collector.run(&jobs::third_party(&folder.join("third-party")), context).await
}

/// Lists the files that mention an annotation that is not supported.
fn unsupported_annotations(folder: &Path, context: &mut Context) -> Result<()> {
    fn search(root: &Path, folder: &Path, found: &mut Vec<String>) -> std::io::Result<()> {
        let mut entries = std::fs::read_dir(folder)?.collect::<std::io::Result<Vec<_>>>()?;
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                search(root, &path, found)?;
            } else if kind.is_file()
                && std::fs::read(&path)?.windows(UNSUPPORTED.len()).any(|part| part == UNSUPPORTED)
            {
                found.push(path.strip_prefix(root).unwrap_or(&path).display().to_string());
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    if let Err(error) = search(folder, folder, &mut found) {
        return context.print(&format!("Error checking files for unsupported annotation: {error}\n"));
    }
    if found.is_empty() {
        return Ok(());
    }
    context.print("\n==== WARNING: Unsupported annotation usage detected in the cluster ====\n")?;
    Ok(std::fs::write(folder.join("files_with_unsupported_annotation.txt"), found.join("\n"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_are_left_out() {
        let secret = json!({"kind": "Secret", "metadata": {"name": "typha-certs", "namespace": "calico-system",
            "annotations": {"kubectl.kubernetes.io/last-applied-configuration": "{\"data\":{\"tls.key\":\"c2VjcmV0\"}}"}},
            "data": {"tls.crt": "Y2VydA==", "tls.key": "c2VjcmV0", "other": "c2VjcmV0"}});
        let shown = censored(&secret);
        assert!(!shown.to_string().contains("c2VjcmV0"));
        assert_eq!(
            shown["data"],
            json!({"tls.crt": "Y2VydA==", "tls.key": "<censored>", "other": "<censored>"})
        );
    }
}
