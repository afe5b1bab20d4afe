//! The file under attack: torn, flipped, cut, full, fought over; and its size under load.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use etcd_api::etcdserverpb as pb;
use kvstore::{OpenError, Options, PutRequest, RangeRequest, Store};
use testkit::{Folder, Process, free_port, program};

use crate::support::{Server, block_on, connect, open};

const FILE: &str = "tortie.db";

fn put(key: impl Into<String>, value: impl Into<Vec<u8>>) -> PutRequest {
    PutRequest { key: key.into().into(), value: value.into().into(), ..PutRequest::default() }
}

fn count(store: &Store) -> i64 {
    store.range(&RangeRequest { count_only: true, ..RangeRequest::prefix("") }).unwrap().count
}

/// A store's file as a crash leaves it, after `commits` commits of one key each, and where each commit ends.
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
fn a_commit_cut_short_is_dropped_and_nothing_else() {
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
        // The space is used again and the store goes on.
        block_on(store.put(put("after", "x"))).unwrap();
        drop(store);
        assert_eq!(count(&open(&dir)), i64::try_from(whole).unwrap() + 1, "cut at {cut}");
    }
}

#[test]
fn a_file_cut_off_is_dropped_to_the_last_whole_commit() {
    let folder = Folder::new("cut").unwrap();
    let (bytes, ends) = crashed(&folder, 3);
    // The last bytes may be padding, which nobody misses.
    for cut in (ends[2]..ends[3] - 8).step_by(5) {
        let dir = plant(&folder, "cut", &bytes[..cut]);
        assert_eq!(count(&open(&dir)), 2, "cut at {cut}");
    }
}

#[test]
fn a_flipped_bit_in_the_middle_is_found_and_named() {
    let folder = Folder::new("flipped").unwrap();
    let (bytes, ends) = crashed(&folder, 6);
    for at in (ends[0]..ends[5]).step_by(3) {
        let mut flipped = bytes.clone();
        flipped[at] ^= 0x10;
        let dir = plant(&folder, "flipped", &flipped);
        let commit = ends.iter().rposition(|&end| end <= at).unwrap();
        match Store::open(&dir, Options::default()) {
            // Padding between commits carries nothing.
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
fn what_is_no_store_is_refused() {
    let folder = Folder::new("foreign").unwrap();
    for (bytes, what) in [(vec![], "empty"), (vec![7; 20_000], "foreign"), (b"TortieKV".to_vec(), "short")] {
        let dir = plant(&folder, "foreign", &bytes);
        assert!(matches!(open_error(&dir), OpenError::NotAStore { .. }), "{what}");
    }
}

#[test]
fn a_value_that_rots_while_the_store_is_open_is_an_error() {
    let folder = Folder::new("rot").unwrap();
    let store = open(folder.path());
    block_on(store.put(put("key", "a value to be damaged"))).unwrap();
    let path = folder.path().join(FILE);
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(7).position(|window| window == b"damaged").unwrap();
    fs::File::options().write(true).open(&path).unwrap().write_all_at(b"D", at as u64).unwrap();
    assert!(matches!(store.range(&RangeRequest::key("key")), Err(kvstore::Error::Read(_))));
}

#[test]
fn the_second_process_is_told_who_the_first_is() -> Result<()> {
    let mut server = Server::start(&[])?;
    let error = open_error(&server.dir());
    let OpenError::InUse { pid, command, .. } = &error else { bail!("{error}") };
    assert_eq!(*pid, server.process()?.id().to_string());
    assert!(command.contains("serve_when_asked"), "{command}");
    assert!(error.to_string().contains("in use by process"));
    server.kill();
    assert!(Store::open(server.dir(), Options::default()).is_ok());
    Ok(())
}

#[test]
fn everything_is_for_its_owner_alone() -> Result<()> {
    let server = Server::start(&[])?;
    let mode = |path: PathBuf| fs::symlink_metadata(path).map(|it| it.permissions().mode() & 0o777);
    assert_eq!(mode(server.dir())?, 0o700);
    assert_eq!(mode(server.dir().join(FILE))?, 0o600);
    assert_eq!(mode(kvstore::socket_path(&server.dir()))?, 0o600);
    assert_eq!(mode(kvstore::served_path(&server.dir()))?, 0o600);
    // A directory that is there stays as it is: it may be there for others, too.
    let folder = Folder::new("open")?;
    let dir = folder.path().join("data");
    fs::create_dir(&dir)?;
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o1777))?;
    drop(open(&dir));
    assert_eq!(fs::metadata(&dir)?.permissions().mode() & 0o7777, 0o1777);
    assert_eq!(mode(dir.join(FILE))?, 0o600);
    Ok(())
}

#[test]
fn a_store_that_must_exist_is_not_made() -> Result<()> {
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
                // The rewrite that the compaction asked for may still run; the next one waits for it.
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
    kvstore::pack(&file, |part, _| -> std::io::Result<()> {
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
        assert!(matches!(store.put(put("small", "x")).await, Err(kvstore::Error::NoSpace)));
        assert!(matches!(store.lease_grant(1, 60).await, Err(kvstore::Error::NoSpace)));
        // Deleting, compacting and clearing the alarm is the way out, as in etcd.
        let all = kvstore::DeleteRangeRequest { key: "\0".into(), range_end: "\0".into(), prev_kv: false };
        assert_eq!(store.delete_range(all).await.unwrap().deleted, written);
        store.compact(store.revision(), true).await.unwrap();
        assert!(matches!(store.put(put("small", "x")).await, Err(kvstore::Error::NoSpace)));
        store.set_alarm(false).await.unwrap();
        store.put(put("small", "x")).await.unwrap();
    });
}

/// A full disk: a small file system of its own, in a mount namespace, with our server on it.
#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() -> Result<()> {
    let folder = Folder::new("full")?;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk)?;
    let port = free_port()?;
    let script = format!(
        "mount -t tmpfs -o size=12m,mode=700 none '{disk}' && head -c 6m /dev/zero > '{disk}/filler' && \
         export KVSTORE_TEST_SERVE=$(printf -- '--data-dir={disk}/data\\n--listen-client-urls=http://127.0.0.1:{port}') && \
         exec '{this}' support::serve_when_asked --exact --nocapture",
        disk = disk.display(),
        this = std::env::current_exe()?.display(),
    );
    let arguments = ["--user", "--map-root-user", "--mount", "sh", "-c", &script].map(str::to_owned);
    let unshare = program("unshare", "install Debian's util-linux")?;
    let mut process = Process::start(&unshare, &arguments, &folder.path().join("log"))?;
    let endpoint = format!("http://127.0.0.1:{port}");
    block_on(async {
        let mut client = loop {
            process.check_running()?;
            if let Ok(mut client) = connect(&endpoint).await
                && client.maintenance.status(pb::StatusRequest {}).await.is_ok()
            {
                break client;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        };
        let value = Bytes::from(vec![b'x'; 100_000]);
        let put = |key: String, value: Bytes| pb::PutRequest {
            key: key.into(),
            value,
            ..pb::PutRequest::default()
        };
        client.lease.lease_grant(pb::LeaseGrantRequest { ttl: 2, id: 7 }).await?;
        let mut written = 0;
        let error = loop {
            match client.kv.put(put(format!("key-{written:05}"), value.clone())).await {
                Ok(_) => written += 1,
                Err(error) => break error,
            }
            if written > 200 {
                bail!("the disk never filled up");
            }
        };
        assert!(error.to_string().contains("etcdserver: mvcc: database space exceeded"), "{error}");
        assert!(written > 10, "{written}");
        let get = pb::RangeRequest { key: "key-00000".into(), ..pb::RangeRequest::default() };
        let read = client.kv.range(get).await?.into_inner();
        assert_eq!(read.kvs[0].value, value);
        let revision = read.header.context("no header")?.revision;
        assert_eq!(revision, i64::from(written) + 1);
        // The lease is over and cannot be ended for lack of space; that is tried now and then, and said once.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let log = fs::read_to_string(folder.path().join("log"))?;
        assert_eq!(log.matches("no space left").count(), 1, "{log}");
        // Space returns: so do writes, without a restart.
        fs::remove_file(format!("/proc/{}/root{}/filler", process.id(), disk.display()))?;
        let after = client.kv.put(put("after".to_owned(), "x".into())).await?.into_inner();
        assert_eq!(after.header.context("no header")?.revision, revision + 1);
        let (key, range_end) = kvstore::prefix_range(Bytes::new());
        let all = pb::RangeRequest { key, range_end, count_only: true, ..pb::RangeRequest::default() };
        assert_eq!(client.kv.range(all).await?.into_inner().count, i64::from(written) + 1);
        Ok(())
    })
}
