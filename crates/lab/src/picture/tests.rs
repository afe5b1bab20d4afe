//! One picture compared exactly, and many sizes in which nothing overlaps or sticks out.

use super::layout::{Box, of, width_of};
use super::svg;
use crate::state::{PodState, State};
use crate::topology::{Encap, Families, NodeWish, Wish, plan};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn lab(wish: &Wish) -> State {
    let topology = plan("lab", wish).unwrap();
    let pods: BTreeMap<String, PodState> = topology
        .pods
        .iter()
        .enumerate()
        .map(|(index, pod)| {
            let mut addresses = Vec::new();
            if topology.families.has_v4() {
                addresses.push(format!("172.16.100.{}", index % 250).parse().unwrap());
            }
            if topology.families.has_v6() {
                addresses.push(format!("fd65:1:2:3333:4444:5555:6666:{index:x}").parse().unwrap());
            }
            let state =
                PodState { pod: pod.clone(), container: "c".to_owned(), addresses, netns: PathBuf::new() };
            (pod.full_name(), state)
        })
        .collect();
    State { topology, namespaces: BTreeMap::new(), pods, ready: true }
}

#[test]
fn the_usual_lab() {
    let drawn = svg(&lab(&Wish::default()));
    let known = include_str!("golden.svg");
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/picture/golden.svg"), &drawn).unwrap();
    } else {
        assert!(
            drawn == known,
            "the picture changed; UPDATE_EXPECT=1 rewrites golden.svg, to be looked at:\n{drawn}"
        );
    }
    for word in [
        "node3",
        "10.65.1.3/24",
        "shop/frontend :80,8080",
        "VXLAN between all nodes",
        "subnet 1: 10.65.1.0/24",
    ] {
        assert!(drawn.contains(word), "{word}");
    }
    // The name of the format is the only URL: nothing is fetched.
    assert_eq!(drawn.matches("://").count(), 1);
}

fn overlap(one: &Box, other: &Box) -> bool {
    one.x < other.x + other.width
        && other.x < one.x + one.width
        && one.y < other.y + other.height
        && other.y < one.y + one.height
}

fn holds(outer: &Box, inner: &Box) -> bool {
    outer.x <= inner.x
        && outer.y <= inner.y
        && inner.x + inner.width <= outer.x + outer.width
        && inner.y + inner.height <= outer.y + outer.height
}

#[test]
fn nothing_overlaps_in_any_size() {
    let long = |index: usize| NodeWish {
        name: format!("a-node-with-quite-a-long-name-{index}"),
        ..NodeWish::default()
    };
    let mut wishes = vec![Wish { nodes: (0..5).map(long).collect(), subnets: Some(1), ..Wish::default() }];
    for (nodes, subnets, pods) in
        [(1, 1, 0), (1, 1, 7), (2, 2, 2), (3, 2, 6), (9, 1, 40), (16, 16, 16), (32, 3, 200)]
    {
        for family in [Families::V4, Families::V6, Families::Dual] {
            for encap in [Encap::None, Encap::Vxlan, Encap::CrossSubnet] {
                wishes.push(Wish {
                    node_count: Some(nodes),
                    subnets: Some(subnets),
                    pod_count: Some(pods),
                    family: Some(family),
                    encap: Some(encap),
                    ..Wish::default()
                });
            }
        }
    }
    for wish in wishes {
        let drawing = of(&lab(&wish));
        let what = &drawing.title;
        let page = Box { class: "", x: 0, y: 0, width: drawing.width, height: drawing.height };
        let of_class =
            |class: &str| drawing.boxes.iter().filter(move |it| it.class == class).collect::<Vec<_>>();
        for class in ["router", "subnet", "node", "pod"] {
            let boxes = of_class(class);
            for (index, one) in boxes.iter().enumerate() {
                assert!(holds(&page, one), "{what}: a {class} sticks out");
                assert!(
                    !boxes[index + 1..].iter().any(|other| overlap(one, other)),
                    "{what}: {class}s overlap"
                );
            }
        }
        assert!(
            !of_class("router").iter().any(|one| of_class("subnet").iter().any(|other| overlap(one, other)))
        );
        for (inner, outer) in [("pod", "node"), ("node", "subnet")] {
            for one in of_class(inner) {
                assert!(
                    of_class(outer).iter().any(|other| holds(other, one)),
                    "{what}: a {inner} is not in a {outer}"
                );
            }
        }
        // Each text is inside every box that it touches, and no two texts touch.
        let texts: Vec<Box> = drawing
            .texts
            .iter()
            .map(|text| Box { class: "", x: text.x, y: text.y - 11, width: width_of(&text.text), height: 14 })
            .collect();
        for (index, one) in texts.iter().enumerate() {
            let text = &drawing.texts[index].text;
            assert!(holds(&page, one), "{what}: '{text}' sticks out");
            assert!(
                !texts[index + 1..].iter().any(|other| overlap(one, other)),
                "{what}: '{text}' is written over"
            );
            for other in drawing.boxes.iter().filter(|other| overlap(one, other)) {
                assert!(holds(other, one), "{what}: '{text}' crosses the edge of a {}", other.class);
            }
        }
    }
}
