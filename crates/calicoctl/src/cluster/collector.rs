//! Runs `kubectl` queries, several at a time, and stores the answers as files. A query that fails is reported; the
//! others continue.

use super::jobs::Job;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::programs::{Programs, Report};
use client::{ClientConfig, DatastoreType};
use futures::StreamExt as _;
use serde_json::Value;
use std::io;
use std::path::{Component, Path, PathBuf};

/// How long a cluster may take to answer the first query.
const REACH_TIMEOUT: &str = "--request-timeout=5s";

/// `kubectl`, for one cluster.
#[derive(Debug)]
pub(crate) struct Collector {
    programs: Programs,
    /// The flags that select the cluster.
    flags: Vec<String>,
    at_once: usize,
    /// The number of queries so far.
    count: usize,
}

impl Collector {
    /// For the cluster of this configuration, with at most `at_once` queries at a time.
    ///
    /// # Errors
    /// When there is no `kubectl`.
    pub(crate) fn new(config: &ClientConfig, at_once: usize, context: &Context) -> Result<Self> {
        let programs = Programs::of(context);
        if programs.find("kubectl").is_none() {
            return Err(Failure::new("missing dependency: unable to locate kubectl in PATH"));
        }
        let mut flags = Vec::new();
        let kubernetes = &config.kubernetes;
        // `KUBECONFIG` may be a list of files, which the flag does not accept.
        if config.datastore_type == DatastoreType::Kubernetes
            && !kubernetes.kubeconfig.is_empty()
            && !kubernetes.kubeconfig.contains(':')
        {
            flags.push(format!("--kubeconfig={}", kubernetes.kubeconfig));
        }
        if !kubernetes.current_context.is_empty() {
            flags.push(format!("--context={}", kubernetes.current_context));
        }
        Ok(Self { programs, flags, at_once: at_once.max(1), count: 0 })
    }

    /// Runs `kubectl` and returns its report.
    pub(crate) async fn ask(&self, arguments: &[String]) -> Report {
        let arguments: Vec<&String> = self.flags.iter().chain(arguments).collect();
        self.programs.run("kubectl", &arguments).await
    }

    /// Checks, with a short timeout, that there is a cluster at all.
    ///
    /// # Errors
    /// With the last line that `kubectl` prints.
    pub(crate) async fn reach(&self) -> std::result::Result<(), String> {
        let report = self.ask(&["version", REACH_TIMEOUT].map(str::to_owned)).await;
        if report.succeeded {
            return Ok(());
        }
        let output = String::from_utf8_lossy(&report.output).into_owned();
        Err(output
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("it printed nothing")
            .trim()
            .to_owned())
    }

    /// Lists objects.
    ///
    /// # Errors
    /// With kubectl's output when it fails.
    pub(crate) async fn list(&self, line: &str) -> std::result::Result<Value, String> {
        let arguments: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let report = self.ask(&arguments).await;
        if !report.succeeded {
            return Err(String::from_utf8_lossy(&report.output).trim_end().to_owned());
        }
        serde_json::from_slice(&report.output).map_err(|error| error.to_string())
    }

    /// Runs all queries and stores the answers.
    ///
    /// # Errors
    /// Only when nothing can be printed any more.
    pub(crate) async fn run(&mut self, jobs: &[Job], context: &mut Context) -> Result<()> {
        let this = &*self;
        let mut outcomes = futures::stream::iter(jobs)
            .map(|job| async move { (job, this.one(job).await) })
            .buffered(this.at_once);
        let mut number = this.count;
        while let Some((job, outcome)) = outcomes.next().await {
            number += 1;
            context.print(&format!("[{number}] {}\n", job.info))?;
            if let Err(reason) = outcome {
                let line = job.arguments.join(" ");
                context
                    .print(&format!("[{number}] Failed to run command: kubectl {line}\nError: {reason}\n"))?;
            }
        }
        drop(outcomes);
        self.count = number;
        Ok(())
    }

    async fn one(&self, job: &Job) -> std::result::Result<(), String> {
        let (mut report, mut file) = (self.ask(&job.arguments).await, &job.file);
        if let (false, Some((arguments, other))) = (report.succeeded, &job.fallback) {
            let again = self.ask(arguments).await;
            if again.succeeded {
                (report, file) = (again, other);
            }
        }
        // Failures are part of the diagnostics, too.
        store(file, &report.output, job.link.as_deref())
            .map_err(|error| format!("{}: {error}", file.display()))?;
        if report.succeeded {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&report.output).trim_end().to_owned())
        }
    }
}

fn store(file: &Path, content: &[u8], link: Option<&Path>) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, content)?;
    if let Some(link) = link
        && let Some(folder) = link.parent()
    {
        std::fs::create_dir_all(folder)?;
        std::os::unix::fs::symlink(relative(folder, file), link)?;
    }
    Ok(())
}

/// The relative path from a folder to a file: the archive is unpacked elsewhere.
fn relative(folder: &Path, file: &Path) -> PathBuf {
    let (from, to): (Vec<Component<'_>>, Vec<Component<'_>>) =
        (folder.components().collect(), file.components().collect());
    let shared = from.iter().zip(&to).take_while(|(one, other)| one == other).count();
    std::iter::repeat_n(Component::ParentDir, from.len() - shared)
        .chain(to.into_iter().skip(shared))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::relative;
    use std::path::Path;

    #[test]
    fn links_still_work_after_a_move() {
        for (folder, file, expected) in [
            ("/t/x/links/ns", "/t/x/nodes/n1/ns/p.log", "../../nodes/n1/ns/p.log"),
            ("/t/x", "/t/x/p.log", "p.log"),
        ] {
            assert_eq!(relative(Path::new(folder), Path::new(file)), Path::new(expected));
        }
    }
}
