//! Flow logs of a lab: every node's Felix sends them to one Goldmane at the router, and programs that read flows query
//! it.
//!
//! A lab is a network of its own, so none of this is encrypted. This module does not decide which flows there should
//! be.

use crate::inside::node_program;
use crate::keeper::Request;
use crate::lab::{Lab, ROUTER};
use crate::screen::Screen;
use crate::servers;
use crate::settings::{Variables, host_and_port};
use crate::topology::Topology;
use anyhow::Result;
use std::net::Ipv4Addr;

/// Goldmane's port, as set by Calico's operator.
const PORT: u16 = 7443;
/// The port of the page's server, on the router's loopback.
const PAGE_PORT: u16 = 8081;
/// The program's name in `lab status` and `lab logs`.
const GOLDMANE: &str = "goldmane";
const WHISKER: &str = "whisker";

fn variables<const N: usize>(pairs: [(&str, String); N]) -> Variables {
    pairs.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The variables of a node: flows are sent every second, to be visible at once.
pub(crate) fn for_agents(topology: &Topology) -> Variables {
    if !topology.flows {
        return Variables::new();
    }
    variables([
        ("FELIX_FLOWLOGSGOLDMANESERVER", host_and_port(topology.server_address(), PORT)),
        ("FELIX_FLOWLOGSFLUSHINTERVAL", "1".to_owned()),
    ])
}

/// The variables of programs that read flows: `calicoctl flows`, the page.
pub(crate) fn for_readers(topology: &Topology) -> Variables {
    if !topology.flows {
        return Variables::new();
    }
    variables([("GOLDMANE_HOST", host_and_port(topology.server_address(), PORT))])
}

/// Starts Goldmane, if flows are enabled, before any node connects to it.
///
/// # Errors
/// When it does not start.
pub(crate) fn start(lab: &Lab, screen: &mut Screen) -> Result<()> {
    let topology = lab.topology();
    if !topology.flows {
        return Ok(());
    }
    screen.begin("starting Goldmane");
    let mut environment = lab.environment();
    environment.extend(variables([("PORT", PORT.to_string()), ("HEALTH_ENABLED", "false".to_owned())]));
    let router = lab.place(ROUTER)?;
    let words = router.words(lab.keeper_pid(), &[&node_program(), "goldmane"]);
    lab.keeper.ask(&Request::Start { name: GOLDMANE.to_owned(), words, environment })?;
    let address = topology.server_address();
    servers::wait(&lab.folder, &lab.keeper, GOLDMANE, || servers::answers(&router, address, PORT))?;
    screen.done("a Goldmane at the router collects the flows of all nodes");
    Ok(())
}

/// Starts the page's server, unless it is running; returns its address in the router's network.
///
/// # Errors
/// When it does not start.
pub(crate) fn start_page(lab: &Lab) -> Result<std::net::SocketAddr> {
    let address = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, PAGE_PORT));
    let router = lab.place(ROUTER)?;
    if !servers::answers(&router, address.ip(), PAGE_PORT)? {
        let mut environment = lab.environment();
        environment.extend(variables([("CLUSTER_TYPE", "tortie,lab".to_owned())]));
        let listen = address.to_string();
        let words = router.words(lab.keeper_pid(), &[&node_program(), "whisker", "--listen", &listen]);
        lab.keeper.ask(&Request::Start { name: WHISKER.to_owned(), words, environment })?;
        servers::wait(&lab.folder, &lab.keeper, WHISKER, || {
            servers::answers(&router, address.ip(), PAGE_PORT)
        })?;
    }
    Ok(address)
}

#[cfg(test)]
mod tests {
    use super::{for_agents, for_readers};
    use crate::topology::{Families, Wish, plan};

    #[test]
    fn only_a_lab_with_flows_has_their_variables() {
        let without = plan("lab", &Wish::default()).unwrap();
        assert!(for_agents(&without).is_empty() && for_readers(&without).is_empty());
        let wish = Wish { flows: Some(true), family: Some(Families::V6), ..Wish::default() };
        let with = plan("lab", &wish).unwrap();
        assert_eq!(for_readers(&with)["GOLDMANE_HOST"], "[fd65::fe]:7443");
        assert_eq!(for_agents(&with)["FELIX_FLOWLOGSGOLDMANESERVER"], "[fd65::fe]:7443");
        let both = Wish { typhas: Some(1), ..wish };
        assert!(plan("lab", &both).unwrap_err().to_string().contains("leave --flows or --typha out"));
    }
}
