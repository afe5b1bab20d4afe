//! Runs one command line in this process and captures its output.

use calicoctl::Surroundings;
use daemon::{Environment, Variables};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use testkit::{ApiServer, Folder};

/// The output and the exit code of a command.
#[derive(Debug, PartialEq)]
pub(crate) struct Output {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) success: bool,
    pub(crate) code: ExitCode,
}

impl Output {
    /// The standard output of a command that must succeed without output on standard error.
    pub(crate) fn text(self) -> String {
        assert!(self.success, "{self:?}");
        assert_eq!(self.stderr, "", "{}", self.stdout);
        self.stdout
    }

    /// The standard error of a command that must fail.
    pub(crate) fn error(self) -> String {
        assert!(!self.success, "{self:?}");
        self.stderr
    }
}

/// The environment of commands: a datastore (by its variables), a folder for files, an input.
pub(crate) struct Shell {
    pub(crate) variables: BTreeMap<String, String>,
    pub(crate) stdin: Vec<u8>,
    pub(crate) colours: bool,
    pub(crate) width: Option<usize>,
    folder: Arc<Folder>,
}

impl Shell {
    /// A shell whose datastore is an embedded one of its own.
    pub(crate) fn embedded() -> Self {
        let folder = Folder::new("calicoctl").expect("a folder");
        let path = folder.path().join("data").display().to_string();
        // Commands that read do not create the store.
        drop(kvstore_engine::Store::open(&path, kvstore_engine::Options::default()).expect("making a store"));
        Self::with(&[("DATASTORE_TYPE", "embedded"), ("EMBEDDED_PATH", &path)], folder)
    }

    /// A shell whose datastore is this kube-apiserver, in which the definitions of Calico's resources are created
    /// first.
    pub(crate) fn kubernetes(api_server: &ApiServer, name: &str) -> Self {
        let definitions: Vec<String> = api::crds::all().iter().map(ToString::to_string).collect();
        api_server
            .kubectl_with_input(&["apply", "--server-side", "-f", "-"], &definitions.join("\n---\n"))
            .expect("applying the CRDs");
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        let established = api_server.kubectl(&wait).expect("kubectl").status.success();
        assert!(established, "the CRDs were not established");
        let kubeconfig = api_server.kubeconfig().display().to_string();
        let folder = Folder::new(name).expect("a folder");
        Self::with(&[("DATASTORE_TYPE", "kubernetes"), ("KUBECONFIG", &kubeconfig)], folder)
    }

    /// A shell with these variables.
    pub(crate) fn with(variables: &[(&str, &str)], folder: Folder) -> Self {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { variables, stdin: Vec::new(), colours: false, width: None, folder: Arc::new(folder) }
    }

    /// A path in the shell's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into the shell's folder and returns its path.
    pub(crate) fn file(&self, name: &str, text: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).expect("a folder");
        }
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }

    /// Runs a command line; words are separated by spaces, and those in `more` are appended unchanged.
    pub(crate) fn run_with(&self, line: &str, more: &[&str]) -> Output {
        let words = line.split_whitespace().chain(more.iter().copied());
        let arguments: Vec<OsString> =
            std::iter::once("calicoctl").chain(words).map(OsString::from).collect();
        let (stdout, stderr) = (Buffer::default(), Buffer::default());
        let surroundings = Surroundings {
            stdin: Box::new(Cursor::new(self.stdin.clone())),
            stdout: Box::new(stdout.clone()),
            stderr: Box::new(stderr.clone()),
            environment: environment(&self.variables),
            colours: self.colours,
            progress: false,
            width: self.width,
        };
        let code = calicoctl::run(&arguments, surroundings);
        Output { stdout: stdout.text(), stderr: stderr.text(), success: code == ExitCode::SUCCESS, code }
    }

    /// Runs a command line whose words are separated by spaces.
    pub(crate) fn run(&self, line: &str) -> Output {
        self.run_with(line, &[])
    }

    /// Runs a command with this text on its standard input.
    pub(crate) fn pipe(&self, line: &str, input: impl AsRef<[u8]>) -> Output {
        let shell = Self {
            variables: self.variables.clone(),
            stdin: input.as_ref().to_vec(),
            colours: self.colours,
            width: self.width,
            folder: Arc::clone(&self.folder),
        };
        shell.run(line)
    }
}

/// Captured output.
#[derive(Clone, Default)]
pub(crate) struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Buffer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("the buffer").clone()).expect("text")
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("the buffer").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An environment with these variables; files are those of the machine, except the default configuration file.
pub(crate) fn environment(variables: &BTreeMap<String, String>) -> Box<dyn Environment + Send + Sync> {
    let default = Path::new(client::config::DEFAULT_CONFIG_PATH);
    Box::new(Variables::new(variables).without_file(default))
}
