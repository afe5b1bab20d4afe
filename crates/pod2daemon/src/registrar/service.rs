//! What the kubelet asks a registrar, and what it tells it.

use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// The kind of plugin.
const KIND: &str = "CSIPlugin";
/// The versions of CSI that the kubelet may speak with the driver.
const VERSIONS: [&str; 1] = ["1.0.0"];

/// Speaks for one driver.
pub(super) struct Registrar {
    pub(super) name: String,
    /// Its socket, as the kubelet sees it.
    pub(super) endpoint: String,
    /// Where it is told that the kubelet does not take the driver.
    pub(super) refuse: mpsc::Sender<String>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        tracing::debug!("somebody asks who is there");
        Ok(Response::new(PluginInfo {
            r#type: KIND.to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.clone(),
            supported_versions: VERSIONS.map(str::to_owned).to_vec(),
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        if status.plugin_registered {
            tracing::info!(driver = self.name, "the kubelet takes the driver");
        } else {
            // One refusal is enough.
            let _ = self.refuse.try_send(status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
