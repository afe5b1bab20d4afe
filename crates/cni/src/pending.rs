//! Carries out releases of the journal: in the next plugin that reaches the datastore, and in the agent.
//!
//! A release is carried out during its container's turn, and only if it is still in the journal then: an ADD of the
//! same container carries out what is due for it before attaching it again.

use crate::agent::scope;
use crate::context::Context;
use crate::del;
use crate::error::Result;
use crate::fault;
use crate::journal::{Due, Journal};
use crate::turn::Turn;

/// How many releases a plugin carries out in addition to its own work.
pub(crate) const FEW: usize = 5;

/// Carries out at most `at_most` due releases, the longest-waiting first. A release that fails stays due, behind the
/// others.
pub(crate) async fn carry_out(context: &Context, at_most: usize) {
    let journal = Journal::new(&context.paths.journal);
    let files = journal.files();
    if files.is_empty() {
        return;
    }
    fault::hold("due-listed").await;
    let mut tried = 0;
    for file in files {
        if tried == at_most {
            return;
        }
        if !journal.read(&file).is_some_and(|due| is_ours(context, &due)) {
            continue;
        }
        let container = file.container();
        let turn = match Turn::try_take(&context.paths.turns, container) {
            Ok(Some(turn)) => turn,
            // Its container is being attached or detached; that call settles the release.
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!(%error, container, "a pending release has to wait: cannot take its lock");
                continue;
            }
        };
        // What was read before the turn may be gone or replaced by now.
        let Some(due) = journal.read(&file).filter(|due| is_ours(context, due)) else { continue };
        tried += 1;
        let outcome = carry_out_one(context, &due).await;
        drop(turn);
        if let Err(error) = outcome {
            tracing::warn!(%error, container, "a pending release failed again");
            journal.put_behind(&file);
            if error.is_transient() {
                return;
            }
        }
    }
}

/// Whether this process is to carry it out. Other releases do not count towards the limit, so that they delay nothing.
fn is_ours(context: &Context, due: &Due) -> bool {
    let request = &due.request;
    context.store.serves(&request.conf, &request.environment)
        && !(context.shares_writes && scope::is_release_for_plugins(request))
}

/// Carries out everything that is due for a container. The caller must hold its turn.
///
/// # Errors
/// When the datastore fails; the release stays due then.
pub(crate) async fn carry_out_for(context: &Context, container: &str) -> Result<()> {
    let journal = Journal::new(&context.paths.journal);
    for file in journal.files().iter().filter(|file| file.container() == container) {
        if let Some(due) = journal.read(file)
            && context.store.serves(&due.request.conf, &due.request.environment)
        {
            carry_out_one(context, &due).await?;
        }
    }
    Ok(())
}

/// Carries out one release and removes it from the journal. The caller must hold its container's turn.
async fn carry_out_one(context: &Context, due: &Due) -> Result<()> {
    del::release(context, &due.request, due.node.as_deref()).await?;
    tracing::info!(container = %due.request.container_id, "carried out a pending release");
    if let Err(error) = Journal::new(&context.paths.journal).strike(&due.request) {
        tracing::error!(%error, "a release was carried out but could not be removed from the journal; it will be repeated");
    }
    Ok(())
}
