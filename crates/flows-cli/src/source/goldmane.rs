//! A Goldmane, ours or Calico's.

use crate::flow::{self, Flow};
use goldmane_api::connect::{Target, TlsPaths, connect};
use goldmane_api::losses::{self, LossesResult};
use goldmane_api::proto::flows_client::FlowsClient;
use goldmane_api::proto::{Filter, FlowListRequest, FlowResult, FlowStreamRequest};
use std::time::Duration;
use tonic::Streaming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// The maximum size of an answer: an hour of a large cluster.
const LARGEST_ANSWER: usize = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(10);

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `host:port`, or `unix://` and the path of a socket.
    pub address: String,
    /// The files for TLS; without them the connection is not encrypted.
    pub tls: Option<TlsPaths>,
    /// The name in its certificate, if it differs from the address: through a forwarded port.
    pub name: Option<String>,
}

/// A connection.
#[derive(Debug)]
pub struct Client {
    flows: FlowsClient<Channel>,
    channel: Channel,
}

impl Server {
    /// Connects.
    ///
    /// # Errors
    /// When a file cannot be read, or the server cannot be reached.
    pub async fn connect(&self) -> Result<Client, String> {
        let channel = match (&self.tls, &self.name) {
            (Some(tls), Some(name)) => self.connect_as(tls, name).await?,
            _ => {
                let target = Target { address: self.address.clone(), tls: self.tls.clone() };
                connect(&target).await.map_err(|error| daemon::causes(&error).to_string())?
            }
        };
        let flows = FlowsClient::new(channel.clone()).max_decoding_message_size(LARGEST_ANSWER);
        Ok(Client { flows, channel })
    }

    async fn connect_as(&self, tls: &TlsPaths, name: &str) -> Result<Channel, String> {
        let read = |path: &std::path::Path| {
            std::fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
        };
        let config = ClientTlsConfig::new()
            .domain_name(name)
            .ca_certificate(Certificate::from_pem(read(&tls.authority)?))
            .identity(Identity::from_pem(read(&tls.certificate)?, read(&tls.key)?));
        let failed = |error| format!("cannot connect to {}: {}", self.address, daemon::causes(&error));
        let endpoint = Endpoint::from_shared(format!("https://{}", self.address)).map_err(failed)?;
        let endpoint = endpoint.connect_timeout(PATIENCE).tls_config(config).map_err(failed)?;
        endpoint.connect().await.map_err(failed)
    }
}

impl Client {
    /// The handle that reads this server's count of losses.
    #[must_use]
    pub fn account(&self) -> Account {
        Account(self.channel.clone())
    }

    /// Lists the flows that began in a range, each summed over it. Zero means the start of history, and now. Without a
    /// filter, returns at most the newest `most`.
    ///
    /// # Errors
    /// With the server's error.
    pub async fn list(
        &mut self,
        since: i64,
        until: i64,
        filter: Option<Filter>,
        most: Option<u32>,
    ) -> Result<Vec<Flow>, String> {
        let request = FlowListRequest {
            start_time_gte: since,
            start_time_lt: until,
            page_size: most.map_or(0, i64::from),
            filter,
            ..FlowListRequest::default()
        };
        let result = self.flows.list(request).await.map_err(|status| refused(&status))?.into_inner();
        result.flows.iter().filter_map(|result| result.flow.as_ref()).map(read).collect()
    }

    /// Streams flows from completed buckets since a time, then as further buckets complete.
    ///
    /// # Errors
    /// With the server's error.
    pub async fn stream(&mut self, since: i64, filter: Option<Filter>) -> Result<Stream, String> {
        let request = FlowStreamRequest { start_time_gte: since, filter, ..FlowStreamRequest::default() };
        Ok(Stream(self.flows.stream(request).await.map_err(|status| refused(&status))?.into_inner()))
    }
}

/// Reads the losses that a server counts.
#[derive(Debug, Clone)]
pub struct Account(Channel);

impl Account {
    /// The losses that the server knows; `None` if it does not count them, or does not answer. They are optional, the
    /// flows are not.
    pub async fn losses(&self) -> Option<LossesResult> {
        losses::ask(self.0.clone()).await.ok().flatten()
    }
}

/// A stream of flows.
#[derive(Debug)]
pub struct Stream(Streaming<FlowResult>);

impl Stream {
    /// The next flow; `None` when the server ended the stream.
    ///
    /// # Errors
    /// When the connection is lost.
    pub async fn next(&mut self) -> Result<Option<Flow>, String> {
        loop {
            match self.0.message().await.map_err(|status| refused(&status))? {
                None => return Ok(None),
                Some(FlowResult { flow: Some(flow), .. }) => return read(&flow).map(Some),
                Some(_) => {}
            }
        }
    }
}

fn read(message: &goldmane_api::proto::Flow) -> Result<Flow, String> {
    flow::from_message(message).map_err(|error| error.to_string())
}

fn refused(status: &tonic::Status) -> String {
    format!("the server answers {:?}: {}", status.code(), status.message())
}
