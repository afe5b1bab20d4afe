//! The services Identity and Node.

use super::request;
use crate::proto::csi::identity_server::Identity as IdentityService;
use crate::proto::csi::node_server::Node as NodeService;
use crate::proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse, NodeGetInfoRequest, NodeGetInfoResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse, ProbeRequest, ProbeResponse,
};
use crate::volume::{self, Error, Homes};
use std::sync::Arc;
use tokio::sync::Mutex;
use tonic::{Request, Response, Status};

/// The driver's name in pods and in the CSIDriver object.
pub(crate) const NAME: &str = "csi.tigera.io";

/// The Identity service.
pub(super) struct Identity;

#[tonic::async_trait]
impl IdentityService for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        let vendor_version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Response::new(GetPluginInfoResponse { name: NAME.to_owned(), vendor_version }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse {}))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

/// The Node service: volumes of one node.
pub(super) struct Node {
    name: String,
    homes: Arc<Homes>,
    /// Two calls for one volume must not run concurrently, and no call takes longer than a few milliseconds.
    turn: Mutex<()>,
}

impl Node {
    pub(super) fn new(name: String, homes: Homes) -> Self {
        Self { name, homes: Arc::new(homes), turn: Mutex::new(()) }
    }

    /// Does the work in a thread that may block.
    async fn work(
        &self,
        work: impl FnOnce(&Homes) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Status> {
        let _turn = self.turn.lock().await;
        let homes = Arc::clone(&self.homes);
        let outcome = tokio::task::spawn_blocking(move || work(&homes)).await;
        let outcome = outcome.map_err(|error| Status::internal(error.to_string()))?;
        outcome.map_err(|error| {
            tracing::error!(%error, "a volume could not be created or removed");
            request::status(&error)
        })
    }
}

#[tonic::async_trait]
impl NodeService for Node {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let volume = request::publish(request.into_inner())?;
        self.work(move |homes| volume::publish(homes, &volume)).await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let (name, target) = request::unpublish(request.into_inner())?;
        self.work(move |homes| volume::unpublish(homes, &name, &target)).await?;
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(NodeGetCapabilitiesResponse {}))
    }

    async fn node_get_info(
        &self,
        _: Request<NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse { node_id: self.name.clone() }))
    }
}
