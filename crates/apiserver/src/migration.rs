//! `tortie migrate crds`: moves Calico's objects from the definitions of `crd.projectcalico.org/v1` to those of
//! `projectcalico.org/v3`, or back.
//!
//! Here is the command and its work on the cluster's definitions; [`moving`] moves the objects.

pub(crate) mod moving;

use anyhow::{Context as _, Result, bail};
use api::kind::API_VERSION;
use clap::{Args, ValueEnum};
use daemon::{Environment as _, SystemEnvironment};
use datastore::Backend as _;
use datastore::kubernetes::{KubernetesBackend, KubernetesConfig};
use http::Method;
use kube_access::KubeAccess;
use kube_access::access::SERVICE_ACCOUNT_DIR;
use kube_access::cluster::Cluster;
use moving::{Move, Outcome};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::admission;

/// The flags of `tortie migrate crds`.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The group to move objects to.
    #[arg(long, value_enum, default_value_t = Group::V3)]
    pub to: Group,
    /// The kubeconfig of the cluster; if unset, `KUBECONFIG` or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Show what would be copied, but copy nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// When everything has been moved, remove the old definitions and with them the old objects.
    #[arg(long)]
    pub remove_old: bool,
}

/// A group of definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Group {
    /// crd.projectcalico.org/v1, the classic group.
    #[value(name = "crd.projectcalico.org/v1")]
    V1,
    /// projectcalico.org/v3, served to users directly.
    #[value(name = "projectcalico.org/v3")]
    V3,
}

impl Group {
    fn other(self) -> Self {
        if self == Self::V1 { Self::V3 } else { Self::V1 }
    }

    fn version(self) -> &'static str {
        if self == Self::V1 { api::kind::CRD_API_VERSION } else { API_VERSION }
    }

    fn definitions(self) -> Vec<Value> {
        if self == Self::V1 { api::crds::all() } else { api::crds::all_v3() }
    }

    /// The backend for the objects of this group.
    ///
    /// # Errors
    /// When the cluster cannot be reached.
    pub async fn backend(self, kubeconfig: &Path) -> Result<KubernetesBackend> {
        // Without a file, the pod's service account is meant.
        let place = match kubeconfig.as_os_str().is_empty() {
            true => KubernetesConfig::default(),
            false => KubernetesConfig::from_file(kubeconfig),
        };
        let config = KubernetesConfig { calico_api_group: self.version().to_owned(), ..place };
        Ok(KubernetesBackend::connect(&config).await?)
    }
}

/// Runs the command.
///
/// # Errors
/// When something could not be done; nothing is lost then.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let _log = daemon::log::Log::start(daemon::log::LevelFilter::INFO);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(run(arguments))?;
    let old = arguments.to.other().version();
    let text = match outcome {
        Outcome::WouldMove { found } => format!("{found} objects in {old} would be moved\n"),
        Outcome::Moved { found, written } => {
            format!("{found} objects in {old}; {written} written, the others were there\n")
        }
        Outcome::MovedBefore => {
            format!("the objects of {old} were moved before; nothing was copied again\n")
        }
    };
    Ok(daemon::exit::print(&text)?)
}

/// Copies, compares and unlocks; then removes the old definitions, if requested.
///
/// # Errors
/// When something could not be done; nothing is lost then.
pub async fn run(arguments: &Arguments) -> Result<Outcome> {
    let kubeconfig = match &arguments.kubeconfig {
        Some(file) => file.clone(),
        None => SystemEnvironment.variable("KUBECONFIG").map(PathBuf::from).unwrap_or_default(),
    };
    let service_account = Path::new(SERVICE_ACCOUNT_DIR);
    let access = match kubeconfig.as_os_str().is_empty() {
        true => KubeAccess::open(&SystemEnvironment, service_account).await?,
        false => {
            let environment = daemon::Variables::new([("KUBECONFIG", kubeconfig.clone())]);
            KubeAccess::open(&environment, service_account).await?
        }
    };
    let cluster = Cluster::new(&access);
    refuse_aggregated(&cluster).await?;
    let (from, to) = (arguments.to.other(), arguments.to);
    let (old, new) = (from.backend(&kubeconfig).await?, to.backend(&kubeconfig).await?);
    let place = Move { old: &old, new: &new, from: from.version(), to: to.version() };
    let outcome = match place.is_done().await? {
        true => Outcome::MovedBefore,
        false => {
            old.ensure_ready().await.with_context(|| format!("the objects of {}", from.version()))?;
            if arguments.dry_run {
                return Ok(Outcome::WouldMove { found: place.count().await? });
            }
            new.install().await.with_context(|| format!("the definitions of {}", to.version()))?;
            place.wait_for_new().await?;
            if to == Group::V3 {
                admission::install(&cluster).await.context("the admission policies")?;
            }
            place.copy().await?
        }
    };
    if arguments.dry_run {
        return Ok(outcome);
    }
    place.finish().await?;
    if arguments.remove_old {
        if from == Group::V3 {
            admission::remove(&cluster).await.context("the admission policies")?;
        }
        remove(&cluster, from).await?;
    }
    Ok(outcome)
}

/// Removes definitions and with them their objects. The definition that records that everything was moved goes last.
async fn remove(cluster: &Cluster, group: Group) -> Result<()> {
    let mut definitions = group.definitions();
    let kind = |definition: &Value| definition.pointer("/spec/names/kind").cloned().unwrap_or_default();
    definitions.sort_by_key(|definition| kind(definition) == "ClusterInformation");
    for definition in definitions {
        let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}");
        delete(cluster, "remove a definition", &path).await?;
    }
    Ok(())
}

/// Deletes a cluster-scoped object, if it exists.
pub(crate) async fn delete(cluster: &Cluster, what: &str, path: &str) -> Result<()> {
    let sent: Result<Value, _> =
        cluster.send(what, Method::DELETE, path, &json!({}), "application/json").await;
    match sent {
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}

/// An aggregated server shadows definitions of the same group: their objects could be neither read nor written.
async fn refuse_aggregated(cluster: &Cluster) -> Result<()> {
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v3.projectcalico.org";
    let found: Result<Value, _> = cluster.get("read an APIService", path).await;
    match found {
        Ok(service) if service.pointer("/spec/service").is_some_and(|service| !service.is_null()) => bail!(
            "projectcalico.org/v3 is served by the aggregated API server: delete the APIService v3.projectcalico.org first"
        ),
        Err(error) if !error.is_not_found() => Err(error.into()),
        _ => Ok(()),
    }
}
