//! Users and roles: there are none. Queries are answered as by an etcd without authentication. Calls that would create
//! or change users and roles are not in the protocol files, so gRPC itself refuses them: a user that protects nothing
//! would be worse than none.

use etcd_api::etcdserverpb::{self as pb, auth_server};
use tonic::{Request, Response, Status};

use super::services::{Answer, Api};

#[tonic::async_trait]
impl auth_server::Auth for Api {
    async fn auth_status(&self, _: Request<pb::AuthStatusRequest>) -> Answer<pb::AuthStatusResponse> {
        let header = self.header(self.store.revision());
        Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
    }

    async fn auth_enable(&self, _: Request<pb::AuthEnableRequest>) -> Answer<pb::AuthEnableResponse> {
        Err(Status::failed_precondition("etcdserver: root user does not exist"))
    }

    async fn auth_disable(&self, _: Request<pb::AuthDisableRequest>) -> Answer<pb::AuthDisableResponse> {
        Ok(Response::new(pb::AuthDisableResponse { header: self.header(self.store.revision()) }))
    }

    async fn authenticate(&self, _: Request<pb::AuthenticateRequest>) -> Answer<pb::AuthenticateResponse> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }

    async fn user_list(&self, _: Request<pb::AuthUserListRequest>) -> Answer<pb::AuthUserListResponse> {
        let header = self.header(self.store.revision());
        Ok(Response::new(pb::AuthUserListResponse { header, users: Vec::new() }))
    }

    async fn user_get(&self, _: Request<pb::AuthUserGetRequest>) -> Answer<pb::AuthUserGetResponse> {
        Err(Status::failed_precondition("etcdserver: user name not found"))
    }

    async fn role_list(&self, _: Request<pb::AuthRoleListRequest>) -> Answer<pb::AuthRoleListResponse> {
        let header = self.header(self.store.revision());
        Ok(Response::new(pb::AuthRoleListResponse { header, roles: Vec::new() }))
    }

    async fn role_get(&self, _: Request<pb::AuthRoleGetRequest>) -> Answer<pb::AuthRoleGetResponse> {
        Err(Status::failed_precondition("etcdserver: role name not found"))
    }
}
