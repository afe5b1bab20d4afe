//! The scenarios of `tests/scenarios`: each is a series of steps, with the expected state after each step.
//!
//! A line `== name` begins a step; the lines after `-- expect` are the state after it. `UPDATE_EXPECT=1` writes the
//! actual state into the files, which must be reviewed before they are committed.

use crate::run::{WAYS, Way, go};
use crate::text::{apply, render};
use crate::world::World;
use std::fmt::Write as _;
use std::path::Path;

struct Step {
    name: String,
    text: String,
    expect: String,
}

fn parse(content: &str) -> (String, Vec<Step>) {
    let mut parts = content.split("\n== ");
    let head = parts.next().unwrap_or_default().to_owned();
    let steps = parts.map(|part| {
        let (name, body) = part.split_once('\n').unwrap_or((part, ""));
        let (text, expect) = body.split_once("-- expect\n").unwrap_or((body, ""));
        let expect = expect.trim_end();
        Step { name: name.to_owned(), text: text.to_owned(), expect: expect.to_owned() }
    });
    (head, steps.collect())
}

fn check(file: &Path) {
    let content = std::fs::read_to_string(file).unwrap();
    let (head, steps) = parse(&content);
    assert!(!steps.is_empty(), "{}: no steps", file.display());
    let suppress = head.contains("suppress-overlaps");
    let mut worlds = Vec::new();
    let mut world = World::new();
    for step in &steps {
        apply(&mut world, &step.text);
        worlds.push(world.clone());
    }
    let mut rendered = vec![String::new(); steps.len()];
    go(&worlds, Way::Forward, suppress, |place, run| rendered[place] = render(&run.dataplane.policy));
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        let mut out = head;
        for (step, state) in steps.iter().zip(&rendered) {
            let _ = write!(out, "\n== {}\n{}-- expect\n{state}", step.name, step.text);
        }
        std::fs::write(file, out).unwrap();
        return;
    }
    for (step, state) in steps.iter().zip(&rendered) {
        assert_eq!(state.trim_end(), step.expect, "{}: {}", file.display(), step.name);
    }
    for way in WAYS {
        go(&worlds, way, suppress, |place, run| {
            assert_eq!(
                render(&run.dataplane.policy),
                rendered[place],
                "{}: {way:?}: {}",
                file.display(),
                steps[place].name
            );
        });
    }
}

#[test]
fn every_scenario_in_every_way() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 6, "the scenarios are there");
    for file in files {
        check(&file);
    }
}
