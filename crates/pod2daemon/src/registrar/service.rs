//! Answers the kubelet's registration requests.

use crate::proto::registration::registration_server::Registration;
use crate::proto::registration::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use tokio::sync::mpsc;
use tonic::{Request, Response, Status};

/// The type of plugin.
const KIND: &str = "CSIPlugin";
/// The versions of CSI that the kubelet may use with the driver.
const VERSIONS: [&str; 1] = ["1.0.0"];

/// The registration of one driver.
pub(super) struct Registrar {
    pub(super) name: String,
    /// The driver's socket, as seen by the kubelet.
    pub(super) endpoint: String,
    /// Receives the error if the kubelet rejects the driver.
    pub(super) refuse: mpsc::Sender<String>,
}

#[tonic::async_trait]
impl Registration for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        tracing::debug!("the kubelet asks for the driver's registration");
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
            tracing::info!(driver = self.name, "the kubelet has accepted the driver");
        } else {
            // One refusal is enough.
            let _ = self.refuse.try_send(status.error);
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
