//! `explain test`: expectations as data, for users' own continuous integration.

use super::Output;
use super::load::SourceFlags;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::files::FileFlags;
use ::explain::{Expectations, TestReport, counted, test_file, to_junit};
use std::path::PathBuf;

/// Flags of `explain test`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file of expectations:\n\n  namespace: shop\n  tests:\n  - name: the shop reaches its database\n    from: web\n    \
                  to: [db:5432, cache:6379]\n    expect: allow\n  - from: [tools/scanner, 203.0.113.7]\n    to: db\n    port: 5432\n    \
                  protocol: tcp\n    expect: deny\n\n\
                  Example:\n  calicoctl explain test expectations.yaml --offline ./manifests --junit report.xml"
)]
pub(crate) struct TestArgs {
    /// The expectations, in YAML or JSON; - for standard input.
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub file: PathBuf,
    /// Also write the report as JUnit XML to this file.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub junit: Option<PathBuf>,
    /// Also fail if there are mistakes in the manifests or unreadable objects in the datastore.
    #[arg(long)]
    pub strict: bool,
    /// Output format: text, json, yaml or junit.
    #[arg(long, short = 'o', value_name = "OUTPUT FORMAT", default_value = "text")]
    pub output: String,
    /// Where the cluster comes from.
    #[command(flatten)]
    pub source: SourceFlags,
}

/// Runs `explain test`.
///
/// # Errors
/// When the expectations or the cluster cannot be read, or an expectation is not met.
pub(crate) async fn run(args: &TestArgs, context: &mut Context) -> Result<()> {
    let output = if args.output == "junit" { None } else { Some(Output::parse(&args.output)?) };
    let mut expectations = Vec::new();
    let files = FileFlags { filename: vec![args.file.clone()], recursive: true, skip_empty: true };
    for (name, text) in files.texts(context)? {
        for mut found in Expectations::read(&name, &text).map_err(|error| Failure::new(error.to_string()))? {
            if let Some(namespace) = &args.source.namespace {
                found.namespace.clone_from(namespace);
            }
            expectations.push(found);
        }
    }
    if expectations.is_empty() {
        return Err(Failure::new(format!("{}: contains no tests", args.file.display())));
    }
    let loaded = args.source.load(context).await?;
    let cases = expectations.iter().flat_map(|found| test_file(&loaded.wanted, found).cases);
    let report = TestReport { cases: cases.collect() };
    let suite = args.file.display().to_string();
    if let Some(path) = &args.junit {
        std::fs::write(path, to_junit(&report, &suite))
            .map_err(|error| crate::files::cannot_open(path, &error))?;
    }
    match output {
        Some(output) => output.print(context, &report, || report.to_text())?,
        None => context.print(&to_junit(&report, &suite))?,
    }
    let problems = loaded.wanted.problems().len();
    match (report.failures(), problems) {
        (0, 0) => Ok(()),
        (0, problems) if args.strict => {
            Err(Failure::new(format!("{} in what was read", counted(problems, "mistake"))))
        }
        (0, _) => Ok(()),
        (failures, _) => {
            let all = counted(report.cases.len(), "expectation");
            let are = if failures == 1 { "is" } else { "are" };
            Err(Failure::new(format!("{failures} of {all} {are} not met")))
        }
    }
}
