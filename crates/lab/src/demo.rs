//! The demonstration of `make lab`: a cluster from nothing, which pods reach each other before and after policy, and
//! the removal of everything.
//!
//! The exit code shows whether the measurements are what `explain` expected, and whether the policies had the intended
//! effect. Nothing is left behind, even on failure.

mod denied;

use crate::bgp;
use crate::called;
use crate::interrupt;
use crate::lab::{self, Lab};
use crate::matrix::{Columns, Matrix};
use crate::measure;
use crate::screen::Screen;
use crate::state::{Folder, lab_names};
use crate::status::word;
use crate::topology::{Topology, Wish, plan};
use anyhow::{Context as _, Result, bail};
use std::path::Path;
use std::time::Duration;

/// How long Felix may take to apply a policy before a cell counts as wrong.
const PATIENCE: Duration = Duration::from_secs(15);

/// Denies all ingress to all pods.
const DENY: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata:
  name: default-deny
spec:
  order: 1000
  selector: all()
  types: [Ingress]
";

/// Allows ingress from the front on port 80.
const ALLOW: &str = "apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata:
  name: front-to-http
spec:
  order: 100
  selector: all()
  types: [Ingress]
  ingress:
  - action: Allow
    protocol: TCP
    source:
      selector: tier == 'front'
    destination:
      ports: [80]
";

/// The prefix of a demonstration's lab when none is named.
const PREFIX: &str = "demo-";

/// Runs the demonstration, in a lab of this name or of an unused one.
///
/// # Errors
/// When a step failed, or the result was not as expected.
pub(crate) fn run(name: Option<&str>, wish: &Wish, html: Option<&Path>, screen: &mut Screen) -> Result<()> {
    sweep();
    let usual = format!("{PREFIX}{}", std::process::id());
    let topology = plan(name.unwrap_or(&usual), wish)?;
    screen.heading("A cluster on this machine");
    describe(&topology, screen);
    let lab = Lab::up(topology, false, screen)?;
    let shown = show(&lab, html, screen);
    screen.heading("The end");
    let removed = lab.down();
    if interrupt::came() && removed.is_ok() {
        bail!("interrupted: everything was removed");
    }
    shown?;
    removed?;
    screen.done("everything is removed: processes, namespaces, files");
    screen.print(&format!("\nAll as expected, in {:.1} s.\n", screen.seconds()));
    screen.say(&format!(
        "Next: `{}` opens a cluster like this one in the browser: traffic, what is denied, and by which policy.",
        called::command(called::USUAL_LAB, "ui")
    ));
    Ok(())
}

fn describe(topology: &Topology, screen: &mut Screen) {
    screen.say(&format!(
        "Each node is a network namespace that runs this program's own node start-up, Felix (with {}) and CNI plugin.",
        word(&topology.dataplane)
    ));
}

fn show(lab: &Lab, html: Option<&Path>, screen: &mut Screen) -> Result<()> {
    for (title, arguments) in [
        ("The nodes, as calicoctl shows them", vec!["get", "nodes", "-o", "wide"]),
        ("The pool of the pods' addresses", vec!["get", "ippool", "-o", "wide"]),
        (
            "The pods, each with its address and its interface on the node",
            vec!["get", "workloadendpoint", "-A"],
        ),
        ("Addresses are handed out in blocks, one or more per node", vec!["ipam", "show", "--show-blocks"]),
    ] {
        interrupt::check()?;
        screen.heading(title);
        screen.indented(&lab.calicoctl(&arguments, "")?);
    }
    if lab.topology().bgp.is_spoken() {
        screen.heading("The routes that nodes learnt by BGP");
        screen.indented(&bgp::learnt(lab)?);
    }
    screen.say(&format!("Routes between nodes are carried by {}.", bgp::carrier(lab.topology())));
    let columns = Columns::default();
    screen.heading("Who reaches whom, before any policy");
    screen.say("Every pod connects to every other pod, on two ports. Nothing is refused.");
    let before = measured(lab, &columns, screen)?;
    expect(before.counts().1 == 0, "before any policy every pod reaches every other")?;

    screen.heading("After a default deny");
    screen.say("A GlobalNetworkPolicy that selects all pods and allows nothing in. The number names the rule that decided.");
    lab.apply(DENY)?;
    let denied = measured(lab, &columns, screen)?;
    expect(denied.counts().0 == 0, "a default deny refuses everything")?;

    screen.heading("After allowing port 80 from tier == 'front'");
    screen.say("A second policy, evaluated before the first. Two pods carry the label; port 8080 stays closed for them too.");
    lab.apply(ALLOW)?;
    let allowed = measured(lab, &columns, screen)?;
    let (reached, refused, _) = allowed.counts();
    expect(reached > 0 && refused > 0, "one label and one port are let in, and nothing else")?;
    if lab.topology().flows {
        denied::show(lab, &allowed, screen)?;
    }
    if let Some(path) = html {
        std::fs::write(
            path,
            crate::html::page("Who reaches whom", crate::html::facts(lab.topology()), &allowed),
        )
        .with_context(|| format!("writing {}", path.display()))?;
        screen.say(&format!("The same as a web page: {}", path.display()));
    }
    Ok(())
}

fn measured(lab: &Lab, columns: &Columns, screen: &mut Screen) -> Result<Matrix> {
    let matrix = measure::matrix(lab, columns, PATIENCE)?;
    interrupt::check()?;
    let text = matrix.to_text_within(screen.colours(), screen.width());
    screen.print(&format!("\n{text}"));
    if !matrix.agrees() {
        bail!("the measured matrix differs from the expected one:\n{}", matrix.disagreements().join("\n"));
    }
    let (reached, refused, _) = matrix.counts();
    screen.done(&format!("{} connections measured, all as calicoctl explain expects", reached + refused));
    Ok(matrix)
}

fn expect(holds: bool, what: &str) -> Result<()> {
    if holds { Ok(()) } else { bail!("not as expected: {what}") }
}

/// Removes the leftovers of killed demonstrations: only folders, as their programs ended with them.
fn sweep() {
    for name in lab_names().unwrap_or_default() {
        if name.starts_with(PREFIX) && Folder::of(&name).is_ok_and(|folder| folder.is_dead()) {
            let _ = lab::down(&name);
        }
    }
}
