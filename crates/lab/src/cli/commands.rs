//! Carries out the commands, once their flags are parsed.

use super::{Arguments, Command, Format, Internal, PodCommand};
use crate::lab::{self, Lab};
use crate::matrix::Columns;
use crate::screen::Screen;
use crate::settings::Variables;
use crate::state::{Folder, lab_names};
use crate::topology::{PodWish, parse_labels, plan, plan_pod};
use crate::{
    called, demo, html, inside, interrupt, keeper, list, logs, manifests, measure, outside, picture, pods,
    responder, scenario, servers, shell, status, ui,
};
use anyhow::{Context as _, Result, bail};
use serde_json::json;
use std::io::{BufRead as _, IsTerminal as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// Carries out a command.
///
/// # Errors
/// A one-sentence explanation of the failure.
pub(super) fn carry_out(arguments: Arguments, screen: &mut Screen) -> Result<ExitCode> {
    let name = arguments.lab.as_deref().unwrap_or(called::USUAL_LAB);
    match arguments.command {
        Command::Up { wish, quiet } => {
            let topology = plan(name, &wish.wish()?)?;
            screen.set_quiet(quiet);
            let lab = Lab::up(topology, true, screen)?;
            let exec = format!("exec {} -- ip route", lab.topology().nodes[0].name);
            let next = ["matrix", &exec, "down"].map(|words| format!("`{}`", called::command(name, words)));
            screen.say(&format!("lab '{name}' is up: try {}", next.join(", ")));
        }
        Command::Down { all, yes } => return down(name, all, yes, screen),
        Command::List { output } => {
            let labs = list::labs()?;
            screen.print(&match output {
                Format::Text => list::text(&labs),
                Format::Json => format!("{}\n", serde_json::to_string_pretty(&labs)?),
            });
        }
        Command::Env { unset } => {
            let variables = outside::variables(&Lab::open(name)?)?;
            screen.print(&if unset { outside::unsets(&variables) } else { outside::exports(&variables) });
        }
        Command::Logs { name: log, follow, tail } => {
            logs::show(&Folder::of(name)?, log.as_deref(), tail, follow, screen)?;
        }
        Command::Shell { place } => {
            let (words, variables) = shell::words(name, &place);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            return become_child(name, &place, &words, &variables).map(|(code, _)| code);
        }
        Command::Picture { output } => {
            let text = picture::svg(&Folder::of(name)?.load()?);
            match output {
                None => screen.print(&text),
                Some(path) => {
                    std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
                }
            }
        }
        Command::Status { output } => return show_status(name, output, screen),
        Command::Exec { place, words } => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            return become_child(name, &place, &words, &Variables::new()).map(|(code, _)| code);
        }
        Command::Pod { command } => return pod(name, command, screen),
        Command::Matrix { ports, protocol, output, html, patience } => {
            let columns = Columns { ports, protocols: protocol };
            let page = html.as_deref().map(std::path::absolute).transpose()?;
            return matrix(name, &columns, output, page.as_deref(), Duration::from_secs(patience), screen);
        }
        Command::Apply { filename, recursive } => {
            let mut all = Vec::new();
            for path in &filename {
                all.extend(manifests::read(path, recursive)?);
            }
            let lab = Lab::open(name)?;
            for manifest in all {
                screen.print(
                    &lab.apply(&manifest.text).with_context(|| format!("applying {}", manifest.name))?,
                );
            }
        }
        Command::Ctl { words } => {
            let program = inside::node_program();
            let mut all = vec![program.as_str(), "ctl"];
            all.extend(words.iter().map(String::as_str));
            return become_child(name, lab::ROUTER, &all, &Variables::new()).map(|(code, _)| code);
        }
        Command::Tcpdump { place, words } => return tcpdump(name, &place, &words),
        Command::Demo { wish, html } => {
            let page = html.as_deref().map(std::path::absolute).transpose()?;
            demo::run(arguments.lab.as_deref(), &wish.wish()?, page.as_deref(), screen)?;
        }
        Command::Ui { wish, port } => {
            ui::run(arguments.lab.as_deref(), wish.wish()?, port, screen)?;
        }
        Command::Scenario { which, only_ipip } => {
            let lines = if only_ipip { scenario::Lines::OnlyIpip } else { scenario::Lines::All };
            scenario::run(which, lines, screen)?;
        }
        Command::Internal { command } => internal(command)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn internal(command: Internal) -> Result<()> {
    // If the file's own name could not be used, the kernel shows this process as `exe`.
    let _ = rustix::thread::set_name(c"tortie");
    match command {
        Internal::Keeper { folder } => keeper::run(&folder),
        Internal::Inside { folder, netns, place, parent, words } => {
            match inside::run(&folder, &netns, place.as_deref(), parent, &words)? {}
        }
        Internal::Gate { folder } => outside::run(&folder),
        Internal::Responder { name, ports } => responder::run(&name, &ports),
    }
}

fn down(name: &str, all: bool, yes: bool, screen: &mut Screen) -> Result<ExitCode> {
    if !all {
        lab::down(name)?;
        screen.done(&format!("lab '{name}' is removed"));
        return Ok(ExitCode::SUCCESS);
    }
    let labs = list::labs()?;
    screen.print(&list::text(&labs));
    if !labs.is_empty() && !yes && std::io::stdin().is_terminal() {
        screen.print(&format!("Remove {}? [y/N] ", called::count(labs.len(), "lab")));
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer).context("reading the answer")?;
        if !["y", "yes"].contains(&answer.trim().to_lowercase().as_str()) {
            bail!("nothing was removed");
        }
    }
    for lab in labs {
        lab::down(&lab.name)?;
        screen.done(&format!("lab '{}' is removed", lab.name));
    }
    Ok(ExitCode::SUCCESS)
}

fn show_status(name: &str, output: Format, screen: &mut Screen) -> Result<ExitCode> {
    let lab = match Lab::open(name) {
        Ok(lab) => lab,
        Err(error) => {
            let others: Vec<String> = lab_names()?.into_iter().filter(|other| other != name).collect();
            if Folder::of(name)?.exists() || others.is_empty() {
                return Err(error);
            }
            bail!("{error:#}; choose one with --lab");
        }
    };
    let programs = lab.programs()?;
    let state = lab.state();
    let mut ready = std::collections::BTreeMap::new();
    for node in &lab.topology().nodes {
        ready.insert(node.name.clone(), lab.is_ready(node)?);
    }
    let ended = programs.iter().filter_map(|(name, program)| Some((name.clone(), program.clone().err()?)));
    let findings = status::Findings { ready, ended: ended.collect(), age: lab.folder.age() };
    let code = if findings.sound(state) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if output == Format::Text {
        screen.print(&status::text(&lab.folder, state, &findings));
        return Ok(code);
    }
    let programs: serde_json::Map<String, serde_json::Value> = programs
        .into_iter()
        .map(|(name, program)| {
            let value = match program {
                Ok(pid) => json!({"pid": pid}),
                Err(how) => json!({"ended": how}),
            };
            (name, value)
        })
        .collect();
    let mut value = serde_json::to_value(state)?;
    value["programs"] = programs.into();
    value["keeper"] = lab.keeper_pid().into();
    value["ageSeconds"] = findings.age.map(|age| age.as_secs()).into();
    value["logs"] = lab.folder.file("logs").display().to_string().into();
    value["nodesReady"] = json!(findings.ready);
    screen.print(&format!("{}\n", serde_json::to_string_pretty(&value)?));
    Ok(code)
}

/// Runs tcpdump in a place. tcpdump switches from root to another user, and in a lab that was created without root
/// there is no other user.
fn tcpdump(name: &str, place: &str, words: &[String]) -> Result<ExitCode> {
    let program = servers::find_program("tcpdump", "install it (Debian: tcpdump)")?.display().to_string();
    let mut all = vec![program.as_str()];
    if words.is_empty() {
        all.extend(["-n", "-i", "any"]);
    }
    all.extend(words.iter().map(String::as_str));
    let (code, rootless) = become_child(name, place, &all, &Variables::new())?;
    if rootless && code != ExitCode::SUCCESS {
        bail!(
            "tcpdump failed in a lab that was made without root: most builds of it change to a user of their own, which such \
             a lab does not have. Make the lab as root, or use a program that does not change its user: `{}`",
            called::command(name, &format!("exec {place} -- dumpcap -i any -w /tmp/packets.pcapng"))
        );
    }
    Ok(code)
}

fn pod(name: &str, command: PodCommand, screen: &mut Screen) -> Result<ExitCode> {
    let full = |name: &str| match name.split_once('/') {
        Some((namespace, name)) => (namespace.to_owned(), name.to_owned()),
        None => ("default".to_owned(), name.to_owned()),
    };
    match command {
        PodCommand::Add { name: pod, node, labels, ports } => {
            let (namespace, pod) = full(&pod);
            let labels = parse_labels(&labels)?;
            let wish = PodWish { name: pod, namespace: Some(namespace), node, labels, ports };
            let mut lab = Lab::open(name)?;
            let planned = plan_pod(&wish, &lab.topology().nodes, lab.state().pods.len())?;
            let full_name = planned.full_name();
            pods::add(&mut lab, &[planned])?;
            let added = &lab.state().pods[&full_name];
            let addresses: Vec<String> = added.addresses.iter().map(ToString::to_string).collect();
            screen.done(&format!("{full_name} is on {} with {}", added.pod.node, addresses.join(" and ")));
        }
        PodCommand::Del { name: pod } => {
            let (namespace, pod) = full(&pod);
            let mut lab = Lab::open(name)?;
            pods::remove(&mut lab, &format!("{namespace}/{pod}"))?;
            screen.done(&format!("{namespace}/{pod} is removed"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn matrix(
    name: &str,
    columns: &Columns,
    output: Format,
    page: Option<&Path>,
    patience: Duration,
    screen: &mut Screen,
) -> Result<ExitCode> {
    let lab = Lab::open(name)?;
    let matrix = measure::matrix(&lab, columns, patience)?;
    if let Some(path) = page {
        std::fs::write(path, html::page("Who reaches whom", html::facts(lab.topology()), &matrix))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    let text = || matrix.to_text_within(screen.colours(), screen.width());
    let text = match output {
        Format::Text => text(),
        Format::Json => format!("{}\n", serde_json::to_string_pretty(&matrix)?),
    };
    screen.print(&text);
    Ok(if matrix.agrees() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs a program in a place with this process's own streams, and ends with its exit status. Also returns whether the
/// lab was created without root.
fn become_child(name: &str, place: &str, words: &[&str], more: &Variables) -> Result<(ExitCode, bool)> {
    let lab = Lab::open(name)?;
    let mut environment = lab.environment();
    environment.extend(more.clone());
    let mut command = lab.place(place)?.command(&environment, words);
    let rootless = lab.folder.keeper().is_some_and(|keeper| keeper.rootless);
    // Other commands may use the lab in the meantime.
    drop(lab);
    // This process must not end before the program has printed its last words.
    interrupt::leave_to_child()?;
    let status =
        command.status().with_context(|| format!("starting {}", words.first().unwrap_or(&"nothing")))?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok((code.map_or(ExitCode::FAILURE, ExitCode::from), rootless))
}
