//! STATUS: whether an ADD would work now.

use crate::addresses;
use crate::context::Context;
use crate::error::{CniError, Result, code};
use crate::host;
use crate::request::Request;
use std::time::Duration;

/// How long the datastore may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Checks everything that an ADD needs before it has a container.
///
/// # Errors
/// When something is missing, as "plugin not available".
pub(crate) async fn status(context: &Context, request: &Request) -> Result<()> {
    let look = async {
        host::node_name(&request.conf, &context.paths)?;
        host::mtu(&request.conf, &context.paths)?;
        request.conf.device()?;
        request.conf.dataplane()?;
        context.store.check_ready().await?;
        if addresses::is_delegated(request) { addresses::pass_on(request).await } else { Ok(()) }
    };
    match tokio::time::timeout(PATIENCE, look).await {
        Ok(outcome) => outcome.map_err(|error| CniError { code: code::NOT_AVAILABLE, ..error }),
        Err(_) => Err(CniError::new(
            code::NOT_AVAILABLE,
            format!("the datastore did not answer within {} s", PATIENCE.as_secs()),
        )
        .with_details("check that the datastore runs and can be reached from this node")),
    }
}
