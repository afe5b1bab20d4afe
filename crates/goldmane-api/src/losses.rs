//! Reports what was lost between the kernel and a reader: nodes report losses and readers query them through
//! `tortie.Losses`, a service of our own beside Goldmane's.
//!
//! Calico's Goldmane does not have this service. It is tried once per connection; the server replies that it does not
//! know the service, and no flow is delayed by that.

use crate::losses::proto::losses_client::LossesClient;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// The messages and the service.
#[expect(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; the protocol file is the documentation"
)]
pub mod proto {
    tonic::include_proto!("tortie");
}

pub use proto::{LossKind, LossesResult};

/// How often a node reports its losses.
const TELL: Duration = Duration::from_secs(5);
/// A node that was silent for this many seconds is named: its flows may be missing.
pub const SILENT: i64 = 60;
/// How long an answer may take: losses must not keep flows waiting.
const PATIENCE: Duration = Duration::from_secs(5);

impl LossKind {
    /// A description for people, to follow a number.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Unspecified => "losses of an unknown kind",
            Self::PacketsLost => "reported packets that were not read in time",
            Self::PacketsShed => "packets dropped because the collector was busy",
            Self::PacketsUnreadable => "packets that could not be read",
            Self::EndsLost => "times that ends of connections were not read in time",
            Self::EndsShed => "ends of connections dropped because the collector was busy",
            Self::ConnectionsFull => "connections for which there was no room",
            Self::FlowsUnsent => "flows that could not be passed on",
            Self::FlowsDropped => "flows that were dropped while Goldmane was away",
            Self::FlowsOutside => "flows outside of the kept hour",
            Self::FlowsFull => "flows for which there was no room",
            Self::FlowsUnreadable => "flows that could not be read",
            Self::HistoryLost => "minutes that were not written to the history",
        }
    }
}

/// Returns what a node has lost so far.
pub type LossSource = Arc<dyn Fn() -> Vec<(LossKind, u64)> + Send + Sync>;

/// Reports a node's losses to a server periodically until the server turns out not to collect them; then waits for
/// ever. `began` is when the node began to count.
pub(crate) async fn tell(
    channel: Channel,
    node: &str,
    began: Instant,
    losses: impl Fn() -> Vec<(LossKind, u64)>,
) -> Infallible {
    let mut client = LossesClient::new(channel);
    loop {
        let counts = losses().into_iter().filter(|(_, count)| *count > 0);
        let report = proto::LossReport {
            node: node.to_owned(),
            counting: i64::try_from(began.elapsed().as_secs()).unwrap_or(i64::MAX),
            losses: counts.map(|(kind, count)| proto::LossCount { kind: kind.into(), count }).collect(),
        };
        match tokio::time::timeout(PATIENCE, client.report(report)).await {
            Ok(Err(status)) if status.code() == Code::Unimplemented => {
                tracing::debug!("the server does not collect losses");
                return std::future::pending().await;
            }
            // A broken connection also ends the session of flows on it.
            Ok(Ok(_) | Err(_)) | Err(_) => tokio::time::sleep(TELL).await,
        }
    }
}

/// Queries a server's records of losses; `None` if it keeps none, like Calico's.
///
/// # Errors
/// When it does not answer.
pub async fn ask(channel: Channel) -> Result<Option<LossesResult>, Status> {
    let mut client = LossesClient::new(channel);
    match tokio::time::timeout(PATIENCE, client.list(proto::LossesRequest {})).await {
        Ok(Ok(answer)) => Ok(Some(answer.into_inner())),
        Ok(Err(status)) if status.code() == Code::Unimplemented => Ok(None),
        Ok(Err(status)) => Err(status),
        Err(_) => Err(Status::deadline_exceeded("no answer in time")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::losses_server::SERVICE_NAME;

    #[test]
    fn the_service_has_a_name_of_our_own() {
        assert_eq!(SERVICE_NAME, "tortie.Losses");
    }

    #[test]
    fn every_kind_has_its_own_description() {
        let kinds: Vec<LossKind> = (0..).map_while(|number| LossKind::try_from(number).ok()).collect();
        let words: std::collections::BTreeSet<&str> = kinds.iter().map(|kind| kind.words()).collect();
        assert_eq!((kinds.len(), words.len()), (13, 13));
    }
}
