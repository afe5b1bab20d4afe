//! The admission webhooks of clusters where kube-apiserver serves `projectcalico.org/v3` itself: tier permissions for
//! writes, and the restriction of who may write ClusterInformation. Without an aggregated server nothing else would
//! check these.
//!
//! - [`reviews`]: the questions of a review and the meaning of the answers; pure.
//! - here: the server around it, with Calico's flags and paths.
//!
//! Reads are not covered: admission never sees them.

pub mod reviews;

use crate::access::User;
use crate::access::reviews::{Reviews, Subject, Times};
use crate::respond::{Answer, answer, json_answer};
use crate::serve::serve;
use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::{Args, Subcommand};
use daemon::log::{Log, level};
use daemon::{Environment, Shutdown, SystemEnvironment};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Body;
use kube_access::KubeAccess;
use kube_access::access::SERVICE_ACCOUNT_DIR;
use kube_access::cluster::{Cluster, encode};
use manifests::webhooks::{mutating_policies, service, validating_policies, webhook_configuration};
use reviews::{TierReview, Verdict, cluster_information};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tls::{ClientAuth, Renewing, TlsFiles};
use tokio::net::TcpListener;

/// The longest review, in bytes: enough for the largest object that Kubernetes stores.
const LIMIT: usize = 3 << 20;
/// How long one review may take.
const REVIEW: Duration = Duration::from_secs(10);

/// The admission webhooks.
#[derive(Clone, Debug, Args)]
pub struct Arguments {
    /// The command.
    #[command(subcommand)]
    pub command: WebhooksCommand,
}

/// The commands of the component.
#[derive(Clone, Debug, Subcommand)]
pub enum WebhooksCommand {
    /// Start an HTTPS server for the admission webhooks.
    Webhook(ServerArguments),
    /// Print the objects that clusters without the API server need for admission, for `kubectl apply -f -`.
    Manifest(ManifestArguments),
    /// Print the version.
    Version,
}

/// The flags of `manifest`.
#[derive(Clone, Debug, Args)]
pub struct ManifestArguments {
    /// PEM file of the authority that signed the webhooks' certificate. Without it only the admission policies are
    /// printed.
    #[arg(long, value_name = "FILE")]
    pub ca_file: Option<PathBuf>,
    /// The namespace of the webhooks' Service, calico-webhooks.
    #[arg(long, default_value = "calico-system")]
    pub namespace: String,
}

impl ManifestArguments {
    fn text(&self) -> Result<String> {
        let mut items = mutating_policies("v1");
        items.extend(validating_policies());
        if let Some(file) = &self.ca_file {
            let bundle = std::fs::read(file).with_context(|| format!("reading {}", file.display()))?;
            let bundle = STANDARD.encode(bundle);
            items.push(webhook_configuration(|path| service(&self.namespace, path, &bundle)));
        }
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        Ok(format!("{}\n", serde_json::to_string_pretty(&list)?))
    }
}

/// The server's flags.
#[derive(Clone, Debug, Args)]
pub struct ServerArguments {
    /// PEM file of the serving certificate.
    #[arg(long, value_name = "FILE", required = true)]
    pub tls_cert_file: PathBuf,
    /// PEM file of its key.
    #[arg(long, value_name = "FILE", required = true)]
    pub tls_private_key_file: PathBuf,
    /// Accept only clients with a certificate signed by these authorities.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The port to listen on.
    #[arg(long, default_value_t = 6443)]
    pub port: u16,
    /// How much is logged: trace, debug, info, warning, error, fatal or panic.
    #[arg(long, default_value = "info")]
    pub log_level: String,
}

/// Runs the component.
///
/// # Errors
/// When it cannot start.
pub fn main(arguments: &Arguments, version: &str) -> Result<ExitCode> {
    let server = match &arguments.command {
        WebhooksCommand::Version => return Ok(daemon::exit::print(&format!("{version}\n"))?),
        WebhooksCommand::Manifest(arguments) => return Ok(daemon::exit::print(&arguments.text()?)?),
        WebhooksCommand::Webhook(server) => server,
    };
    let level =
        level(&server.log_level).with_context(|| format!("invalid log level: {}", server.log_level))?;
    let _log = Log::start(level);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let shutdown = daemon::signals::shutdown()?;
        run(server, &SystemEnvironment, Path::new(SERVICE_ACCOUNT_DIR), shutdown).await
    })?;
    Ok(ExitCode::SUCCESS)
}

/// What reviews are judged by.
struct Judge {
    reviews: Reviews,
    cluster: Cluster,
    namespace: String,
}

/// Serves until shutdown. The folder of the service account also determines the namespace this runs in.
///
/// # Errors
/// When settings are unusable, or the port cannot be listened on.
pub async fn run(
    arguments: &ServerArguments,
    environment: &(dyn Environment + Send + Sync),
    service_account: &Path,
    shutdown: Shutdown,
) -> Result<()> {
    let access = KubeAccess::open(environment, service_account).await?;
    let file = service_account.join("namespace");
    let namespace = std::fs::read_to_string(&file)
        .with_context(|| format!("cannot read our namespace from {}", file.display()))?;
    let times =
        Times { token: Duration::ZERO, allowed: Duration::from_secs(5), refused: Duration::from_secs(5) };
    let cluster = Cluster::new(&access);
    let judge = Arc::new(Judge {
        reviews: Reviews::new(None, Some(cluster.clone()), times),
        cluster,
        namespace: namespace.trim().to_owned(),
    });
    let certificates = Renewing::new(TlsFiles {
        certificate: arguments.tls_cert_file.clone(),
        key: arguments.tls_private_key_file.clone(),
        authorities: arguments.client_ca_file.clone().unwrap_or_default(),
        client_auth: if arguments.client_ca_file.is_some() {
            ClientAuth::RequireAndVerify
        } else {
            ClientAuth::None
        },
        protocols: &["h2", "http/1.1"],
    });
    certificates.current_or_last().context("the serving certificate")?;
    let listener = match TcpListener::bind(("::", arguments.port)).await {
        Err(_) => TcpListener::bind(("0.0.0.0", arguments.port)).await,
        listener => listener,
    };
    let listener = listener.with_context(|| format!("cannot listen on port {}", arguments.port))?;
    tracing::info!(port = arguments.port, namespace = judge.namespace, "serving admission webhooks");
    serve(listener, certificates, shutdown, move |_, request| {
        let judge = Arc::clone(&judge);
        async move { judge.respond(request).await }
    })
    .await;
    Ok(())
}

fn text(code: StatusCode, text: &str) -> Answer {
    answer(code, "text/plain; charset=utf-8", format!("{text}\n"))
}

impl Judge {
    async fn respond<B>(&self, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Send + Unpin,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let path = request.uri().path().to_owned();
        if path == "/readyz" {
            return answer(StatusCode::OK, "text/plain; charset=utf-8", "ok");
        }
        if !matches!(path.as_str(), "/rbac" | "/cluster-info") {
            return text(StatusCode::NOT_FOUND, "404 page not found");
        }
        let content = request.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        if !content.is_some_and(|content| content.contains("application/json")) {
            return text(StatusCode::BAD_REQUEST, "invalid Content-Type, expected `application/json`");
        }
        let body = match Limited::new(request.into_body(), LIMIT).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.downcast_ref::<http_body_util::LengthLimitError>().is_some() => {
                return text(StatusCode::PAYLOAD_TOO_LARGE, "http: request body too large");
            }
            Err(error) => {
                return text(StatusCode::BAD_REQUEST, &format!("could not read request body: {error}"));
            }
        };
        let review: Value = match serde_json::from_slice(&body) {
            Ok(review) => review,
            Err(error) => {
                return text(StatusCode::BAD_REQUEST, &format!("request could not be decoded: {error}"));
            }
        };
        if review["kind"] != "AdmissionReview" || review["apiVersion"] != "admission.k8s.io/v1" {
            return text(StatusCode::BAD_REQUEST, "expected an AdmissionReview of admission.k8s.io/v1");
        }
        let request = &review["request"];
        let verdict = match path.as_str() {
            "/cluster-info" => cluster_information(request, &self.namespace),
            _ => match tokio::time::timeout(REVIEW, self.tier(request)).await {
                Ok(verdict) => verdict,
                Err(_) => Verdict::refused("InternalError", "Kubernetes did not answer in time"),
            },
        };
        json_answer(StatusCode::OK, &verdict.to_review(request["uid"].as_str().unwrap_or_default()))
    }

    async fn tier(&self, request: &Value) -> Verdict {
        let review = match TierReview::read(request) {
            Ok(review) => review,
            Err(verdict) => return verdict,
        };
        if let Err(reason) = self.ask(&review.user, &review, review.first_tier()).await {
            return Verdict::refused("Forbidden", format!("Authorization failed: {reason}"));
        }
        if let Some(tier) = &review.new_tier
            && let Some(verdict) = self.check_tier(tier).await
        {
            return verdict;
        }
        if let Some(tier) = review.left_tier()
            && let Err(reason) = self.ask(&review.user, &review, tier).await
        {
            return Verdict::refused("Forbidden", format!("Authorization failed for old tier: {reason}"));
        }
        Verdict::Allowed
    }

    async fn ask(&self, user: &User, review: &TierReview, tier: &str) -> Result<(), String> {
        let act = review.act();
        let [first, second, third] = act.questions(tier).all().map(Subject::Object);
        let may = |subject| self.reviews.may(user, subject);
        let asked = tokio::try_join!(may(&first), may(&second), may(&third));
        let decided = asked.and_then(|(first, second, third)| {
            act.decide(
                &user.name,
                tier,
                &review.name,
                [first, second, third].map(|permission| permission.is_allowed),
            )
        });
        decided.map_err(|refusal| refusal.message)
    }

    /// Checks that the tier of a policy exists and is not being deleted.
    async fn check_tier(&self, tier: &str) -> Option<Verdict> {
        let path = format!("/apis/projectcalico.org/v3/tiers/{}", encode(tier));
        let found: Result<Value, _> = self.cluster.get("read a tier", &path).await;
        match found {
            Ok(found) if found.pointer("/metadata/deletionTimestamp").is_some() => {
                Some(Verdict::refused("Forbidden", format!("Tier {tier:?} is being deleted")))
            }
            Ok(_) => None,
            Err(error) if error.is_not_found() => {
                Some(Verdict::refused("Forbidden", format!("Tier {tier:?} does not exist")))
            }
            Err(error) => {
                Some(Verdict::refused("InternalError", format!("Failed to verify tier existence: {error}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn the_manifest_has_policies_and_the_webhooks_address() -> Result<()> {
        let folder = testkit::Folder::new("manifest")?;
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, "ca")?;
        let kinds = |ca_file: Option<PathBuf>| -> Result<(Vec<String>, Value)> {
            let arguments = ManifestArguments { ca_file, namespace: "n".into() };
            let list: Value = serde_json::from_str(&arguments.text()?)?;
            let items = list["items"].as_array().context("items")?;
            let kinds = items.iter().map(|item| item["kind"].as_str().unwrap_or_default().to_owned());
            Ok((kinds.collect(), items.last().cloned().unwrap_or_default()))
        };
        let (policies, _) = kinds(None)?;
        assert_eq!(policies.len(), 6, "{policies:?}");
        let (all, last) = kinds(Some(file))?;
        assert_eq!(all.last().map(String::as_str), Some("ValidatingWebhookConfiguration"));
        let client = &last["webhooks"][0]["clientConfig"];
        assert_eq!((&client["caBundle"], &client["service"]["path"]), (&json!("Y2E="), &json!("/rbac")));
        assert!(kinds(Some(folder.path().join("none"))).is_err());
        Ok(())
    }

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn the_command_line_of_manifests_is_accepted() {
        let options = manifests::Options::new(manifests::Like::Calico, "registry.example.org", "v1");
        let objects = manifests::webhooks::objects(&options, "Y2E=");
        let container = objects.iter().flat_map(manifests::Object::containers).next().expect("a container");
        let words = container["args"].as_array().expect("arguments").iter().filter_map(Value::as_str);
        let line = Line::try_parse_from(words.skip(1)).unwrap_or_else(|error| panic!("{error}"));
        let WebhooksCommand::Webhook(server) = line.arguments.command else { panic!("another command") };
        assert_eq!((server.port, server.tls_cert_file.as_path()), (6443, Path::new("/certs/tls.crt")));
    }
}
