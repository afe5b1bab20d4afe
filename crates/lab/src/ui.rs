//! `tortie lab ui`: a living cluster, in the browser. Policies, traffic that they allow, deny and would deny, and the
//! page that shows it, on a port of 127.0.0.1.
//!
//! It removes what it created at the end, whatever the cause. A lab that is already running is shown as it is, and
//! kept. It listens only on loopback.

mod cast;

use crate::lab::{self, Lab, ROUTER};
use crate::probe::{self, Errand, Protocol, Target};
use crate::screen::Screen;
use crate::state::{Folder, KeeperState};
use crate::topology::{Wish, plan};
use crate::{called, flows, interrupt, outside};
use anyhow::{Context as _, Result, bail};
use cast::{LINES, Line};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The lab's default name.
const USUAL_NAME: &str = "ui";
/// The interval between rounds of traffic, and the time limit of a connection. A dropped packet is sent again after a
/// second.
const ROUND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(700);

/// Creates the lab, or uses a running one, and shows it until interrupted.
///
/// # Errors
/// When a step fails; what was created is removed then.
pub(crate) fn run(name: Option<&str>, mut wish: Wish, port: u16, screen: &mut Screen) -> Result<()> {
    let name = name.unwrap_or(USUAL_NAME).to_owned();
    let folder = Folder::of(&name)?;
    // The door is opened first: a port that is in use must not cost the time of creating a lab.
    let door = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
        .with_context(|| format!("listening on port {port} of 127.0.0.1"))?;
    if folder.keeper().is_some_and(|keeper| keeper.is_alive()) {
        interrupt::listen()?;
        let lab = Lab::open(&name)?;
        if !lab.topology().flows {
            let remedy = called::command(&name, "up --flows");
            bail!("lab '{name}' does not log flows: create it with `{remedy}`");
        }
        let address = serve(&lab, door)?;
        let keeper = folder.keeper();
        drop(lab);
        invite(&name, address, false, screen);
        wait(keeper.as_ref());
        return Ok(());
    }
    wish.flows = Some(true);
    let has_own_pods = !wish.pods.is_empty() || wish.pod_count.is_some();
    if !has_own_pods {
        wish.pods = cast::pods();
    }
    let lab = Lab::up(plan(&name, &wish)?, false, screen)?;
    let shown = show(lab, door, has_own_pods, screen);
    let removed = lab::down(&name);
    shown?;
    removed?;
    screen.done("everything is removed: processes, namespaces, files");
    Ok(())
}

fn show(lab: Lab, door: TcpListener, has_own_pods: bool, screen: &mut Screen) -> Result<()> {
    if !has_own_pods {
        lab.apply(cast::POLICIES)?;
    }
    let traffic = if has_own_pods { everybody(&lab) } else { of_cast(&lab) };
    let address = serve(&lab, door)?;
    let (name, keeper) = (lab.topology().name.clone(), lab.folder.keeper());
    // Other commands may use the lab in the meantime.
    drop(lab);
    std::thread::spawn(move || talk(&traffic));
    invite(&name, address, true, screen);
    wait(keeper.as_ref());
    Ok(())
}

/// Forwards connections to the door to the page's server; returns the door's address.
fn serve(lab: &Lab, door: TcpListener) -> Result<SocketAddr> {
    let inner = flows::start_page(lab)?;
    let router = lab.place(ROUTER)?.netns;
    let address = door.local_addr()?;
    std::thread::spawn(move || {
        for outer in door.incoming().flatten() {
            // An event must not wait for the acknowledgement of the previous one.
            let _ = outer.set_nodelay(true);
            outside::carry(outer, router.clone(), inner);
        }
    });
    Ok(address)
}

fn invite(name: &str, address: SocketAddr, is_ours: bool, screen: &mut Screen) {
    screen.done("the page is served");
    screen.print(&format!("\n  Open http://{address}/\n\n"));
    let denied = called::command(name, "ctl flows -f --denied");
    let apply = called::command(name, "apply -f policy.yaml");
    screen.say(&format!("The same in a terminal: `{denied}`. Change something: `{apply}`."));
    screen.say(if is_ours { "Ctrl-C removes everything." } else { "Ctrl-C closes the page; the lab stays." });
}

/// Waits until this process is interrupted, or the lab is gone.
fn wait(keeper: Option<&KeeperState>) {
    while !interrupt::came() && keeper.is_none_or(KeeperState::is_alive) {
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The traffic in the lab: sender, target, and in every how many rounds.
type Traffic = Vec<(PathBuf, Target, u32)>;

fn of_cast(lab: &Lab) -> Traffic {
    LINES.iter().filter_map(|line| traffic(lab, line)).collect()
}

/// If the purpose of the pods is unknown: every pod to every pod, on their first port.
fn everybody(lab: &Lab) -> Traffic {
    let pods = &lab.state().pods;
    let names = || pods.keys().map(String::as_str);
    let pairs = names().flat_map(|from| names().map(move |to| (from, to))).filter(|(from, to)| from != to);
    let line = |(from, to)| {
        let port = *pods.get(to)?.pod.ports.first()?;
        target(lab, from, to, port, Protocol::Tcp, 3)
    };
    pairs.filter_map(line).collect()
}

fn traffic(lab: &Lab, line: &Line) -> Option<(PathBuf, Target, u32)> {
    target(lab, line.from, line.to, line.port, line.protocol, line.every)
}

fn target(
    lab: &Lab,
    from: &str,
    to: &str,
    port: u16,
    protocol: Protocol,
    every: u32,
) -> Option<(PathBuf, Target, u32)> {
    let (sender, receiver) = (lab.state().pods.get(from)?, lab.state().pods.get(to)?);
    let families = lab.topology().families;
    let address = *receiver.addresses.iter().find(|address| cast::is_usual(families, **address))?;
    Some((sender.netns.clone(), Target { address, port, protocol, name: to.to_owned() }, every))
}

/// Connects again and again. Refused connections are what the page is to show.
fn talk(traffic: &Traffic) {
    for round in 0_u32.. {
        let begun = Instant::now();
        let mut errands: BTreeMap<&PathBuf, Vec<Target>> = BTreeMap::new();
        for (netns, target, every) in traffic {
            if round.is_multiple_of(*every) {
                errands.entry(netns).or_default().push(target.clone());
            }
        }
        let errands: Vec<Errand> =
            errands.into_iter().map(|(netns, targets)| Errand { netns: netns.clone(), targets }).collect();
        // A pod that has been removed has no namespace to connect from.
        let _ = probe::run(&errands, PATIENCE);
        std::thread::sleep(ROUND.saturating_sub(begun.elapsed()));
    }
}
