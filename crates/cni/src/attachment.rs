//! The subject of most calls: one container on one network of this host.

use crate::context::Context;
use crate::error::Result;
use crate::host;
use crate::identity::Identity;
use crate::request::Request;

/// One container on one network, as named by a request, with the call's context.
#[derive(Clone, Debug)]
pub(crate) struct Attachment<'a> {
    pub(crate) context: &'a Context,
    pub(crate) request: &'a Request,
    pub(crate) identity: Identity,
}

impl<'a> Attachment<'a> {
    /// The attachment of a request on `node`, or else on the node named by the host's files.
    ///
    /// # Errors
    /// A node without a name, or names that no endpoint name can be built from.
    pub(crate) fn new(context: &'a Context, request: &'a Request, node: Option<&str>) -> Result<Self> {
        let identity = match node {
            Some(node) => Identity::of(request, node),
            None => Identity::of(request, &host::node_name(&request.conf, &context.paths)?),
        };
        identity.endpoint_name()?;
        Ok(Self { context, request, identity })
    }

    pub(crate) fn node(&self) -> &str {
        &self.identity.identifiers.node
    }
}
