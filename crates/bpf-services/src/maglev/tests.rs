//! Tables built by Calico's own code (felix/bpf/consistenthash at 87c15906f): names in order, and the owner of each
//! position.

use super::*;
use bpf::layout::{V4, V6};
use std::net::SocketAddr;

const TABLES: [(u32, &str, &str); 6] = [
    (5, "10.0.0.1:80", "00000"),
    (13, "10.0.0.1:80 10.0.0.2:80 10.0.0.3:80", "1112022000120"),
    (13, "10.0.0.1:80 10.0.0.3:80", "0011011000110"),
    (31, "10.0.0.10:8080 10.0.0.9:8080 10.0.0.9:8081 192.168.1.2:53", "0212213313101221332100122033000"),
    (31, "[fd00::10]:443 [fd00::1]:80 [fd00::2]:80", "1022012020001221210110120101220"),
    (
        503,
        "10.65.0.1:8055 10.65.0.2:8055 10.65.1.1:8055 10.65.1.2:8055 10.65.2.1:8055",
        "324413140230211343111032042013023124310403203200230111433040130420314012434204313043132402\
         342103401134310441234230240314432042112321013430401204203100104312243130420340323421234011\
         143003012342101423344100421223210430110310043131021344123031234213401102402342314420340120\
         220213234442302013142124311243100231244313442132310140123011044121223044133402202402432124\
         313040131220340110432012312443024031343104201244100302212230441320420144124221243030032342\
         21340112430030312421024031144204203244102302143200431",
    ),
];

fn found<F: Family>(size: u32, names: &[&str]) -> String {
    let backend = |name: &&str| {
        let place: SocketAddr = name.parse().expect("an address with a port");
        let address = crate::address::bytes::<F>(place.ip()).expect("of this version");
        ((*name).to_owned(), Backend::<F> { address, port: place.port() })
    };
    let backends: Vec<_> = names.iter().map(backend).collect();
    let place = |one: &Backend<F>| backends.iter().position(|(_, other)| other == one).expect("one of them");
    // The order of the input does not matter.
    let mixed: Vec<_> = backends.iter().rev().chain(&backends).cloned().collect();
    table(size, &mixed).iter().map(|one| place(one).to_string()).collect()
}

#[test]
fn tables_are_calicos() {
    for (size, names, expected) in TABLES {
        let names: Vec<&str> = names.split(' ').collect();
        let found =
            if names[0].starts_with('[') { found::<V6>(size, &names) } else { found::<V4>(size, &names) };
        assert_eq!(found, expected, "{size} {names:?}");
    }
    assert_eq!(table::<V4>(13, &[]), []);
}

#[test]
fn the_size_of_a_table_is_prime() {
    let sizes = [0, 1, 2, 3, 10, 100, 1000].map(table_size);
    assert_eq!(sizes, [5, 5, 11, 17, 53, 503, 5003]);
}

#[test]
fn few_positions_change_when_a_backend_is_removed() {
    let names: Vec<String> = (0..10).map(|number| format!("10.0.0.{number}:80")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (all, fewer) = (found::<V4>(503, &names), found::<V4>(503, &names[..9]));
    let moved =
        all.chars().zip(fewer.chars()).filter(|(before, after)| before != after && *before != '9').count();
    assert!(moved < 503 / 5, "{moved} of 503 places moved although their backend is still there");
}
