//! The command line of `tortie datastore`: etcd's own flag names, so that unit files and habits carry over. Flags of a
//! cluster member that mean nothing here are accepted with a warning. [`run`] is all of `tortie datastore`;
//! [`Arguments::config`] is the part without a process around it.

use std::{path::PathBuf, time::Duration};

use anyhow::Context as _;
use clap::Args;

use kvstore_engine::Options;

use crate::server::{self, AutoCompaction, Config, Endpoint, EndpointError, TlsFiles};

/// Runs the embedded store: etcd's v3 API on one file.
#[derive(Debug, Clone, Args)]
pub struct Arguments {
    /// Directory of the store; created if it does not exist, accessible by its owner alone.
    #[arg(long, env = "ETCD_DATA_DIR", default_value = "default.etcd")]
    pub data_dir: PathBuf,
    /// Addresses to listen on, separated by commas: http://HOST:PORT, https://HOST:PORT, unix:///PATH. The socket
    /// tortie.sock in the data directory always exists, too.
    #[arg(
        long,
        env = "ETCD_LISTEN_CLIENT_URLS",
        value_delimiter = ',',
        default_value = "http://localhost:2379"
    )]
    pub listen_client_urls: Vec<String>,
    /// Addresses at which clients are told to reach the store.
    #[arg(long, env = "ETCD_ADVERTISE_CLIENT_URLS", value_delimiter = ',')]
    pub advertise_client_urls: Vec<String>,
    /// Name of this member.
    #[arg(long, env = "ETCD_NAME", default_value = "default")]
    pub name: String,
    /// Certificate of the server, PEM.
    #[arg(long, env = "ETCD_CERT_FILE", requires = "key_file")]
    pub cert_file: Option<PathBuf>,
    /// Key of the server's certificate, PEM.
    #[arg(long, env = "ETCD_KEY_FILE", requires = "cert_file")]
    pub key_file: Option<PathBuf>,
    /// Refuse clients without a certificate signed by --trusted-ca-file.
    #[arg(long, env = "ETCD_CLIENT_CERT_AUTH", requires = "trusted_ca_file", num_args = 0..=1,
          default_missing_value = "true", default_value = "false", require_equals = true)]
    pub client_cert_auth: bool,
    /// Authorities that sign clients' certificates, PEM.
    #[arg(long, env = "ETCD_TRUSTED_CA_FILE", requires = "cert_file")]
    pub trusted_ca_file: Option<PathBuf>,
    /// What --auto-compaction-retention counts: periodic or revision.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_MODE", default_value = "periodic")]
    pub auto_compaction_mode: String,
    /// How much history to keep: hours, a duration like 30m, or a number of revisions. 0 keeps all.
    #[arg(long, env = "ETCD_AUTO_COMPACTION_RETENTION", default_value = "0")]
    pub auto_compaction_retention: String,
    /// Bytes of data above which writes are refused; 0 for 2 GiB, negative for no limit.
    #[arg(long, env = "ETCD_QUOTA_BACKEND_BYTES", default_value_t = 0, allow_negative_numbers = true)]
    pub quota_backend_bytes: i64,
    /// Largest request, in bytes.
    #[arg(long, env = "ETCD_MAX_REQUEST_BYTES", default_value_t = 1_572_864)]
    pub max_request_bytes: usize,
    /// Most operations in one transaction.
    #[arg(long, env = "ETCD_MAX_TXN_OPS", default_value_t = 128)]
    pub max_txn_ops: usize,
    /// How often idle watches get a progress report.
    #[arg(long, env = "ETCD_EXPERIMENTAL_WATCH_PROGRESS_NOTIFY_INTERVAL", default_value = "10m")]
    pub experimental_watch_progress_notify_interval: String,
    /// Accepted for compatibility with etcd; there is no replicated log to cut.
    #[arg(long, env = "ETCD_SNAPSHOT_COUNT")]
    pub snapshot_count: Option<u64>,
    /// Accepted for compatibility with etcd; there are no other members.
    #[arg(long, env = "ETCD_HEARTBEAT_INTERVAL")]
    pub heartbeat_interval: Option<u64>,
    /// Accepted for compatibility with etcd; there are no elections.
    #[arg(long, env = "ETCD_ELECTION_TIMEOUT")]
    pub election_timeout: Option<u64>,
    /// Level of the log: debug, info, warn, error.
    #[arg(long, env = "ETCD_LOG_LEVEL", default_value = "info")]
    pub log_level: String,
    /// Create a new store from this snapshot (taken with `etcdctl snapshot save` from this program), then serve it.
    #[arg(long, value_name = "FILE")]
    pub restore: Option<PathBuf>,
}

/// What is wrong with the arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgsError {
    /// An address to listen on.
    #[error("--listen-client-urls: {0}")]
    Listen(#[from] EndpointError),
    /// The mode of automatic compaction.
    #[error("--auto-compaction-mode: {0:?} is neither periodic nor revision")]
    Mode(String),
    /// What automatic compaction keeps.
    #[error("--auto-compaction-retention: {0:?} is neither a number nor a duration like 30m")]
    Retention(String),
    /// The interval of progress reports.
    #[error("--experimental-watch-progress-notify-interval: {0:?} is not a duration like 10m")]
    Progress(String),
    /// `https` without a certificate.
    #[error("{0} needs --cert-file and --key-file")]
    Certificate(String),
}

impl Arguments {
    /// The server's configuration.
    ///
    /// # Errors
    /// When a flag is wrong; the error names it.
    pub fn config(&self) -> Result<Config, ArgsError> {
        let listen = self
            .listen_client_urls
            .iter()
            .filter(|text| !text.is_empty())
            .map(|text| text.parse())
            .collect::<Result<Vec<Endpoint>, _>>()?;
        let tls = match (&self.cert_file, &self.key_file) {
            (Some(cert_file), Some(key_file)) => Some(TlsFiles {
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
                // As in etcd, authorities without --client-cert-auth still cause clients to be checked.
                trusted_ca_file: self.trusted_ca_file.clone(),
            }),
            _ => None,
        };
        let secure = |endpoint: &&Endpoint| {
            matches!(endpoint, Endpoint::Tcp { tls: true, .. } | Endpoint::Unix { tls: true, .. })
        };
        if let (None, Some(endpoint)) = (&tls, listen.iter().find(secure)) {
            return Err(ArgsError::Certificate(endpoint.to_string()));
        }
        let progress = &self.experimental_watch_progress_notify_interval;
        Ok(Config {
            name: self.name.clone(),
            listen,
            advertise: self.advertise_client_urls.iter().filter(|url| !url.is_empty()).cloned().collect(),
            tls,
            options: Options {
                max_request_bytes: self.max_request_bytes,
                max_txn_ops: self.max_txn_ops,
                quota_bytes: match self.quota_backend_bytes {
                    0 => Options::default().quota_bytes,
                    // Negative means no limit.
                    bytes => u64::try_from(bytes).unwrap_or(0),
                },
                ..Options::default()
            },
            auto_compaction: self.auto_compaction()?,
            progress_interval: duration(progress).ok_or_else(|| ArgsError::Progress(progress.clone()))?,
            restore: self.restore.clone(),
            ..Config::new(&self.data_dir)
        })
    }

    /// The given flags that have no effect here.
    #[must_use]
    pub fn ignored(&self) -> Vec<&'static str> {
        let given = [
            (self.snapshot_count.is_some(), "--snapshot-count"),
            (self.heartbeat_interval.is_some(), "--heartbeat-interval"),
            (self.election_timeout.is_some(), "--election-timeout"),
        ];
        given.into_iter().filter(|(given, _)| *given).map(|(_, name)| name).collect()
    }

    fn auto_compaction(&self) -> Result<AutoCompaction, ArgsError> {
        let text = self.auto_compaction_retention.as_str();
        let wrong = || ArgsError::Retention(text.to_owned());
        let number = text.parse::<u32>().ok();
        match (self.auto_compaction_mode.as_str(), number) {
            ("periodic" | "revision", Some(0)) => Ok(AutoCompaction::Off),
            ("periodic", Some(hours)) => {
                Ok(AutoCompaction::Periodic(Duration::from_secs(u64::from(hours) * 3600)))
            }
            ("periodic", None) => match duration(text).ok_or_else(wrong)? {
                Duration::ZERO => Ok(AutoCompaction::Off),
                retention => Ok(AutoCompaction::Periodic(retention)),
            },
            ("revision", Some(revisions)) => Ok(AutoCompaction::Revision(i64::from(revisions))),
            ("revision", None) => Err(wrong()),
            (mode, _) => Err(ArgsError::Mode(mode.to_owned())),
        }
    }
}

/// Serves until the process is asked to stop (SIGINT, SIGTERM).
///
/// # Errors
/// When an argument is wrong or the server cannot start.
pub fn run(arguments: Arguments) -> anyhow::Result<()> {
    let config = arguments.config()?;
    let level = daemon::log::level(&arguments.log_level)
        .with_context(|| format!("--log-level: {:?} is not a level", arguments.log_level))?;
    let _log = daemon::log::Log::start(level);
    for flag in arguments.ignored() {
        tracing::warn!("{flag} has no effect: the embedded store is not a cluster member");
    }
    drop(arguments);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served: anyhow::Result<()> = runtime.block_on(async {
        let shutdown = daemon::signals::end()?;
        // The text already includes its causes; as a chain they would be printed again.
        server::run(config, shutdown).await.map_err(|error| anyhow::anyhow!("{error}"))
    });
    // Does not wait for requests that are still being answered after the grace period.
    runtime.shutdown_timeout(Duration::from_millis(100));
    served
}

/// A duration as Go writes it: numbers with units, like `1h30m` or `1.5s`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, tail) = rest.split_at(digits);
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(unit_end);
        let seconds = match unit {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let part = Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()?;
        total = total.checked_add(part)?;
        rest = tail;
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Arguments,
    }

    fn config(args: &[&str]) -> Result<Config, ArgsError> {
        Cli::try_parse_from([&["datastore"], args].concat()).unwrap().args.config()
    }

    #[test]
    fn durations_parse_like_go() {
        for (text, seconds) in [("30m", 1800.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("250ms", 0.25)] {
            assert_eq!(duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "5", "m", "1x", "1..2s", "1h2"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }

    #[test]
    fn flags_become_a_configuration() {
        let it = config(&[
            "--data-dir=/d",
            "--listen-client-urls=http://127.0.0.1:1,unix:///s",
            "--auto-compaction-retention=5m",
            "--quota-backend-bytes=-1",
        ])
        .unwrap();
        assert_eq!(it.listen.len(), 2);
        assert_eq!(it.auto_compaction, AutoCompaction::Periodic(Duration::from_secs(300)));
        assert_eq!(it.options.quota_bytes, 0);
        let revisions = config(&["--auto-compaction-mode=revision", "--auto-compaction-retention=1000"]);
        assert_eq!(revisions.unwrap().auto_compaction, AutoCompaction::Revision(1000));
    }

    #[test]
    fn mistakes_name_the_flag() {
        for (args, flag) in [
            (["--listen-client-urls=nonsense", "--name=x"], "--listen-client-urls"),
            (["--auto-compaction-mode=daily", "--name=x"], "--auto-compaction-mode"),
            (["--auto-compaction-retention=soon", "--name=x"], "--auto-compaction-retention"),
            (["--listen-client-urls=https://a:1", "--name=x"], "--cert-file"),
        ] {
            assert!(config(&args).unwrap_err().to_string().contains(flag), "{args:?}");
        }
    }
}
