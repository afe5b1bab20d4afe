//! Every list of every endpoint gives the same result as the endpoint's rendered chain: the verdict, the rules that
//! were hit before it, and whether something was logged.

use crate::state::{State, packet, state};
use crate::world::World;
use bpf_policy::layout::{ListId, Lists};
use bpf_policy::{EndpointId, Outcome, Packet, Tables, Verdict, evaluate, rule_id};
use model::IpVersion;
use proptest::collection::vec;
use proptest::prelude::*;
use rules::names::EndpointChain;
use rules::simulate::{Packet as Simulated, Simulation, Verdict as Simulation_};
use rules::tree::Table;
use rules::{Backend, RulesConfig, names};

fn config(backend: Backend) -> RulesConfig {
    RulesConfig {
        backend,
        flow_logs: true,
        // These settings concern the packet's path, not policy.
        allow_vxlan_from_workloads: true,
        allow_ipip_from_workloads: true,
        failsafe_inbound: Vec::new(),
        failsafe_outbound: Vec::new(),
        ..RulesConfig::default()
    }
}

fn simulation(state: &State, backend: Backend, table: Table, version: IpVersion) -> Simulation {
    let world = World {
        config: config(backend),
        policies: state.policies.clone(),
        profiles: state.profiles.iter().map(|(name, profile)| (name.clone(), (**profile).clone())).collect(),
        workloads: state.workloads.values().cloned().collect(),
        hosts: state.hosts.iter().map(|(name, host)| (name.text().clone().into(), host.clone())).collect(),
        ..World::default()
    };
    let rendered = world.render(table, version);
    let mut simulation = Simulation::new(backend);
    simulation.add_chains(rendered.chains.into_values());
    simulation.add_maps(rendered.maps);
    for (id, members) in &state.sets {
        let own = members.iter().filter(|member| member.is_ipv6() == (version == IpVersion::V6));
        simulation.add_set(names::ip_set(version, id), own.copied().collect());
    }
    simulation
}

/// Evaluates a chain.
fn walk(simulation: &mut Simulation, chain: &str, packet: &Packet) -> Outcome {
    let mut walked = Simulated {
        ports: packet.ports,
        icmp: packet.icmp,
        ..Simulated::new(packet.source, packet.destination, packet.protocol)
    };
    simulation.logged.clear();
    let verdict = match simulation.run(chain, &mut walked) {
        Ok(Simulation_::Drop | Simulation_::Reject) => Verdict::Deny,
        Ok(_) if walked.mark & RulesConfig::default().marks.accept != 0 => Verdict::Allow,
        Ok(_) => Verdict::None,
        Err(error) => panic!("{chain}: {error}"),
    };
    let (logged, hits): (Vec<_>, Vec<_>) =
        simulation.logged.iter().partition(|text| text.starts_with("calico-packet"));
    Outcome { verdict, hits: hits.iter().map(|text| rule_id(text)).collect(), log: !logged.is_empty() }
}

/// The lists of an endpoint, each with its equivalent chain.
fn chains(id: &EndpointId, interface: &str, lists: &Lists, backend: Backend) -> Vec<(Table, String, ListId)> {
    let chain = |table, chain, list| (table, backend.endpoint_chain(chain, interface).to_string(), list);
    match id {
        EndpointId::Workload(_) => vec![
            chain(Table::Filter, EndpointChain::ToWorkload, lists.ingress),
            chain(Table::Filter, EndpointChain::FromWorkload, lists.egress),
        ],
        EndpointId::Host(_) => vec![
            chain(Table::Filter, EndpointChain::FromHost, lists.ingress),
            chain(Table::Filter, EndpointChain::ToHost, lists.egress),
            chain(Table::Filter, EndpointChain::FromHostForward, lists.forward_ingress),
            chain(Table::Filter, EndpointChain::ToHostForward, lists.forward_egress),
            chain(Table::Mangle, EndpointChain::FromHost, lists.pre_dnat),
            chain(Table::Raw, EndpointChain::FromHost, lists.untracked_ingress),
            chain(Table::Raw, EndpointChain::ToHost, lists.untracked_egress),
        ],
    }
}

fn agree(
    state: &State,
    tables: &Tables,
    version: IpVersion,
    packets: &[Packet],
) -> Result<(), TestCaseError> {
    for backend in [Backend::Iptables, Backend::Nftables] {
        let mut simulations = [Table::Filter, Table::Mangle, Table::Raw]
            .map(|table| (table, simulation(state, backend, table, version)));
        for (id, endpoint) in tables.endpoints.iter() {
            let lists = if version == IpVersion::V4 { &endpoint.v4 } else { &endpoint.v6 };
            for (table, chain, list) in chains(id, &endpoint.interface, lists, backend) {
                if list == ListId::NONE {
                    // There is no such list, so the chain must not deny anything.
                    continue;
                }
                let (_, simulation) =
                    simulations.iter_mut().find(|(known, _)| *known == table).expect("a table");
                for packet in packets {
                    let mut said = evaluate(tables, list, packet);
                    let mut expected = walk(simulation, &chain, packet);
                    if table == Table::Raw {
                        // Untracked policy does not report hits.
                        said.hits.clear();
                        expected.hits.clear();
                    }
                    prop_assert_eq!(&said, &expected, "{} {:?} {:?}", chain, version, packet);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn lists_agree_with_rendered_chains(
        state in state(),
        packets in vec(packet(IpVersion::V4), 30),
        packets_v6 in vec(packet(IpVersion::V6), 30),
    ) {
        let policies = state.fresh();
        agree(&state, policies.tables(), IpVersion::V4, &packets)?;
        agree(&state, policies.tables(), IpVersion::V6, &packets_v6)?;
    }
}
