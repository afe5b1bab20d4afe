//! A real kube-apiserver on loopback, on top of any etcd, with an administrator's kubeconfig and `kubectl`.

use crate::{Authority, Folder, Process, free_port};
use anyhow::{Context, Result, bail};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const VERSION: &str = "v1.36.3";
const COREDNS_VERSION: &str = "v1.14.7";
const HELM_VERSION: &str = "v3.20.2";

/// Finds a Kubernetes program in the cache that `scripts/kubernetes-binaries.sh` fills.
///
/// # Errors
/// When it is not found; the message contains instructions.
pub fn kubernetes_program(name: &str) -> Result<PathBuf> {
    let version = |variable: &str, own: &str| std::env::var(variable).unwrap_or_else(|_| own.to_owned());
    let kubernetes = || format!("kubernetes-{}", version("KUBERNETES_VERSION", VERSION));
    // The group in the script, and the folder that it creates for it.
    let (group, made) = match name {
        "kube-apiserver" | "kubectl" => ("", kubernetes()),
        "agnhost" | "e2e.test" => ("suite", format!("{}-suite", kubernetes())),
        "coredns" => ("dns", format!("coredns-{}-hosts", version("COREDNS_VERSION", COREDNS_VERSION))),
        "helm" => ("helm", format!("helm-{}", version("HELM_VERSION", HELM_VERSION))),
        _ => ("cluster", format!("{}-cluster", kubernetes())),
    };
    let folder = match std::env::var_os("TORTIE_KUBERNETES_BIN") {
        Some(folder) => PathBuf::from(folder),
        None => cache_root()?.join(made),
    };
    let file = folder.join(name);
    if !file.is_file() {
        bail!(
            "this test needs {}: run `make setup` (or `scripts/kubernetes-binaries.sh {group}`) once",
            file.display()
        );
    }
    Ok(file)
}

/// The cache outside the checkout.
pub(crate) fn cache_root() -> Result<PathBuf> {
    if let Some(root) = std::env::var_os("TORTIE_CACHE") {
        return Ok(root.into());
    }
    if let Some(cache) = std::env::var_os("XDG_CACHE_HOME") {
        return Ok(Path::new(&cache).join("tortie"));
    }
    let home = std::env::var_os("HOME").context("neither TORTIE_CACHE, XDG_CACHE_HOME nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/tortie"))
}

/// A running kube-apiserver. Its folder and port survive [`ApiServer::restart`].
#[derive(Debug)]
pub struct ApiServer {
    process: Option<Process>,
    folder: Folder,
    port: u16,
    arguments: Vec<String>,
}

impl ApiServer {
    /// Starts a server on this etcd (`http://...` or `unix://...`) and waits until it is ready.
    ///
    /// # Errors
    /// When the program is missing or does not start.
    pub fn start(etcd_endpoint: &str) -> Result<Self> {
        let folder = Folder::new("apiserver")?;
        let path = folder.path();
        let authority = Authority::new(path)?;
        let server = authority.sign("server", "kube-apiserver", &[])?;
        let account = authority.sign("service-account", "service-account", &[])?;
        // The proxy in front of aggregated APIs has an authority of its own; otherwise every client could claim to be
        // it.
        let front = path.join("front-proxy");
        std::fs::create_dir(&front)?;
        let front_authority = Authority::new(&front)?;
        let proxy = front_authority.sign("proxy", "front-proxy-client", &[])?;
        let tokens = path.join("tokens.csv");
        std::fs::write(
            &tokens,
            "admin-token,admin,admin,\"system:masters\"\nnobody-token,nobody,nobody,\"nobodies\"\n",
        )?;
        let port = free_port()?;
        let arguments = vec![
            format!("--etcd-servers={etcd_endpoint}"),
            "--etcd-compaction-interval=0".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={port}"),
            format!("--tls-cert-file={}", server.certificate.display()),
            format!("--tls-private-key-file={}", server.key.display()),
            format!("--client-ca-file={}", authority.certificate.display()),
            format!("--token-auth-file={}", tokens.display()),
            "--authorization-mode=RBAC".into(),
            format!("--requestheader-client-ca-file={}", front_authority.certificate.display()),
            "--requestheader-allowed-names=front-proxy-client".into(),
            "--requestheader-username-headers=X-Remote-User".into(),
            "--requestheader-group-headers=X-Remote-Group".into(),
            "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
            format!("--proxy-client-cert-file={}", proxy.certificate.display()),
            format!("--proxy-client-key-file={}", proxy.key.display()),
            // Without a controller-manager nothing creates the default service accounts that this plugin waits for.
            "--disable-admission-plugins=ServiceAccount".into(),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            format!("--service-account-key-file={}", account.certificate.display()),
            format!("--service-account-signing-key-file={}", account.key.display()),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--endpoint-reconciler-type=none".into(),
            "--enable-priority-and-fairness=false".into(),
            "--shutdown-delay-duration=0s".into(),
            // As in every real cluster: agents of nodes run as privileged pods.
            "--allow-privileged=true".into(),
            // Tests delete ten thousand objects at a time.
            "--delete-collection-workers=16".into(),
        ];
        for (name, token) in [("kubeconfig", "admin-token"), ("kubeconfig-nobody", "nobody-token")] {
            std::fs::write(path.join(name), kubeconfig(&authority.certificate, port, token))?;
        }
        let mut api_server = Self { process: None, folder, port, arguments };
        api_server.restart()?;
        Ok(api_server)
    }

    /// Starts it (again) with the same data and port, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start.
    pub fn restart(&mut self) -> Result<()> {
        self.process = None;
        let binary = kubernetes_program("kube-apiserver")?;
        let mut process = Process::start(&binary, &self.arguments, &self.folder.path().join("log"))?;
        let deadline = Instant::now() + Duration::from_secs(120);
        while !self.kubectl(&["get", "--raw", "/readyz"])?.status.success() {
            process.check_running().context("starting kube-apiserver")?;
            if Instant::now() > deadline {
                bail!(
                    "kube-apiserver was not ready within 120 s; its log ends with:\n{}",
                    process.log_tail()
                );
            }
            std::thread::sleep(Duration::from_millis(250));
        }
        self.process = Some(process);
        Ok(())
    }

    /// The process, to pause, kill or measure.
    ///
    /// # Errors
    /// When it was killed.
    pub fn process(&mut self) -> Result<&mut Process> {
        self.process.as_mut().context("kube-apiserver was killed and not restarted")
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// The address, such as `https://127.0.0.1:6443`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// A kubeconfig of a user without any rights.
    #[must_use]
    pub fn kubeconfig_without_rights(&self) -> PathBuf {
        self.folder.path().join("kubeconfig-nobody")
    }

    /// An additional kubeconfig, for a user with this token.
    pub(crate) fn kubeconfig_with_token(&self, name: &str, token: &str) -> Result<PathBuf> {
        let path = self.folder.path().join(format!("kubeconfig-{name}"));
        std::fs::write(&path, kubeconfig(&self.ca_certificate(), self.port, token))?;
        Ok(path)
    }

    /// The file of the authority's certificate.
    #[must_use]
    pub fn ca_certificate(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Runs `kubectl` as administrator.
    ///
    /// # Errors
    /// When the program is missing; a failing command is in the output's status.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<Output> {
        Ok(self.kubectl_command()?.args(arguments).output()?)
    }

    /// Runs `kubectl` as administrator with this text on its standard input; it must succeed.
    ///
    /// # Errors
    /// When the command fails; the message contains its output.
    pub fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .kubectl_command()?
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("kubectl {arguments:?} failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn kubectl_command(&self) -> Result<Command> {
        let mut command = Command::new(kubernetes_program("kubectl")?);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        // The discovery cache belongs to this server alone, and is not kept in the user's home.
        command.arg("--cache-dir").arg(self.folder.path().join("kubectl-cache"));
        Ok(command)
    }
}

fn kubeconfig(authority: &Path, port: u16, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: test\nclusters:\n- name: test\n  cluster:\n    \
         server: https://127.0.0.1:{port}\n    certificate-authority: {}\nusers:\n- name: test\n  user:\n    \
         token: {token}\ncontexts:\n- name: test\n  context:\n    cluster: test\n    user: test\n",
        authority.display()
    )
}
