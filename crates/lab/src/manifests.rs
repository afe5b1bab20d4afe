//! The manifests for `lab apply`: a file, standard input, or every manifest of a folder; and which of their documents
//! only Kubernetes understands.

use anyhow::{Context as _, Result, bail};
use std::path::{Path, PathBuf};

/// The file name extensions of manifests.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// One manifest: its source and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Reads manifests from a file, `-`, or a folder, with the folders in it if `recursive`.
///
/// # Errors
/// When nothing can be read there.
pub(crate) fn read(path: &Path, recursive: bool) -> Result<Vec<Manifest>> {
    if path == Path::new("-") {
        let text = std::io::read_to_string(std::io::stdin()).context("reading standard input")?;
        return Ok(vec![Manifest { name: "standard input".to_owned(), text }]);
    }
    let mut files = Vec::new();
    if path.is_dir() {
        gather(path, recursive, &mut files)?;
        if files.is_empty() {
            let hint = if recursive { "" } else { "; -R looks into the folders in it, too" };
            bail!("no .yaml, .yml or .json file in {}{hint}", path.display());
        }
    } else {
        files.push(path.to_owned());
    }
    files
        .into_iter()
        .map(|file| {
            let text =
                std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            Ok(Manifest { name: file.display().to_string(), text })
        })
        .collect()
}

fn gather(folder: &Path, recursive: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let reading = || format!("reading {}", folder.display());
    let entries = std::fs::read_dir(folder).with_context(reading)?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()
        .with_context(reading)?;
    paths.sort();
    for path in paths {
        let is_manifest = path
            .extension()
            .and_then(|ending| ending.to_str())
            .is_some_and(|ending| ENDINGS.contains(&ending));
        // A link to a folder could lead back to its parent.
        if path.is_dir() && !path.is_symlink() {
            if recursive {
                gather(&path, recursive, files)?;
            }
        } else if is_manifest {
            files.push(path);
        }
    }
    Ok(())
}

/// The documents of a YAML text.
pub(crate) fn documents(text: &str) -> Vec<&str> {
    let mut documents = Vec::new();
    let (mut start, mut place) = (0, 0);
    for line in text.split_inclusive('\n') {
        if line.trim_end() == "---" {
            documents.push(&text[start..place]);
            start = place + line.len();
        }
        place += line.len();
    }
    documents.push(&text[start..]);
    documents.retain(|document| !document.trim().is_empty());
    documents
}

/// Whether a document is one of Calico's resources.
pub(crate) fn is_own(document: &str) -> bool {
    api_version(document).is_some_and(|version| version.starts_with(api::words::OWN_PREFIX))
}

/// The `apiVersion` and `kind` of the first document that only Kubernetes understands.
pub(crate) fn first_of_kubernetes(text: &str) -> Option<(String, String)> {
    documents(text).into_iter().find_map(|document| {
        let version = api_version(document)?;
        let is_foreign = !version.contains(api::words::OWN_PREFIX) && kind(document)? != "List";
        is_foreign.then(|| (version, kind(document).unwrap_or_default()))
    })
}

fn api_version(document: &str) -> Option<String> {
    top_field(document, "apiVersion")
}

fn kind(document: &str) -> Option<String> {
    top_field(document, "kind")
}

/// A field of a document's top level, found by its line; in JSON it is quoted.
fn top_field(document: &str, name: &str) -> Option<String> {
    if let Ok(value) = serde_json::from_str::<serde_json::Value>(document) {
        return value.get(name)?.as_str().map(str::to_owned);
    }
    document.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        let value = value.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
        Some(value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::{documents, first_of_kubernetes, is_own, read};

    #[test]
    fn a_text_is_cut_into_documents() {
        assert_eq!(documents("a: 1\n---\nb: |\n  --- x\n---\n\n"), ["a: 1\n", "b: |\n  --- x\n"]);
        assert_eq!(documents("a: 1"), ["a: 1"]);
    }

    #[test]
    fn calicos_and_kubernetes_documents() {
        assert!(is_own("kind: Tier\napiVersion: projectcalico.org/v3 # ours\n"));
        assert!(is_own("{\"apiVersion\": \"projectcalico.org/v3\"}"));
        assert!(!is_own("apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\n"));
        let text = "apiVersion: projectcalico.org/v3\nkind: Tier\n---\napiVersion: \"v1\"\nkind: Pod\n";
        assert_eq!(first_of_kubernetes(text), Some(("v1".to_owned(), "Pod".to_owned())));
        assert_eq!(first_of_kubernetes("apiVersion: projectcalico.org/v3\nkind: Tier\n"), None);
        assert_eq!(first_of_kubernetes("selektor: x\n"), None);
    }

    #[test]
    fn folders_are_read_in_order() {
        let folder = std::env::temp_dir().join(format!("tortie-manifests-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("below")).unwrap();
        for name in ["b.yaml", "a.json", "notes.txt", "below/c.yml"] {
            std::fs::write(folder.join(name), name).unwrap();
        }
        let names = |recursive| -> Vec<String> {
            read(&folder, recursive).unwrap().into_iter().map(|manifest| manifest.text).collect()
        };
        assert_eq!(names(false), ["a.json", "b.yaml"]);
        assert_eq!(names(true), ["a.json", "b.yaml", "below/c.yml"]);
        for name in ["b.yaml", "a.json"] {
            std::fs::remove_file(folder.join(name)).unwrap();
        }
        assert!(read(&folder, false).unwrap_err().to_string().contains("-R"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
