//! What every command needs: streams, the global flags, and a client that is connected within a deadline.
//!
//! Streams and environment are injected, so that a test can run a whole command in its own process and read what a user
//! would see.

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

/// How long a datastore may take to answer before the command gives up and reports what it tried.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(4);

/// Standard streams and the environment: the real ones, or a test's.
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
    /// How many columns help is wrapped to; `None` leaves lines as long as they are.
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
    /// The surroundings of this process. Colours only on a terminal that can show them, and not where `NO_COLOR` is
    /// set.
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
    /// Writes to standard output and flushes it. False when the reader has gone away.
    ///
    /// # Errors
    /// When the stream fails for another reason.
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
    /// When the stream fails for another reason.
    pub fn print(&mut self, text: &str) -> Result<()> {
        match self.surroundings.stdout.write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// Writes a line to standard error.
    pub fn warn(&mut self, text: &str) {
        // Only where both streams are terminals: then their text is not parsed as data.
        let colours = self.surroundings.colours && self.surroundings.progress;
        // If standard error is gone, there is nowhere left to report it.
        let _ = writeln!(self.surroundings.stderr, "{}", paint::verdicts(text, colours));
    }

    /// The connection settings: the file, or the environment, with `--context` on top.
    ///
    /// # Errors
    /// With all mistakes in the settings.
    pub fn client_config(&self, flag: &ConfigFlag) -> Result<ClientConfig> {
        let mut config = ClientConfig::load(Some(flag.config.as_path()), &*self.surroundings.environment)?;
        if let Some(context) = &self.globals.context {
            context.clone_into(&mut config.kubernetes.current_context);
        }
        Ok(config)
    }

    /// A client for reading that has not been used yet: problems with the datastore show at its first answer, which
    /// [`Context::first_answer`] waits for.
    ///
    /// # Errors
    /// When the settings are wrong, or an embedded store cannot be opened or does not exist.
    pub async fn open(&self, flag: &ConfigFlag) -> Result<Opened> {
        self.open_for(flag, Access::Read).await
    }

    /// Connects with the access that the command needs: a command that only reads does not create an embedded store.
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
            // These messages already name what to set.
            Ok(Err(error @ (OpenError::NotConfigured | OpenError::NoStore { .. }))) => {
                Err(Failure::new(error.to_string()))
            }
            Ok(Err(error)) => {
                Err(Failure::new(format!("Failed to create Calico API client: {error} ({target})")))
            }
            Err(_) => Err(no_answer(&target)),
        }
    }

    /// A client for reading that has answered once; otherwise an error that names what was tried and which setting
    /// selected it.
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

/// A client that has not been used yet, and the message for when it does not answer.
#[derive(Debug)]
pub struct Opened {
    /// The client.
    pub client: Client,
    target: String,
    deadline: Instant,
}

impl Opened {
    /// Waits for the first answer of the datastore, at most until the deadline.
    ///
    /// # Errors
    /// When there is no answer in time, or the datastore cannot be reached. Other failures are returned in the inner
    /// result.
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

    /// The cluster's information about itself; `None` where there is none, or this user may not read it.
    ///
    /// # Errors
    /// When the datastore does not answer.
    pub async fn cluster_information(&self) -> Result<Option<ClusterInformation>> {
        let informations = self.client.resource::<ClusterInformationSpec>();
        let outcome = self.first_answer(informations.get("", api::words::GLOBAL_NAME)).await?;
        match outcome {
            Ok(information) => Ok(Some(information)),
            // A user who may not read this may still be allowed to do what the command needs.
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

/// The datastore and the setting that selected it; never a secret.
fn describe(config: &ClientConfig, file: Option<&Path>) -> String {
    let source = file.map_or_else(|| "the environment".to_owned(), |file| file.display().to_string());
    let target = config.target();
    format!("datastore: {target}; settings from {source}")
}
