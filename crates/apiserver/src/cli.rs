//! The command line: `tortie apiserver`, `calico component apiserver`, `calico-apiserver`.

use crate::flags::Ignored;
use crate::openapi;
use anyhow::{Context as _, Result};
use clap::Args;
use daemon::SystemEnvironment;
use daemon::log::{LevelFilter, Log};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Serve `projectcalico.org/v3` as an aggregated API of a Kubernetes cluster.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The address to listen on; an unspecified one stands for all of them.
    #[arg(long, default_value = "::", value_name = "IP")]
    pub bind_address: String,
    /// The port to serve HTTPS on.
    #[arg(long, default_value_t = 443)]
    pub secure_port: u16,
    /// The folder for a self-signed certificate, used if no certificate is given.
    #[arg(long, default_value = "apiserver.local.config/certificates")]
    pub cert_dir: PathBuf,
    /// PEM file of the serving certificate. Changed contents are used at once.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// The kubeconfig of the cluster; if unset, the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The kubeconfig for identifying users; if unset, `--kubeconfig`.
    #[arg(long, value_name = "FILE")]
    pub authentication_kubeconfig: Option<PathBuf>,
    /// The kubeconfig for checking permissions; if unset, `--kubeconfig`.
    #[arg(long, value_name = "FILE")]
    pub authorization_kubeconfig: Option<PathBuf>,
    /// Do not read the cluster's authorities; use only those given by flags.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub authentication_skip_lookup: Option<bool>,
    /// Start even if the cluster's authorities cannot be read.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub authentication_tolerate_lookup_failure: Option<bool>,
    /// How long the user of a token is remembered.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub authentication_token_webhook_cache_ttl: Duration,
    /// How long a granted permission is remembered.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub authorization_webhook_cache_authorized_ttl: Duration,
    /// How long a denied permission is remembered.
    #[arg(long, default_value = "10s", value_parser = duration)]
    pub authorization_webhook_cache_unauthorized_ttl: Duration,
    /// Paths that need no permission. `/readyz` is not one of them: it shows whether permissions can be checked.
    #[arg(long, value_delimiter = ',', default_values = ["/healthz", "/livez"])]
    pub authorization_always_allow_paths: Vec<String>,
    /// PEM file of the authorities of clients' certificates; takes precedence over the cluster's.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// PEM file of the authorities of proxies' certificates; takes precedence over the cluster's.
    #[arg(long, value_name = "FILE")]
    pub requestheader_client_ca_file: Option<PathBuf>,
    /// The names that a proxy's certificate may have; if unset, any name.
    #[arg(long, value_delimiter = ',')]
    pub requestheader_allowed_names: Vec<String>,
    /// Headers for the name of a user.
    #[arg(long, value_delimiter = ',', default_values = ["x-remote-user"])]
    pub requestheader_username_headers: Vec<String>,
    /// Headers for the uid of a user.
    #[arg(long, value_delimiter = ',', default_values = ["x-remote-uid"])]
    pub requestheader_uid_headers: Vec<String>,
    /// Headers for the groups of a user.
    #[arg(long, value_delimiter = ',', default_values = ["x-remote-group"])]
    pub requestheader_group_headers: Vec<String>,
    /// Prefixes of headers for everything else that is known of a user.
    #[arg(long, value_delimiter = ',', default_values = ["x-remote-extra-"])]
    pub requestheader_extra_headers_prefix: Vec<String>,
    /// Write the OpenAPI document to a file and exit.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    pub print_swagger: Option<bool>,
    /// The folder for that file, `swagger.json`.
    #[arg(long, default_value = "./", value_name = "DIR")]
    pub swagger_file_path: PathBuf,
    /// How much is logged: 0 to 4 for important messages, more for everything.
    #[arg(short = 'v', long = "v", default_value_t = 0, value_name = "LEVEL")]
    pub verbosity: u8,
    /// Flags that are accepted without effect.
    #[command(flatten)]
    pub ignored: Ignored,
}

fn duration(text: &str) -> Result<Duration, String> {
    api::scalars::Duration::from(text).parse().map_err(|error| error.to_string())
}

/// Runs the server until a signal ends it.
///
/// # Errors
/// When it cannot start.
pub fn main(arguments: &Arguments) -> Result<ExitCode> {
    let level = if arguments.verbosity > 5 { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let _log = Log::start(level);
    arguments.ignored.warn();
    if arguments.print_swagger == Some(true) {
        let file = arguments.swagger_file_path.join("swagger.json");
        std::fs::write(&file, &openapi::v2().json).with_context(|| format!("writing {}", file.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        crate::run::run(arguments, &SystemEnvironment, shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        Command::try_parse_from(std::iter::once("x").chain(line.split_whitespace()))
            .map(|found| found.arguments)
    }

    #[test]
    fn flags_of_manifests_are_accepted() {
        let found = parse("--secure-port=5443 -v=5").unwrap();
        assert_eq!((found.secure_port, found.verbosity, found.ignored.given.len()), (5443, 5, 0));
        let found = parse(
            "--secure-port=5443 --tls-cert-file=/a --tls-private-key-file=/b --audit-policy-file=/c --profiling=false \
             --enable-validating-admission-policy=false --etcd-servers http://x --authorization-always-allow-paths=/a,/b",
        )
        .unwrap();
        assert_eq!(
            found.ignored.given,
            ["audit-policy-file", "etcd-servers", "enable-validating-admission-policy", "profiling"]
        );
        assert_eq!(found.authorization_always_allow_paths, ["/a", "/b"]);
        assert_eq!(found.authorization_webhook_cache_authorized_ttl, Duration::from_secs(10));
        assert!(parse("--tls-cert-file=/a").is_err() && parse("--no-such-flag").is_err());
    }
}
