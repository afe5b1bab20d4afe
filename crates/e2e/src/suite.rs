//! Kubernetes' own end-to-end tests on the bed: a chosen part that takes minutes, or all that concern the network.
//!
//! The program in their pods (`agnhost`) is built from the same sources and imported under the names that the tests ask for.
//! It refuses tests that need images other than that one and what it stands in for.

use crate::bed::Bed;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::kubernetes_program;

/// A few of each kind: policy of both directions, by ports, by address blocks, that changes; pods across nodes; services by address,
/// by port of a node and by name.
const CHOSEN: [&str; 9] = [
    "Netpol.*should support a 'default-deny-all' policy",
    "Netpol.*should enforce policy based on PodSelector or NamespaceSelector",
    "Netpol.*should allow egress access on one named port",
    "Netpol.*should enforce except clause while egress access to server in CIDR block",
    "Networking Granular Checks: Pods should function for intra-pod communication: http ",
    "Services should be able to create a functioning NodePort service",
    "Services should be able to change the type from ExternalName to ClusterIP",
    "Services should have session affinity work for service with type clusterIP ",
    "DNS should provide DNS for services",
];

/// Everything about policy, pods, services and names.
const ALL: [&str; 9] = [
    "Netpol.*NetworkPolicy between server and client",
    "Netpol.*NetworkPolicy API",
    "EndpointSlice",
    "Networking Granular Checks: (Pods|Services)",
    "Networking should",
    "Services should",
    "DNS should",
    "HostPort validates",
    "Conntrack should|Proxy version v1",
];

/// What does not exist here: SCTP needs a kernel module on hosts, which the tests load through another image; a cloud; a way out to
/// the Internet; limits of a pod's storage, which this kubelet does not keep; the certificate and the name server in agnhost's own image; other images.
const SKIPPED: &str = "SCTP|Windows|Disruptive|Slow|Internet connection|Feature:LoadBalancer|Provider:GCE|evicted pods|\
                       Feature:Networking-Performance|should drop INVALID conntrack|\
                       should proxy through a service and a pod|configurable pod resolv.conf";

/// Which tests are run.
#[derive(Clone, Debug)]
pub(crate) enum Choice {
    Part,
    All,
    /// Those whose names match.
    Named(String),
}

impl Choice {
    fn expression(&self) -> String {
        match self {
            Self::Part => CHOSEN.join("|"),
            Self::All => ALL.join("|"),
            Self::Named(expression) => expression.clone(),
        }
    }
}

/// The images that tests ask for and that can be had here, by a part of their names.
const IMAGES: [&str; 4] = ["/agnhost:", "/busybox:", "/glibc-dns-testing:", "/nginx:"];

/// The names under which the tests' pods ask for their programs.
pub(crate) fn images() -> Result<Vec<String>> {
    let program = kubernetes_program("e2e.test")?;
    let output = Command::new(&program).arg("--list-images").output().context("running e2e.test")?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<String> = listed
        .lines()
        .map(str::trim)
        .filter(|line| IMAGES.iter().any(|image| line.contains(image)))
        .map(str::to_owned)
        .collect();
    ensure!(!names.is_empty(), "e2e.test --list-images names no agnhost: {output:?}");
    Ok(names)
}

/// Runs them; their report goes to standard output, and to a folder as JUnit's file.
pub(crate) fn run(bed: &mut Bed, choice: &Choice, report: &Path) -> Result<()> {
    std::fs::create_dir_all(report)?;
    bed.lead_to_ranges()?;
    let mut command = bed.plane.command(&kubernetes_program("e2e.test")?)?;
    command
        .arg("--provider=skeleton")
        .arg(format!("--kubeconfig={}", bed.plane.admin().display()))
        .arg(format!("--kubectl-path={}", kubernetes_program("kubectl")?.display()))
        .arg(format!("--num-nodes={}", bed.nodes.len()))
        .arg(format!("--report-dir={}", report.display()))
        .arg("--disable-log-dump=true")
        .arg("--ginkgo.no-color")
        .arg("--ginkgo.timeout=3h")
        .arg(format!("--ginkgo.focus={}", choice.expression()))
        .arg(format!("--ginkgo.skip={SKIPPED}"))
        .stdin(Stdio::null());
    let log = report.join("e2e.log");
    let file = std::fs::File::create(&log)?;
    let status = command.stdout(file.try_clone()?).stderr(file).status().context("running e2e.test")?;
    // Tests send any bytes to each other, and show them.
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    let summary: Vec<&str> = text
        .lines()
        .filter(|line| line.contains("[Fail]") || line.contains("[FAIL]") || line.contains(" Passed | "))
        .collect();
    for line in &summary {
        println!("e2e:   {line}");
    }
    ensure!(
        status.success() && !summary.is_empty(),
        "Kubernetes' tests failed ({status}); {} has it all",
        log.display()
    );
    // A focus that matches nothing passes, too.
    ensure!(!text.contains("Ran 0 of "), "no test matches {:?}", choice.expression());
    Ok(())
}
