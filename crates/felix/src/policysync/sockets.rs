//! The sockets of workloads. The driver that mounts a directory into a pod writes `creds/<uid>.json` with the pod's
//! name and creates the directory `mount/<uid>`; a client that connects to `mount/<uid>/socket` is that pod. So the file
//! system identifies the client, and no further authentication is needed.

use super::Hub;
use super::server::PolicySync;
use api::words::KUBERNETES;
use daemon::FolderWatch;
use messages::WorkloadEndpointId;
use rustix::fs::{FileType, Mode, OFlags};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::UnixListenerStream;

/// How often a missing directory is looked for.
const LOOK: Duration = Duration::from_secs(2);
/// The longest file that is read, in bytes.
const LONGEST: u64 = 64 * 1024;
/// The name of a pod's endpoint.
const ENDPOINT: &str = "eth0";

/// The identity of a pod. Other fields are ignored.
#[derive(Debug, Deserialize, PartialEq, Eq)]
struct Credentials {
    #[serde(rename = "Workload", alias = "workload")]
    name: String,
    #[serde(rename = "Namespace", alias = "namespace")]
    namespace: String,
}

/// Serves sockets under this directory for as long as it is polled.
pub(crate) async fn serve(prefix: PathBuf, hub: Hub) {
    let credentials = prefix.join("creds");
    let mut open: BTreeMap<String, Server> = BTreeMap::new();
    loop {
        match FolderWatch::new(&credentials) {
            Ok(mut folder) => {
                update(&prefix, &hub, &mut open);
                while folder.changed().await.is_ok() && credentials.is_dir() {
                    update(&prefix, &hub, &mut open);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(%error, folder = %credentials.display(), "cannot look for workloads with proxies");
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// One listening socket, which is closed when this value is dropped.
struct Server {
    task: JoinHandle<()>,
    path: PathBuf,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Opens sockets of new workloads and closes those of removed ones.
fn update(prefix: &Path, hub: &Hub, open: &mut BTreeMap<String, Server>) {
    let there = match workloads(&prefix.join("creds")) {
        Ok(there) => there,
        Err(error) => {
            tracing::warn!(%error, "cannot read which workloads have proxies");
            return;
        }
    };
    open.retain(|uid, _| there.contains_key(uid));
    for (uid, path) in there {
        if open.contains_key(&uid) {
            continue;
        }
        match listen(prefix, &uid, &path, hub) {
            Ok(server) => {
                open.insert(uid, server);
            }
            Err(error) => tracing::warn!(%error, uid, "cannot open the socket for a workload's proxy"),
        }
    }
}

/// The files by the workloads' uids.
fn workloads(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let uid = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".json"));
        if let Some(uid) = uid.filter(|uid| !uid.is_empty()) {
            found.insert(uid.to_owned(), path.clone());
        }
    }
    Ok(found)
}

fn listen(prefix: &Path, uid: &str, credentials: &Path, hub: &Hub) -> io::Result<Server> {
    if std::fs::metadata(credentials)?.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the file is too long"));
    }
    let Credentials { name, namespace } = serde_json::from_slice(&std::fs::read(credentials)?)?;
    let path = prefix.join("mount").join(uid).join("socket");
    match std::fs::remove_file(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(&path)?;
    open_to_all(&path)?;
    let endpoint = WorkloadEndpointId {
        orchestrator: KUBERNETES.into(),
        workload: format!("{namespace}/{name}").into(),
        endpoint: ENDPOINT.into(),
    };
    tracing::info!(uid, workload = %endpoint.workload, "a workload has a proxy");
    let service = PolicySync::new(hub.clone(), endpoint);
    let task = tokio::spawn(async move {
        // Proxies in Go name the server by the path of its socket.
        let incoming = UnixListenerStream::new(listener).map(|stream| stream.map(grpc_socket::admit));
        if let Err(error) =
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(incoming).await
        {
            tracing::warn!(%error, "the socket of a workload's proxy failed");
        }
    });
    Ok(Server { task, path })
}

/// Lets every user connect to a socket, because the user of a pod's processes is not known.
///
/// The directory is the pod's, whose root user may replace the socket by a link at any time. So the file is opened
/// without following links, checked, and changed through the descriptor: it cannot become another file in between.
fn open_to_all(path: &Path) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Socket {
        return Err(io::Error::other("the socket was replaced by something else"));
    }
    // The mode of an `O_PATH` descriptor can be changed only through its name.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    std::fs::set_permissions(name, std::fs::Permissions::from_mode(0o777))
}

#[cfg(test)]
mod tests {
    use super::open_to_all;
    use std::os::unix::fs::PermissionsExt as _;
    use testkit::Folder;

    #[test]
    fn only_sockets_are_opened_to_all_users() {
        let folder = Folder::new("policysync-socket").unwrap();
        let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let socket = folder.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        open_to_all(&socket).unwrap();
        assert_eq!(mode(&socket), 0o777);

        let secret = folder.path().join("secret");
        std::fs::write(&secret, "key").unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&secret, &link).unwrap();
        open_to_all(&link).unwrap_err();
        open_to_all(&secret).unwrap_err();
        assert_eq!(mode(&secret), 0o600);
    }
}
