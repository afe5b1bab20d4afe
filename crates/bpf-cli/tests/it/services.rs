//! The output of `nat`.

use crate::given::{Given, SECOND, entry};
use bpf::layout::V4;
use bpf::layout::nat::{Affinity, AffinityKey, Backend, BackendKey, Frontend, FrontendKey};
use serde_json::json;

fn services() -> Given {
    let key =
        |address, port, protocol| FrontendKey::<V4> { address, port, protocol, ..FrontendKey::default() };
    let front = |id, count, local, flags| Frontend { id, count, local, affinity: 0, flags };
    let range = FrontendKey { source_bits: 8, source: [10, 0, 0, 0], ..key([5, 5, 5, 5], 80, 6) };
    let back =
        |id, ordinal, address, port| entry(BackendKey { id, ordinal }, Backend::<V4> { address, port });
    Given::default()
        .with(
            "cali_v4_nat_fe3",
            [
                entry(key([1, 1, 1, 1], 80, 6), front(35, 2, 1, 0)),
                entry(key([10, 0, 0, 1], 80, 6), front(35, 2, 1, 0b1011)),
                entry(key([2, 1, 1, 1], 553, 17), front(107, 1, 0, 0)),
                entry(key([5, 5, 5, 5], 80, 6), front(35, Frontend::DROP, 0, 0)),
                entry(range, front(35, 2, 1, 4)),
            ],
        )
        .with("cali_v4_nat_be", [back(35, 0, [5, 5, 5, 5], 8080), back(35, 1, [6, 6, 6, 6], 8080)])
        .with("cali_v4_mglv2", [back(35, 10, [6, 6, 6, 6], 8080), back(35, 2, [5, 5, 5, 5], 8080)])
        .with(
            "cali_v4_nat_aff",
            [6, 17].map(|protocol| {
                entry(
                    AffinityKey::<V4> { address: [1, 1, 1, 1], port: 80, protocol, client: [10, 0, 0, 9] },
                    Affinity {
                        backend: Backend::<V4> { address: [5, 5, 5, 5], port: 8080 },
                        since: 1_500 * SECOND / 1_000,
                    },
                )
            }),
        )
}

#[test]
fn nat_dump() {
    let expected = "\
1.1.1.1 port 80 proto 6 id 35 count 2 local 1
\t35:0\t 5.5.5.5:8080
\t35:1\t 6.6.6.6:8080
2.1.1.1 port 553 proto 17 id 107 count 1 local 0
\t107:0\t is missing
5.5.5.5 port 80 proto 6 id 35 count -1 local 0
5.5.5.5 port 80 proto 6 id 35 count 2 local 1 flags nat-exclude src 10.0.0.0/8
\t35:0\t 5.5.5.5:8080
\t35:1\t 6.6.6.6:8080
10.0.0.1 port 80 proto 6 id 35 count 2 local 1 flags external-local, internal-local, maglev
\t35:0\t 5.5.5.5:8080
\t35:1\t 6.6.6.6:8080
";
    assert_eq!(services().prints("nat dump"), expected);
    let grouped = "\
1.1.1.1 port 80 proto 6 id 35 count 2 local 1
5.5.5.5 port 80 proto 6 id 35 count -1 local 0
5.5.5.5 port 80 proto 6 id 35 count 2 local 1 flags nat-exclude src 10.0.0.0/8
10.0.0.1 port 80 proto 6 id 35 count 2 local 1 flags external-local, internal-local, maglev
\t35:0\t 5.5.5.5:8080
\t35:1\t 6.6.6.6:8080
2.1.1.1 port 553 proto 17 id 107 count 1 local 0
\t107:0\t is missing
";
    assert_eq!(services().prints("nat dump --group-by-service"), grouped);
    let one = services().prints("nat dump 10.0.0.1 80 tcp");
    assert_eq!((one.lines().count(), one.contains("2.1.1.1")), (10, false), "all of the same service: {one}");
    assert_eq!(services().prints("nat dump 2.1.1.1 553 17").lines().count(), 2);
    let json = services().json("nat dump -j");
    assert_eq!(
        json[0]["backends"],
        json!([{"addr": "5.5.5.5", "port": 8080}, {"addr": "6.6.6.6", "port": 8080}])
    );
    assert_eq!(json[1]["backends"][0]["addr"], "missing");
    assert_eq!(
        json[2],
        json!({"frontend": {"addr": "5.5.5.5", "port": 80, "proto": 6, "id": 35, "count": -1, "local": 0}, "backends": []})
    );
    assert_eq!(
        (&json[3]["frontend"]["src_cidr"], &json[3]["frontend"]["flags"]),
        (&json!("10.0.0.0/8"), &json!("nat-exclude"))
    );
    let json = services().json("nat dump -j --group-by-service");
    assert_eq!((&json[0]["id"], json[0]["frontends"].as_array().map(Vec::len)), (&json!(35), Some(4)));
    assert_eq!(
        Given::default().with("cali_v4_nat_fe3", []).with("cali_v4_nat_be", []).prints("nat dump -j"),
        "[]\n"
    );
}

#[test]
fn nat_aff_and_maglev() {
    let lines = "\
client 10.0.0.9 svc proto 6 1.1.1.1:80 -> 5.5.5.5:8080 ts 1.5s
client 10.0.0.9 svc proto 17 1.1.1.1:80 -> 5.5.5.5:8080 ts 1.5s

";
    assert_eq!(services().prints("nat aff"), lines);
    assert_eq!(services().json("nat aff -j")[0]["backend"], json!({"addr": "5.5.5.5", "port": 8080}));
    assert_eq!(
        services().prints("nat maglev"),
        "svc 35 ordinal 2 -> 5.5.5.5:8080\nsvc 35 ordinal 10 -> 6.6.6.6:8080\n"
    );
    assert_eq!(
        services().json("nat maglev -j")[1],
        json!({"svc_id": 35, "ordinal": 10, "addr": "6.6.6.6", "port": 8080})
    );
}
