//! The control plane: etcd, kube-apiserver with RBAC and node authorization, controllers and scheduler, in one
//! namespace; certificates for all components; `kubectl` as administrator.

use crate::families::Families;
use crate::waiting::until;
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::network::Namespace;
use testkit::{Authority, Etcd, EtcdOptions, Process, finish, kubernetes_program, program};

/// A name of the API that only a name server or `/etc/hosts` can resolve.
pub(crate) const SERVER_NAME: &str = "api.tortie.test";
/// The port of the API.
pub(crate) const PORT: u16 = 6443;

/// The running control plane.
#[derive(Debug)]
pub(crate) struct ControlPlane {
    processes: Vec<Process>,
    _etcd: Etcd,
    authority: Authority,
    folder: PathBuf,
    namespace: Namespace,
    pub(crate) families: Families,
}

impl ControlPlane {
    /// Starts everything in this namespace, with files and logs in this folder.
    pub(crate) fn start(namespace: Namespace, folder: &Path, families: Families) -> Result<Self> {
        let etcd = Etcd::start_with(EtcdOptions {
            namespace: Some(namespace.name().to_owned()),
            // The cluster does not outlive the machine: no write needs to reach the disk.
            flags: vec!["--unsafe-no-fsync".to_owned()],
            ..EtcdOptions::default()
        })?;
        let authority = Authority::new(folder)?;
        let names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", SERVER_NAME];
        let own = families.control_plane();
        let mut all: Vec<&str> = own.iter().map(String::as_str).collect();
        all.extend(["10.96.0.1", "fd00:10:96::1"]);
        all.extend(names);
        let server = authority.sign_for("server", "kube-apiserver", &[], &all)?;
        let accounts = authority.sign("service-account", "service-account", &[])?;
        let to_kubelets = authority.sign("to-kubelets", "kube-apiserver", &["system:masters"])?;
        let to_extensions = authority.sign("to-extensions", "front-proxy", &[])?;
        let folder = folder.to_owned();
        let mut plane = Self { processes: Vec::new(), _etcd: etcd, authority, folder, namespace, families };
        for (name, organisation) in [
            ("admin", "system:masters"),
            ("system:kube-controller-manager", "system:kube-controller-manager"),
            ("system:kube-scheduler", "system:kube-scheduler"),
        ] {
            plane.kubeconfig(name, organisation)?;
        }
        plane.spawn(
            "kube-apiserver",
            &[
                format!("--etcd-servers={}", plane._etcd.endpoint()),
                format!("--advertise-address={}", families.api()),
                "--bind-address=::".into(),
                format!("--secure-port={PORT}"),
                format!("--tls-cert-file={}", server.certificate.display()),
                format!("--tls-private-key-file={}", server.key.display()),
                format!("--client-ca-file={}", plane.authority.certificate.display()),
                format!("--kubelet-client-certificate={}", to_kubelets.certificate.display()),
                format!("--kubelet-client-key={}", to_kubelets.key.display()),
                "--kubelet-preferred-address-types=InternalIP".into(),
                // Aggregated API servers are reached at their pods: there is no kube-proxy here.
                "--enable-aggregator-routing=true".into(),
                format!("--requestheader-client-ca-file={}", plane.authority.certificate.display()),
                "--requestheader-allowed-names=front-proxy".into(),
                "--requestheader-username-headers=X-Remote-User".into(),
                "--requestheader-group-headers=X-Remote-Group".into(),
                "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
                format!("--proxy-client-cert-file={}", to_extensions.certificate.display()),
                format!("--proxy-client-key-file={}", to_extensions.key.display()),
                "--authorization-mode=Node,RBAC".into(),
                "--enable-admission-plugins=NodeRestriction".into(),
                "--allow-privileged=true".into(),
                "--service-account-issuer=https://kubernetes.default.svc".into(),
                format!("--service-account-key-file={}", accounts.certificate.display()),
                format!("--service-account-signing-key-file={}", accounts.key.display()),
                format!("--service-cluster-ip-range={}", families.service_ranges()),
                "--shutdown-delay-duration=0s".into(),
            ],
        )?;
        let ready = until("kube-apiserver", || -> Result<()> {
            plane.processes.iter_mut().try_for_each(Process::check_running)?;
            plane.kubectl(&["get", "--raw", "/readyz"]).map(drop)
        });
        ready.with_context(|| plane.log("kube-apiserver"))?;
        plane.spawn(
            "kube-controller-manager",
            &[
                format!("--kubeconfig={}", plane.config_path("system:kube-controller-manager").display()),
                format!("--root-ca-file={}", plane.authority.certificate.display()),
                format!("--service-account-private-key-file={}", accounts.key.display()),
                "--use-service-account-credentials=true".into(),
                "--leader-elect=false".into(),
                "--allocate-node-cidrs=true".into(),
                format!("--cluster-cidr={}", families.pod_ranges()),
                format!("--service-cluster-ip-range={}", families.service_ranges()),
                "--node-cidr-mask-size-ipv6=64".into(),
            ],
        )?;
        plane.spawn(
            "kube-scheduler",
            &[
                format!("--kubeconfig={}", plane.config_path("system:kube-scheduler").display()),
                "--leader-elect=false".into(),
            ],
        )?;
        Ok(plane)
    }

    fn spawn(&mut self, name: &str, arguments: &[String]) -> Result<()> {
        let mut words = vec![format!("--net=/var/run/netns/{}", self.namespace.name())];
        words.push(kubernetes_program(name)?.display().to_string());
        words.extend_from_slice(arguments);
        let nsenter = program("nsenter", "install Debian's util-linux")?;
        let log = self.folder.join(format!("{name}.log"));
        self.processes.push(Process::start(&nsenter, &words, &log)?);
        Ok(())
    }

    /// The switch that nodes are wired to.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// A certificate and its key for servers of these names, as text, and its signer.
    pub(crate) fn certificate_for(&self, file_name: &str, names: &[&str]) -> Result<[String; 3]> {
        let signed =
            self.authority.sign_for(file_name, names.first().copied().unwrap_or(file_name), &[], names)?;
        let read = |path: &Path| {
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
        };
        Ok([read(&signed.certificate)?, read(&signed.key)?, read(&self.authority.certificate)?])
    }

    /// The file of the authority's certificate.
    pub(crate) fn authority(&self) -> &Path {
        &self.authority.certificate
    }

    fn config_path(&self, user: &str) -> PathBuf {
        self.folder.join(format!("{}.kubeconfig", user.replace(':', "-")))
    }

    /// A kubeconfig for this user of this group.
    pub(crate) fn kubeconfig(&self, user: &str, group: &str) -> Result<PathBuf> {
        let file_name = user.replace(':', "-");
        let client = self.authority.sign(&file_name, user, &[group])?;
        let path = self.config_path(user);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: e2e\nclusters:\n- name: e2e\n  cluster:\n    \
             server: https://{}\n    certificate-authority: {}\nusers:\n- name: e2e\n  \
             user:\n    client-certificate: {}\n    client-key: {}\ncontexts:\n- name: e2e\n  context:\n    \
             cluster: e2e\n    user: e2e\n",
            std::net::SocketAddr::new(self.families.api(), PORT),
            self.authority.certificate.display(),
            client.certificate.display(),
            client.key.display()
        );
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// The administrator's kubeconfig.
    pub(crate) fn admin(&self) -> PathBuf {
        self.config_path("admin")
    }

    /// A command on the control plane's machine.
    pub(crate) fn command(&self, program_path: &Path) -> Result<Command> {
        let mut command = Command::new(program("nsenter", "install Debian's util-linux")?);
        command.arg(format!("--net=/var/run/netns/{}", self.namespace.name())).arg(program_path);
        Ok(command)
    }

    /// `kubectl` as administrator, not yet started.
    pub(crate) fn kubectl_command(&self, arguments: &[&str]) -> Result<Command> {
        let mut command = self.command(&kubernetes_program("kubectl")?)?;
        command.arg("--kubeconfig").arg(self.admin());
        command.arg("--cache-dir").arg(self.folder.join("kubectl-cache")).args(arguments);
        Ok(command)
    }

    /// Runs `kubectl` with this input; it may fail.
    pub(crate) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<Output> {
        finish(self.kubectl_command(arguments)?, input)
    }

    /// Runs `kubectl`, which must succeed; returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.kubectl_with_input(arguments, "")
    }

    /// Runs `kubectl` with this input, which must succeed; returns its output.
    pub(crate) fn kubectl_with_input(&self, arguments: &[&str], input: &str) -> Result<String> {
        let output = self.try_kubectl(arguments, input)?;
        if !output.status.success() {
            bail!("kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Objects as JSON.
    pub(crate) fn get(&self, arguments: &[&str]) -> Result<serde_json::Value> {
        let mut words = vec!["get", "-o", "json"];
        words.extend_from_slice(arguments);
        Ok(serde_json::from_str(&self.kubectl(&words)?)?)
    }

    /// The end of a program's log.
    pub(crate) fn log(&self, name: &str) -> String {
        let text = std::fs::read(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        format!("the log of {name} ends with:\n{}", lines[lines.len().saturating_sub(20)..].join("\n"))
    }

    /// Checks that everything is still running.
    pub(crate) fn check_running(&mut self) -> Result<()> {
        ensure!(!self.processes.is_empty(), "nothing was started");
        self.processes.iter_mut().try_for_each(Process::check_running)
    }
}
