//! A lab from outside: the output of `lab env`, which lets `calicoctl` and `kubectl` of this machine use the lab's
//! datastore.
//!
//! The embedded store is a socket in the lab's folder, which needs nothing more. TCP servers are in the lab's own
//! network. For those a separate process, the gate, listens outside and forwards connections to the lab's router: for
//! etcd, which does not authenticate clients, on a socket in the folder; for kube-apiserver, on a port of 127.0.0.1.
//! The gate ends with the lab, and listens on no other address.

use crate::called::{LAB_VARIABLE, quote};
use crate::inside::{MARK, own_command};
use crate::lab::{Lab, ROUTER};
use crate::servers::KUBECONFIG;
use crate::settings::{API_PORT, ETCD_PORT, Variables, datastore};
use crate::state::{FOLDER_VARIABLE, Folder, KeeperState, start_time};
use crate::topology::Datastore;
use anyhow::{Context as _, Result, bail};
use daemon::{Environment as _, SystemEnvironment};
use netlink::namespace::Namespace;
use serde::{Deserialize, Serialize};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// The file that the gate writes when it is listening.
const GATE: &str = "gate.json";
/// The kubeconfig for programs outside.
const OUTSIDE: &str = "kubeconfig-outside";
/// The gate's socket in front of etcd.
const SOCKET: &str = "etcd.sock";
/// How long a gate may take to start listening.
const PATIENCE: Duration = Duration::from_secs(20);

/// A gate that is listening.
#[derive(Serialize, Deserialize)]
struct Gate {
    pid: u32,
    started: u64,
    /// The port on 127.0.0.1, unless it is a socket.
    port: Option<u16>,
}

/// The variables with which programs of this machine use the lab. Starts the gate if one is needed.
///
/// # Errors
/// When the gate cannot be started.
pub(crate) fn variables(lab: &Lab) -> Result<Variables> {
    let (folder, topology) = (&lab.folder, lab.topology());
    let mut variables = datastore(folder, topology);
    match topology.datastore {
        Datastore::Embedded => {}
        Datastore::Etcd => {
            gate(folder)?;
            let endpoint = format!("unix://{}", folder.file(SOCKET).display());
            variables.insert("ETCD_ENDPOINTS".to_owned(), endpoint);
        }
        Datastore::Kubernetes => {
            let port = gate(folder)?.port.context("the gate did not name its port")?;
            let own = folder.file(KUBECONFIG);
            let text = std::fs::read_to_string(&own).with_context(|| format!("reading {}", own.display()))?;
            folder.write_secret(OUTSIDE, &with_server(&text, &format!("127.0.0.1:{port}")))?;
            variables.insert("KUBECONFIG".to_owned(), folder.file(OUTSIDE).display().to_string());
        }
    }
    variables.insert(LAB_VARIABLE.to_owned(), topology.name.clone());
    if let Some(labs) = SystemEnvironment.text(FOLDER_VARIABLE) {
        variables.insert(FOLDER_VARIABLE.to_owned(), labs);
    }
    Ok(variables)
}

/// Lines for `eval`, quoted or not: each ends with a semicolon.
pub(crate) fn exports(variables: &Variables) -> String {
    variables.iter().map(|(name, value)| format!("export {name}={};\n", quote(value))).collect()
}

/// The lines that unset them.
pub(crate) fn unsets(variables: &Variables) -> String {
    variables.keys().map(|name| format!("unset {name};\n")).collect()
}

fn with_server(kubeconfig: &str, server: &str) -> String {
    let line = |line: &str| match line.split_once("server: https://") {
        Some((start, _)) => format!("{start}server: https://{server}\n"),
        None => format!("{line}\n"),
    };
    kubeconfig.lines().map(line).collect()
}

/// The running gate, started if there is none.
fn gate(folder: &Folder) -> Result<Gate> {
    if let Some(gate) = listening(folder) {
        return Ok(gate);
    }
    let path = folder.log("gate");
    let log = std::fs::File::create(&path).with_context(|| format!("writing {}", path.display()))?;
    let mut child = own_command()
        .args(["lab", "internal", "gate", "--folder"])
        .arg(folder.path())
        .env(MARK, folder.path())
        .stdin(Stdio::null())
        // A shell that reads the variables must not wait for the gate to end.
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("starting the lab's gate")?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(gate) = listening(folder) {
            return Ok(gate);
        }
        if child.try_wait()?.is_some() || Instant::now() > deadline {
            bail!("the lab's gate is not listening; its log ends with:\n{}", folder.log_tail("gate", 3));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn listening(folder: &Folder) -> Option<Gate> {
    let gate: Gate = serde_json::from_str(&std::fs::read_to_string(folder.file(GATE)).ok()?).ok()?;
    (start_time(gate.pid) == Some(gate.started)).then_some(gate)
}

/// Runs the gate of a lab until the lab ends.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn run(path: &Path) -> Result<()> {
    // A terminal's interrupts are meant for the command that started the gate.
    let _ = rustix::process::setsid();
    let folder = Folder::at(path)?;
    let state = folder.load()?;
    let keeper = folder.keeper().context("the lab has no keeper")?;
    let router = state.namespaces.get(ROUTER).context("the lab has no router")?.clone();
    let address = state.topology.server_address();
    let announce = |port: Option<u16>| -> Result<()> {
        let pid = std::process::id();
        let started = start_time(pid).context("reading /proc/self/stat")?;
        folder.write(GATE, &serde_json::to_vec(&Gate { pid, started, port })?)
    };
    match state.topology.datastore {
        Datastore::Embedded => bail!("the embedded datastore needs no gate"),
        Datastore::Etcd => {
            let socket = folder.file(SOCKET);
            // Left by a gate that was killed.
            let _ = std::fs::remove_file(&socket);
            let listener =
                UnixListener::bind(&socket).with_context(|| format!("listening on {}", socket.display()))?;
            announce(None)?;
            end_with(keeper);
            let inner = SocketAddr::new(address, ETCD_PORT);
            for outer in listener.incoming().flatten() {
                carry(outer, router.clone(), inner);
            }
        }
        Datastore::Kubernetes => {
            let listener =
                TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening on a port of 127.0.0.1")?;
            announce(Some(listener.local_addr()?.port()))?;
            end_with(keeper);
            let inner = SocketAddr::new(address, API_PORT);
            for outer in listener.incoming().flatten() {
                carry(outer, router.clone(), inner);
            }
        }
    }
    Ok(())
}

/// Ends this process when the lab's keeper is gone.
fn end_with(keeper: KeeperState) {
    std::thread::spawn(move || {
        while keeper.is_alive() {
            std::thread::sleep(Duration::from_millis(500));
        }
        std::process::exit(0);
    });
}

/// A connection of either kind.
pub(crate) trait Stream: Read + Write + Send + Sized + 'static {
    fn twin(&self) -> std::io::Result<Self>;
    fn hang_up(&self, how: Shutdown);
}

impl Stream for TcpStream {
    fn twin(&self) -> std::io::Result<Self> {
        self.try_clone()
    }

    fn hang_up(&self, how: Shutdown) {
        // The other side may have done so already.
        let _ = self.shutdown(how);
    }
}

impl Stream for UnixStream {
    fn twin(&self) -> std::io::Result<Self> {
        self.try_clone()
    }

    fn hang_up(&self, how: Shutdown) {
        let _ = self.shutdown(how);
    }
}

/// Connects inside the lab and forwards bytes both ways until both sides are done.
pub(crate) fn carry(outer: impl Stream, router: PathBuf, address: SocketAddr) {
    std::thread::spawn(move || -> Result<()> {
        let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(10));
        let inner = Namespace::open(&router)?.run(connect)??;
        let (outer_twin, inner_twin) = (outer.twin()?, inner.twin()?);
        std::thread::spawn(move || pour(outer_twin, inner_twin));
        pour(inner, outer);
        Ok(())
    });
}

fn pour(mut from: impl Stream, mut to: impl Stream) {
    // A connection that breaks off counts as closed.
    let _ = std::io::copy(&mut from, &mut to);
    to.hang_up(Shutdown::Write);
    from.hang_up(Shutdown::Read);
}

#[cfg(test)]
mod tests {
    use super::{exports, unsets, with_server};
    use crate::settings::Variables;

    #[test]
    fn lines_survive_eval_without_quotes() {
        let variables: Variables = [("A", "embedded"), ("B", "/a b/it's")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        assert_eq!(exports(&variables), "export A=embedded;\nexport B='/a b/it'\\''s';\n");
        assert_eq!(unsets(&variables), "unset A;\nunset B;\n");
        let script = r#"eval $(printf '%s' "$LINES"); test "$B" = "/a b/it's" && test "$A" = embedded"#;
        let status =
            std::process::Command::new("sh").args(["-c", script]).env("LINES", exports(&variables)).status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn only_the_server_changes() {
        let text =
            "clusters:\n- cluster:\n    server: https://10.65.0.254:6443\n    certificate-authority: /x\n";
        assert_eq!(
            with_server(text, "127.0.0.1:4711"),
            "clusters:\n- cluster:\n    server: https://127.0.0.1:4711\n    certificate-authority: /x\n"
        );
    }
}
