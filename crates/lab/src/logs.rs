//! The logs of a lab: finds the file of a name, and shows its end and new lines.
//!
//! Only files in the lab's folder are read, so the logs of a killed lab are still available.

use crate::screen::Screen;
use crate::state::{Folder, State};
use anyhow::{Context as _, Result, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of lines of each file when all of them are shown.
const FEW: usize = 10;
/// How often a file is checked for new lines.
const INTERVAL: Duration = Duration::from_millis(200);

/// The files, by the name that users know: programs of the keeper, pods, and `NODE/cni`.
fn files(folder: &Folder, state: Option<&State>) -> Result<BTreeMap<String, PathBuf>> {
    let path = folder.file("logs");
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(&path).with_context(|| format!("reading {}", path.display()))? {
        let file = entry?.path();
        if let Some(name) = file.file_stem().and_then(|name| name.to_str()) {
            files.insert(name.to_owned(), file.clone());
        }
    }
    let Some(state) = state else { return Ok(files) };
    for pod in state.pods.keys() {
        // The file is named by the keeper; the user knows the pod's name.
        if let Some(file) = files.remove(&format!("pod-{}", pod.replace('/', "-"))) {
            files.insert(pod.clone(), file);
        }
    }
    for node in &state.topology.nodes {
        let file = crate::inside::file_of_place(folder, &node.name, "/var/log/calico/cni/cni.log");
        if file.exists() {
            files.insert(format!("{}/cni", node.name), file);
        }
    }
    Ok(files)
}

/// Shows logs: one, or the end of each; with `follow` also new lines, until the lab ends.
///
/// # Errors
/// When there is no such log.
pub(crate) fn show(
    folder: &Folder,
    name: Option<&str>,
    tail: Option<usize>,
    follow: bool,
    screen: &mut Screen,
) -> Result<()> {
    if !folder.exists() {
        return Err(folder.missing());
    }
    let files = files(folder, folder.load().ok().as_ref())?;
    let chosen: Vec<(&String, &PathBuf)> = match name {
        None => files.iter().collect(),
        Some(name) => {
            let full = format!("default/{name}");
            let Some(found) = files.get_key_value(name).or_else(|| files.get_key_value(&full)) else {
                let there: Vec<&str> = files.keys().map(String::as_str).collect();
                bail!("no log of '{name}' in this lab; it has: {}", there.join(", "));
            };
            vec![found]
        }
    };
    let several = chosen.len() > 1;
    let lines = tail.or(several.then_some(FEW));
    let mut places = Vec::new();
    for (name, path) in &chosen {
        let text = read_from(path, 0)?;
        places.push(u64::try_from(text.len()).unwrap_or(u64::MAX));
        let text = String::from_utf8_lossy(&text).into_owned();
        let heading = if several { format!("==> {name} <==\n") } else { String::new() };
        let gap = if several { "\n" } else { "" };
        screen.print(&format!("{heading}{}{gap}", last_lines(&text, lines)));
    }
    let keeper = folder.keeper();
    while follow && screen.is_read() {
        std::thread::sleep(INTERVAL);
        let is_over = keeper.as_ref().is_none_or(|keeper| !keeper.is_alive());
        for ((name, path), place) in chosen.iter().zip(&mut places) {
            // A file that disappeared with its lab has no more lines.
            let Ok(text) = read_from(path, *place) else { continue };
            if text.is_empty() {
                continue;
            }
            *place = place.saturating_add(u64::try_from(text.len()).unwrap_or(u64::MAX));
            let text = String::from_utf8_lossy(&text).into_owned();
            let heading = if several { format!("==> {name} <==\n") } else { String::new() };
            screen.print(&format!("{heading}{text}"));
        }
        if is_over {
            break;
        }
    }
    Ok(())
}

fn read_from(path: &Path, place: u64) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|mut file| {
            file.seek(SeekFrom::Start(place))?;
            file.read_to_end(&mut text)
        })
        .with_context(|| format!("reading {}", path.display()))?;
    Ok(text)
}

/// The last lines of a text, or all of them.
fn last_lines(text: &str, lines: Option<usize>) -> String {
    let Some(lines) = lines else { return text.to_owned() };
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    all[all.len().saturating_sub(lines)..].concat()
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_end_of_a_text() {
        assert_eq!(last_lines("a\nb\nc\n", Some(2)), "b\nc\n");
        assert_eq!(last_lines("a\nb", Some(1)), "b");
        assert_eq!(last_lines("a\nb\n", None), "a\nb\n");
        assert_eq!(last_lines("", Some(3)), "");
    }
}
