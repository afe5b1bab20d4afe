//! The services of one connection, and the token that a user's requests carry.

use crate::etcdserverpb::{
    AuthenticateRequest, auth_client::AuthClient, kv_client::KvClient, lease_client::LeaseClient,
    maintenance_client::MaintenanceClient, watch_client::WatchClient,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use tonic::metadata::AsciiMetadataValue;
use tonic::service::interceptor::{InterceptedService, Interceptor};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// A connection whose requests carry the token, if there is one.
pub type Service = InterceptedService<Channel, Token>;

/// The services of one connection. Responses may be of any size: a list is as long as the cluster is large.
#[derive(Clone)]
pub struct Client {
    /// Reads, writes, transactions, compaction.
    pub kv: KvClient<Service>,
    /// Watches.
    pub watch: WatchClient<Service>,
    /// Leases.
    pub lease: LeaseClient<Service>,
    /// The state of the server.
    pub maintenance: MaintenanceClient<Service>,
    auth: AuthClient<Channel>,
    token: Token,
}

impl Client {
    /// Creates a client of this connection that is not logged in.
    #[must_use]
    pub fn new(channel: Channel) -> Self {
        let token = Token::default();
        let service = InterceptedService::new(channel.clone(), token.clone());
        Self {
            kv: KvClient::new(service.clone()).max_decoding_message_size(usize::MAX),
            watch: WatchClient::new(service.clone()).max_decoding_message_size(usize::MAX),
            lease: LeaseClient::new(service.clone()),
            maintenance: MaintenanceClient::new(service),
            auth: AuthClient::new(channel),
            token,
        }
    }

    /// How often this client has logged in.
    #[must_use]
    pub fn logins(&self) -> u64 {
        self.token.0.logins.load(Ordering::Acquire)
    }

    /// Logs in, so that all further requests of this client and its clones are this user's. `seen` is the number of
    /// logins before the refused request: if another task has logged in since, its token is used.
    ///
    /// # Errors
    /// When the server refuses, or cannot be reached.
    pub async fn log_in(&self, name: &str, password: &str, seen: u64) -> Result<(), Status> {
        let _turn = self.token.0.turn.lock().await;
        if self.logins() != seen {
            return Ok(());
        }
        let request = AuthenticateRequest { name: name.to_owned(), password: password.to_owned() };
        let answer = self.auth.clone().authenticate(request).await?.into_inner();
        let token = answer
            .token
            .parse::<AsciiMetadataValue>()
            .map_err(|_| Status::internal("the server's token cannot be sent back"))?;
        *self.token.0.value.write().unwrap_or_else(PoisonError::into_inner) = Some(token);
        self.token.0.logins.fetch_add(1, Ordering::Release);
        Ok(())
    }
}

/// The token that identifies the user to the server. Shared by all services of a client.
#[derive(Clone, Default)]
pub struct Token(Arc<Held>);

#[derive(Default)]
struct Held {
    value: RwLock<Option<AsciiMetadataValue>>,
    logins: AtomicU64,
    /// Held while logging in, so that concurrent refused requests log in only once.
    turn: tokio::sync::Mutex<()>,
}

impl Interceptor for Token {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &*self.0.value.read().unwrap_or_else(PoisonError::into_inner) {
            request.metadata_mut().insert("token", token.clone());
        }
        Ok(request)
    }
}
