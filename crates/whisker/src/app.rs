//! The paths, independent of sockets.

use crate::access::{self, Access};
use crate::page::Page;
use crate::source::Source;
use crate::stored::Policies;
use crate::{compatible, own, page};
use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use std::sync::Arc;
use tokio::sync::Semaphore;

/// The maximum number of concurrent streams, as in Goldmane.
const STREAMS: usize = 100;

/// State shared by all requests.
pub(crate) struct App {
    /// The source of flows.
    pub(crate) source: Arc<dyn Source>,
    pub(crate) page: Page,
    pub(crate) access: Access,
    pub(crate) policies: Policies,
    /// The body of `/config/config.json`.
    pub(crate) config: String,
    /// Permits for streams.
    pub(crate) streams: Arc<Semaphore>,
}

/// Options of the service.
pub struct Options {
    /// The rules for access.
    pub access: Access,
    /// The source of the cluster's policies.
    pub policies: Policies,
    /// A folder to serve the page from instead of the built-in one.
    pub page_dir: Option<std::path::PathBuf>,
    /// The content of `/config/config.json`.
    pub config: ClusterConfig,
}

/// Facts about the cluster for Calico's page.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ClusterConfig {
    /// The cluster's id.
    pub cluster_id: String,
    /// The cluster's type.
    pub cluster_type: String,
    /// The version of Calico.
    pub calico_version: String,
    /// Whether Calico's page shows notices: `Enabled` or `Disabled`.
    pub notifications: String,
    /// Where Calico's page gets notices from. Our page does not fetch any.
    pub calico_cloud_url: String,
}

/// Creates the service for a source of flows.
pub fn service(source: Arc<dyn Source>, options: Options) -> Router {
    let config = serde_json::json!({ "config": options.config }).to_string();
    let app = Arc::new(App {
        source,
        page: Page::new(options.page_dir),
        access: options.access,
        policies: options.policies,
        config,
        streams: Arc::new(Semaphore::new(STREAMS)),
    });
    let data = Router::new()
        .route("/flows", get(compatible::flows))
        .route("/flows-filter-hints", get(compatible::hints));
    Router::new()
        .merge(data.clone())
        .nest("/whisker-backend", data)
        .nest("/api/v1", own::routes())
        .route("/config/config.json", get(compatible::config))
        .route("/liveness", get(own::liveness))
        .route("/readiness", get(own::readiness))
        .fallback(get(page::page))
        .layer(from_fn_with_state(Arc::clone(&app), access::guard))
        .with_state(app)
}
