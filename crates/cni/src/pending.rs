//! Releases of the journal, carried out: by the next plugin that reaches the datastore, and by the agent.

use crate::context::Context;
use crate::del;
use crate::error::Result;
use crate::journal::Journal;
use crate::request::Request;

/// How many a plugin carries out beside its own work.
pub(crate) const FEW: usize = 5;

/// Carries out releases that are due, at most so many; returns how many were. One that fails stays due.
pub(crate) async fn carry_out(context: &Context, at_most: usize) -> usize {
    let journal = Journal::new(&context.paths.journal);
    let mut done = 0;
    for request in journal.due(at_most) {
        if !context.store.serves(&request.conf, &request.environment) {
            continue;
        }
        match carry_out_one(context, &request).await {
            Ok(()) => done += 1,
            Err(error) => {
                tracing::warn!(%error, container = %request.container_id, "a release that is due failed again");
                if error.is_transient() {
                    break;
                }
            }
        }
    }
    done
}

/// Carries out the release of one attachment and strikes it.
///
/// # Errors
/// When the datastore fails; it stays due then.
pub(crate) async fn carry_out_one(context: &Context, request: &Request) -> Result<()> {
    del::release(context, request).await?;
    tracing::info!(container = %request.container_id, "a release that was due is carried out");
    if let Err(error) = Journal::new(&context.paths.journal).strike(request) {
        tracing::error!(%error, "a release that was carried out could not be struck; it will be carried out again");
    }
    Ok(())
}
