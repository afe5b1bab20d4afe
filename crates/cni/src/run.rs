//! The plugins as programs: variables, arguments and standard input in, standard output and an exit code out.
//!
//! Everything is injected, so that tests and the agent run the same code as the program that a runtime starts.

use crate::addresses;
use crate::agent::client::{self, Reached};
use crate::context::Context;
use crate::error::{CniError, Result, code};
use crate::host::{self, HostPaths};
use crate::identity::Identity;
use crate::ipam::{assign, release};
use crate::pending;
use crate::request::{Command, Environment, Request};
use crate::store::Store;
use crate::version;
use crate::{add, check, del, gc, status};
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

/// The plugin as people know it.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// How long the connectivity test may take.
const TEST_PATIENCE: Duration = Duration::from_secs(2);

/// Which of the two programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// `calico`: attaches containers.
    Plugin,
    /// `calico-ipam`: only addresses.
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

/// What a program leaves behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// For the runtime.
    pub stdout: Vec<u8>,
    /// For people.
    pub stderr: String,
    /// 0 when all is well.
    pub exit: u8,
}

impl Outcome {
    pub(crate) fn of(result: Result<Vec<u8>>, cni_version: &str) -> Self {
        match result {
            Ok(stdout) => Self { stdout, ..Self::default() },
            Err(error) => {
                tracing::error!(%error, code = error.code, "the call failed");
                let told = if error.cni_version.is_empty() {
                    cni_version.to_owned()
                } else {
                    error.cni_version.clone()
                };
                Self { stdout: CniError { cni_version: told, ..error }.to_json(), exit: 1, ..Self::default() }
            }
        }
    }
}

/// The `calico` plugin. `arguments` are those after the program's name; `stdin` is read only where there is something to
/// read.
#[must_use]
pub fn run_plugin(
    environment: &Environment,
    arguments: &[String],
    stdin: impl FnOnce() -> Vec<u8>,
) -> Outcome {
    run(Program::Plugin, environment, arguments, stdin)
}

/// The `calico-ipam` plugin.
#[must_use]
pub fn run_ipam(environment: &Environment, arguments: &[String], stdin: impl FnOnce() -> Vec<u8>) -> Outcome {
    run(Program::Ipam, environment, arguments, stdin)
}

/// One of the plugins with the variables, arguments and streams of this process; returns the exit code.
#[must_use]
pub fn run_in_process(program: Program) -> u8 {
    let environment: Environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let stdin = || {
        // Enough for what runtimes send, so that it is read in one go.
        let mut input = Vec::with_capacity(16 * 1024);
        // A broken standard input reads as an empty configuration, which is told as such.
        let _ = std::io::stdin().read_to_end(&mut input);
        input
    };
    let outcome = run(program, &environment, &arguments, stdin);
    use std::io::Write as _;
    let written = std::io::stdout().write_all(&outcome.stdout).and_then(|()| std::io::stdout().flush());
    let _ = std::io::stderr().write_all(outcome.stderr.as_bytes());
    if written.is_err() { 1 } else { outcome.exit }
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
            return Outcome::of(Err(error), "");
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
    let mut request = match Request::read(environment, &input) {
        Ok(request) => request,
        Err(error) => return Outcome::of(Err(error), ""),
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
    Outcome::of(run_directly(program, &mut request, paths, missed), &version)
}

/// Does the work in this process.
fn run_directly(
    program: Program,
    request: &mut Request,
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
        // Whoever reaches the datastore carries out what others could not.
        if outcome.is_ok() && matches!(request.command, Command::Add | Command::Del) {
            pending::carry_out(&context, pending::FEW).await;
        }
        outcome.map_err(|error| explained(error, missed.as_deref()))
    });
    // Everything that matters was waited for. Idle threads, and such that never come back, end with the process.
    runtime.shutdown_background();
    outcome
}

/// Says what was waited for before the work was tried without the agent.
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

/// A call carried out; returns what goes to standard output. The agent calls this too.
///
/// # Errors
/// What CNI is told.
pub async fn execute(program: Program, context: &Context, request: &mut Request) -> Result<Vec<u8>> {
    // Boxed: each of these futures is large, and they need not be on anybody's stack together.
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
            let identity = ipam_identity(context, request)?;
            release::release(context, &request.conf, &identity).await.map(|()| Vec::new())
        }
        (Program::Ipam, Command::Status) => context.store.check_ready().await.map(|()| Vec::new()),
        // The addresses of a container are looked at by the plugin's own CHECK and GC.
        (Program::Ipam, Command::Check | Command::Gc) => Ok(Vec::new()),
    }
}

fn told_version(request: &Request) -> version::CniVersion {
    version::CniVersion::of_result(&request.conf.cni_version)
}

/// `calico-ipam` itself never waits for the node's start-up: its caller did.
fn ipam_identity(context: &Context, request: &Request) -> Result<Identity> {
    let mut conf = request.conf.clone();
    conf.nodename_file_optional = true;
    let node = host::node_name(&conf, &context.paths)?;
    let identity = Identity::of(request, &node);
    identity.endpoint_name()?;
    Ok(identity)
}

async fn ipam_add(context: &Context, request: &Request) -> Result<crate::result::CniResult> {
    let conf = &request.conf;
    let identity = ipam_identity(context, request)?;
    let wants_namespace = conf.is_kubernetes_policy() || !conf.kubernetes.kubeconfig.is_empty();
    let namespace = if wants_namespace && request.args.ip.is_none() {
        let found = context.store.namespace(conf, &identity.namespace).await?;
        Some(ipam::NamespaceLabels { name: identity.namespace.clone(), labels: found.metadata.labels })
    } else {
        None
    };
    let wish = assign::Wish { address: request.args.ip, namespace, ahead: None };
    match assign::assign(context, conf, &identity, wish).await {
        Err(error) => {
            if error.is_transient() {
                addresses::give_back_quietly(context, request, &identity).await;
            }
            Err(error)
        }
        outcome => outcome,
    }
}

/// One thread is enough for one container, and starts fastest.
fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| CniError::new(code::INTERNAL, format!("cannot start: {error}")))
}

/// `-t`: whether the datastore, and Kubernetes where it is configured, can be reached.
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
            Outcome::of(Err(told), "")
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
