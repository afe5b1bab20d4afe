//! `calico-ipam -upgrade`: Calico's IPAM takes over the addresses that `host-local` assigned to this node's pods.
//!
//! `host-local` keeps one file per address, named after it, with the container's id in the first line. Each becomes an
//! allocation under the container's handle; then the files are removed. Usually there is nothing to do. The upgrade
//! runs before the plugins are installed, so nothing assigns addresses in the meantime; the datastore is locked all the
//! same.

use crate::error::StoreFailure as _;
use crate::error::{CniError, Result, code};
use crate::host::HostPaths;
use crate::request::Environment;
use api::{ClusterInformationSpec, Node, NodeBGPSpec, NodeSpec, WorkloadEndpointSpec};
use client::{Client, ClientConfig, DatastoreType, ListQuery, open_for_cni};
use cni_protocol::Outcome;
use daemon::Variables;
use ipam::{AssignIp, Ipam};
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The network whose addresses are taken over.
const NETWORK: &str = "k8s-pod-network";
/// Plugins that must not assign addresses in the meantime.
const PLUGINS: [&str; 2] = ["host/opt/cni/bin/calico", "host/opt/cni/bin/host-local"];
/// The pause between attempts.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a plugin that was running when its file was removed may still take.
const SETTLE: Duration = Duration::from_secs(5);

/// Takes addresses over; retries until it succeeds, as an init container should.
pub(crate) fn run(environment: &Environment) -> Outcome {
    let failed = |message: &str| Outcome { stderr: format!("{message}\n"), exit: 1, ..Outcome::default() };
    let Some(node) = environment.get("KUBERNETES_NODE_NAME").filter(|node| !node.is_empty()) else {
        return failed("KUBERNETES_NODE_NAME not specified, refusing to migrate...");
    };
    let paths = HostPaths::of(environment);
    if !paths.host_local.exists() {
        return Outcome {
            stderr: "no addresses of host-local: nothing to take over\n".to_owned(),
            ..Outcome::default()
        };
    }
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return failed(&format!("cannot start: {error}")),
    };
    runtime.block_on(async {
        let (client, ipam) = match open(environment).await {
            Ok(opened) => opened,
            Err(error) => return failed(&format!("failed to initialize api client: {error}")),
        };
        let root = environment.get(crate::host::ROOT_VARIABLE).map_or("/", String::as_str);
        let migration =
            Migration { client, ipam, node: node.clone(), folder: paths.host_local, root: root.into() };
        loop {
            match migration.migrate().await {
                Ok(count) => {
                    let addresses = if count == 1 { "address" } else { "addresses" };
                    let stderr = format!("took over {count} {addresses} of host-local\n");
                    return Outcome { stderr, ..Outcome::default() };
                }
                Err(error) => {
                    tracing::error!(%error, "failed to migrate ipam, retrying...");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    })
}

async fn open(environment: &Environment) -> Result<(Client, Ipam)> {
    let wrong = |error: String| CniError::new(code::INVALID_CONFIGURATION, error);
    let mut config = ClientConfig::from_environment(&Variables::new(environment))
        .map_err(|error| wrong(error.to_string()))?;
    // Only Kubernetes shows which pod an address belongs to.
    config.datastore_type = DatastoreType::Kubernetes;
    let (backend, _) = open_for_cni(&config).await.map_err(|error| wrong(error.to_string()))?;
    Ok((Client::new(backend.clone()), Ipam::new(backend)))
}

struct Migration {
    client: Client,
    ipam: Ipam,
    node: String,
    folder: PathBuf,
    root: PathBuf,
}

impl Migration {
    async fn migrate(&self) -> Result<usize> {
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            CniError::new(code::GENERAL, format!("{what}: {error}"))
        };
        let files = match std::fs::read_dir(&self.folder) {
            Ok(entries) => entries.flatten().map(|entry| entry.path()).collect::<Vec<_>>(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(failed("failed to open host-local IPAM data dir", &error)),
        };
        self.take_tunnel_address().await?;
        if files.is_empty() {
            std::fs::remove_dir(&self.folder)
                .map_err(|error| failed("failed to remove host-local IPAM data dir", &error))?;
            return Ok(0);
        }
        self.set_ready(false).await?;
        for plugin in PLUGINS {
            match std::fs::remove_file(self.root.join(plugin)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(failed(&format!("failed to remove binary {plugin}"), &error));
                }
                Ok(()) => tokio::time::sleep(SETTLE).await,
                Err(_) => {}
            }
        }
        // The lock that `host-local` itself takes.
        let lock = File::options().create(true).truncate(false).write(true).open(self.folder.join("lock"));
        let lock = lock.map_err(|error| failed("failed to open the lock of host-local", &error))?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| failed("failed to lock host-local IPAM", &error))?;
        let pods = self.pods().await?;
        let mut count = 0;
        for file in files {
            count += usize::from(self.take_over(&file, &pods).await?);
        }
        drop(lock);
        self.set_ready(true).await?;
        std::fs::remove_dir_all(&self.folder)
            .map_err(|error| failed("failed to remove host-local IPAM data dir", &error))?;
        Ok(count)
    }

    /// The name and namespace of each pod of this node, by address.
    async fn pods(&self) -> Result<BTreeMap<IpAddr, (String, String)>> {
        let found = self.client.resource::<WorkloadEndpointSpec>().list(&ListQuery::all()).await;
        let found = found.map_err(|error| CniError::datastore("failed to list pods", &error))?;
        let mut pods = BTreeMap::new();
        for endpoint in found.items.into_iter().filter(|endpoint| endpoint.spec.node == self.node) {
            for network in &endpoint.spec.ip_networks {
                if let Some(Ok(address)) = network.as_str().split('/').next().map(str::parse) {
                    pods.insert(address, (endpoint.spec.pod.clone(), endpoint.metadata.namespace.clone()));
                }
            }
        }
        Ok(pods)
    }

    /// Takes over the address of one file; returns false for files without a pod.
    async fn take_over(&self, file: &Path, pods: &BTreeMap<IpAddr, (String, String)>) -> Result<bool> {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name == "lock" {
            return Ok(false);
        }
        let remove = || match std::fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CniError::new(
                code::GENERAL,
                format!("failed to remove file {}: {error}", file.display()),
            )),
            _ => Ok(()),
        };
        if name.contains("last") {
            return remove().map(|()| false);
        }
        let address: IpAddr = name
            .parse()
            .map_err(|error| CniError::new(code::GENERAL, format!("failed to parse IP {name}: {error}")))?;
        let Some((pod, namespace)) = pods.get(&address) else {
            tracing::info!(%address, "no pod has this address any longer");
            return remove().map(|()| false);
        };
        let text = std::fs::read_to_string(file).map_err(|error| {
            CniError::new(code::GENERAL, format!("failed to read file {}: {error}", file.display()))
        })?;
        let container = text.lines().next().unwrap_or_default().trim();
        let request = AssignIp {
            handle: Some(format!("{NETWORK}.{container}").into()),
            attributes: BTreeMap::from([
                ("node".to_owned(), self.node.clone()),
                ("pod".to_owned(), pod.clone()),
                ("namespace".to_owned(), namespace.clone()),
            ]),
            ..AssignIp::new(address, self.node.clone())
        };
        match self.ipam.assign_ip(&request).await {
            Err(error) if !error.is_already_exists() => {
                return Err(CniError::address("failed to assign IP to calico backend", &error));
            }
            _ => {}
        }
        remove().map(|()| true)
    }

    /// `host-local` assigns the first address of the node's range to the tunnel, which keeps it.
    async fn take_tunnel_address(&self) -> Result<()> {
        let nodes = self.client.resource::<NodeSpec>();
        let failed =
            |error: &datastore::Error| CniError::datastore("failed to get calico node resource", error);
        let node: Node = nodes.get("", &self.node).await.map_err(|error| failed(&error))?;
        let has_one = node.spec.bgp.as_ref().is_some_and(|bgp| !bgp.ipv4_ipip_tunnel_addr.is_empty());
        let Some(address) = first_address(&node).filter(|_| !has_one) else { return Ok(()) };
        let request = AssignIp {
            handle: Some(format!("ipip-tunnel-addr-{}", self.node).into()),
            attributes: BTreeMap::from([
                ("node".to_owned(), self.node.clone()),
                ("type".to_owned(), "ipipTunnelAddress".to_owned()),
            ]),
            ..AssignIp::new(address.into(), self.node.clone())
        };
        match self.ipam.assign_ip(&request).await {
            Err(error) if !error.is_already_exists() => {
                return Err(CniError::address(&format!("failed to add IPIP tunnel addr {address}"), &error));
            }
            _ => {}
        }
        let text = address.to_string();
        let change = |node: &mut Node| {
            node.spec.bgp.get_or_insert_with(NodeBGPSpec::default).ipv4_ipip_tunnel_addr =
                text.as_str().into();
            true
        };
        nodes.update_with_retry("", &self.node, change).await.map(drop).map_err(|error| failed(&error))
    }

    async fn set_ready(&self, ready: bool) -> Result<()> {
        let change = |information: &mut api::ClusterInformation| {
            let changed = information.spec.datastore_ready != Some(ready);
            information.spec.datastore_ready = Some(ready);
            changed
        };
        let information = self.client.resource::<ClusterInformationSpec>();
        let outcome = information.update_with_retry("", api::words::GLOBAL_NAME, change).await;
        outcome.map(drop).map_err(|error| CniError::datastore("failed to set datastore readiness", &error))
    }
}

/// The first address of the node's first IPv4 range, after its network address.
fn first_address(node: &Node) -> Option<Ipv4Addr> {
    let status = serde_json::to_value(&node.status).ok()?;
    let ranges = status.get("podCIDRs")?.as_array()?;
    let range: ipnet::Ipv4Net = ranges.iter().filter_map(|it| it.as_str()).find_map(|it| it.parse().ok())?;
    Some(Ipv4Addr::from(u32::from(range.network()).checked_add(1)?))
}
