//! Documentation generated from the tree of commands: help that fits the terminal, shell completion scripts, and manual
//! pages.

use anyhow::{Result, anyhow};
use calicoctl::Surroundings;
use clap::Command;
use clap::error::ErrorKind;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// Answers arguments that are not a command: prints help, wrapped for a terminal, or reports the mistake.
pub(crate) fn answer(error: &clap::Error) -> ExitCode {
    match shown(error, Surroundings::of_process().width) {
        // When the stream is closed there is no way to report it.
        Some(text) if error.use_stderr() => _ = std::io::stderr().write_all(text.as_bytes()),
        Some(text) => _ = std::io::stdout().write_all(text.as_bytes()),
        None => _ = error.print(),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

/// Help wrapped for a terminal; `None` for mistakes, and without a terminal.
fn shown(error: &clap::Error, width: Option<usize>) -> Option<String> {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    let width = width.filter(|_| is_help)?;
    Some(calicoctl::wrap_help(&error.render().to_string(), width))
}

/// The script that completes this program's arguments in a shell.
pub(crate) fn completion(tree: Command, shell: clap_complete::Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(tree), "tortie", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes the manual pages into a directory, and returns the text to print; without a directory, that is this program's
/// own page.
pub(crate) fn manual(tree: Command, directory: Option<&Path>) -> Result<String> {
    calicoctl::manual(whole(tree), directory).map_err(|error| anyhow!(error))
}

/// The tree of commands, including those of the tools that parse their own arguments.
fn whole(tree: Command) -> Command {
    // Otherwise it would be completed as a program of that name.
    let ctl = calicoctl::tree("ctl").bin_name("tortie ctl");
    let flows = ctl.find_subcommand("flows").cloned();
    tree.mut_subcommands(|command| match command.get_name() {
        "ctl" => ctl.clone(),
        "flows" => flows.clone().unwrap_or(command),
        _ => command,
    })
}

#[cfg(test)]
mod tests {
    use super::{completion, manual, shown};
    use crate::Arguments;
    use clap::{CommandFactory as _, Parser as _};

    #[test]
    fn help_fits_the_terminal() {
        for words in
            [&["-h"] as &[&str], &["lab", "-h"], &["lab", "up", "--help"], &["node"], &["datastore", "-h"]]
        {
            let Err(error) = Arguments::try_parse_from([&["tortie"], words].concat()) else { continue };
            let text = shown(&error, Some(80)).expect("help");
            let long = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(long, None, "{words:?}");
            assert!(error.render().to_string().lines().any(|line| line.chars().count() > 80), "{words:?}");
            assert_eq!(shown(&error, None), None);
        }
        let Err(mistake) = Arguments::try_parse_from(["tortie", "nothing"]) else { panic!("a mistake") };
        assert_eq!(shown(&mistake, Some(80)), None);
    }

    #[test]
    fn every_command_that_help_shows_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        let told = manual(Arguments::command(), Some(folder.path())).expect("pages");
        assert!(told.starts_with("Wrote ") && told.contains(" manual pages to "), "{told}");
        let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap_or_default();
        for (name, word) in [
            ("tortie.1", "tortie\\-lab(1)"),
            ("tortie-lab-up.1", "dual\\-stack"),
            ("tortie-ctl-get.1", "output"),
            ("tortie-flows.1", "flows"),
        ] {
            assert!(page(name).contains(word), "{name}: {}", page(name));
        }
        assert_eq!(page("tortie-reference.1"), "", "hidden");
        assert_eq!(manual(Arguments::command(), None).expect("a page"), page("tortie.1"));
    }

    #[test]
    fn completion_knows_the_whole_tree() {
        // Fish lists flags without their dashes.
        let words = ["dual-stack", "datastore", "kube-controllers", "allow-version-mismatch"];
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let script = completion(Arguments::command(), shell);
            for word in words {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
