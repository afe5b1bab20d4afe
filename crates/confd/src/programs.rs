//! The programs of BIRD on this machine: finds them, determines their version, checks files with them, starts them.

use crate::render::Dialect;
use bgp::IpVersion;
use daemon::Environment;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::{Child, Command};

/// How long BIRD may take to check a file.
const CHECK: Duration = Duration::from_secs(30);
/// Folders that are searched after those in `PATH`.
const FOLDERS: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/sbin"];

/// BIRD for one family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bird {
    program: PathBuf,
}

/// The BIRD of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Programs {
    pub(crate) dialect: Dialect,
    pub(crate) v4: Bird,
    /// Absent if BIRD 1.6 was installed without its program for IPv6.
    pub(crate) v6: Option<Bird>,
}

impl Programs {
    /// Looks for BIRD; `None` if there is none.
    pub(crate) async fn find(environment: &(dyn Environment + Send + Sync)) -> Option<Self> {
        let path = environment.variable("PATH").unwrap_or_default();
        let folders: Vec<PathBuf> = std::env::split_paths(&path).chain(FOLDERS.map(PathBuf::from)).collect();
        let find =
            |name: &str| folders.iter().map(|folder| folder.join(name)).find(|program| program.is_file());
        let v4 = Bird { program: find("bird")? };
        let dialect = Dialect::of_version(&v4.version().await.ok()?);
        let v6 = match dialect {
            Dialect::One => find("bird6").map(|program| Bird { program }),
            Dialect::Two => Some(v4.clone()),
        };
        Some(Self { dialect, v4, v6 })
    }

    pub(crate) fn of(&self, version: IpVersion) -> Option<&Bird> {
        match version {
            IpVersion::V4 => Some(&self.v4),
            IpVersion::V6 => self.v6.as_ref(),
        }
    }
}

impl Bird {
    /// BIRD prints its version to standard error.
    async fn version(&self) -> io::Result<String> {
        let output = Command::new(&self.program).arg("--version").stdin(Stdio::null()).output().await?;
        let (error, text) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        Ok(format!("{error}{text}"))
    }

    /// Checks a file; the inner error is BIRD's reason for refusing it.
    pub(crate) async fn check(&self, file: &Path) -> io::Result<Result<(), String>> {
        let mut command = Command::new(&self.program);
        command.arg("-p").arg("-c").arg(file).stdin(Stdio::null()).kill_on_drop(true);
        let folder = file.parent().unwrap_or(Path::new("."));
        let output = tokio::time::timeout(CHECK, command.current_dir(folder).output()).await;
        let output = output.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        if output.status.success() {
            return Ok(Ok(()));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        let folder = format!("{}/", folder.display());
        Ok(Err(said.trim().trim_start_matches("bird: ").replace(&folder, "")))
    }

    /// Starts BIRD in the foreground, logging to our output. `recover`: the kernel has the routes of a previous BIRD,
    /// which are kept until peers have sent theirs.
    pub(crate) fn start(&self, file: &Path, socket: &Path, recover: bool) -> io::Result<Child> {
        let mut command = Command::new(&self.program);
        command.args(recover.then_some("-R")).args(["-d", "-s"]).arg(socket).arg("-c").arg(file);
        command.stdin(Stdio::null()).kill_on_drop(true);
        if let Some(folder) = file.parent() {
            command.current_dir(folder);
        }
        command.spawn()
    }
}
