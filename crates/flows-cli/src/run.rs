//! The shell: fetches flows and prints them.

use crate::args::{
    Colour, FigureFormat, FlowsArgs, FlowsCommand, ImpactArgs, InputArgs, ListArgs, RecommendArgs,
};
use crate::flow::Flow;
use crate::losses::Said;
use crate::print::{self, Style};
use crate::source::goldmane::Account;
use crate::source::seen::{News, Seen};
use crate::source::{self, Source, goldmane, node};
use crate::{impact, json, push, recommend, stats, time, top};
use daemon::Backoff;
use explain::Cluster;
use goldmane_api::losses::LossesResult;
use serde::Serialize;
use std::io::{Read, Write};
use std::time::Duration;

/// The default number of flows in a list.
const USUAL_LAST: u32 = 100;
/// How long a Goldmane keeps flows; a stream from before that would have no past at all.
const HISTORY: i64 = 3600 - 30;
/// The pauses between reconnection attempts.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// How often a stream checks for losses.
const LOOK: Duration = Duration::from_secs(5);

/// The environment of a command.
pub struct Shell<'a> {
    /// Standard input.
    pub stdin: &'a mut dyn Read,
    /// Standard output.
    pub stdout: &'a mut dyn Write,
    /// Prints a warning beside the output.
    pub warn: &'a mut dyn FnMut(&str),
    /// A variable of the environment.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// Whether standard output shows colours.
    pub colours: bool,
    /// The time, in seconds since 1970.
    pub now: i64,
}

/// The clusters for `impact`: as it is, and with the policies that are tried.
pub struct Clusters {
    /// As it is.
    pub before: Cluster,
    /// As it would be.
    pub after: Cluster,
}

/// Why a command failed. Without a message, the output already shows the reason.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The message; empty if everything has been printed.
    pub message: String,
    /// The exit code.
    pub code: u8,
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self { message, code: 1 }
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Self::from(message.to_owned())
    }
}

type Outcome = Result<(), Failure>;

impl Shell<'_> {
    /// Prints and flushes; returns whether the reader is still there.
    fn print(&mut self, text: &str) -> Result<bool, Failure> {
        match self.stdout.write_all(text.as_bytes()).and_then(|()| self.stdout.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(format!("cannot write: {error}").into()),
        }
    }

    fn print_value(
        &mut self,
        value: &impl Serialize,
        format: FigureFormat,
        text: impl FnOnce() -> String,
    ) -> Outcome {
        let text = match format {
            FigureFormat::Table => text(),
            FigureFormat::Json => {
                let text = serde_json::to_string_pretty(value).map_err(|error| error.to_string())?;
                format!("{text}\n")
            }
        };
        self.print(&text).map(drop)
    }
}

/// Runs a command. Only `impact` needs clusters.
///
/// # Errors
/// The failure of the command.
pub async fn run(args: &FlowsArgs, shell: &mut Shell<'_>, clusters: Option<Clusters>) -> Outcome {
    match &args.command {
        None => list(&args.list, shell).await,
        Some(FlowsCommand::Top(args)) => {
            let flows = recorded(&args.input, shell).await?;
            let talkers = top::top(&flows, args.by, args.group, args.count);
            shell.print_value(&talkers, args.output, || top::to_text(&talkers, args.group))
        }
        Some(FlowsCommand::Stats(args)) => {
            let flows = recorded(&args.input, shell).await?;
            let rows = stats::stats(&flows, args.by, args.policies);
            shell.print_value(&rows, args.output, || stats::to_text(&rows, args.by, args.policies))
        }
        Some(FlowsCommand::Recommend(args)) => recommended(args, shell).await,
        Some(FlowsCommand::Impact(args)) => {
            let clusters = clusters.ok_or("impact needs a cluster")?;
            let outcome = impacted(args, shell, &clusters).await;
            match outcome {
                Err(failure) if args.exit_code && !failure.message.is_empty() => {
                    Err(Failure { code: 2, ..failure })
                }
                outcome => outcome,
            }
        }
    }
}

async fn recommended(args: &RecommendArgs, shell: &mut Shell<'_>) -> Outcome {
    let flows = recorded(&args.input, shell).await?;
    let options = recommend::Options {
        namespaces: args.for_namespaces.clone(),
        tier: args.in_tier.clone(),
        order: args.order,
    };
    let made = recommend::recommend(&flows, &options);
    shell.print(&recommend::yaml::to_yaml(&made, &flows, &options))?;
    for note in &made.notes {
        (shell.warn)(&format!("Note: {}", crate::text::clean(note)));
    }
    match made.differences.len() {
        0 => Ok(()),
        number => Err(format!(
            "{number} of the recorded flows would be decided differently; the comments at the beginning list them"
        )
        .into()),
    }
}

async fn impacted(args: &ImpactArgs, shell: &mut Shell<'_>, clusters: &Clusters) -> Outcome {
    let flows = recorded(&args.input, shell).await?;
    let found = impact::impact(&flows, &clusters.before, &clusters.after);
    shell.print_value(&found, args.output, || impact::to_text(&found))?;
    if args.exit_code && !found.changes.is_empty() {
        return Err(Failure { message: String::new(), code: 1 });
    }
    Ok(())
}

struct Range {
    since: Option<i64>,
    until: Option<i64>,
}

fn range(input: &InputArgs, now: i64) -> Result<Range, Failure> {
    let read = |flag: &str, text: &Option<String>| {
        text.as_ref()
            .map(|text| time::moment(text, now).map_err(|error| format!("{flag}: {error}")))
            .transpose()
    };
    Ok(Range { since: read("--since", &input.since)?, until: read("--until", &input.until)? })
}

/// All selected flows of the range, oldest first.
async fn recorded(input: &InputArgs, shell: &mut Shell<'_>) -> Result<Vec<Flow>, Failure> {
    let source = source::choose(&input.source, shell.variable)?;
    fetch(&source, input, None, shell).await
}

async fn fetch(
    source: &Source,
    input: &InputArgs,
    last: Option<u32>,
    shell: &mut Shell<'_>,
) -> Result<Vec<Flow>, Failure> {
    let (range, filter) = (range(input, shell.now)?, &input.filters.0);
    let mut flows = match source {
        Source::Node(_) => {
            return Err("--node shows flows as they arrive; recorded ones need a Goldmane or a file".into());
        }
        Source::File(path) => {
            let name =
                path.as_ref().map_or_else(|| "standard input".to_owned(), |path| path.display().to_string());
            let text = match path {
                Some(path) => std::fs::read_to_string(path),
                None => std::io::read_to_string(&mut *shell.stdin),
            };
            let text = text.map_err(|error| format!("cannot read {name}: {error}"))?;
            json::read(&text).map_err(|error| format!("{name}, {error}"))?
        }
        Source::Goldmane(server) => {
            let asked = push::message(&push::server_filter(filter));
            // The newest flows are also the newest selected ones only if nothing is filtered here.
            let most = last.filter(|_| filter.is_empty());
            let mut client = server.connect().await?;
            let listed = client.list(range.since.unwrap_or(0), range.until.unwrap_or(0), asked, most).await?;
            warn_of_losses(&client.account(), &mut Said::default(), shell).await;
            listed
        }
    };
    flows.retain(|flow| {
        filter.passes(flow)
            && range.until.is_none_or(|until| flow.start < until)
            // A flow summed over several buckets has the start time of the first.
            && range.since.is_none_or(|since| flow.start >= since || flow.end > since)
    });
    flows.sort_by(|one, two| (one.start, &one.key).cmp(&(two.start, &two.key)));
    if let Some(last) = last {
        let more = flows.len().saturating_sub(last as usize);
        flows.drain(..more);
    }
    Ok(flows)
}

async fn warn_of_losses(account: &Account, said: &mut Said, shell: &mut Shell<'_>) {
    if let Some(known) = account.losses().await {
        warn_of(&known, said, shell);
    }
}

fn warn_of(known: &LossesResult, said: &mut Said, shell: &mut Shell<'_>) {
    for line in said.lines(known) {
        (shell.warn)(&format!("Warning: {line}"));
    }
}

async fn list(args: &ListArgs, shell: &mut Shell<'_>) -> Outcome {
    let colours = match args.color {
        Colour::Auto => shell.colours,
        Colour::Always => true,
        Colour::Never => false,
    };
    let style = Style { format: args.output, all_policies: args.print_policy_names, colours };
    let source = source::choose(&args.input.source, shell.variable)?;
    match &source {
        Source::Node(path) => return watch_node(path, args, style, shell).await,
        Source::File(_) if args.follow => {
            return Err("--follow needs a Goldmane or --node, not a file".into());
        }
        Source::Goldmane(server) if args.follow => return follow(server, args, style, shell).await,
        _ => {}
    }
    let is_file = matches!(source, Source::File(_));
    let has_range = args.input.since.is_some() || args.input.until.is_some();
    let last = args.last.or((!has_range && !is_file).then_some(USUAL_LAST));
    let flows = fetch(&source, &args.input, last, shell).await?;
    shell.print(&print::list(&flows, style)).map(drop)
}

async fn watch_node(path: &std::path::Path, args: &ListArgs, style: Style, shell: &mut Shell<'_>) -> Outcome {
    let mut listening = node::listen(path).await?;
    let (mut seen, mut said) = (Seen::default(), Said::default());
    let mut left = args.last;
    while left != Some(0) {
        let heard = tokio::select! {
            heard = listening.next() => heard,
            // The socket must be removed before the process ends.
            _ = tokio::signal::ctrl_c() => None,
        };
        let flow = match heard {
            None => break,
            Some(node::Heard::Flow(flow)) => flow,
            Some(node::Heard::Lost(known)) => {
                warn_of(&known, &mut said, shell);
                continue;
            }
        };
        match show(&flow, &mut seen, args, style, shell)? {
            Some(true) => left = left.map(|left| left - 1),
            Some(false) => break,
            None => {}
        }
    }
    Ok(())
}

/// Prints a flow if it is selected and new; returns whether it was printed to a reader that is still there.
fn show(
    flow: &Flow,
    seen: &mut Seen,
    args: &ListArgs,
    style: Style,
    shell: &mut Shell<'_>,
) -> Result<Option<bool>, Failure> {
    let news = seen.note(flow);
    if news == News::Nothing || !args.input.filters.0.passes(flow) {
        return Ok(None);
    }
    shell.print(&print::one(flow, style, news == News::Correction)).map(Some)
}

async fn follow(server: &goldmane::Server, args: &ListArgs, style: Style, shell: &mut Shell<'_>) -> Outcome {
    let range = range(&args.input, shell.now)?;
    if range.until.is_some() {
        return Err("--follow has no end: leave --until out".into());
    }
    let filter = push::message(&push::server_filter(&args.input.filters.0));
    // The first connection must succeed; later ones are retried.
    let mut client = server.connect().await?;
    if let (Some(_), None) = (args.last, range.since) {
        let flows = fetch(&Source::Goldmane(server.clone()), &args.input, args.last, shell).await?;
        if !shell.print(&print::list(&flows, style))? {
            return Ok(());
        }
    }
    let oldest = shell.now - HISTORY;
    let mut since = range.since.unwrap_or(0);
    if since != 0 && since < oldest {
        (shell.warn)(
            "Note: a stream reaches back at most an hour; without -f, --since returns everything available",
        );
        since = oldest;
    }
    let (mut seen, mut said) = (Seen::default(), Said::default());
    let mut backoff = BACKOFF;
    loop {
        let account = client.account();
        let mut looks = tokio::time::interval(LOOK);
        let lost = match client.stream(seen.newest().unwrap_or(since), filter.clone()).await {
            Err(error) => error,
            Ok(mut stream) => loop {
                let next = tokio::select! {
                    next = stream.next() => next,
                    _ = looks.tick() => {
                        warn_of_losses(&account, &mut said, shell).await;
                        continue;
                    }
                };
                match next {
                    Ok(Some(flow)) => {
                        backoff.reset();
                        if show(&flow, &mut seen, args, style, shell)? == Some(false) {
                            return Ok(());
                        }
                    }
                    Ok(None) => break "the server ended the stream".to_owned(),
                    Err(error) => break error,
                }
            },
        };
        (shell.warn)(&format!("Warning: {lost}; trying again"));
        loop {
            tokio::time::sleep(backoff.pause()).await;
            if let Ok(again) = server.connect().await {
                client = again;
                break;
            }
        }
    }
}
