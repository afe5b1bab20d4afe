//! Passes the commit that it is built from to the crate.
//!
//! `TORTIE_GIT_COMMIT` wins; otherwise git is asked; outside a checkout the commit is `unknown`, and the build
//! continues. A release build follows the checkout's HEAD. Other builds ask git once and do not watch HEAD: a commit
//! changes nothing that is compiled, and must not make every developer rebuild the crate.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=TORTIE_GIT_COMMIT");
    let commit = std::env::var("TORTIE_GIT_COMMIT").ok().filter(|commit| !commit.is_empty()).or_else(|| {
        if std::env::var("PROFILE").as_deref() == Ok("release") {
            watch_head();
        }
        git(&["rev-parse", "--short", "HEAD"])
    });
    println!("cargo::rustc-env=TORTIE_GIT_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

/// Rebuilds when HEAD, or the branch that it names, moves.
fn watch_head() {
    let mut names = vec!["HEAD".to_owned(), "packed-refs".to_owned()];
    names.extend(git(&["symbolic-ref", "-q", "HEAD"]));
    for name in names {
        if let Some(path) = git(&["rev-parse", "--git-path", &name])
            && Path::new(&path).exists()
        {
            println!("cargo::rerun-if-changed={path}");
        }
    }
}

/// The output of git; `None` without git or outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}
