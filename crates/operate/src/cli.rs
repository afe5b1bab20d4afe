//! The flags of the commands, and the functions that run them.

use crate::cluster::{Mode, Target};
use crate::doctor::{check_cluster, check_host, gather_cluster, gather_host, has_problems, to_text};
use crate::install::{How, Record, Removal, install, uninstall};
use crate::{connectivity, migrate, status};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use manifests::options::REGISTRY;
use manifests::{Like, Options};
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The tag of this version's images.
pub const TAG: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Which manifest to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LikeName {
    /// BGP, IP in IP.
    Calico,
    /// VXLAN, no BGP.
    CalicoVxlan,
    /// Like calico, with Typha.
    CalicoTypha,
    /// Policy beside another network.
    CalicoPolicyOnly,
    /// Policy beside flannel.
    Canal,
    /// Calico's data in an etcd.
    CalicoEtcd,
}

impl From<LikeName> for Like {
    fn from(name: LikeName) -> Self {
        match name {
            LikeName::Calico => Self::Calico,
            LikeName::CalicoVxlan => Self::CalicoVxlan,
            LikeName::CalicoTypha => Self::CalicoTypha,
            LikeName::CalicoPolicyOnly => Self::CalicoPolicyOnly,
            LikeName::Canal => Self::Canal,
            LikeName::CalicoEtcd => Self::CalicoEtcd,
        }
    }
}

/// What is installed.
#[derive(Clone, Debug, Args)]
pub struct ManifestsArguments {
    /// Which of Calico's manifests to be like
    #[arg(long, value_name = "NAME")]
    pub like: LikeName,
    #[command(flatten)]
    choices: Choices,
}

#[derive(Clone, Debug, Args)]
struct Choices {
    /// A setting; docs/reference/manifests.md lists them. May be repeated
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value)]
    settings: Vec<(String, String)>,
    /// Where images come from
    #[arg(long, value_name = "HOST/PATH")]
    registry: Option<String>,
    /// The tag of images
    #[arg(long)]
    tag: Option<String>,
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

fn options(like: Like, registry: &str, tag: &str, settings: &[(String, String)]) -> Result<Options> {
    let mut options = Options::new(like, registry, tag);
    for (key, value) in settings {
        options.set(key, value)?;
    }
    options.check()?;
    Ok(options)
}

/// `tortie manifests`: generates the text.
///
/// # Errors
/// When an option cannot be used.
pub fn manifests_text(arguments: &ManifestsArguments) -> Result<String> {
    let choices = &arguments.choices;
    let registry = choices.registry.as_deref().unwrap_or(REGISTRY);
    let tag = choices.tag.as_deref().unwrap_or(TAG);
    let options = options(arguments.like.into(), registry, tag, &choices.settings)?;
    Ok(manifests::to_yaml(&manifests::objects::heading(&options), &manifests::all(&options)))
}

#[derive(Clone, Debug, Args)]
struct Cluster {
    /// The cluster's kubeconfig; otherwise KUBECONFIG, ~/.kube/config, or the pod's own account
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl Cluster {
    async fn open(&self) -> Result<Target> {
        Target::open(self.kubeconfig.as_deref()).await
    }
}

#[derive(Clone, Debug, Args)]
struct Writing {
    /// Only report what would be done; the server validates it
    #[arg(long)]
    dry_run: bool,
    /// Take over fields that another manager owns
    #[arg(long)]
    force_conflicts: bool,
    /// Do not wait until everything is ready
    #[arg(long)]
    no_wait: bool,
    /// How long to wait
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

impl Writing {
    fn how(&self, is_upgrade: bool) -> How {
        How {
            mode: Mode { dry_run: self.dry_run, force: self.force_conflicts },
            wait: (!self.no_wait).then_some(self.timeout),
            is_upgrade,
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    api::scalars::Duration::from(text).parse()
}

/// The flags of `tortie install`.
#[derive(Clone, Debug, Args)]
pub struct InstallArguments {
    #[command(flatten)]
    what: ManifestsArguments,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    writing: Writing,
}

/// The flags of `tortie upgrade`.
#[derive(Clone, Debug, Args)]
pub struct UpgradeArguments {
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    cluster: Cluster,
    #[command(flatten)]
    writing: Writing,
}

/// The flags of `tortie uninstall`.
#[derive(Clone, Debug, Args)]
pub struct UninstallArguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Only report what would be deleted
    #[arg(long)]
    dry_run: bool,
    /// Delete the custom resource definitions too, and every pool, policy and address with them
    #[arg(long)]
    delete_data: bool,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// The flags of `tortie status`.
#[derive(Clone, Debug, Args)]
pub struct StatusArguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Wait until there are no problems
    #[arg(long)]
    wait: bool,
    /// How long to wait
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The flags of `tortie doctor`.
#[derive(Clone, Debug, Args)]
pub struct DoctorArguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Check this machine as a node; this is the default if there is no cluster
    #[arg(long)]
    host: bool,
    /// Check this machine only
    #[arg(long)]
    no_cluster: bool,
    /// A port of another node to try from here, such as 10.0.0.2:179. May be repeated
    #[arg(long, value_name = "ADDRESS:PORT")]
    peer: Vec<SocketAddr>,
    /// Where this machine keeps CNI configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    cni_conf_dir: String,
    /// Where this machine keeps CNI plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    cni_bin_dir: String,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// What to do about connectivity.
#[derive(Clone, Debug, Subcommand)]
pub enum ConnectivityCommand {
    /// Create pods that talk to each other under policies, check what arrives, and remove them.
    Test(ConnectivityArguments),
}

/// The flags of `tortie connectivity test`.
#[derive(Clone, Debug, Args)]
pub struct ConnectivityArguments {
    #[command(flatten)]
    cluster: Cluster,
    /// The image of the probes; this version's image of the node
    #[arg(long, value_name = "REFERENCE")]
    image: Option<String>,
    /// Use one node only
    #[arg(long)]
    single_node: bool,
    /// A host and port outside the cluster that pods must reach, except under a policy without egress; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    outside: Vec<String>,
    /// How long each step may take
    #[arg(long, default_value = "1m", value_parser = duration)]
    timeout: Duration,
    /// Also write the results as JUnit XML
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// What to migrate from.
#[derive(Clone, Debug, Subcommand)]
pub enum MigrateCommand {
    /// Swap the images of a running Calico for ours, node by node, or back.
    FromCalico(FromCalicoArguments),
}

/// The flags of `tortie migrate from-calico`.
#[derive(Clone, Debug, Args)]
pub struct FromCalicoArguments {
    #[command(flatten)]
    cluster: Cluster,
    /// Only this node; may be repeated
    #[arg(long, value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
    node: Vec<String>,
    /// All nodes
    #[arg(long)]
    all: bool,
    /// Go back to the previous images
    #[arg(long)]
    back: bool,
    /// Only print the plan
    #[arg(long)]
    dry_run: bool,
    /// Continue although not all nodes are healthy
    #[arg(long)]
    force: bool,
    /// Where our images come from
    #[arg(long, value_name = "HOST/PATH", default_value = REGISTRY)]
    registry: String,
    /// Their tag
    #[arg(long, default_value = TAG)]
    tag: String,
    /// How long to wait for each node
    #[arg(long, default_value = "5m", value_parser = duration)]
    timeout: Duration,
}

fn blocking<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

/// `tortie install`.
///
/// # Errors
/// The failure of the command.
pub fn run_install(arguments: &InstallArguments) -> Result<ExitCode> {
    let choices = &arguments.what.choices;
    let registry = choices.registry.as_deref().unwrap_or(REGISTRY);
    let options = options(
        arguments.what.like.into(),
        registry,
        choices.tag.as_deref().unwrap_or(TAG),
        &choices.settings,
    )?;
    blocking(async {
        let target = arguments.cluster.open().await?;
        install(&target, &options, &choices.settings, arguments.writing.how(false), &mut std::io::stdout())
            .await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// `tortie upgrade`: earlier choices are kept, unless they are given again.
///
/// # Errors
/// The failure of the command.
pub fn run_upgrade(arguments: &UpgradeArguments) -> Result<ExitCode> {
    blocking(async {
        let target = arguments.cluster.open().await?;
        let record = Record::read(&target)
            .await?
            .context("nothing was installed by `tortie install`: there is nothing to upgrade")?;
        let mut settings = record.settings;
        for (key, value) in &arguments.choices.settings {
            settings.retain(|(known, _)| known != key);
            settings.push((key.clone(), value.clone()));
        }
        let registry = arguments.choices.registry.as_deref().unwrap_or(&record.registry);
        let tag = arguments.choices.tag.as_deref().unwrap_or(TAG);
        let options = options(record.like, registry, tag, &settings)?;
        install(&target, &options, &settings, arguments.writing.how(true), &mut std::io::stdout()).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// `tortie uninstall`. On a terminal it asks for confirmation; otherwise it requires `--yes`.
///
/// # Errors
/// The failure of the command.
pub fn run_uninstall(arguments: &UninstallArguments) -> Result<ExitCode> {
    blocking(async {
        let target = arguments.cluster.open().await?;
        let mut removal = Removal {
            dry_run: arguments.dry_run,
            delete_data: arguments.delete_data,
            is_agreed: arguments.yes,
        };
        if !removal.is_agreed && !removal.dry_run && std::io::stdin().is_terminal() {
            uninstall(&target, Removal { dry_run: true, ..removal }, &mut std::io::stdout()).await?;
            write!(std::io::stdout(), "Delete this? Type yes: ")?;
            std::io::stdout().flush()?;
            let mut answer = String::new();
            std::io::stdin().read_line(&mut answer)?;
            if answer.trim() != "yes" {
                bail!("nothing was deleted");
            }
            removal.is_agreed = true;
        }
        uninstall(&target, removal, &mut std::io::stdout()).await?;
        Ok(ExitCode::SUCCESS)
    })
}

/// `tortie status`: fails if there are problems.
///
/// # Errors
/// The failure of the command.
pub fn run_status(arguments: &StatusArguments) -> Result<ExitCode> {
    blocking(async {
        let target = arguments.cluster.open().await?;
        let deadline = Instant::now() + arguments.timeout;
        loop {
            let report = status::report(&status::gather(&target).await);
            if report.problems.is_empty() || !arguments.wait || Instant::now() > deadline {
                let text = match arguments.output {
                    Output::Text => report.to_text(),
                    Output::Json => format!("{}\n", serde_json::to_string_pretty(&report)?),
                };
                daemon::exit::print(&text)?;
                return Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
}

/// `tortie doctor`: fails if something will not work.
///
/// # Errors
/// The failure of the command.
pub fn run_doctor(arguments: &DoctorArguments) -> Result<ExitCode> {
    blocking(async {
        let mut findings = Vec::new();
        let target = match arguments.no_cluster {
            true => None,
            false => match arguments.cluster.open().await {
                Ok(target) => Some(target),
                // Without an explicit cluster, it is not an error that there is none.
                Err(error) if arguments.cluster.kubeconfig.is_some() => return Err(error),
                Err(_) => None,
            },
        };
        if arguments.host || target.is_none() {
            let facts =
                gather_host(Path::new("/"), &arguments.cni_conf_dir, &arguments.cni_bin_dir, &arguments.peer);
            findings.extend(check_host(&facts));
        }
        if let Some(target) = target {
            findings.extend(check_cluster(&gather_cluster(&target).await));
        }
        let text = match arguments.output {
            Output::Text => to_text(&findings),
            Output::Json => format!("{}\n", serde_json::to_string_pretty(&findings)?),
        };
        daemon::exit::print(&text)?;
        Ok(if has_problems(&findings) { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    })
}

/// `tortie connectivity`: fails if something does not arrive that must, or arrives but must not.
///
/// # Errors
/// The failure of the command.
pub fn run_connectivity(command: &ConnectivityCommand) -> Result<ExitCode> {
    let ConnectivityCommand::Test(arguments) = command;
    let choices = connectivity::Choices {
        image: arguments.image.clone().unwrap_or_else(|| format!("{REGISTRY}/node:{TAG}")),
        single_node: arguments.single_node,
        outside: arguments.outside.clone(),
        patience: arguments.timeout,
        kubeconfig: arguments.cluster.kubeconfig.clone(),
    };
    blocking(async {
        let target = arguments.cluster.open().await?;
        let mut out = std::io::stdout();
        let report = connectivity::run(&target, &choices, &mut out).await?;
        if let Some(file) = &arguments.junit {
            let text = explain::to_junit(&report, "connectivity");
            std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))?;
        }
        writeln!(out, "{} cases, {} failed", report.cases.len(), report.failures())?;
        Ok(if report.failures() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    })
}

/// `tortie migrate`.
///
/// # Errors
/// The failure of the command.
pub fn run_migrate(command: &MigrateCommand) -> Result<ExitCode> {
    let MigrateCommand::FromCalico(arguments) = command;
    let request = migrate::Request {
        nodes: arguments.node.clone(),
        is_back: arguments.back,
        registry: arguments.registry.clone(),
        tag: arguments.tag.clone(),
        force: arguments.force,
    };
    blocking(async {
        let target = arguments.cluster.open().await?;
        let plan = migrate::plan(&migrate::gather(&target).await?, &request);
        let mut out = std::io::stdout();
        for warning in &plan.warnings {
            writeln!(out, "warning: {warning}")?;
        }
        if !plan.refusals.is_empty() {
            bail!("nothing was changed: {}", plan.refusals.join("; "));
        }
        if arguments.dry_run {
            for (index, step) in plan.steps.iter().enumerate() {
                writeln!(out, "{}. {step}", index + 1)?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        migrate::run(&target, &plan, arguments.timeout, &mut out).await?;
        writeln!(out, "done")?;
        Ok(ExitCode::SUCCESS)
    })
}
