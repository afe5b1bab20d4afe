//! The server's folder: its owner, other processes that may open it, and a full disk.

use std::{fs, os::unix::fs::PermissionsExt, time::Duration};

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use etcd_api::etcdserverpb as pb;
use kvstore_engine::{OpenError, Options, Store, prefix_range, served_path, socket_path};
use testkit::{Folder, Process, example, free_port, program};

use crate::support::{Server, block_on, connect};

#[test]
fn a_store_in_use_names_the_process_that_serves_it() -> Result<()> {
    let mut server = Server::start(&[])?;
    let error = Store::open(server.dir(), Options::default()).err().context("the store is served")?;
    let OpenError::InUse { pid, command, .. } = &error else { bail!("{error}") };
    assert_eq!(*pid, server.process()?.id().to_string());
    assert!(command.contains("examples/datastore"), "{command}");
    assert!(error.to_string().contains("in use by process"));
    server.kill();
    assert!(Store::open(server.dir(), Options::default()).is_ok());
    Ok(())
}

#[test]
fn sockets_and_files_are_accessible_by_their_owner_only() -> Result<()> {
    let server = Server::start(&[])?;
    for path in [socket_path(&server.dir()), served_path(&server.dir())] {
        let mode = fs::symlink_metadata(&path)?.permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    Ok(())
}

/// Our server on a small file system of its own, in a mount namespace, which is filled up.
#[test]
fn a_full_disk_refuses_writes_keeps_reads_and_recovers() -> Result<()> {
    let folder = Folder::new("full")?;
    let disk = folder.path().join("disk");
    fs::create_dir(&disk)?;
    let port = free_port()?;
    let script = format!(
        "mount -t tmpfs -o size=12m,mode=700 none '{disk}' && head -c 6m /dev/zero > '{disk}/filler' && \
         exec '{program}' '--data-dir={disk}/data' --listen-client-urls=http://127.0.0.1:{port}",
        disk = disk.display(),
        program = example("datastore")?.display(),
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
        // The lease has expired and cannot be revoked for lack of space; that is retried now and then, and logged once.
        tokio::time::sleep(Duration::from_secs(4)).await;
        let log = fs::read_to_string(folder.path().join("log"))?;
        assert_eq!(log.matches("no space left").count(), 1, "{log}");
        // When space returns, writes work again without a restart.
        fs::remove_file(format!("/proc/{}/root{}/filler", process.id(), disk.display()))?;
        let after = client.kv.put(put("after".to_owned(), "x".into())).await?.into_inner();
        assert_eq!(after.header.context("no header")?.revision, revision + 1);
        let (key, range_end) = prefix_range(Bytes::new());
        let all = pb::RangeRequest { key, range_end, count_only: true, ..pb::RangeRequest::default() };
        assert_eq!(client.kv.range(all).await?.into_inner().count, i64::from(written) + 1);
        Ok(())
    })
}
