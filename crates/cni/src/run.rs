//! The plugins as programs: environment, arguments and standard input in, standard output and an exit code out.
//!
//! Everything is injected, so that tests and the agent run the same code as the program that a runtime starts.

use crate::addresses;
use crate::agent::client::{self, Reached};
use crate::assigned::Assigned;
use crate::attachment::Attachment;
use crate::context::Context;
use crate::error::{CniError, Result, code};
use crate::host::{self, HostPaths};
use crate::ipam::assign::{self, Wish};
use crate::ipam::release;
use crate::pending;
use crate::request::{Command, Environment, Request};
use crate::store::Store;
use crate::{add, check, del, gc, status};
use cni_protocol::result::CniResult;
use cni_protocol::{Outcome, version};
use std::sync::Arc;
use std::time::Duration;

/// The version that the plugins report.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long the connectivity test may take.
const TEST_PATIENCE: Duration = Duration::from_secs(2);

/// The two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// `calico`: attaches containers.
    Plugin,
    /// `calico-ipam`: only manages addresses.
    Ipam,
}

impl Program {
    fn about(self) -> &'static str {
        match self {
            Self::Plugin => "Calico CNI plugin",
            Self::Ipam => "Calico CNI IPAM",
        }
    }
}

/// The outcome of a call, which is also logged.
pub(crate) fn outcome_of(result: Result<Vec<u8>>, cni_version: &str) -> Outcome {
    if let Err(error) = &result {
        tracing::error!(%error, code = error.code, "the call failed");
    }
    Outcome::of(result, cni_version)
}

/// Runs the `calico` plugin. `arguments` excludes the program's name; `stdin` is read only if there is something to
/// read.
#[must_use]
pub fn run_plugin(
    environment: &Environment,
    arguments: &[String],
    stdin: impl FnOnce() -> Vec<u8>,
) -> Outcome {
    run(Program::Plugin, environment, arguments, stdin)
}

/// Runs the `calico-ipam` plugin.
#[must_use]
pub fn run_ipam(environment: &Environment, arguments: &[String], stdin: impl FnOnce() -> Vec<u8>) -> Outcome {
    run(Program::Ipam, environment, arguments, stdin)
}

/// Runs one of the plugins with the environment, arguments and streams of this process; returns the exit code.
#[must_use]
pub fn run_in_process(program: Program) -> u8 {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    cni_protocol::process::run(|environment, stdin| run(program, environment, &arguments, stdin))
}

fn run(
    program: Program,
    environment: &Environment,
    arguments: &[String],
    stdin: impl FnOnce() -> Vec<u8>,
) -> Outcome {
    match arguments.first().map(|argument| argument.trim_start_matches('-')) {
        Some("v" | "version") => {
            return Outcome { stdout: format!("{VERSION}\n").into_bytes(), ..Outcome::default() };
        }
        Some("t") if program == Program::Plugin => return test_connection(environment, &stdin()),
        Some("upgrade") if program == Program::Ipam => return crate::upgrade::run(environment),
        Some(other) if arguments.first().is_some_and(|argument| argument.starts_with('-')) => {
            let error = CniError::new(code::GENERAL, "failed to parse CLI flags")
                .with_details(format!("flag provided but not defined: -{other}"));
            return outcome_of(Err(error), "");
        }
        _ => {}
    }
    let command = environment.get("CNI_COMMAND").map_or("", String::as_str);
    if command.is_empty() {
        let versions = version::SUPPORTED.join(", ");
        let stderr = format!("{} {VERSION}\nCNI protocol versions supported: {versions}\n", program.about());
        return Outcome { stderr, ..Outcome::default() };
    }
    let input = if command == Command::Version.as_str() { Vec::new() } else { stdin() };
    let request = match Request::read(environment, &input) {
        Ok(request) => request,
        Err(error) => return outcome_of(Err(error), ""),
    };
    if request.command == Command::Version {
        return Outcome { stdout: version::answer().to_string().into_bytes(), ..Outcome::default() };
    }
    crate::log::start(&request.conf);
    let paths = HostPaths::of(environment);
    tracing::info!(
        command = command,
        container = %request.container_id,
        netns = %request.netns,
        args = %request.args.text,
        "called"
    );
    let missed = match client::ask(program, &request, &input, &paths) {
        Reached::Answered(outcome) => return outcome,
        Reached::Missed(reason) => reason,
    };
    let version = request.conf.cni_version.clone();
    outcome_of(run_directly(program, &request, paths, missed), &version)
}

/// Does the work in this process.
fn run_directly(
    program: Program,
    request: &Request,
    paths: HostPaths,
    missed: Option<String>,
) -> Result<Vec<u8>> {
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        let store = match Store::open(&request.conf, &request.environment).await {
            Ok(store) => store,
            Err(error) => {
                let error = explained(error, missed.as_deref());
                // A node whose plugins work only through the agent has no credentials; its DELs wait for the agent.
                return match (missed, program, request.command) {
                    (Some(_), Program::Plugin, Command::Del) => {
                        del::del_without_store(request, &paths, &error).await.map(|()| Vec::new())
                    }
                    _ => Err(error),
                };
            }
        };
        let context = Context::new(Arc::new(store), paths, false);
        let outcome = execute(program, &context, request).await;
        // A plugin that reaches the datastore carries out what others could not.
        if outcome.is_ok() && matches!(request.command, Command::Add | Command::Del) {
            pending::carry_out(&context, pending::FEW).await;
        }
        outcome.map_err(|error| explained(error, missed.as_deref()))
    });
    // Everything that matters has been waited for. Idle threads, and threads that never return, end with the process.
    runtime.shutdown_background();
    outcome
}

/// Adds to an error what was waited for before the work was tried without the agent.
fn explained(error: CniError, missed: Option<&str>) -> CniError {
    match missed {
        None => error,
        Some(reason) if error.details.is_empty() => error.with_details(reason),
        Some(reason) => {
            let details = format!("{}; {reason}", error.details);
            error.with_details(details)
        }
    }
}

/// Carries out a call; returns what is written to standard output. The agent calls this, too.
///
/// # Errors
/// The error that is reported to the runtime.
pub(crate) async fn execute(program: Program, context: &Context, request: &Request) -> Result<Vec<u8>> {
    // Boxed: each of these futures is large, and they need not be on a stack together.
    match (program, request.command) {
        (_, Command::Version) => Ok(version::answer().to_string().into_bytes()),
        (Program::Plugin, Command::Add) => {
            Box::pin(add::add(context, request)).await?.render(told_version(request))
        }
        (Program::Plugin, Command::Del) => Box::pin(del::del(context, request)).await.map(|()| Vec::new()),
        (Program::Plugin, Command::Check) => {
            Box::pin(check::check(context, request)).await.map(|()| Vec::new())
        }
        (Program::Plugin, Command::Status) => status::status(context, request).await.map(|()| Vec::new()),
        (Program::Plugin, Command::Gc) => Box::pin(gc::gc(context, request)).await.map(|()| Vec::new()),
        (Program::Ipam, Command::Add) => {
            Box::pin(ipam_add(context, request)).await?.render(told_version(request))
        }
        (Program::Ipam, Command::Del) => {
            release::release(&ipam_attachment(context, request)?).await.map(|()| Vec::new())
        }
        (Program::Ipam, Command::Status) => context.store.check_ready().await.map(|()| Vec::new()),
        // The plugin's own CHECK and GC inspect a container's addresses.
        (Program::Ipam, Command::Check | Command::Gc) => Ok(Vec::new()),
    }
}

fn told_version(request: &Request) -> version::CniVersion {
    version::CniVersion::of_result(&request.conf.cni_version)
}

/// `calico-ipam` itself never waits for the node's start-up: its caller did.
fn ipam_attachment<'a>(context: &'a Context, request: &'a Request) -> Result<Attachment<'a>> {
    let mut conf = request.conf.clone();
    conf.nodename_file_optional = true;
    let node = host::node_name(&conf, &context.paths)?;
    Attachment::new(context, request, Some(&node))
}

async fn ipam_add(context: &Context, request: &Request) -> Result<CniResult> {
    let conf = &request.conf;
    let attachment = ipam_attachment(context, request)?;
    let wants_namespace = conf.is_kubernetes_policy() || !conf.kubernetes.kubeconfig.is_empty();
    let namespace = if wants_namespace && request.args.ip.is_none() {
        let name = &attachment.identity.namespace;
        let found = context.store.namespace(conf, name).await?;
        Some(ipam::NamespaceLabels { name: name.clone(), labels: found.metadata.labels })
    } else {
        None
    };
    let outcome = assign::assign(&attachment, Wish { namespace, ..Wish::of(request) }).await;
    if outcome.as_ref().is_err_and(CniError::is_transient) {
        addresses::give_back_quietly(&attachment).await;
    }
    outcome.map(Assigned::into_ipam_result)
}

/// One thread is enough for one container, and starts fastest.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::new(code::INTERNAL, format!("cannot start: {error}")))
}

/// `-t`: tests whether the datastore, and Kubernetes if it is configured, can be reached.
fn test_connection(environment: &Environment, stdin: &[u8]) -> Outcome {
    let test = || -> Result<()> {
        let document = serde_json::from_slice(stdin).map_err(|error| {
            CniError::new(code::DECODING_FAILURE, format!("failed to load netconf: {error}"))
        })?;
        let conf = crate::config::NetConf::parse(&document)?;
        runtime()?.block_on(async {
            let work = async {
                let store = Store::open(&conf, environment).await?;
                store.check_ready().await?;
                if conf.kubernetes.kubeconfig.is_empty() {
                    return Ok(());
                }
                store.namespace(&conf, "default").await.map(drop)
            };
            match tokio::time::timeout(TEST_PATIENCE, work).await {
                Ok(outcome) => outcome,
                Err(_) => Err(CniError::new(
                    code::GENERAL,
                    format!("no answer within {} s", TEST_PATIENCE.as_secs()),
                )),
            }
        })
    };
    match test() {
        Ok(()) => Outcome::default(),
        Err(error) => {
            let told =
                CniError::new(code::GENERAL, "data store connection failed").with_details(error.to_string());
            outcome_of(Err(told), "")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{run_ipam, run_plugin};
    use crate::request::Environment;

    #[test]
    fn flags_and_calls_without_a_command() {
        let run = |arguments: &[&str]| {
            let arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            run_plugin(&Environment::new(), &arguments, Vec::new)
        };
        assert_eq!(run(&["-v"]).stdout, format!("{}\n", env!("CARGO_PKG_VERSION")).into_bytes());
        let about = run(&[]);
        assert!(about.exit == 0 && about.stdout.is_empty());
        assert!(about.stderr.contains("CNI protocol versions supported: 0.1.0, 0.2.0"), "{}", about.stderr);
        let unknown = run(&["-x"]);
        assert!(unknown.exit == 1 && String::from_utf8_lossy(&unknown.stdout).contains("\"code\": 100"));
        let upgrade = run_ipam(&Environment::new(), &["-upgrade".to_owned()], Vec::new);
        assert!(upgrade.exit == 1 && upgrade.stderr.contains("KUBERNETES_NODE_NAME not specified"));
    }
}
