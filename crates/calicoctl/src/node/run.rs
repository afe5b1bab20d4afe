//! `calicoctl node run`: starts the node container with Docker, for a cluster on etcd.
//!
//! In Kubernetes, manifests start nodes, so this command refuses to. Secrets are never put on the command line:
//! certificates are mounted as files.

use super::{RunArgs, require_root};
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::programs::Programs;
use client::DatastoreType;
use client::config::EtcdSettings;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader};

const KEY_FILE: &str = "/etc/calico/certs/key.pem";
const CERT_FILE: &str = "/etc/calico/certs/cert.crt";
const CA_CERT_FILE: &str = "/etc/calico/certs/ca_cert.crt";
const FELIX_FILE: &str = "/etc/calico/felix.cfg";
const FIRST_FOUND: &str = "first-found";

/// The container's log message when it is up.
const STARTED: &str = "Calico node started successfully";
/// How long the start may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Runs the command.
///
/// # Errors
/// When a flag or the configuration is wrong, or the container does not start.
pub(crate) async fn run(args: &RunArgs, context: &mut Context) -> Result<()> {
    let as_number = check(args).await?;
    let name = if args.name.is_empty() { hostname()? } else { args.name.clone() };
    let config = context
        .client_config(&args.config)
        .map_err(|failure| failed(format!("invalid config file: {failure}")))?;
    if config.datastore_type != DatastoreType::EtcdV3 {
        return Err(failed(format!(
            "unsupported backend specified in config: node run works with etcdv3, not with {}",
            config.datastore_type.as_str()
        )));
    }
    let command = container_command(args, &name, as_number, &config.etcd);
    let line = command.join(" ");
    if args.dryrun {
        context
            .print(&format!("Use the following command to start the calico/node container:\n\n{line}\n\n"))?;
        return context.print(if args.init_system {
            "Use the following command to stop the calico/node container:\n\ndocker stop calico-node\n\n"
        } else {
            "If you are running calico/node in an init system, use the --init-system flag\n\
             to display the appropriate start and stop commands.\n"
        });
    }
    require_root()?;
    let programs = Programs::of(context);
    prepare_machine(&programs, context).await?;
    context.print("Removing old calico-node container (if running).\n")?;
    // There usually is no such container.
    let _ = programs.run("docker", &["rm", "-f", "calico-node"]).await;
    context.print(&format!(
        "Running the following command to start calico-node:\n\n{line}\n\n\
         Image may take a short time to download if it is not available locally.\n"
    ))?;
    start(&programs, &command[1..]).await?;
    context.print("Container started, checking progress logs.\n\n")?;
    follow(&programs, context).await
}

fn failed(reason: impl std::fmt::Display) -> Failure {
    Failure::new(format!("error executing command: {reason}"))
}

/// Checks the flags; returns the AS number in the form that the node understands.
async fn check(args: &RunArgs) -> Result<Option<u32>> {
    for (flag, text, is_right) in
        [("--ip", &args.ip, IpAddr::is_ipv4 as fn(&IpAddr) -> bool), ("--ip6", &args.ip6, IpAddr::is_ipv6)]
    {
        if text.is_empty() || text == "autodetect" {
            continue;
        }
        let address: IpAddr = text.parse().map_err(|_| {
            Failure::new(format!("Error executing command: invalid IP address specified: {text}"))
        })?;
        if !is_right(&address) {
            return Err(failed(format!("{flag} is wrong IP version")));
        }
    }
    let as_number = match args.as_number.as_str() {
        "" => None,
        text => Some(as_number(text).ok_or_else(|| {
            Failure::new(format!("Error executing command: invalid AS Number specified: {text}"))
        })?),
    };
    if !matches!(args.backend.as_str(), "bird" | "none") {
        return Err(failed(format!("unknown backend '{}'", args.backend)));
    }
    check_method(&args.ip_autodetection_method, 4).await?;
    check_method(&args.ip6_autodetection_method, 6).await?;
    Ok(as_number)
}

/// Parses a number, or two 16-bit numbers with a dot in between.
fn as_number(text: &str) -> Option<u32> {
    match text.split_once('.') {
        Some((high, low)) => {
            let (high, low): (u16, u16) = (high.parse().ok()?, low.parse().ok()?);
            Some(u32::from(high) << 16 | u32::from(low))
        }
        None => text.parse().ok(),
    }
}

async fn check_method(method: &str, version: u8) -> Result<()> {
    if method == FIRST_FOUND {
        return Ok(());
    }
    if let Some(host) = method.strip_prefix("can-reach=") {
        let unresolved = || failed(format!("cannot resolve address specified for IP autodetection: {host}"));
        let mut addresses = tokio::net::lookup_host((host, 0)).await.map_err(|_| unresolved())?;
        if addresses.any(|address| address.is_ipv4() == (version == 4)) {
            return Ok(());
        }
        return Err(failed(format!(
            "address for IP autodetection does not resolve to an IPv{version} address: {host}"
        )));
    }
    let regexes = method.strip_prefix("interface=").or_else(|| method.strip_prefix("skip-interface="));
    let Some(regexes) = regexes else {
        return Err(failed(format!("invalid IP autodetection method: {method}")));
    };
    for regex in regexes.split(',') {
        regex::Regex::new(regex).map_err(|_| {
            failed(format!("invalid interface regex specified for IP autodetection: {regex}"))
        })?;
    }
    Ok(())
}

fn hostname() -> Result<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    match name.trim() {
        "" => Err(failed("unable to determine node name")),
        name => Ok(name.to_lowercase()),
    }
}

/// The complete command, starting with the program.
fn container_command(args: &RunArgs, name: &str, as_number: Option<u32>, etcd: &EtcdSettings) -> Vec<String> {
    let mut variables: BTreeMap<&str, String> = BTreeMap::from([
        ("NODENAME", name.to_owned()),
        ("CALICO_NETWORKING_BACKEND", args.backend.clone()),
        // Pods exist only in Kubernetes.
        ("CALICO_MANAGE_CNI", "false".to_owned()),
        ("ETCD_ENDPOINTS", etcd.endpoints.clone()),
        ("ETCD_DISCOVERY_SRV", etcd.discovery_srv.clone()),
    ]);
    let mut volumes = vec![
        (args.log_dir.as_str(), "/var/log/calico"),
        ("/var/run/calico", "/var/run/calico"),
        ("/var/lib/calico", "/var/lib/calico"),
        ("/lib/modules", "/lib/modules"),
        ("/run", "/run"),
    ];
    if args.no_default_ippools {
        variables.insert("NO_DEFAULT_POOLS", "true".to_owned());
    }
    for (variable, method) in [
        ("IP_AUTODETECTION_METHOD", &args.ip_autodetection_method),
        ("IP6_AUTODETECTION_METHOD", &args.ip6_autodetection_method),
    ] {
        if method != FIRST_FOUND {
            variables.insert(variable, method.clone());
        }
    }
    if let Some(number) = as_number {
        variables.insert("AS", number.to_string());
    }
    for (variable, address) in [("IP", &args.ip), ("IP6", &args.ip6)] {
        if !address.is_empty() {
            variables.insert(variable, address.clone());
        }
    }
    if !args.felix_config.is_empty() {
        volumes.push((&args.felix_config, FELIX_FILE));
    }
    if !etcd.ca_cert_file.is_empty() {
        variables.insert("ETCD_CA_CERT_FILE", CA_CERT_FILE.to_owned());
        volumes.push((&etcd.ca_cert_file, CA_CERT_FILE));
    }
    if !etcd.key_file.is_empty() && !etcd.cert_file.is_empty() {
        variables.insert("ETCD_KEY_FILE", KEY_FILE.to_owned());
        volumes.push((&etcd.key_file, KEY_FILE));
        variables.insert("ETCD_CERT_FILE", CERT_FILE.to_owned());
        volumes.push((&etcd.cert_file, CERT_FILE));
    }
    let mut command: Vec<String> =
        ["docker", "run", "--net=host", "--privileged", "--name=calico-node"].map(str::to_owned).to_vec();
    // An init system restarts the service itself; otherwise Docker does.
    let manner: &[&str] = if args.init_system { &["--rm"] } else { &["-d", "--restart=always"] };
    command.extend(manner.iter().map(|word| (*word).to_owned()));
    for (variable, value) in variables {
        command.extend(["-e".to_owned(), format!("{variable}={value}")]);
    }
    for (host, container) in volumes {
        command.extend(["-v".to_owned(), format!("{host}:{container}")]);
    }
    command.push(args.node_image.clone());
    command
}

/// Does what the container cannot do from inside: loads modules, enables forwarding, raises the limit of connections.
async fn prepare_machine(programs: &Programs, context: &mut Context) -> Result<()> {
    let is_container = context.surroundings.environment.variable("CALICO_CTL_CONTAINER");
    if is_container.is_some_and(|value| !value.is_empty()) {
        return Ok(());
    }
    context.print("Running command to load modules: modprobe -a xt_set ip6_tables\n")?;
    let report = programs.run("modprobe", &["-a", "xt_set", "ip6_tables"]).await;
    if !report.succeeded {
        // The modules may be built in.
        tracing::warn!(output = %String::from_utf8_lossy(&report.output), "modprobe failed");
    }
    context.print("Enabling IPv4 forwarding\n")?;
    std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")
        .map_err(|_| Failure::new("ERROR: Could not enable ipv4 forwarding"))?;
    if Path::new("/proc/sys/net/ipv6").exists() {
        context.print("Enabling IPv6 forwarding\n")?;
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1")
            .map_err(|_| Failure::new("ERROR: Could not enable ipv6 forwarding"))?;
    }
    context.print("Increasing conntrack limit\n")?;
    if std::fs::write("/proc/sys/net/netfilter/nf_conntrack_max", "1000000").is_err() {
        context.print("WARNING: Could not set nf_conntrack_max. This may have an impact at scale.\n")?;
    }
    Ok(())
}

/// Runs Docker. Fetching an image may take long, so there is no deadline.
async fn start(programs: &Programs, arguments: &[String]) -> Result<()> {
    let shown = |reason: &str, output: &str| {
        let lines: String = output.split('\n').map(|line| format!(" | {line}\n")).collect();
        Failure::new(format!("Error executing command: {reason}\n{lines}"))
    };
    let mut command = programs.command("docker").map_err(|reason| shown(&reason, ""))?;
    let output = command.args(arguments).output().await.map_err(|error| shown(&error.to_string(), ""))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(shown(&output.status.to_string(), &String::from_utf8_lossy(&text)))
}

/// Shows the container's log until it reports that it is up.
async fn follow(programs: &Programs, context: &mut Context) -> Result<()> {
    let unreadable = |reason: String| failed(format!(" unable to check calico/node logs: {reason}"));
    let mut command = programs.command("docker").map_err(unreadable)?;
    let mut child = command
        .args(["logs", "--follow", "calico-node"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| unreadable(error.to_string()))?;
    let output = child.stdout.take().ok_or_else(|| unreadable("it has no output".to_owned()))?;
    let mut lines = BufReader::new(output).lines();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    loop {
        match tokio::time::timeout_at(deadline, lines.next_line()).await {
            Ok(Ok(Some(line))) => {
                context.print(&format!("{line}\n"))?;
                if line == STARTED {
                    return Ok(());
                }
            }
            Ok(Ok(None)) | Err(_) => {
                return Err(failed("calico/node has terminated, check logs for details"));
            }
            Ok(Err(_)) => return Err(failed("error reading calico/node logs, check logs for details")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_numbers_in_both_notations() {
        for (text, expected) in [
            ("64512", Some(64512)),
            ("4294967295", Some(u32::MAX)),
            ("1.10", Some(65546)),
            ("65535.65535", Some(u32::MAX)),
            ("4294967296", None),
            ("1.65536", None),
            ("a", None),
            ("1.2.3", None),
        ] {
            assert_eq!(as_number(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn methods_are_checked() {
        for (method, version, expected) in [
            ("first-found", 4, None),
            ("can-reach=192.0.2.1", 4, None),
            ("can-reach=192.0.2.1", 6, Some("does not resolve to an IPv6 address: 192.0.2.1")),
            ("interface=eth.*,en.*", 4, None),
            ("skip-interface=docker0", 6, None),
            ("interface=eth[", 4, Some("invalid interface regex specified for IP autodetection: eth[")),
            ("nonsense", 4, Some("invalid IP autodetection method: nonsense")),
        ] {
            match (check_method(method, version).await, expected) {
                (Ok(()), None) => {}
                (Err(failure), Some(expected)) => assert!(failure.message().ends_with(expected), "{failure}"),
                (outcome, _) => panic!("{method}: {outcome:?}"),
            }
        }
    }
}
