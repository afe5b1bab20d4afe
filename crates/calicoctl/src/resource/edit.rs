//! `edit`: opens one object in the user's editor, parses it as strictly as a file, and stores it unless it was changed
//! meanwhile.
//!
//! The user's text is never lost: after a mistake the editor opens again with the reason above the text, and if the
//! edit ends without being stored, the file is kept and its path is printed.

use super::operations::{self, Refusal};
use super::target::{Identity, Namespaces, from_words};
use crate::context::{ConfigFlag, Context};
use crate::failure::{Failure, Result};
use crate::files::cannot_open;
use crate::kinds::Words;
use crate::output::name_line;
use crate::version_gate::Access;
use api::Resource;
use api::document::{Checks, read};
use client::Error;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The comment above every object.
const HEADER: &str = "# Edit the object below. Lines at the top that begin with '#' are ignored. An empty or unchanged file\n\
                      # leaves everything as it is. If the object cannot be stored, the editor opens again with the reason.\n#\n";

/// Flags of `edit`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The editor is taken from KUBE_EDITOR, VISUAL or EDITOR; the default is vi. Your text is kept if it cannot be stored.\n\n\
                  Examples:\n  calicoctl edit ippool default-ipv4-ippool\n\n  \
                  # With another editor.\n  KUBE_EDITOR=nano calicoctl edit networkpolicy allow-web -n shop"
)]
pub(crate) struct EditArgs {
    /// The type of the object.
    #[arg(value_parser = Words::Kinds, hide_possible_values = true)]
    pub kind: String,
    /// Its name.
    pub name: String,
    /// The namespace of resources that do not name one; `default` if not given.
    #[arg(long, short = 'n', value_name = "NS")]
    pub namespace: Option<String>,
    /// Where the datastore is.
    #[command(flatten)]
    pub config: ConfigFlag,
}

/// Runs `edit`.
///
/// # Errors
/// When the object cannot be read or stored, or the editor fails.
pub(crate) async fn run(args: &EditArgs, context: &mut Context) -> Result<()> {
    let namespaces = Namespaces { flag: args.namespace.as_deref(), all: false };
    let targets = from_words(&[args.kind.clone(), args.name.clone()], namespaces)?;
    let [target] = targets.as_slice() else { return Err(Failure::new("edit takes one object")) };
    let client = context.connect_for(&args.config, Access::Write).await?;
    let Identity { kind, namespace, name } = target;
    let stored = client.get_any(*kind, namespace, name, None).await;
    let stored = stored.map_err(|error| Failure::new(Refusal::from(error).to_string()))?;
    let original = api::yaml::to_string(&serde_json::to_value(&stored)?);

    let file = Draft::new(context, target)?;
    let mut header = HEADER.to_owned();
    let mut body = original.clone();
    loop {
        file.write(&format!("{header}{body}"))?;
        let outcome = edit(context, &file.path);
        let written = body_of(&file.read()?).to_owned();
        if let Err(failure) = outcome {
            return Err(if written == original {
                file.discard(failure)
            } else {
                file.kept(failure.message())
            });
        }
        let is_repeated = written == body && body != original;
        if written.trim().is_empty() || written == original {
            file.remove();
            let reason = if written.trim().is_empty() { "saved file was empty" } else { "no changes made" };
            return context.print(&format!("Edit cancelled, {reason}.\n"));
        }
        body = written;
        let mistake = match parse(&body, 0, &stored) {
            Ok(resource) => match operations::update(&client, &resource).await {
                Ok(_) => {
                    file.remove();
                    return context.print(&format!("{} edited\n", name_line(&resource).trim_end()));
                }
                Err(Refusal::Store(error)) if matches!(*error, Error::Validation(_)) => error.to_string(),
                // A conflict or a datastore failure: opening the editor again would not help.
                Err(refusal) => return Err(file.kept(&refusal.to_string())),
            },
            Err(_) if is_repeated => return Err(file.kept("no valid changes were saved")),
            Err(mistake) => mistake,
        };
        if is_repeated {
            return Err(file.kept("no valid changes were saved"));
        }
        header = header_with(&mistake);
        // Line numbers in the message refer to the file that the user is about to see.
        if let Err(mistake) = parse(&body, header.lines().count(), &stored) {
            header = header_with(&mistake);
        }
    }
}

fn header_with(mistake: &str) -> String {
    let mut header = HEADER.to_owned();
    for line in mistake.trim_end().lines() {
        header.push_str(format!("# {line}").trim_end());
        header.push('\n');
    }
    header.push_str("#\n");
    header
}

/// The text below the comments at the top.
fn body_of(text: &str) -> &str {
    let mut rest = text;
    while rest.starts_with('#') {
        rest = rest.split_once('\n').map_or("", |(_, after)| after);
    }
    rest
}

/// Parses the text, which must be valid and still the same object. `above` lines precede it in the file.
fn parse(body: &str, above: usize, stored: &Resource) -> std::result::Result<Resource, String> {
    let text = format!("{}{body}", "\n".repeat(above));
    let documents = read("the edited object", text.as_bytes(), Checks::Structure)
        .map_err(|mistakes| mistakes.to_string())?;
    let [document] = documents.as_slice() else {
        return Err(format!("expected one object, found {}", documents.len()));
    };
    let mut resource = document.resource.clone();
    if Identity::of(&resource) != Identity::of(stored) {
        return Err(format!("the kind, namespace and name of {} cannot be changed", Identity::of(stored)));
    }
    // Deleting the version must not hide a conflict with another writer.
    resource.metadata_mut().resource_version.clone_from(&stored.metadata().resource_version);
    let mut whole = resource.clone();
    whole.set_defaults();
    whole.validate().map_err(|errors| document.diagnose(&errors).to_string())?;
    Ok(resource)
}

/// Runs the editor on a file.
fn edit(context: &Context, path: &Path) -> Result<()> {
    let environment = &context.surroundings.environment;
    let named = ["KUBE_EDITOR", "VISUAL", "EDITOR"].into_iter().find_map(|name| {
        let value = environment.variable(name)?.into_string().ok()?;
        Some(value).filter(|value| !value.trim().is_empty())
    });
    let editor = named.unwrap_or_else(|| "vi".to_owned());
    // The variable may contain flags or quotes: like other tools, pass it to the shell.
    let status = std::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("sh")
        .arg(path)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Failure::new(format!("the editor '{editor}' failed ({status})"))),
        Err(error) => Err(Failure::new(format!("cannot start the editor '{editor}': {error}"))),
    }
}

/// The file that the user edits. Objects may be confidential, so only the user can read it.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn new(context: &Context, target: &Identity) -> Result<Self> {
        let folder = context.surroundings.environment.variable("TMPDIR").map(PathBuf::from);
        let folder =
            folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(std::env::temp_dir);
        let kind = target.kind.as_str().to_lowercase();
        let moment = jiff::Timestamp::now().as_nanosecond();
        let path = folder.join(format!("calicoctl-edit-{kind}-{}-{moment}.yaml", std::process::id()));
        let options = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        options.map_err(|error| cannot_open(&path, &error))?;
        Ok(Self { path })
    }

    fn write(&self, text: &str) -> Result<()> {
        let file = std::fs::OpenOptions::new().write(true).truncate(true).open(&self.path);
        let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| cannot_open(&self.path, &error))
    }

    fn read(&self) -> Result<String> {
        std::fs::read_to_string(&self.path).map_err(|error| cannot_open(&self.path, &error))
    }

    fn remove(&self) {
        // The file is in the folder for temporary files, and holds nothing new.
        let _ = std::fs::remove_file(&self.path);
    }

    fn discard(&self, failure: Failure) -> Failure {
        self.remove();
        failure
    }

    /// A failure that leaves the file in place and names it.
    fn kept(&self, reason: &str) -> Failure {
        Failure::new(format!(
            "{reason}\nThe edit was not stored. A copy of your changes is in {}",
            self.path.display()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::Kind;

    const POOL: &str =
        "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: a\nspec:\n  cidr: 10.0.0.0/16\n";

    fn stored() -> Resource {
        let json = br#"{"metadata":{"name":"a","resourceVersion":"7"},"spec":{"cidr":"10.0.0.0/16"}}"#;
        Resource::from_json(Kind::IPPool, json).expect("an object")
    }

    #[test]
    fn comments_at_the_top_are_not_part_of_the_object() {
        assert_eq!(body_of("# a\n#\nkind: x\n# inside\n"), "kind: x\n# inside\n");
        assert_eq!(body_of("# only"), "");
        assert_eq!(body_of("kind: x\n"), "kind: x\n");
    }

    #[test]
    fn an_edited_object_keeps_its_identity_and_version() {
        let resource = parse(POOL, 0, &stored()).expect("an object");
        assert_eq!(resource.metadata().resource_version, "7");
        for (text, message) in [
            (POOL.replace("name: a", "name: b"), "cannot be changed"),
            (POOL.replace("cidr:", "cider:"), "cider"),
            (POOL.replace("/16", "/33"), "cidr"),
            (format!("{POOL}---\n{POOL}"), "expected one object, found 2"),
        ] {
            let mistake = parse(&text, 0, &stored()).expect_err(&text);
            assert!(mistake.contains(message), "{mistake}");
        }
    }

    #[test]
    fn places_count_the_lines_of_the_file_with_its_header() {
        let wrong = POOL.replace("cidr:", "cider:");
        assert!(parse(&wrong, 0, &stored()).expect_err("a mistake").contains(":6:"));
        assert!(parse(&wrong, 9, &stored()).expect_err("a mistake").contains(":15:"));
    }
}
