//! The command tree in the formats of other programs: shells, and `man`.

use crate::cli;
use crate::context::Context;
use crate::failure::{Failure, Result};
use crate::files::cannot_open;
use std::path::{Path, PathBuf};

/// Flags of `completion`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  source <(calicoctl completion bash)\n  calicoctl completion fish > \
                        ~/.config/fish/completions/calicoctl.fish")]
pub(crate) struct CompletionArgs {
    /// The shell.
    pub shell: clap_complete::Shell,
}

/// Prints the completion script of a shell.
///
/// # Errors
/// When it cannot be printed.
pub(crate) fn completion(args: &CompletionArgs, context: &mut Context) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::tree("calicoctl"), "calicoctl", &mut script);
    let script = String::from_utf8(script)?;
    context.print(&script)
}

/// Flags of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  calicoctl man /usr/local/share/man/man1\n  calicoctl man | man -l -")]
pub(crate) struct ManArgs {
    /// The directory to write the pages to; without one, the page of calicoctl itself is printed.
    #[arg(value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

/// Writes the manual pages.
///
/// # Errors
/// When a page cannot be written.
pub(crate) fn pages(args: &ManArgs, context: &mut Context) -> Result<()> {
    let text = whole(cli::tree("calicoctl"), args.directory.as_deref())?;
    context.print(&text)
}

/// Writes the manual pages of a command tree into a directory; without one, builds only the root's page. Returns the
/// text to print.
///
/// # Errors
/// When a page cannot be written.
pub fn manual(tree: clap::Command, directory: Option<&Path>) -> std::result::Result<String, String> {
    whole(tree, directory).map_err(|failure| failure.to_string())
}

fn whole(mut tree: clap::Command, directory: Option<&Path>) -> Result<String> {
    tree.build();
    let Some(directory) = directory else { return page(&tree) };
    std::fs::create_dir_all(directory).map_err(|error| cannot_open(directory, &error))?;
    let mut count = 0;
    write_pages(&tree, tree.get_name(), directory, &mut count)?;
    Ok(format!("Wrote {count} manual pages to {}\n", directory.display()))
}

/// Writes the page of a command and those of its visible subcommands.
fn write_pages(command: &clap::Command, name: &str, directory: &Path, count: &mut usize) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    let text = page(command)?;
    std::fs::write(&path, text).map_err(|error| cannot_open(&path, &error))?;
    *count += 1;
    let inner = command.get_subcommands().filter(|inner| inner.get_name() != "help" && !inner.is_hide_set());
    for inner in inner {
        write_pages(inner, &format!("{name}-{}", inner.get_name()), directory, count)?;
    }
    Ok(())
}

fn page(command: &clap::Command) -> Result<String> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    String::from_utf8(page).map_err(|error| Failure::new(error.to_string()))
}
