//! The paths, without sockets.

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

/// How many streams there may be at once, as Goldmane has it.
const STREAMS: usize = 100;

/// What every answer needs.
pub(crate) struct App {
    /// Where flows come from.
    pub(crate) source: Arc<dyn Source>,
    pub(crate) page: Page,
    pub(crate) access: Access,
    pub(crate) policies: Policies,
    /// `/config/config.json`.
    pub(crate) config: String,
    /// Places for streams.
    pub(crate) streams: Arc<Semaphore>,
}

/// What is served.
pub struct Options {
    /// Who may ask.
    pub access: Access,
    /// Where the cluster's policies are.
    pub policies: Policies,
    /// A folder to serve the page from, in the place of the one that is built in.
    pub page_dir: Option<std::path::PathBuf>,
    /// What `/config/config.json` says.
    pub config: ClusterConfig,
}

/// What Calico's page wants to know of the cluster.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct ClusterConfig {
    /// The cluster's id.
    pub cluster_id: String,
    /// Its type.
    pub cluster_type: String,
    /// The version of Calico.
    pub calico_version: String,
    /// Whether Calico's page shows notices: `Enabled` or `Disabled`.
    pub notifications: String,
    /// Where Calico's page gets them from. Ours asks nobody.
    pub calico_cloud_url: String,
}

/// The service for these flows.
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
