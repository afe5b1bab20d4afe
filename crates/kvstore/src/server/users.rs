//! Users and roles: there are none. Questions are answered as an etcd without authentication answers them; attempts to create some are
//! refused, because a user that protects nothing would be worse than none.

use tonic::{Request, Response, Status};

use super::{
    pb::etcdserverpb::{self as pb, auth_server},
    services::{Answer, Api},
};

fn no_users() -> Status {
    Status::unimplemented("the embedded store has no users; protect it with client certificates, or use etcd")
}

fn user_not_found() -> Status {
    Status::failed_precondition("etcdserver: user name not found")
}

fn role_not_found() -> Status {
    Status::failed_precondition("etcdserver: role name not found")
}

#[tonic::async_trait]
impl auth_server::Auth for Api {
    async fn auth_enable(&self, _: Request<pb::AuthEnableRequest>) -> Answer<pb::AuthEnableResponse> {
        Err(Status::failed_precondition("etcdserver: root user does not exist"))
    }

    async fn auth_disable(&self, _: Request<pb::AuthDisableRequest>) -> Answer<pb::AuthDisableResponse> {
        Ok(Response::new(pb::AuthDisableResponse { header: self.header(self.store.revision()) }))
    }

    async fn auth_status(&self, _: Request<pb::AuthStatusRequest>) -> Answer<pb::AuthStatusResponse> {
        let header = self.header(self.store.revision());
        Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
    }

    async fn authenticate(&self, _: Request<pb::AuthenticateRequest>) -> Answer<pb::AuthenticateResponse> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }

    async fn user_add(&self, _: Request<pb::AuthUserAddRequest>) -> Answer<pb::AuthUserAddResponse> {
        Err(no_users())
    }

    async fn user_get(&self, _: Request<pb::AuthUserGetRequest>) -> Answer<pb::AuthUserGetResponse> {
        Err(user_not_found())
    }

    async fn user_list(&self, _: Request<pb::AuthUserListRequest>) -> Answer<pb::AuthUserListResponse> {
        let header = self.header(self.store.revision());
        Ok(Response::new(pb::AuthUserListResponse { header, users: Vec::new() }))
    }

    async fn user_delete(&self, _: Request<pb::AuthUserDeleteRequest>) -> Answer<pb::AuthUserDeleteResponse> {
        Err(user_not_found())
    }

    async fn user_change_password(
        &self,
        _: Request<pb::AuthUserChangePasswordRequest>,
    ) -> Answer<pb::AuthUserChangePasswordResponse> {
        Err(user_not_found())
    }

    async fn user_grant_role(
        &self,
        _: Request<pb::AuthUserGrantRoleRequest>,
    ) -> Answer<pb::AuthUserGrantRoleResponse> {
        Err(user_not_found())
    }

    async fn user_revoke_role(
        &self,
        _: Request<pb::AuthUserRevokeRoleRequest>,
    ) -> Answer<pb::AuthUserRevokeRoleResponse> {
        Err(user_not_found())
    }

    async fn role_add(&self, _: Request<pb::AuthRoleAddRequest>) -> Answer<pb::AuthRoleAddResponse> {
        Err(no_users())
    }

    async fn role_get(&self, _: Request<pb::AuthRoleGetRequest>) -> Answer<pb::AuthRoleGetResponse> {
        Err(role_not_found())
    }

    async fn role_list(&self, _: Request<pb::AuthRoleListRequest>) -> Answer<pb::AuthRoleListResponse> {
        let header = self.header(self.store.revision());
        Ok(Response::new(pb::AuthRoleListResponse { header, roles: Vec::new() }))
    }

    async fn role_delete(&self, _: Request<pb::AuthRoleDeleteRequest>) -> Answer<pb::AuthRoleDeleteResponse> {
        Err(role_not_found())
    }

    async fn role_grant_permission(
        &self,
        _: Request<pb::AuthRoleGrantPermissionRequest>,
    ) -> Answer<pb::AuthRoleGrantPermissionResponse> {
        Err(role_not_found())
    }

    async fn role_revoke_permission(
        &self,
        _: Request<pb::AuthRoleRevokePermissionRequest>,
    ) -> Answer<pb::AuthRoleRevokePermissionResponse> {
        Err(role_not_found())
    }
}
