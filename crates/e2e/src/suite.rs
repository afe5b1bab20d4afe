//! Kubernetes' own end-to-end tests on the bed: a chosen part that takes minutes, or all that concern the network, at
//! once or in pieces. Several of their processes share the cluster, because most of a test is waiting.
//!
//! The program in their pods (`agnhost`) is built from the same sources and imported under the names that the tests
//! request. Tests that need images other than that one and those it replaces are left out.

mod missing;
mod results;

use crate::bed::Bed;
use crate::settings::{Proxy, Settings};
use anyhow::{Context, Result, bail, ensure};
use missing::why_missing;
use results::{Outcome, names_of, outcomes_of};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use testkit::kubernetes_program;

/// A few of each kind: policy in both directions, by ports, by address blocks, with changes; pods across nodes;
/// services by address, by node port and by name.
const CHOSEN: [&str; 9] = [
    "Netpol.*should support a 'default-deny-all' policy",
    "Netpol.*should enforce policy based on PodSelector or NamespaceSelector",
    "Netpol.*should allow egress access on one named port",
    "Netpol.*should enforce except clause while egress access to server in CIDR block",
    "Networking Granular Checks: Pods should function for intra-pod communication: http ",
    "Services should be able to create a functioning NodePort service",
    "Services should be able to change the type from ExternalName to ClusterIP",
    "Services should have session affinity work for service with type clusterIP ",
    "DNS should provide DNS for services",
];

/// All tests of Kubernetes' network group: policy, pods, services and names.
const ALL: &str = r"\[sig-network\]";

/// Which tests are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    Part,
    All,
    /// The piece with this number, when all tests are divided into this many pieces.
    Piece {
        number: usize,
        of: usize,
    },
    /// The tests whose names match.
    Named(String),
}

impl Choice {
    /// Parses the arguments of the command line.
    pub(crate) fn read(words: &[&str]) -> Result<Self> {
        match words {
            [] => Ok(Self::Part),
            ["all"] => Ok(Self::All),
            ["all", piece] => {
                let parsed =
                    piece.split_once('/').and_then(|(one, all)| Some((one.parse().ok()?, all.parse().ok()?)));
                match parsed {
                    Some((number, of)) if (1..=of).contains(&number) => Ok(Self::Piece { number, of }),
                    _ => bail!("{piece:?} is not a piece such as 2/5"),
                }
            }
            [expression] => Ok(Self::Named((*expression).to_owned())),
            other => {
                bail!("unknown words {other:?} for the suite; known are: nothing, all, all 2/5, EXPRESSION")
            }
        }
    }

    fn expression(&self) -> String {
        match self {
            Self::Part => CHOSEN.join("|"),
            Self::All | Self::Piece { .. } => ALL.to_owned(),
            Self::Named(expression) => expression.clone(),
        }
    }

    /// The part of all matching tests to run. Neighbours in the order of names take about as long.
    fn of(&self, names: Vec<String>) -> Vec<String> {
        match self {
            Self::Piece { number, of } => names.into_iter().skip(number - 1).step_by(*of).collect(),
            _ => names,
        }
    }
}

/// The images in tests that are available here, by a part of their names.
const IMAGES: [&str; 5] = ["/agnhost:", "/busybox:", "/glibc-dns-testing:", "/nginx:", "/pause:"];

/// The image references that the tests' pods use.
pub(crate) fn images() -> Result<Vec<String>> {
    let program = kubernetes_program("e2e.test")?;
    let output = Command::new(&program).arg("--list-images").output().context("running e2e.test")?;
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let names: Vec<String> = listed
        .lines()
        .map(str::trim)
        .filter(|line| IMAGES.iter().any(|image| line.contains(image)))
        .map(str::to_owned)
        .collect();
    ensure!(!names.is_empty(), "e2e.test --list-images names no agnhost: {output:?}");
    Ok(names)
}

/// Runs the tests in this many processes at once, and serial tests at the end. The outcome of each is in the folder's
/// `results.txt`, with the tests' output beside it.
pub(crate) fn run(bed: &mut Bed, choice: &Choice, settings: &Settings, report: &Path) -> Result<()> {
    let at_once = settings.at_once;
    // Remove the report of an earlier run.
    let _ = std::fs::remove_dir_all(report);
    std::fs::create_dir_all(report)?;
    bed.lead_to_ranges()?;
    let (names, missing) = matching(bed, choice, settings.proxy, report)?;
    println!(
        "e2e: {} of Kubernetes' own tests, {at_once} at once; {} more do not fit here",
        names.len(),
        missing.len()
    );
    ensure!(!names.is_empty(), "no test matches {:?}", choice.expression());
    let (alone, together): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name.contains("[Serial]"));
    let mut outcomes = BTreeMap::new();
    for group in [shares(together, at_once), shares(alone, 1)] {
        outcomes.extend(run_shares(bed, &group, outcomes.len(), report)?);
    }
    let mut lines = String::new();
    for (name, outcome) in &outcomes {
        writeln!(lines, "{outcome} {name}")?;
    }
    for (name, why) in &missing {
        writeln!(lines, "left out ({why}) {name}")?;
    }
    std::fs::write(report.join("results.txt"), lines)?;
    let of = |wanted: fn(&Outcome) -> bool| outcomes.iter().filter(move |(_, outcome)| wanted(outcome));
    for (name, outcome) in of(|outcome| !matches!(outcome, Outcome::Passed { .. })) {
        println!("e2e:   {outcome}: {name}");
    }
    let failed = of(|outcome| matches!(outcome, Outcome::Failed)).count();
    println!(
        "e2e: {} passed, {failed} failed, {} skipped themselves; {} has each",
        of(|outcome| matches!(outcome, Outcome::Passed { .. })).count(),
        of(|outcome| matches!(outcome, Outcome::Skipped { .. })).count(),
        report.join("results.txt").display()
    );
    ensure!(failed == 0, "{failed} of Kubernetes' tests failed; {} has their output", report.display());
    Ok(())
}

/// The matching tests that can run here, and those that cannot, with the reason.
type Matching = (Vec<String>, Vec<(String, &'static str)>);

fn matching(bed: &Bed, choice: &Choice, proxy: Proxy, report: &Path) -> Result<Matching> {
    let folder = report.join("list");
    let mut command = command(bed, &folder, &choice.expression())?;
    command.arg("--ginkgo.dry-run");
    let output = command.output().context("running e2e.test")?;
    ensure!(output.status.success(), "listing tests: {}", String::from_utf8_lossy(&output.stdout));
    let names = choice.of(names_of(&junit(&folder)?));
    let (mut fit, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match why_missing(&name, bed.plane.families, proxy) {
            Some(why) => missing.push((name, why)),
            None => fit.push(name),
        }
    }
    Ok((fit, missing))
}

/// The tests divided among processes.
fn shares(names: Vec<String>, count: usize) -> Vec<Vec<String>> {
    let mut shares = vec![Vec::new(); count.max(1)];
    let all = shares.len();
    for (index, name) in names.into_iter().enumerate() {
        shares[index % all].push(name);
    }
    shares.retain(|share: &Vec<String>| !share.is_empty());
    shares
}

/// Runs each share in its own process, all at once.
fn run_shares(
    bed: &Bed,
    shares: &[Vec<String>],
    before: usize,
    report: &Path,
) -> Result<BTreeMap<String, Outcome>> {
    let mut running = Vec::new();
    for (index, share) in shares.iter().enumerate() {
        let folder = report.join(format!("{}-{}", before + 1, index + 1));
        std::fs::create_dir_all(&folder)?;
        let escaped: Vec<String> = share.iter().map(|name| format!("{}$", escape(name))).collect();
        let file = std::fs::File::create(folder.join("e2e.log"))?;
        let child = command(bed, &folder, &escaped.join("|"))?
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .context("running e2e.test")?;
        running.push((share, folder, child));
    }
    let mut outcomes = BTreeMap::new();
    for (share, folder, mut child) in running {
        child.wait()?;
        let text = junit(&folder)?;
        let mut found = outcomes_of(&text);
        for name in share {
            // A test that never began has not succeeded.
            outcomes.insert(name.clone(), found.remove(name).unwrap_or(Outcome::Failed));
        }
    }
    Ok(outcomes)
}

/// The command for tests that match, with its report in a folder.
fn command(bed: &Bed, report: &Path, expression: &str) -> Result<Command> {
    let mut command = bed.plane.command(&kubernetes_program("e2e.test")?)?;
    command
        .arg("--provider=skeleton")
        .arg(format!("--kubeconfig={}", bed.plane.admin().display()))
        .arg(format!("--kubectl-path={}", kubernetes_program("kubectl")?.display()))
        .arg(format!("--num-nodes={}", bed.nodes.len()))
        .arg(format!("--report-dir={}", report.display()))
        .arg("--disable-log-dump=true")
        .arg("--ginkgo.no-color")
        .arg("--ginkgo.timeout=3h")
        .arg(format!("--ginkgo.focus={expression}"))
        .stdin(Stdio::null());
    Ok(command)
}

/// Reads a report. Tests send arbitrary bytes to each other, and print them.
fn junit(folder: &Path) -> Result<String> {
    let path: PathBuf = folder.join("junit_01.xml");
    let bytes = std::fs::read(&path).with_context(|| {
        format!("{}: Kubernetes' tests wrote no report; {} may say why", path.display(), folder.display())
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// A name as an expression that matches nothing else.
fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for letter in name.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::{Choice, escape, shares};

    #[test]
    fn pieces_together_are_all() {
        let names: Vec<String> = (0..7).map(|number| number.to_string()).collect();
        let mut all = Vec::new();
        for number in 1..=3 {
            let choice = Choice::read(&["all", &format!("{number}/3")]).unwrap();
            all.extend(choice.of(names.clone()));
        }
        all.sort();
        assert_eq!(all, names);
        assert_eq!(shares(names.clone(), 3).concat().len(), 7);
        assert_eq!(shares(names[..1].to_vec(), 3).len(), 1);
        for wrong in ["0/3", "4/3", "3", "x/y"] {
            assert!(Choice::read(&["all", wrong]).unwrap_err().to_string().contains(wrong));
        }
        assert_eq!(Choice::read(&["a name"]).unwrap(), Choice::Named("a name".to_owned()));
    }

    #[test]
    fn a_name_matches_itself_only() {
        assert_eq!(escape("[sig] a (b) c.d"), r"\[sig\] a \(b\) c\.d");
    }
}
