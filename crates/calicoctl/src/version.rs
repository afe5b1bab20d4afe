//! `calicoctl version`: the version of this program, and of the cluster.
//!
//! Nothing is judged here: each command that could lose data checks whether the two versions go together.

use crate::context::{CONNECT_DEADLINE, ConfigFlag, Context};
use crate::duration;
use crate::failure::{Failure, Result};
use api::ClusterInformationSpec;
use api::words::CALICO_VERSION;
use client::Client;

/// This program's version string: Calico's version first, since scripts compare the part up to the first dash with the
/// cluster's version.
#[must_use]
pub fn client_version() -> String {
    format!("{CALICO_VERSION}-tortie-{}", env!("CARGO_PKG_VERSION"))
}

/// The commit that this program was built from.
pub const GIT_COMMIT: &str = env!("TORTIE_GIT_COMMIT");

/// Display the version of this binary, and of the cluster.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:\n  # This program and the cluster.\n  calicoctl version\n\n  \
                        # This program alone; needs no datastore.\n  calicoctl version --client\n\n  \
                        # Report every change of the cluster's version, until interrupted.\n  \
                        calicoctl version --poll=10s")]
pub(crate) struct VersionArgs {
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
    /// Check again at this interval (for example 1s, 5m), and print what changed.
    #[arg(long, value_name = "DURATION")]
    pub poll: Option<String>,
    /// Show only the version of this binary; does not contact the datastore.
    #[arg(long)]
    pub client: bool,
}

/// Runs the command.
///
/// # Errors
/// When the settings are wrong, or the cluster's version cannot be read.
pub(crate) async fn run(args: &VersionArgs, context: &mut Context) -> Result<()> {
    let poll = match args.poll.as_deref() {
        None | Some("") => None,
        Some(text) => {
            let pause = duration::parse(text)
                .ok_or_else(|| Failure::new(format!("invalid poll duration specified: {text}")))?;
            Some(pause).filter(|pause| !pause.is_zero())
        }
    };
    context.print(&format!("Client Version:    {}\nGit commit:        {GIT_COMMIT}\n", client_version()))?;
    if args.client {
        return Ok(());
    }
    // Mistakes in the settings are reported as such; a datastore that cannot be opened only leaves the cluster's part
    // out.
    context.client_config(&args.config)?;
    let client = match context.connect(&args.config).await {
        Ok(client) => client,
        Err(failure) => {
            context.warn(failure.message());
            return context.print("Unable to detect installed Calico version\n");
        }
    };
    let mut shown = Cluster::default();
    loop {
        let outcome = cluster(&client).await;
        match &outcome {
            Ok(found) => {
                for (title, new, old) in [
                    ("Cluster Version:  ", &found.version, &shown.version),
                    ("Cluster Type:     ", &found.kind, &shown.kind),
                ] {
                    if new != old {
                        context.print(&format!("{title} {new}\n"))?;
                    }
                }
                shown = found.clone();
            }
            // Whatever is printed after the datastore is back counts as new.
            Err(_) => shown = Cluster::default(),
        }
        let Some(pause) = poll else { return outcome.map(|_| ()) };
        if let Err(failure) = outcome {
            context.warn(failure.message());
        }
        tokio::time::sleep(pause).await;
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Cluster {
    version: String,
    kind: String,
}

async fn cluster(client: &Client) -> Result<Cluster> {
    let informations = client.resource::<ClusterInformationSpec>();
    let failed =
        |reason: String| Failure::new(format!("unable to retrieve Cluster Version or Type: {reason}"));
    let information =
        match tokio::time::timeout(CONNECT_DEADLINE, informations.get("", api::words::GLOBAL_NAME)).await {
            Ok(outcome) => outcome.map_err(|error| failed(error.to_string()))?,
            Err(_) => return Err(failed(format!("no answer within {} s", CONNECT_DEADLINE.as_secs()))),
        };
    let known = |text: String| if text.is_empty() { "unknown".to_owned() } else { text };
    Ok(Cluster {
        version: known(information.spec.calico_version),
        kind: known(information.spec.cluster_type),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calico_version_comes_first() {
        assert_eq!(client_version().split('-').next(), Some(CALICO_VERSION));
        assert!(!GIT_COMMIT.is_empty());
    }
}
