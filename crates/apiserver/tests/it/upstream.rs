//! Test cases of Calico's own API server tests, as data: `tests/data/upstream.txt`.

use crate::world::{Watched, World};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// The path of an expected part that is missing from an answer.
fn missing(found: &Value, wanted: &Value, path: &str) -> Option<String> {
    let Value::Object(fields) = wanted else {
        let is_there = if wanted.is_null() { found.is_null() } else { found == wanted };
        return (!is_there).then(|| format!("{path} is {found}, not {wanted}"));
    };
    fields.iter().find_map(|(name, wanted)| {
        if name == "$names" {
            let items = found["items"].as_array().into_iter().flatten();
            let names: Vec<&Value> =
                items.map(|item| item.pointer("/metadata/name").unwrap_or(&Value::Null)).collect();
            return (serde_json::json!(names) != *wanted)
                .then(|| format!("names are {names:?}, not {wanted}"));
        }
        missing(found.get(name).unwrap_or(&Value::Null), wanted, &format!("{path}/{name}"))
    })
}

/// The run of one file.
#[derive(Default)]
struct Script {
    watch: Option<Watched>,
    revision: String,
    uid: String,
}

impl Script {
    async fn step(&mut self, world: &World, line: &str) -> Result<()> {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "WATCH" => self.watch = Some(world.watch(rest).await?),
            "EVENT" => {
                let found = self.watch.as_mut().context("a watch")?.words(1).await?;
                ensure!(found == [rest], "{found:?}");
            }
            "CLOSED" => {
                let event = self.watch.as_mut().context("a watch")?.next().await?;
                ensure!(event.is_none(), "{event:?}");
            }
            method => self.request(world, method, rest).await?,
        }
        Ok(())
    }

    async fn request(&mut self, world: &World, method: &str, rest: &str) -> Result<()> {
        let (line, wanted) = match rest.split_once(" => ") {
            Some((line, wanted)) => (line, serde_json::from_str(wanted)?),
            None => (rest, Value::Null),
        };
        let mut words = line.splitn(3, ' ');
        let (path, code) = (words.next().context("a path")?, words.next().context("a code")?);
        let body = words.next().unwrap_or_default();
        let body = body.replace("\"$rv\"", &format!("{:?}", self.revision));
        let body = body.replace("\"$uid\"", &format!("{:?}", self.uid));
        let (method, content) = match method {
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "PATCH" => (method, "application/merge-patch+json"),
            _ => (method, "application/json"),
        };
        let (found, answer) = world.ask_with(method, path, content, "application/json", &body).await?;
        ensure!(found == code.parse::<u16>()?, "{found}: {answer}");
        if !wanted.is_null()
            && let Some(why) = missing(&answer, &wanted, "")
        {
            bail!("{why}: {answer}");
        }
        let text = |name: &str| answer["metadata"][name].as_str().map(str::to_owned);
        if let (Some(revision), Some(uid)) = (text("resourceVersion"), text("uid")) {
            (self.revision, self.uid) = (revision, uid);
        }
        Ok(())
    }
}

#[tokio::test]
async fn calicos_own_cases() -> Result<()> {
    let world = World::start().await?;
    let mut script = Script::default();
    let (mut case, mut steps) = ("", 0);
    for (number, line) in include_str!("../data/upstream.txt").lines().enumerate() {
        match line.strip_prefix("## ") {
            Some(title) => case = title,
            None if line.starts_with('#') || line.is_empty() => {}
            None => {
                steps += 1;
                let place = || format!("line {}, {case}: {line}", number + 1);
                script.step(&world, line).await.with_context(place)?;
            }
        }
    }
    assert!(steps > 250, "{steps} steps");
    Ok(())
}
