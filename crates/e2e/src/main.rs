//! A real Kubernetes cluster on this machine, with our images installed by a manifest, and checks of it.
//!
//! ```text
//! e2e           bed, install, every check; then everything is removed
//! e2e releases FILE...   these manifests one after another on one cluster, with checks after each
//! e2e up        bed and install, for manual inspection; Enter removes it
//! e2e components      the API server, Goldmane and the page started by our manifest, then every check
//! e2e components v3   custom resources of projectcalico.org/v3 with their webhooks, and Typha, then every check
//! e2e figures   how long pods take to start compared with the reference plugin, and memory
//! e2e figures one-by-one   the same for pods that start one after another
//! e2e chart     the Helm chart linted, rendered and compared, installed, upgraded and removed by Helm itself
//! e2e swap      replaces Calico's own programs with ours and back under traffic
//! e2e suite     a part of Kubernetes' own tests; `suite all`, `suite all 2/5` for a piece, or `suite EXPRESSION`
//!               for matching names
//! ```
//!
//! `make e2e` builds what it needs. Needs root, and touches nothing outside its namespaces, control groups and folder.
//! A failure leaves logs in `target/e2e`.

#![expect(clippy::print_stdout, reason = "a command line program that talks to people")]

mod bed;
mod cgroups;
mod chart;
mod checks;
mod components;
mod control_plane;
mod dns;
mod documents;
mod families;
mod figures;
mod images;
mod machine;
mod manifest;
mod names;
mod node;
mod one_by_one;
mod peer;
mod pods;
mod releases;
mod settings;
mod suite;
mod swap;
mod tools;
mod waiting;
mod wires;

use anyhow::{Context, Result, bail};
use bed::Bed;
use components::Components;
use manifest::Source;
use settings::Settings;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;
use suite::Choice;

/// The folder for the logs of a failed run.
const LOGS: &str = "target/e2e";
/// The folder for the report of Kubernetes' own tests.
const REPORT: &str = "target/e2e-suite";

fn main() -> ExitCode {
    let mut words = std::env::args();
    let name = words.next().unwrap_or_default();
    let name = name.rsplit('/').next().unwrap_or_default();
    if let Some(code) = tools::by_name(name, &words.collect::<Vec<_>>()) {
        return code;
    }
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("e2e: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let settings = Settings::read(|name| std::env::var(name).ok())?;
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [] => with_bed(&settings, &[], checks::run),
        ["components"] => with_components(&settings, Components::ApiServer),
        ["components", "v3"] => with_components(&settings, Components::V3Definitions),
        ["releases", first, others @ ..] => run_releases(settings, first, others),
        ["up"] => with_bed(&settings, &[], look_around),
        ["figures"] => with_prepared_bed(&settings, &[], figures::reference, figures::run),
        ["figures", "one-by-one"] => with_bed(&settings, &[], one_by_one::run),
        ["chart"] => run_chart(settings),
        ["swap"] => run_swap(settings),
        ["suite", which @ ..] => run_suite(&settings, &Choice::read(which)?),
        other => bail!(
            "unknown words {other:?}; known are: nothing, components, components v3, releases FILE..., up, figures, figures one-by-one, chart, swap, suite"
        ),
    }
}

fn run_suite(settings: &Settings, choice: &Choice) -> Result<()> {
    let images = images::suite(&suite::images()?)?;
    with_bed(settings, &[("suite", images)], |bed| suite::run(bed, choice, settings, Path::new(REPORT)))
}

/// Installs the first manifest, then the others over it.
fn run_releases(mut settings: Settings, first: &str, others: &[&str]) -> Result<()> {
    let files: Vec<PathBuf> = std::iter::once(&first).chain(others).map(PathBuf::from).collect();
    settings.manifest = Some(PathBuf::from(first));
    with_bed(&settings, &[], |bed| releases::run(bed, &files))
}

/// Tests the chart of this repository.
fn run_chart(mut settings: Settings) -> Result<()> {
    let chart = PathBuf::from("deploy/chart");
    settings.chart = Some(chart.clone());
    with_prepared_bed(
        &settings,
        &[],
        |bed| {
            waiting::until("the API of every kind", || bed.plane.kubectl(&["get", "nodes"]))?;
            chart::compare(bed, &chart)
        },
        |bed| chart::run(bed, &chart),
    )
}

/// Installs Calico's own programs, and swaps them.
fn run_swap(mut settings: Settings) -> Result<()> {
    let images = [("peer", peer::images(settings.peer.clone())?), ("traffic", images::traffic()?)];
    settings.source = Source { registry: peer::REGISTRY, tag: peer::TAG };
    with_bed(&settings, &images, swap::run)
}

fn with_components(settings: &Settings, components: Components) -> Result<()> {
    with_prepared_bed(settings, &[], |bed| components.prepare(bed), |bed| components.run(bed))
}

fn with_bed(
    settings: &Settings,
    more: &[(&str, Vec<u8>)],
    work: impl FnOnce(&mut Bed) -> Result<()>,
) -> Result<()> {
    with_prepared_bed(settings, more, |_| Ok(Vec::new()), work)
}

/// Starts a bed, prepares it, installs with the resulting settings, does the work, and keeps logs if anything failed.
fn with_prepared_bed(
    settings: &Settings,
    more: &[(&str, Vec<u8>)],
    prepare: impl FnOnce(&Bed) -> Result<Vec<String>>,
    work: impl FnOnce(&mut Bed) -> Result<()>,
) -> Result<()> {
    let start = Instant::now();
    let mut bed = Bed::start(settings, more)?;
    println!("e2e: a control plane and {} nodes ({:.0?})", bed.nodes.len(), start.elapsed());
    let mut settings = settings.clone();
    let outcome = prepare(&bed).and_then(|chosen| {
        settings.chosen.extend(chosen);
        bed.install(&settings)
    });
    let outcome = outcome.and_then(|took| {
        println!(
            "e2e: installed: all nodes are ready {:.1?} after apply, all components and the cluster's DNS {:.1?}",
            took.nodes, took.everything
        );
        if bed.without_missing_tunnels()? {
            println!("e2e: this kernel has no IP in IP: pools are switched to plain routes");
        }
        work(&mut bed)
    });
    if outcome.is_err() {
        bed.keep_logs(Path::new(LOGS)).context("keeping logs")?;
        println!("e2e: logs are in {LOGS}");
    }
    outcome?;
    drop(bed);
    println!("e2e: passed in {:.0?}, everything removed", start.elapsed());
    Ok(())
}

/// Prints how to use the bed, and waits.
fn look_around(bed: &mut Bed) -> Result<()> {
    println!(
        "e2e: nsenter --net=/var/run/netns/{} {} --kubeconfig {} get pods -A",
        bed.plane.namespace().name(),
        testkit::kubernetes_program("kubectl")?.display(),
        bed.plane.admin().display()
    );
    println!("e2e: logs are in {}; Enter removes the bed", bed.folder().display());
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
