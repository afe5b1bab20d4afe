//! The cost of new connections to services, with few services and with many: ours by eBPF programs, kube-proxy in
//! nftables mode with our Felix in the same mode on a second host, kube-proxy alone on a third, and plain routing to
//! the backend.
//!
//! All are measured in turns. The first two enforce policy, the others do not. Measurement starts only when the service
//! that was created last works on every host: all earlier ones are then programmed, too.

use crate::Wanted;
use crate::cluster::HOST;
use crate::daemon::Felix;
use crate::ebpf::{SETTINGS, clean};
use crate::host::{self, Filter, shell};
use crate::packets::{expire_quickly, undisturbed, without_felix};
use crate::traffic::Pods;
use crate::two_hosts::relay;
use anyhow::{Context as _, Result, ensure};
use api::{Kind, Resource};
use client::{Client, ClientConfig, DatastoreType};
use daemon::Variables;
use kube_access::KubeAccess;
use kube_access::cluster::Cluster;
use model::names::interface_name;
use netlink::namespace::Namespace;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{ApiServer, Etcd, Folder, Process, Report, free_port, kubernetes_program, program};
use tokio::runtime::Runtime;

/// The word on the command line.
const NAME: &str = "services-ebpf";
/// The numbers of services.
const SIZES: [usize; 2] = if cfg!(debug_assertions) { [10, 60] } else { [10, 10_000] };
/// The number of slices of connections, for each size and host.
const SLICES: usize = if cfg!(debug_assertions) { 5 } else { 500 };
/// The number of services that connections are made to, each to its own port of the server; the others lead nowhere.
const MEASURED: u16 = 8;
/// The first port on which the server listens.
const TARGET: u16 = 9000;
/// The number of backends of services that lead nowhere.
const BACKENDS: u8 = 3;
const PORT: u16 = 80;
/// The number of objects created at the same time.
const AT_ONCE: usize = 32;
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(10, 200, 0, 2);
/// The hosts with kube-proxy: alone, and with Felix.
const PROXIED: &str = "proxied";
const WHOLE: &str = "whole";
const NAMESPACE: &str = "default";
const PODS: [&str; 2] = ["client", "server"];
const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES_OF_ENDPOINTS: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

pub(crate) fn measure(runtime: &Runtime, wanted: &Wanted, report: &mut Report) -> Result<()> {
    if !wanted.has(NAME) {
        return Ok(());
    }
    host::make_uplink()?;
    let ground = Ground::make(runtime)?;
    let plain = without_felix("flatsvc")?;
    let alone = without_felix(PROXIED)?;
    let names = PODS.map(|pod| interface_name("cali", NAMESPACE, pod));
    let names = [names[0].as_str(), names[1].as_str()];
    let ours = Pods::make("svc", [None; 2], names, [CLIENT, SERVER])?;
    shell(&format!("ip netns add {WHOLE}; ip -n {WHOLE} link set lo up"), "")?;
    let whole = Pods::make(WHOLE, [Some(WHOLE); 2], names, [CLIENT, SERVER])?;
    expire_quickly(&[None, Some(PROXIED), Some(WHOLE)])?;
    let mut proxies = [ground.proxy(PROXIED)?, ground.proxy(WHOLE)?];
    let netfilter = Namespace::open(&Path::new("/run/netns").join(WHOLE))?
        .run(|| ground.felix(&[("NFTABLESMODE", "Enabled")]))??;
    let mut felix = ground.felix(&SETTINGS)?;
    let mut made = 0;
    let mut rates = Vec::new();
    for size in SIZES {
        let begin = Instant::now();
        runtime.block_on(ground.fill(made..size - 1))?;
        // Felix is ready once the services of its start are programmed, and none can be reached before.
        if made == 0 {
            felix.wait_until_ready()?;
        }
        made = size;
        let last = runtime.block_on(ground.last(size))?;
        for (pods, whose) in [(&ours, "ours"), (&alone, "kube-proxy's"), (&whole, "of kube-proxy and Felix")]
        {
            wait_for(pods, last, begin + Duration::from_secs(240)).with_context(|| {
                let logs = [felix.log(), netfilter.log(), proxies[0].log_tail(), proxies[1].log_tail()];
                format!("{whose} service {last}:\n{}", logs.join("\n"))
            })?;
        }
        proxies.iter_mut().try_for_each(Process::check_running)?;
        let services: Vec<(SocketAddr, u16)> =
            (0..MEASURED).map(|number| (address(usize::from(number)), TARGET + number)).collect();
        let direct: Vec<(SocketAddr, u16)> =
            services.iter().map(|(_, port)| (SocketAddr::from((SERVER, *port)), *port)).collect();
        let probes = [
            ours.probe_at(&services)?,
            whole.probe_at(&services)?,
            alone.probe_at(&services)?,
            plain.probe_at(&direct)?,
        ];
        let mut seconds = [const { Vec::new() }; 4];
        for _ in 0..SLICES {
            for (probe, seconds) in probes.iter().zip(&mut seconds) {
                seconds.push(probe.connections().with_context(|| felix.log())?);
            }
        }
        let [ours, theirs, proxied, base] = seconds.map(|seconds| 1.0 / undisturbed(seconds));
        let what = format!("{size} services, new connections/s to one from a pod, eBPF");
        let peers = [
            ("kube-proxy and our Felix, nftables", theirs, "above 1"),
            ("kube-proxy alone, nftables, no policy", proxied, ""),
            ("plain routing to the backend", base, ""),
        ];
        for (peer, rate, goal) in peers {
            report.row(
                &what,
                &format!("{ours:.0} /s"),
                &format!("{peer}: {rate:.0} /s"),
                &format!("{:.2}", ours / rate),
                goal,
            );
        }
        rates.push((ours, theirs));
    }
    if let [few, many] = rates.as_slice() {
        report.row(
            &format!("new connections/s, {} services beside {}, eBPF", SIZES[1], SIZES[0]),
            &format!("{:.2}", many.0 / few.0),
            &format!("kube-proxy and our Felix, nftables: {:.2}", many.1 / few.1),
            "",
            "1",
        );
    }
    let (ours, theirs, proxy) = (felix.memory()?, netfilter.memory()?, resident(proxies[1].id())?);
    report.row(
        &format!("{} services: resident memory of Felix, eBPF", SIZES[1]),
        &format!("{ours:.1} MiB"),
        &format!("kube-proxy {proxy:.1} MiB and our Felix, nftables, {theirs:.1} MiB"),
        &format!("{:.2}", ours / (proxy + theirs)),
        "below 1",
    );
    drop((felix, netfilter, proxies));
    clean()
}

/// The address of a service.
fn address(number: usize) -> SocketAddr {
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    // The first addresses are the API's own.
    SocketAddr::from((Ipv4Addr::from_bits(Ipv4Addr::new(10, 96, 1, 0).to_bits() + number), PORT))
}

/// Resident memory of a process, in MiB.
fn resident(process: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no such line")?;
    Ok(line.split_whitespace().nth(1).context("no number")?.parse::<f64>()? / 1024.0)
}

/// Waits until a connection to a service can be made.
fn wait_for(pods: &Pods, service: SocketAddr, deadline: Instant) -> Result<()> {
    while !pods.reach_at(service, TARGET)? {
        ensure!(Instant::now() < deadline, "a service cannot be reached");
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// A Kubernetes API with a node and two pods.
struct Ground {
    api: ApiServer,
    cluster: Cluster,
    folder: Folder,
    _etcd: Etcd,
}

impl Ground {
    fn make(runtime: &Runtime) -> Result<Self> {
        let etcd = Etcd::start()?;
        let api = ApiServer::start(&etcd.endpoint())?;
        let kubeconfig = api.kubeconfig().display().to_string();
        let cluster = runtime.block_on(async {
            let config = ClientConfig {
                datastore_type: DatastoreType::Kubernetes,
                etcd: Default::default(),
                kubernetes: client::config::KubernetesSettings {
                    kubeconfig: kubeconfig.clone(),
                    ..Default::default()
                },
                embedded_path: String::new(),
            };
            let client = Client::open(&config).await?;
            client.backend().install().await?;
            client.ensure_initialized("v3.32.0", "bench").await?;
            let pool = json!({"metadata": {"name": "pods"},
                "spec": {"cidr": "10.128.0.0/9", "blockSize": 26, "natOutgoing": true, "ipipMode": "Never", "vxlanMode": "Never"}});
            client.create_any(Resource::from_value(Kind::IPPool, pool)?).await?;
            let variables = BTreeMap::from([("KUBECONFIG".to_owned(), kubeconfig)]);
            let access = KubeAccess::open(&Variables::new(&variables), Path::new("/nowhere")).await?;
            let cluster = Cluster::new(&access);
            let node = json!({"metadata": {"name": HOST, "annotations": {"projectcalico.org/IPv4Address": "10.65.0.1/24"}},
                "status": {"addresses": [{"type": "InternalIP", "address": "10.65.0.1"}]}});
            create(&cluster, "/api/v1/nodes", &node).await?;
            let range = json!({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR",
                "metadata": {"name": "bench"}, "spec": {"cidrs": ["10.96.0.0/16"]}});
            create(&cluster, "/apis/networking.k8s.io/v1/servicecidrs", &range).await?;
            for (name, address) in PODS.into_iter().zip([CLIENT, SERVER]) {
                let pod = json!({"metadata": {"name": name, "annotations": {"cni.projectcalico.org/podIP": format!("{address}/32")}},
                    "spec": {"nodeName": HOST, "containers": [{"name": "c", "image": "x"}]}});
                create(&cluster, "/api/v1/namespaces/default/pods", &pod).await?;
            }
            anyhow::Ok(cluster)
        })?;
        Ok(Self { api, cluster, folder: Folder::new("services")?, _etcd: etcd })
    }

    /// Starts Felix on the host of this thread.
    fn felix<'a>(&'a self, settings: &[(&'a str, &'a str)]) -> Result<Felix> {
        let kubeconfig = self.api.kubeconfig().display().to_string();
        let mut settings = settings.to_vec();
        settings.extend([("DATASTORETYPE", "kubernetes"), ("KUBECONFIG", kubeconfig.as_str())]);
        Felix::start_with(None, HOST, "", Filter::Nftables, &settings)
    }

    /// Starts kube-proxy on a host, and makes the API reachable from it.
    fn proxy(&self, host: &str) -> Result<Process> {
        let there = Namespace::open(&Path::new("/run/netns").join(host))?;
        let endpoint = self.api.endpoint();
        let port = endpoint.rsplit(':').next().context("no port")?.parse()?;
        relay(&there, port, &endpoint.replacen("https:", "http:", 1))?;
        let mut arguments: Vec<String> = ["netns", "exec", host].map(str::to_owned).to_vec();
        arguments.push(kubernetes_program("kube-proxy")?.display().to_string());
        arguments.extend([
            format!("--kubeconfig={}", self.api.kubeconfig().display()),
            format!("--hostname-override={HOST}"),
            "--proxy-mode=nftables".into(),
            "--cluster-cidr=10.128.0.0/9".into(),
            format!("--healthz-bind-address=127.0.0.1:{}", free_port()?),
            format!("--metrics-bind-address=127.0.0.1:{}", free_port()?),
            "--conntrack-max-per-core=0".into(),
            "--conntrack-tcp-timeout-established=0s".into(),
            "--conntrack-tcp-timeout-close-wait=0s".into(),
        ]);
        let ip = program("ip", "install Debian's iproute2")?;
        Process::start(&ip, &arguments, &self.folder.path().join(format!("kube-proxy-{host}")))
    }

    /// Creates services with these numbers, and their endpoints.
    async fn fill(&self, numbers: std::ops::Range<usize>) -> Result<()> {
        let numbers: Vec<usize> = numbers.collect();
        for some in numbers.chunks(AT_ONCE) {
            let made = some.iter().map(|number| self.service(*number, backends(*number)));
            futures::future::try_join_all(made).await?;
        }
        Ok(())
    }

    /// Creates the last service of this size, which leads to the server; returns its address.
    async fn last(&self, size: usize) -> Result<SocketAddr> {
        self.service(size - 1, vec![(SERVER, TARGET)]).await?;
        Ok(address(size - 1))
    }

    async fn service(&self, number: usize, backends: Vec<(Ipv4Addr, u16)>) -> Result<()> {
        let name = format!("service-{number}");
        let target = backends.first().context("no backend")?.1;
        let service = json!({"metadata": {"name": name}, "spec": {"clusterIP": address(number).ip(),
            "ports": [{"name": "web", "port": PORT, "targetPort": target, "protocol": "TCP"}]}});
        create(&self.cluster, SERVICES, &service).await?;
        let endpoints: Vec<Value> = backends
            .iter()
            .map(|(address, _)| json!({"addresses": [address], "nodeName": HOST, "conditions": {"ready": true}}))
            .collect();
        let slice = json!({"metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4", "endpoints": endpoints,
            "ports": [{"name": "web", "port": target, "protocol": "TCP"}]});
        create(&self.cluster, SLICES_OF_ENDPOINTS, &slice).await
    }
}

/// The server's own port for the first services, and unused addresses for all others.
fn backends(number: usize) -> Vec<(Ipv4Addr, u16)> {
    if let Some(number) = u16::try_from(number).ok().filter(|number| *number < MEASURED) {
        return vec![(SERVER, TARGET + number)];
    }
    let [.., high, low] = number.to_be_bytes();
    (0..BACKENDS).map(|one| (Ipv4Addr::new(10, 210 + one, high, low), 8080)).collect()
}

async fn create(cluster: &Cluster, path: &str, object: &Value) -> Result<()> {
    let _: serde::de::IgnoredAny = cluster.create("fill the cluster", path, object).await?;
    Ok(())
}
