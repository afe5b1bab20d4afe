//! Maps: elements that are set can be read, also by the thousand; wrong sizes are refused before the kernel sees them.

use anyhow::Result;
use bpf::{Definition, Kind, Map, PerCpu, Table};
use std::collections::BTreeMap;

fn definition(kind: Kind, key: usize, value: usize, entries: u32) -> Definition {
    let flags = if kind == Kind::Lpm { Definition::NO_PREALLOCATION } else { 0 };
    Definition { name: format!("t_{kind:?}"), kind, key, value, entries, flags }
}

#[test]
fn elements_are_set_read_and_removed_alone_and_in_batches() -> Result<()> {
    for kind in [Kind::Hash, Kind::LruHash, Kind::Lpm] {
        let map = Map::create(definition(kind, 8, 8, 20_000))?;
        let key = |number: u32| [32_u32.to_ne_bytes(), number.to_be_bytes()].concat();
        let elements: Vec<_> =
            (0..10_000_u32).map(|number| (key(number), u64::from(number).to_ne_bytes().to_vec())).collect();
        map.set_many(&elements)?;
        assert_eq!(map.get(&key(77))?, Some(77_u64.to_ne_bytes().to_vec()), "{kind:?}");
        assert_eq!(map.get(&key(10_000))?, None, "{kind:?}");
        let read: BTreeMap<_, _> = map.entries()?.into_iter().collect();
        assert_eq!(read, elements.iter().cloned().collect(), "{kind:?}");
        assert_eq!(map.keys()?.len(), 10_000, "{kind:?}");
        // Every other key to be removed is already gone.
        for number in (0..10_000).step_by(2) {
            assert!(map.remove(&key(number))?, "{kind:?}");
        }
        assert!(!map.remove(&key(0))?, "{kind:?}");
        let all: Vec<_> = (0..9_990).map(key).collect();
        assert_eq!(map.remove_many(&all)?, 4_995, "{kind:?}");
        assert_eq!(map.entries()?.len(), 5, "{kind:?}");
    }
    Ok(())
}

#[test]
fn a_batch_grows_for_a_large_bucket() -> Result<()> {
    let map = Map::create(definition(Kind::Hash, 4, 4, 3))?;
    let elements: Vec<_> = (0..3_u32).map(|number| (number.to_ne_bytes().to_vec(), vec![1; 4])).collect();
    map.set_many(&elements)?;
    assert_eq!(map.entries()?.len(), 3);
    let empty = Map::create(definition(Kind::Hash, 4, 4, 3))?;
    assert_eq!(empty.entries()?, []);
    Ok(())
}

#[test]
fn wrappers_match_their_maps_or_are_not_created() -> Result<()> {
    let map = Map::create(definition(Kind::Hash, 4, 8, 4))?;
    let table = Table::<u32, u64>::new(&map)?;
    table.set(&7, &8)?;
    assert_eq!((table.get(&7)?, table.get(&8)?, table.entries()?), (Some(8), None, vec![(7, 8)]));
    assert!(table.remove(&7)?);
    let refused = Table::<u64, u64>::new(&map).unwrap_err().to_string();
    assert!(refused.contains("t_Hash has kind Hash, key 4, value 8, not one of"), "{refused}");
    assert!(PerCpu::<u32, u64>::new(&map).is_err());
    // Sizes are checked before the kernel reads or writes memory.
    assert!(map.get(&[0; 3]).is_err() && map.set(&[0; 4], &[0; 4]).is_err() && map.remove(&[0; 5]).is_err());
    Ok(())
}

#[test]
fn every_processor_has_its_value() -> Result<()> {
    let map = Map::create(definition(Kind::PerCpuHash, 4, 12, 4))?;
    let table = PerCpu::<u32, [u8; 12]>::new(&map)?;
    assert_eq!(table.get(&1)?, Vec::<[u8; 12]>::new());
    table.fill(&1, &[5; 12])?;
    let values = table.get(&1)?;
    assert!(!values.is_empty() && values.iter().all(|value| *value == [5; 12]));
    Ok(())
}

#[test]
fn a_full_or_frozen_map_reports_so() -> Result<()> {
    let map = Map::create(definition(Kind::Hash, 4, 4, 1))?;
    map.set(&[1; 4], &[1; 4])?;
    let full = map.set(&[2; 4], &[1; 4]).unwrap_err();
    assert_eq!(full.errno(), Some(rustix::io::Errno::TOOBIG));
    assert!(full.to_string().starts_with("cannot write to map t_Hash: "), "{full}");
    let constants = Map::create(definition(Kind::Array, 4, 4, 1))?;
    constants.freeze()?;
    assert_eq!(constants.set(&[0; 4], &[1; 4]).unwrap_err().errno(), Some(rustix::io::Errno::PERM));
    Ok(())
}

#[test]
fn a_map_is_found_by_its_id() -> Result<()> {
    let map = Map::create(definition(Kind::LruHash, 16, 88, 100))?;
    let again = Map::by_id(map.id()?)?;
    assert_eq!(again.definition(), map.definition());
    let id = map.id()?;
    drop((map, again));
    // Its last owner is gone; the kernel frees the map soon after.
    testkit::eventually("the map to go", || Map::by_id(id).is_err())?;
    Ok(())
}
