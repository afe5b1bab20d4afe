//! The file under attack: torn, bits flipped, truncated, full, contended; and its size under load.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};
use kvstore_engine::{OpenError, Options, PutRequest, RangeRequest, Store};
use testkit::Folder;

use crate::support::{block_on, open};

const FILE: &str = "tortie.db";

fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> PutRequest {
    PutRequest { key: key.into().into(), value: value.into().into(), ..PutRequest::default() }
}

fn count(store: &Store) -> i64 {
    store.range(&RangeRequest { count_only: true, ..RangeRequest::prefix("") }).unwrap().count
}

/// A store's file as left by a crash after `commits` commits of one key each, and the offset at which each commit ends.
fn crashed(folder: &Folder, commits: usize) -> (Vec<u8>, Vec<usize>) {
    let dir = folder.path().join("crashed");
    let store = open(&dir);
    let mut ends = vec![usize::try_from(store.status().file_bytes).unwrap()];
    for number in 0..commits {
        block_on(store.put(put(format!("key-{number}"), format!("value-{number}")))).unwrap();
        ends.push(usize::try_from(store.status().file_bytes).unwrap());
    }
    // Read while the store is open: nothing has marked the file as cleanly closed.
    (fs::read(dir.join(FILE)).unwrap(), ends)
}

fn plant(folder: &Folder, name: &str, bytes: &[u8]) -> PathBuf {
    let dir = folder.path().join(name);
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join(FILE), bytes).unwrap();
    dir
}

fn open_error(dir: &Path) -> OpenError {
    match Store::open(dir, Options::default()) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[test]
fn only_an_incomplete_commit_is_dropped() {
    let folder = Folder::new("torn").unwrap();
    let (bytes, ends) = crashed(&folder, 6);
    for cut in (ends[3]..=ends[6]).step_by(3) {
        let whole = ends.iter().filter(|&&end| end <= cut).count() - 1;
        let mut torn = bytes.clone();
        torn[cut..].fill(0);
        // Padding is zeros anyway: a cut inside it loses nothing.
        let whole = if bytes[cut..ends[(whole + 1).min(6)]].iter().all(|&byte| byte == 0) {
            (whole + 1).min(6)
        } else {
            whole
        };
        let dir = plant(&folder, "torn", &torn);
        let store = open(&dir);
        assert_eq!(count(&store), i64::try_from(whole).unwrap(), "cut at {cut}");
        assert_eq!(store.revision(), i64::try_from(whole).unwrap() + 1);
        // The space is reused and the store continues to work.
        block_on(store.put(put("after", "x"))).unwrap();
        drop(store);
        assert_eq!(count(&open(&dir)), i64::try_from(whole).unwrap() + 1, "cut at {cut}");
    }
}

#[test]
fn a_truncated_file_keeps_all_whole_commits() {
    let folder = Folder::new("cut").unwrap();
    let (bytes, ends) = crashed(&folder, 3);
    // The last bytes may be padding, whose loss is harmless.
    for cut in (ends[2]..ends[3] - 8).step_by(5) {
        let dir = plant(&folder, "cut", &bytes[..cut]);
        assert_eq!(count(&open(&dir)), 2, "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_in_the_middle_is_reported_with_its_place() {
    let folder = Folder::new("flipped").unwrap();
    let (bytes, ends) = crashed(&folder, 6);
    for at in (ends[0]..ends[5]).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let dir = plant(&folder, "flipped", &flipped);
        let commit = ends.iter().rposition(|&end| end <= at).unwrap();
        match Store::open(&dir, Options::default()) {
            // Padding between commits holds no data.
            Ok(store) => {
                assert_eq!(bytes[at], 0, "byte {at}");
                assert_eq!(count(&store), 6);
            }
            Err(OpenError::Damaged { offset, path, .. }) => {
                assert_eq!(offset, ends[commit] as u64, "byte {at}");
                assert!(path.ends_with(FILE));
            }
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn after_a_clean_close_even_the_last_commit_must_be_there() {
    let folder = Folder::new("clean").unwrap();
    let (_, ends) = crashed(&folder, 3);
    let path = folder.path().join("crashed").join(FILE);
    let bytes = fs::read(&path).unwrap();
    for (cut, what) in [(ends[3] - 20, "zeroed"), (ends[2], "zeroed whole")] {
        let mut torn = bytes.clone();
        torn[cut..].fill(0);
        let dir = plant(&folder, "clean", &torn);
        assert!(matches!(open_error(&dir), OpenError::Damaged { .. }), "{what}");
    }
    let dir = plant(&folder, "clean", &bytes[..ends[2]]);
    assert!(matches!(open_error(&dir), OpenError::Damaged { .. }));
}

#[test]
fn files_that_are_not_stores_are_refused() {
    let folder = Folder::new("foreign").unwrap();
    for (bytes, what) in [(vec![], "empty"), (vec![7; 20_000], "foreign"), (b"TortieKV".to_vec(), "short")] {
        let dir = plant(&folder, "foreign", &bytes);
        assert!(matches!(open_error(&dir), OpenError::NotAStore { .. }), "{what}");
    }
}

#[test]
fn a_value_corrupted_while_the_store_is_open_is_an_error() {
    let folder = Folder::new("rot").unwrap();
    let store = open(folder.path());
    block_on(store.put(put("key", "a value to be damaged"))).unwrap();
    let path = folder.path().join(FILE);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"damaged").unwrap();
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"D", at as u64).unwrap();
    assert!(matches!(store.range(&RangeRequest::key("key")), Err(kvstore_engine::Error::Read(_))));
}

#[test]
fn the_file_is_accessible_by_its_owner_only() -> Result<()> {
    let mode = |path: &Path| fs::symlink_metadata(path).map(|it| it.permissions().mode() & 0o7777);
    let folder = Folder::new("owner")?;
    let made = folder.path().join("made");
    drop(open(&made));
    assert_eq!(mode(&made)?, 0o700);
    assert_eq!(mode(&made.join(FILE))?, 0o600);
    // An existing directory keeps its mode: others may use it, too.
    let shared = folder.path().join("shared");
    fs::create_dir(&shared)?;
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777))?;
    drop(open(&shared));
    assert_eq!(mode(&shared)?, 0o1777);
    assert_eq!(mode(&shared.join(FILE))?, 0o600);
    Ok(())
}

#[test]
fn open_existing_creates_no_store() -> Result<()> {
    let folder = Folder::new("none")?;
    for dir in [folder.path().to_owned(), folder.path().join("not/there")] {
        let outcome = Store::open_existing(&dir, Options::default());
        let Err(error @ OpenError::NoStore { .. }) = outcome else { bail!("it was opened") };
        assert!(error.to_string().contains(&dir.display().to_string()), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path())?.count(), 0);
    drop(open(folder.path()));
    Store::open_existing(folder.path(), Options::default())?;
    Ok(())
}

#[test]
fn updates_with_compaction_do_not_grow_the_file_for_ever() {
    let folder = Folder::new("growth").unwrap();
    let store = open(folder.path());
    let path = folder.path().join(FILE);
    let mut largest = 0;
    block_on(async {
        // 40 MB of updates to a handful of keys.
        for round in 0..40 {
            let puts = (0..1000).map(|number| store.put(put(format!("key-{}", number % 10), vec![7; 1000])));
            futures::future::join_all(puts).await.into_iter().for_each(|result| {
                result.unwrap();
            });
            store.compact(store.revision(), true).await.unwrap();
            if round > 2 {
                // The rewrite that the compaction triggered may still run; the next one waits for it.
                largest = largest.max(fs::metadata(&path).unwrap().size());
            }
        }
        store.defragment().await.unwrap();
    });
    assert!(largest < 12 << 20, "the file had {largest} bytes");
    assert!(store.status().file_bytes < 100_000, "{:?}", store.status());
    assert_eq!(count(&store), 10);
    let revision = store.revision();
    drop(store);
    let store = open(folder.path());
    assert_eq!((count(&store), store.revision()), (10, revision));
}

#[test]
fn a_snapshot_becomes_a_store_and_a_broken_one_does_not() {
    let folder = Folder::new("snapshot").unwrap();
    let store = open(&folder.path().join("first"));
    block_on(async {
        for number in 0..500 {
            store.put(put(format!("key-{}", number % 50), vec![1; 300])).await.unwrap();
        }
        store.compact(200, true).await.unwrap();
        store.lease_grant(7, 600).await.unwrap();
        store.put(PutRequest { lease: 7, ..put("leased", "x") }).await.unwrap();
    });
    let file = block_on(store.snapshot()).unwrap();
    let mut bytes = Vec::new();
    kvstore_engine::pack(&file, |part, _| -> std::io::Result<()> {
        bytes.extend(part);
        Ok(())
    })
    .unwrap();
    let snapshot = folder.path().join("snapshot");
    fs::write(&snapshot, &bytes).unwrap();
    let second = folder.path().join("second");
    Store::restore(&second, &snapshot).unwrap();
    let restored = open(&second);
    assert_eq!(restored.revision(), store.revision());
    assert_eq!(restored.hash(0).unwrap(), store.hash(0).unwrap());
    assert_eq!(restored.lease_time_to_live(7, true).keys, ["leased"]);
    drop(restored);
    assert!(matches!(Store::restore(&second, &snapshot), Err(OpenError::Exists { .. })));
    let third = folder.path().join("third");
    bytes[9000] ^= 1;
    fs::write(&snapshot, &bytes).unwrap();
    assert!(matches!(Store::restore(&third, &snapshot), Err(OpenError::NotAStore { .. })));
    fs::write(&snapshot, &bytes[..bytes.len() - 600]).unwrap();
    assert!(matches!(Store::restore(&third, &snapshot), Err(OpenError::NotAStore { .. })));
}

#[test]
fn the_quota_stops_writes_until_it_is_lifted() {
    let folder = Folder::new("quota").unwrap();
    let store = Store::open(folder.path(), Options { quota_bytes: 50_000, ..Options::default() }).unwrap();
    block_on(async {
        let mut written = 0;
        while store.put(put(format!("key-{written}"), vec![0; 1000])).await.is_ok() {
            written += 1;
        }
        assert!((40..50).contains(&written), "{written}");
        assert!(store.status().no_space_alarm);
        assert!(matches!(store.put(put("small", "x")).await, Err(kvstore_engine::Error::NoSpace)));
        assert!(matches!(store.lease_grant(1, 60).await, Err(kvstore_engine::Error::NoSpace)));
        // Deleting, compacting and clearing the alarm is the way out, as in etcd.
        let all =
            kvstore_engine::DeleteRangeRequest { key: "\0".into(), range_end: "\0".into(), prev_kv: false };
        assert_eq!(store.delete_range(all).await.unwrap().deleted, written);
        store.compact(store.revision(), true).await.unwrap();
        assert!(matches!(store.put(put("small", "x")).await, Err(kvstore_engine::Error::NoSpace)));
        store.set_alarm(false).await.unwrap();
        store.put(put("small", "x")).await.unwrap();
    });
}
