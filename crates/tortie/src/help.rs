//! What the tree of commands says about itself: help that fits the terminal, and scripts that complete words in shells.

use calicoctl::Surroundings;
use clap::Command;
use clap::error::ErrorKind;
use std::io::Write as _;
use std::process::ExitCode;

/// What becomes of arguments that are not a command: help, wrapped where it goes to a terminal, or a mistake.
pub(crate) fn answer(error: &clap::Error) -> ExitCode {
    match shown(error, Surroundings::of_process().width) {
        // When the stream is closed there is nowhere left to report it.
        Some(text) if error.use_stderr() => _ = std::io::stderr().write_all(text.as_bytes()),
        Some(text) => _ = std::io::stdout().write_all(text.as_bytes()),
        None => _ = error.print(),
    }
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(u8::MAX))
}

/// Help as it fits a terminal; nothing for mistakes, and where there is no terminal.
fn shown(error: &clap::Error, width: Option<usize>) -> Option<String> {
    let is_help =
        matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand);
    let width = width.filter(|_| is_help)?;
    Some(calicoctl::wrap_help(&error.render().to_string(), width))
}

/// The script that completes this program's words in a shell, with those of the tools that read their own arguments.
pub(crate) fn completion(tree: Command, shell: clap_complete::Shell) -> String {
    // By itself it would be completed as a program of that name.
    let ctl = calicoctl::tree("ctl").bin_name("tortie ctl");
    let flows = ctl.find_subcommand("flows").cloned();
    let mut tree = tree.mut_subcommands(|command| match command.get_name() {
        "ctl" => ctl.clone(),
        "flows" => flows.clone().unwrap_or(command),
        _ => command,
    });
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut tree, "tortie", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::{completion, shown};
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
    fn completion_knows_the_whole_tree() {
        // Fish has flags without their dashes.
        let words = ["dual-stack", "datastore", "kube-controllers", "allow-version-mismatch"];
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let script = completion(Arguments::command(), shell);
            for word in words {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
