//! The unary services: keys, leases, cluster, maintenance. Each method converts the request, calls the engine and
//! converts
//! the answer.

use std::{sync::Arc, time::Duration};

use etcd_api::etcdserverpb::{self as pb, cluster_server, kv_server, lease_server, maintenance_server};
use futures::{Stream, stream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::{
    VERSION,
    convert::{
        delete_request, delete_response, put_request, put_response, range_request, range_response, status,
        txn_request, txn_response,
    },
};
use kvstore_engine::{self as engine, Store};

/// Terms count leaders; the store has only ever had one.
const RAFT_TERM: u64 = 2;
/// A range with more keys than this is read off the network threads.
const INLINE_KEYS: i64 = 500;

/// The result of a unary call.
pub(super) type Answer<T> = Result<Response<T>, Status>;
/// A stream of answers.
pub(super) type Answers<T> = std::pin::Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The state shared by the services.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) store: Arc<Store>,
    pub(super) info: Arc<Info>,
}

/// What the server reports about itself.
#[derive(Debug)]
pub(super) struct Info {
    pub(super) name: String,
    pub(super) client_urls: Vec<String>,
    pub(super) progress_interval: Duration,
    pub(super) cluster_id: u64,
    pub(super) member_id: u64,
}

impl Api {
    pub(super) fn header(&self, revision: i64) -> Option<pb::ResponseHeader> {
        let (cluster_id, member_id) = (self.info.cluster_id, self.info.member_id);
        Some(pb::ResponseHeader { cluster_id, member_id, revision, raft_term: RAFT_TERM })
    }

    fn current_header(&self) -> Option<pb::ResponseHeader> {
        self.header(self.store.revision())
    }

    fn member(&self) -> pb::Member {
        pb::Member {
            id: self.info.member_id,
            name: self.info.name.clone(),
            peer_ur_ls: vec!["http://localhost:2380".to_owned()],
            client_ur_ls: self.info.client_urls.clone(),
            is_learner: false,
        }
    }
}

/// The key service's logic, independent of the transport.
impl Api {
    /// Reads keys. Many are read off the network threads, but their answer is assembled here: memory for all of it at
    /// once on the other thread would be returned to the system and fetched again for each request.
    pub(super) async fn read_keys(&self, request: pb::RangeRequest) -> Result<pb::RangeResponse, Status> {
        let request = range_request(request)?;
        let small = request.range_end.is_empty()
            || ((1..=INLINE_KEYS).contains(&request.limit) && request.reads_only_its_limit());
        let response = if small {
            self.store.range(&request)
        } else {
            let store = Arc::clone(&self.store);
            tokio::task::spawn_blocking(move || store.range(&request))
                .await
                .map_err(|error| Status::internal(error.to_string()))?
        };
        let response = response.map_err(status)?;
        let header = self.header(response.revision);
        Ok(pb::RangeResponse { header, ..range_response(response) })
    }

    pub(super) async fn put_key(&self, request: pb::PutRequest) -> Result<pb::PutResponse, Status> {
        let response = self.store.put(put_request(request)).await.map_err(status)?;
        let header = self.header(response.revision);
        Ok(pb::PutResponse { header, ..put_response(response) })
    }

    pub(super) async fn delete_keys(
        &self,
        request: pb::DeleteRangeRequest,
    ) -> Result<pb::DeleteRangeResponse, Status> {
        let response = self.store.delete_range(delete_request(request)).await.map_err(status)?;
        let header = self.header(response.revision);
        Ok(pb::DeleteRangeResponse { header, ..delete_response(response) })
    }

    pub(super) async fn transact(&self, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
        let response = self.store.txn(txn_request(request)?).await.map_err(status)?;
        let header = self.header(response.revision);
        Ok(pb::TxnResponse { header, ..txn_response(response) })
    }
}

#[tonic::async_trait]
impl kv_server::Kv for Api {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Answer<pb::RangeResponse> {
        self.read_keys(request.into_inner()).await.map(Response::new)
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Answer<pb::PutResponse> {
        self.put_key(request.into_inner()).await.map(Response::new)
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Answer<pb::DeleteRangeResponse> {
        self.delete_keys(request.into_inner()).await.map(Response::new)
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Answer<pb::TxnResponse> {
        self.transact(request.into_inner()).await.map(Response::new)
    }

    async fn compact(&self, request: Request<pb::CompactionRequest>) -> Answer<pb::CompactionResponse> {
        let request = request.into_inner();
        let revision = self.store.compact(request.revision, request.physical).await.map_err(status)?;
        Ok(Response::new(pb::CompactionResponse { header: self.header(revision) }))
    }
}

#[tonic::async_trait]
impl lease_server::Lease for Api {
    async fn lease_grant(&self, request: Request<pb::LeaseGrantRequest>) -> Answer<pb::LeaseGrantResponse> {
        let request = request.into_inner();
        let lease = self.store.lease_grant(request.id, request.ttl).await.map_err(status)?;
        let header = self.header(lease.revision);
        Ok(Response::new(pb::LeaseGrantResponse {
            header,
            id: lease.id,
            ttl: lease.ttl,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Answer<pb::LeaseRevokeResponse> {
        let revision = self.store.lease_revoke(request.into_inner().id).await.map_err(status)?;
        Ok(Response::new(pb::LeaseRevokeResponse { header: self.header(revision) }))
    }

    type LeaseKeepAliveStream = Answers<pb::LeaseKeepAliveResponse>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Answer<Self::LeaseKeepAliveStream> {
        let state = (self.clone(), request.into_inner());
        let answers = stream::try_unfold(state, |(api, mut requests)| async move {
            let Some(request) = requests.message().await? else { return Ok(None) };
            // A lease that is gone is answered with a time of 0, not with an error.
            let ttl = api.store.lease_keep_alive(request.id).unwrap_or(0);
            let header = api.current_header();
            Ok(Some((pb::LeaseKeepAliveResponse { header, id: request.id, ttl }, (api, requests))))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Answer<pb::LeaseTimeToLiveResponse> {
        let request = request.into_inner();
        let lease = self.store.lease_time_to_live(request.id, request.keys);
        Ok(Response::new(pb::LeaseTimeToLiveResponse {
            header: self.current_header(),
            id: lease.id,
            ttl: lease.ttl,
            granted_ttl: lease.granted_ttl,
            keys: lease.keys,
        }))
    }

    async fn lease_leases(&self, _: Request<pb::LeaseLeasesRequest>) -> Answer<pb::LeaseLeasesResponse> {
        let leases = self.store.leases().into_iter().map(|id| pb::LeaseStatus { id }).collect();
        Ok(Response::new(pb::LeaseLeasesResponse { header: self.current_header(), leases }))
    }
}

/// The error for membership changes.
fn single_member() -> Status {
    Status::unimplemented("the embedded store has one member and cannot have more; use etcd for a cluster")
}

#[tonic::async_trait]
impl cluster_server::Cluster for Api {
    async fn member_add(&self, _: Request<pb::MemberAddRequest>) -> Answer<pb::MemberAddResponse> {
        Err(single_member())
    }

    async fn member_remove(&self, _: Request<pb::MemberRemoveRequest>) -> Answer<pb::MemberRemoveResponse> {
        Err(single_member())
    }

    async fn member_update(&self, _: Request<pb::MemberUpdateRequest>) -> Answer<pb::MemberUpdateResponse> {
        Err(single_member())
    }

    async fn member_list(&self, _: Request<pb::MemberListRequest>) -> Answer<pb::MemberListResponse> {
        let response = pb::MemberListResponse { header: self.current_header(), members: vec![self.member()] };
        Ok(Response::new(response))
    }

    async fn member_promote(
        &self,
        _: Request<pb::MemberPromoteRequest>,
    ) -> Answer<pb::MemberPromoteResponse> {
        Err(Status::failed_precondition("etcdserver: can only promote a learner member"))
    }
}

#[tonic::async_trait]
impl maintenance_server::Maintenance for Api {
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Answer<pb::AlarmResponse> {
        use pb::alarm_request::AlarmAction;
        let request = request.into_inner();
        let about_space = matches!(pb::AlarmType::try_from(request.alarm), Ok(pb::AlarmType::Nospace));
        let before = self.store.status().no_space_alarm;
        let shown = match AlarmAction::try_from(request.action) {
            Ok(AlarmAction::Activate) if about_space => {
                self.store.set_alarm(true).await.map_err(status)?;
                true
            }
            Ok(AlarmAction::Deactivate) => {
                if about_space && before {
                    self.store.set_alarm(false).await.map_err(status)?;
                }
                about_space && before
            }
            _ => before,
        };
        let alarms = shown.then(|| pb::AlarmMember {
            member_id: self.info.member_id,
            alarm: pb::AlarmType::Nospace.into(),
        });
        let response = pb::AlarmResponse { header: self.current_header(), alarms: Vec::from_iter(alarms) };
        Ok(Response::new(response))
    }

    async fn status(&self, _: Request<pb::StatusRequest>) -> Answer<pb::StatusResponse> {
        let store = self.store.status();
        let mut errors = Vec::new();
        if store.no_space_alarm {
            errors.push(format!("memberID:{} alarm:NOSPACE ", self.info.member_id));
        }
        errors.extend(self.store.healthy().err().map(|error| error.to_string()));
        // There is no replicated log; the revision serves as its index.
        let index = u64::try_from(store.revision).unwrap_or(0);
        Ok(Response::new(pb::StatusResponse {
            header: self.header(store.revision),
            version: VERSION.to_owned(),
            db_size: i64::try_from(store.file_bytes).unwrap_or(i64::MAX),
            leader: self.info.member_id,
            raft_index: index,
            raft_term: RAFT_TERM,
            raft_applied_index: index,
            errors,
            db_size_in_use: i64::try_from(store.live_bytes).unwrap_or(i64::MAX),
            db_size_quota: i64::try_from(self.store.options().quota_bytes).unwrap_or(i64::MAX),
            ..pb::StatusResponse::default()
        }))
    }

    async fn defragment(&self, _: Request<pb::DefragmentRequest>) -> Answer<pb::DefragmentResponse> {
        self.store.defragment().await.map_err(status)?;
        Ok(Response::new(pb::DefragmentResponse { header: self.current_header() }))
    }

    async fn hash(&self, _: Request<pb::HashRequest>) -> Answer<pb::HashResponse> {
        let hash = self.hash_at(0).await?;
        Ok(Response::new(pb::HashResponse { header: self.header(hash.revision), hash: hash.hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Answer<pb::HashKvResponse> {
        let hash = self.hash_at(request.into_inner().revision).await?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.header(hash.revision),
            hash: hash.hash,
            // etcd says -1 when there was no compaction.
            compact_revision: if hash.compact_revision == 0 { -1 } else { hash.compact_revision },
            hash_revision: hash.hash_revision,
        }))
    }

    type SnapshotStream = Answers<pb::SnapshotResponse>;

    async fn snapshot(&self, _: Request<pb::SnapshotRequest>) -> Answer<Self::SnapshotStream> {
        let file = self.store.snapshot().await.map_err(status)?;
        let (sender, receiver) = mpsc::channel(4);
        let header = self.current_header();
        tokio::task::spawn_blocking(move || {
            let result = engine::pack(&file, |blob, remaining_bytes| {
                let version = VERSION.to_owned();
                let part = pb::SnapshotResponse { header, remaining_bytes, blob: blob.into(), version };
                sender.blocking_send(Ok(part)).map_err(|_| std::io::Error::other("the client has gone"))
            });
            if let Err(error) = result {
                // If the client has gone, the error cannot be delivered.
                let _ = sender.blocking_send(Err(Status::internal(error.to_string())));
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn move_leader(&self, _: Request<pb::MoveLeaderRequest>) -> Answer<pb::MoveLeaderResponse> {
        Err(Status::failed_precondition("etcdserver: bad leader transferee"))
    }

    async fn downgrade(&self, _: Request<pb::DowngradeRequest>) -> Answer<pb::DowngradeResponse> {
        Err(Status::unimplemented("the embedded store has no cluster version to downgrade"))
    }
}

impl Api {
    async fn hash_at(&self, revision: i64) -> Result<engine::HashKv, Status> {
        let store = Arc::clone(&self.store);
        tokio::task::spawn_blocking(move || store.hash(revision))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(status)
    }
}
