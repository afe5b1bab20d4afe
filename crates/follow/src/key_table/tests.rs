//! The table against an ordinary map.

use super::*;
use proptest::prelude::*;

/// Keys in insertion order, each with what is known about it and whether it was seen.
#[derive(Default)]
struct Model(Vec<(Vec<u8>, Known, bool)>);

impl Model {
    fn position(&self, key: &[u8]) -> Option<usize> {
        self.0.iter().position(|(known, ..)| known == key)
    }

    fn take(&mut self, all: bool) -> Vec<Vec<u8>> {
        let gone = self.0.extract_if(.., |(_, _, seen)| all || !*seen);
        gone.map(|(key, ..)| key).collect()
    }
}

/// Keys are long enough for occasional compactions.
fn key(number: u16) -> Vec<u8> {
    format!("/calico/{number:0>200}").into_bytes()
}

fn owned(key: &[u8]) -> Option<Vec<u8>> {
    Some(key.to_owned())
}

fn check(steps: &[(u16, u8)]) -> Result<(), TestCaseError> {
    let (mut table, mut model) = (KeyTable::default(), Model::default());
    for (number, what) in steps {
        let key = key(*number);
        let (hash, place) = table.find(&key);
        let position = model.position(&key);
        prop_assert_eq!(place.map(|place| table.known(place)), position.map(|position| model.0[position].1));
        match (*what, place.zip(position)) {
            (0, _) => {
                table.begin();
                model.0.iter_mut().for_each(|(_, _, seen)| *seen = false);
            }
            (1, _) => prop_assert_eq!(table.take(false, owned), model.take(false)),
            (2..=99, None) => {}
            (2..=60, Some((place, position))) => {
                table.remove(place);
                model.0.remove(position);
            }
            (61..=99, Some((place, position))) => {
                table.touch(place);
                model.0[position].2 = true;
            }
            (stamp, there) => {
                let known = Known { stamp: stamp.into(), degraded: stamp % 2 == 0 };
                if let Some((place, position)) = there {
                    table.set(place, known);
                    model.0[position] = (key, known, true);
                } else {
                    table.insert(&key, hash, known);
                    model.0.push((key, known, true));
                }
            }
        }
        prop_assert_eq!((table.len(), table.is_empty()), (model.0.len(), model.0.is_empty()));
    }
    prop_assert_eq!(table.take(true, owned), model.take(true));
    prop_assert_eq!(table.bytes(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn it_is_a_map(steps in proptest::collection::vec((0u16..700, 0u8..=255), 0..3000)) {
        check(&steps)?;
    }
}

#[test]
fn an_entry_takes_little_more_than_its_key_and_gaps_are_closed() {
    let mut table = KeyTable::default();
    let key =
        |number| format!("/calico/v1/host/node-{number:06}/workload/k8s/shop/endpoint/eth0").into_bytes();
    for number in 0..100_000_u64 {
        let (hash, place) = table.find(&key(number));
        assert!(place.is_none());
        table.insert(&key(number), hash, Known { stamp: number, degraded: false });
    }
    let each = (table.buffer.len() + table.table.allocation_size()) / 100_000;
    assert!(each < key(0).len() + 26, "{each} bytes");
    for number in 0..90_000 {
        let place = table.find(&key(number)).1.unwrap();
        table.remove(place);
    }
    assert!(table.buffer.len() < 25_000 * (key(0).len() + HEADER), "{}", table.buffer.len());
    for number in 0..100_000 {
        let stamp = table.find(&key(number)).1.map(|place| table.known(place).stamp);
        assert_eq!(stamp, (number >= 90_000).then_some(number));
    }
}
