//! What every command gets: streams, the global flags, and a connected client within a deadline.
//!
//! Streams and environment are injected, so that a test runs a whole command in its own process and reads what a
//! person would read.

use crate::failure::{Failure, Result};
use crate::kinds::Words;
use crate::paint;
use crate::version_gate::{self, Access, Verdict};
use api::{ClusterInformation, ClusterInformationSpec};
use client::{Client, ClientConfig, OpenError, Purpose};
use daemon::Environment;
use std::io::{IsTerminal as _, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long a datastore may take to answer before the command gives up and says what it tried.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(4);

/// Standard streams and the environment, real or of a test.
pub struct Surroundings {
    /// Standard input.
    pub stdin: Box<dyn Read + Send>,
    /// Standard output.
    pub stdout: Box<dyn Write + Send>,
    /// Standard error.
    pub stderr: Box<dyn Write + Send>,
    /// Variables and files.
    pub environment: Box<dyn Environment + Send + Sync>,
    /// Whether standard output is a terminal that shows colours.
    pub colours: bool,
    /// Whether progress may be shown on standard error.
    pub progress: bool,
    /// How many columns help is wrapped to; lines stay as long as they are without a number.
    pub width: Option<usize>,
}

/// The heading of the flags that every command accepts.
pub(crate) const GLOBAL: &str = "Global options";

/// Calico's names for how much is logged.
pub(crate) const LOG_LEVELS: &[&str] = &["panic", "fatal", "error", "warn", "info", "debug"];

/// The flags that every command accepts.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Globals {
    /// The name of the kubeconfig context to use.
    #[arg(long, global = true, value_name = "NAME", help_heading = GLOBAL)]
    pub context: Option<String>,
    /// Do not warn, or fail, when client and cluster are of different versions.
    #[arg(long, global = true, help_heading = GLOBAL)]
    pub allow_version_mismatch: bool,
    /// How much to log to standard error: panic, fatal, error, warn, info or debug.
    #[arg(
        long,
        short = 'l',
        global = true,
        value_name = "LEVEL",
        default_value = "panic",
        value_parser = Words::of(LOG_LEVELS),
        hide_possible_values = true,
        help_heading = GLOBAL
    )]
    pub log_level: String,
}

/// The flag of every command that talks to a datastore.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ConfigFlag {
    /// Path to the file containing connection configuration in YAML or JSON format.
    #[arg(long, short = 'c', value_name = "FILE", default_value = client::config::DEFAULT_CONFIG_PATH)]
    pub config: PathBuf,
}

/// What a command works with.
pub struct Context {
    /// Streams and environment.
    pub surroundings: Surroundings,
    /// The global flags.
    pub globals: Globals,
}

impl Surroundings {
    /// Those of this process. Colours only on a terminal that can show them, and not where `NO_COLOR` is set.
    #[must_use]
    pub fn of_process() -> Self {
        let environment = daemon::SystemEnvironment;
        let no_colour = environment.filled("NO_COLOR").is_some()
            || environment.variable("TERM").is_some_and(|terminal| terminal == "dumb");
        Self {
            stdin: Box::new(std::io::stdin()),
            stdout: Box::new(std::io::stdout()),
            stderr: Box::new(std::io::stderr()),
            environment: Box::new(environment),
            colours: std::io::stdout().is_terminal() && !no_colour,
            progress: std::io::stderr().is_terminal(),
            width: terminal_width(),
        }
    }
}

/// The width of the terminal on standard output.
fn terminal_width() -> Option<usize> {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?.ws_col;
    Some(usize::from(columns)).filter(|columns| *columns > 0)
}

impl Context {
    /// Writes to standard output at once, and says whether anybody still reads it.
    ///
    /// # Errors
    /// When the stream fails otherwise.
    pub fn print_now(&mut self, text: &str) -> Result<bool> {
        let stdout = &mut self.surroundings.stdout;
        match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes to standard output. A reader that went away is not an error.
    ///
    /// # Errors
    /// When the stream fails otherwise.
    pub fn print(&mut self, text: &str) -> Result<()> {
        match self.surroundings.stdout.write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes a line to standard error.
    pub fn warn(&mut self, text: &str) {
        // Only where both streams are terminals: then nobody reads them as data.
        let colours = self.surroundings.colours && self.surroundings.progress;
        // When standard error is gone there is nobody left to tell.
        let _ = writeln!(self.surroundings.stderr, "{}", paint::verdicts(text, colours));
    }

    /// The connection settings: the file, or the environment, with `--context` on top.
    ///
    /// # Errors
    /// All mistakes of the settings.
    pub fn client_config(&self, flag: &ConfigFlag) -> Result<ClientConfig> {
        let mut config = ClientConfig::load(Some(flag.config.as_path()), &*self.surroundings.environment)?;
        if let Some(context) = &self.globals.context {
            context.clone_into(&mut config.kubernetes.current_context);
        }
        Ok(config)
    }

    /// A client for reading that has not been used yet: what is wrong with the datastore shows at its first answer, for
    /// which [`Context::first_answer`] is there.
    ///
    /// # Errors
    /// When the settings are wrong, or an embedded store cannot be opened or is not there.
    pub async fn open(&self, flag: &ConfigFlag) -> Result<Opened> {
        self.open_for(flag, Access::Read).await
    }

    /// Connects for what the command is about to do: a command that only reads makes no embedded store.
    async fn open_for(&self, flag: &ConfigFlag, access: Access) -> Result<Opened> {
        let config = self.client_config(flag)?;
        let is_default = flag.config == Path::new(client::config::DEFAULT_CONFIG_PATH);
        let from_file = !is_default || self.surroundings.environment.exists(&flag.config);
        let target = describe(&config, from_file.then_some(flag.config.as_path()));
        let deadline = Instant::now() + CONNECT_DEADLINE;
        let purpose = match access {
            Access::Read => Purpose::Read,
            Access::Write => Purpose::Write,
        };
        match tokio::time::timeout_at(deadline, Client::open_for(&config, purpose)).await {
            Ok(Ok(client)) => Ok(Opened { client, target, deadline }),
            // These say themselves what to set.
            Ok(Err(error @ (OpenError::NotConfigured | OpenError::NoStore { .. }))) => {
                Err(Failure::new(error.to_string()))
            }
            Ok(Err(error)) => {
                Err(Failure::new(format!("Failed to create Calico API client: {error} ({target})")))
            }
            Err(_) => Err(no_answer(&target)),
        }
    }

    /// A client for reading that has answered once, or a message that says what was tried and which setting selected it.
    ///
    /// # Errors
    /// When the settings are wrong or the datastore does not answer in time.
    pub async fn connect(&self, flag: &ConfigFlag) -> Result<Client> {
        let opened = self.open(flag).await?;
        opened.cluster_information().await?;
        Ok(opened.client)
    }

    /// Connects for writing, to a cluster of any version.
    ///
    /// # Errors
    /// As [`Context::connect`].
    pub async fn connect_to_write(&self, flag: &ConfigFlag) -> Result<Client> {
        let opened = self.open_for(flag, Access::Write).await?;
        opened.cluster_information().await?;
        Ok(opened.client)
    }

    /// A client that has answered once, to a cluster whose version fits what the command is about to do.
    ///
    /// # Errors
    /// As [`Context::connect`], and when the command could damage data of the cluster's version.
    pub async fn connect_for(&mut self, flag: &ConfigFlag, access: Access) -> Result<Client> {
        let opened = self.open_for(flag, access).await?;
        let information = opened.cluster_information().await?;
        self.check_version(information.as_ref(), access)?;
        Ok(opened.client)
    }

    /// Compares the cluster's version with ours; warns, or fails where writing could lose data.
    ///
    /// # Errors
    /// When writing could lose data.
    pub fn check_version(&mut self, information: Option<&ClusterInformation>, access: Access) -> Result<()> {
        if self.globals.allow_version_mismatch {
            return Ok(());
        }
        let version = information.map_or("", |information| information.spec.calico_version.as_str());
        match version_gate::judge(version, access) {
            Verdict::Fine => Ok(()),
            Verdict::Warn(text) => {
                self.warn(&text);
                Ok(())
            }
            Verdict::Refuse(text) => Err(Failure::new(text)),
        }
    }
}

/// A client that has not been used yet, and what to say when it does not answer.
#[derive(Debug)]
pub struct Opened {
    /// The client.
    pub client: Client,
    target: String,
    deadline: Instant,
}

impl Opened {
    /// Waits for the first answer of the datastore, no longer than the deadline.
    ///
    /// # Errors
    /// When there is none in time, or the datastore cannot be reached; what else the operation failed with is its own.
    pub async fn first_answer<T>(
        &self,
        operation: impl Future<Output = client::Result<T>>,
    ) -> Result<client::Result<T>> {
        match tokio::time::timeout_at(self.deadline, operation).await {
            Err(_) => Err(no_answer(&self.target)),
            Ok(Err(error @ client::Error::Datastore { .. })) if error.is_transient() => Err(Failure::new(
                format!("cannot reach the datastore: {} ({})", Failure::from(error), self.target),
            )),
            Ok(outcome) => Ok(outcome),
        }
    }

    /// What the cluster says of itself; nothing where it says nothing, or does not let us read it.
    ///
    /// # Errors
    /// When the datastore does not answer.
    pub async fn cluster_information(&self) -> Result<Option<ClusterInformation>> {
        let informations = self.client.resource::<ClusterInformationSpec>();
        let outcome = self.first_answer(informations.get("", api::words::GLOBAL_NAME)).await?;
        match outcome {
            Ok(information) => Ok(Some(information)),
            // A user who may not read this may still be allowed what the command is for.
            Err(client::Error::DoesNotExist { .. } | client::Error::Unauthorized { .. }) => Ok(None),
            Err(error) => Err(Failure::new(format!(
                "unable to get Cluster Information to verify version mismatch: {error}\nUse --allow-version-mismatch to override"
            ))),
        }
    }
}

fn no_answer(target: &str) -> Failure {
    Failure::new(format!(
        "cannot reach the datastore: no answer within {} s ({target})",
        CONNECT_DEADLINE.as_secs()
    ))
}

/// Which datastore was meant and which setting says so; never a secret.
fn describe(config: &ClientConfig, file: Option<&Path>) -> String {
    let source = file.map_or_else(|| "the environment".to_owned(), |file| file.display().to_string());
    let target = config.target();
    format!("datastore: {target}; settings from {source}")
}
