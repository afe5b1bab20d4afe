//! Every captured situation gives the same bytes as Calico, or, where Calico is at fault, the correct ones; and BIRD
//! accepts every file.

use crate::capture::Capture;
use anyhow::{Context as _, Result};
use bgp::intent::{Remote, SessionKind, SessionName};
use bgp::{BgpState, IpVersion};
use confd::for_tests::{Dialect, FileName, Files, Left, render};
use std::path::PathBuf;
use std::sync::Arc;
use testkit::{Bird, Folder};

/// Situations in which Calico writes files that BIRD refuses, and the files that differ because of it.
const FAULTS: [(&str, &[&str]); 3] = [
    ("25-password-with-quote", &["bird.cfg"]),
    ("27-ipv6-only-no-router-id", &["bird.cfg", "bird6.cfg"]),
    ("28-node-without-bgp", &["bird.cfg", "bird6.cfg"]),
];

/// Calico's own BIRD programs routes over IP in IP; plain 1.6 does not know the keyword for it.
const NEEDS_CALICOS_BIRD: [&str; 1] = ["13-encapsulation-bird"];

fn files(capture: &Capture, dialect: Dialect) -> Result<Option<Files>> {
    Ok(capture.state()?.intent().ok().map(|intent| render(&intent, dialect)))
}

#[test]
fn every_file_is_calicos_byte_for_byte() -> Result<()> {
    let mut compared = 0;
    let mut wrong = Vec::new();
    for capture in Capture::all()? {
        let Some(files) = files(&capture, Dialect::One)? else {
            assert_eq!(capture.name, "24-node-missing");
            continue;
        };
        let excepted =
            FAULTS.iter().find(|(name, _)| *name == capture.name).map_or(&[][..], |(_, files)| files);
        for (name, text) in &files.texts {
            let theirs =
                capture.written(name.as_str()).with_context(|| format!("{} {name}", capture.name))?;
            if excepted.contains(&name.as_str()) {
                assert_ne!(text, theirs, "{} {name}: no longer a fault", capture.name);
            } else if text != theirs {
                wrong.push(format!("{} {name}:\n{}", capture.name, difference(theirs, text)));
            }
            compared += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(compared, 27 * 6);
    Ok(())
}

/// The first line that differs.
fn difference(theirs: &str, ours: &str) -> String {
    let (theirs, ours): (Vec<_>, Vec<_>) = (theirs.lines().collect(), ours.lines().collect());
    let at = theirs
        .iter()
        .zip(&ours)
        .position(|(one, other)| one != other)
        .unwrap_or(theirs.len().min(ours.len()));
    format!("  line {}\n  Calico: {:?}\n  ours:   {:?}", at + 1, theirs.get(at), ours.get(at))
}

#[test]
fn a_node_that_does_not_exist_has_no_files() -> Result<()> {
    let error = Capture::numbered("24")?.state()?.intent().unwrap_err();
    assert_eq!(error.to_string(), "node n1 was not found in the datastore");
    Ok(())
}

/// Writes the files into a new folder.
fn write(files: &Files) -> Result<(Folder, Vec<(PathBuf, bool)>)> {
    let folder = Folder::new("bird")?;
    let mut mains = Vec::new();
    for (name, text) in &files.texts {
        let path = folder.path().join(name.as_str());
        std::fs::write(&path, text)?;
        if let FileName::Main(version) = name {
            mains.push((path, *version == IpVersion::V6));
        }
    }
    Ok((folder, mains))
}

#[test]
fn bird_accepts_every_file_in_both_grammars() -> Result<()> {
    for (dialect, bird) in [(Dialect::One, Bird::one()?), (Dialect::Two, Bird::two()?)] {
        let mut checked = 0;
        for capture in Capture::all()? {
            let Some(files) = files(&capture, dialect)? else { continue };
            if dialect == Dialect::One && NEEDS_CALICOS_BIRD.contains(&capture.name.as_str()) {
                continue;
            }
            let (_folder, mains) = write(&files)?;
            for (path, is_v6) in mains {
                bird.check(&path, is_v6).with_context(|| format!("{} in {dialect:?}", capture.name))?;
                checked += 1;
            }
        }
        assert!(checked >= 26 * 2, "{checked}");
    }
    Ok(())
}

/// The same objects in other orders: the intent is a function of the objects, not of their history.
#[test]
fn the_history_of_a_situation_does_not_matter() -> Result<()> {
    for capture in Capture::all()? {
        let facts = capture.facts()?;
        let expected = capture.state()?.intent();
        let check = |way: &str, mut state: BgpState| {
            assert_eq!(state.intent(), expected, "{}, {way}", capture.name);
        };

        let mut reversed = BgpState::new(capture.settings());
        facts.iter().rev().for_each(|fact| fact.apply(&mut reversed, true));
        check("reversed", reversed);

        let mut split = BgpState::new(capture.settings());
        for fact in &facts {
            fact.apply(&mut split, true);
            let _ = split.intent();
        }
        check("one by one", split);

        let mut twice = BgpState::new(capture.settings());
        for fact in facts.iter().chain(&facts) {
            fact.apply(&mut twice, true);
        }
        check("everything twice", twice);

        // Each object in turn is removed and added again, with the intent computed in between.
        let mut flapping = capture.state()?;
        for fact in &facts {
            fact.apply(&mut flapping, false);
            let _ = flapping.intent();
            fact.apply(&mut flapping, true);
        }
        check("each gone and back", flapping);

        // Starts with the objects of all other captures, which are then removed.
        let mut former = BgpState::new(capture.settings());
        for other in Capture::all()? {
            let others = other.facts()?;
            others.iter().for_each(|fact| fact.apply(&mut former, true));
            let _ = former.intent();
            others.iter().for_each(|fact| fact.apply(&mut former, false));
        }
        facts.iter().for_each(|fact| fact.apply(&mut former, true));
        check("after all others", former);

        let mut empty = capture.state()?;
        let _ = empty.intent();
        facts.iter().for_each(|fact| fact.apply(&mut empty, false));
        assert_eq!(empty.intent(), BgpState::new(capture.settings()).intent(), "{} gone", capture.name);
    }
    Ok(())
}

#[test]
fn without_changes_nothing_is_recalculated() -> Result<()> {
    for capture in Capture::all()? {
        let mut state = capture.state()?;
        let Ok(before) = state.intent() else { continue };
        for fact in capture.facts()? {
            fact.apply(&mut state, true);
        }
        let after = state.intent()?;
        assert!(Arc::ptr_eq(&before, &after), "{} was calculated again", capture.name);
    }
    Ok(())
}

#[test]
fn a_password_that_bird_cannot_read_blocks_no_other_session() -> Result<()> {
    let capture = Capture::numbered("25")?;
    let intent = capture.state()?.intent()?;
    let files = render(&intent, Dialect::One);
    let text = &files.texts[&FileName::Main(IpVersion::V4)];
    assert_eq!(
        files.left,
        [Left::Password(SessionName::of(SessionKind::Global, &Remote::address("192.0.2.2".parse()?), None,))]
    );
    assert!(
        !text.contains("192.0.2.2") && text.contains("Mesh_10_65_0_2") && text.contains("Mesh_10_65_1_10")
    );
    Ok(())
}

#[test]
fn a_node_without_ipv4_address_has_a_router_id_derived_from_its_name() -> Result<()> {
    // The number that CALICO_ROUTER_ID=hash gives to a node of the same name.
    let hashed = Capture::numbered("18")?.state()?.intent()?.router_id;
    for number in ["27", "28"] {
        assert_eq!(Capture::numbered(number)?.state()?.intent()?.router_id, hashed, "{number}");
    }
    Ok(())
}

#[test]
fn clashing_peers_are_chosen_by_name_and_reported() -> Result<()> {
    let mut state = Capture::numbered("02")?.state()?;
    let peer = |as_number: u32| {
        let json = serde_json::json!({"peerIP": "10.65.0.254", "asNumber": as_number});
        serde_json::from_value::<api::BGPPeerSpec>(json)
    };
    state.set_peer("tor-0", Some(&peer(65_001)?));
    state.set_peer("tor-z", Some(&peer(65_002)?));
    let intent = state.intent()?;
    let name = SessionName::of(SessionKind::Global, &Remote::address("10.65.0.254".parse()?), None);
    assert_eq!(intent.v4.sessions[&name].peer_as.0, 65_001);
    let problems: Vec<String> = intent.problems.iter().map(ToString::to_string).collect();
    assert_eq!(
        problems,
        [
            "BGPPeers tor-0 and tor-a both describe the session with 10.65.0.254: tor-0 is used",
            "BGPPeers tor-0 and tor-z both describe the session with 10.65.0.254: tor-0 is used",
        ]
    );
    Ok(())
}
