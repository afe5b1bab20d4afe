//! `calicoctl flows`: who talked to whom, and which policy decided. The `flows-cli` crate implements it; here it is
//! given streams, variables, and the cluster that `flows impact` is about.

use crate::context::{ConfigFlag, Context};
use crate::explain::SourceFlags;
use crate::failure::{Failure, Result};
use crate::paint;
use flows_cli::{Clusters, FlowsArgs, Shell};
use std::io::Write as _;

/// Runs a command of the family.
///
/// # Errors
/// When flows or the cluster cannot be read, or a command finds a fault.
pub(crate) async fn run(args: &FlowsArgs, context: &mut Context) -> Result<()> {
    let clusters = clusters(args, context).await?;
    let surroundings = &mut context.surroundings;
    let environment = &surroundings.environment;
    let variable = |name: &str| environment.variable(name).and_then(|value| value.into_string().ok());
    let (stderr, colours) = (&mut surroundings.stderr, surroundings.colours);
    let paints = colours && surroundings.progress;
    let mut warn = |text: &str| {
        // If standard error is gone, there is nowhere left to report it.
        let _ = writeln!(stderr, "{}", paint::verdicts(text, paints));
    };
    let mut shell = Shell {
        stdin: &mut *surroundings.stdin,
        stdout: &mut *surroundings.stdout,
        warn: &mut warn,
        variable: &variable,
        colours,
        now: jiff::Timestamp::now().as_second(),
    };
    flows_cli::run(args, &mut shell, clusters).await.map_err(|failure| match failure.message.as_str() {
        "" => Failure::silent(failure.code),
        message => Failure::new(message).with_code(failure.code),
    })
}

/// The cluster as it is, and the cluster with the files that are tried.
async fn clusters(args: &FlowsArgs, context: &mut Context) -> Result<Option<Clusters>> {
    let Some(impact) = args.impact() else { return Ok(None) };
    let source = SourceFlags {
        offline: impact.offline.clone(),
        with: impact.filename.clone(),
        namespace: None,
        default_endpoint_to_host_action: None,
        config: ConfigFlag { config: impact.config.clone() },
    };
    let loaded = source.load(context).await.map_err(|failure| {
        let code = if impact.exit_code { crate::cli::FAILED_WITH_EXIT_CODE } else { 1 };
        failure.with_code(code)
    })?;
    let before = loaded.stored.unwrap_or_else(|| loaded.wanted.clone());
    Ok(Some(Clusters { before, after: loaded.wanted }))
}
