//! Credentials for a real kube-apiserver that are replaced on disk while a program runs: a client certificate, a token,
//! and the authority of the server's certificate. What the client read at its start is useless; it must find the new
//! files.

use crate::kubernetes_store::alone;
use anyhow::{Context as _, Result, ensure};
use datastore::kubernetes::{KubernetesBackend, KubernetesConfig};
use datastore::{Backend, Error};
use model::ListOptions;
use std::path::Path;
use std::time::{Duration, Instant};
use testkit::{ApiServer, Authority, Etcd, Folder};

const EVENTUALLY: Duration = Duration::from_secs(60);

async fn nodes(backend: &KubernetesBackend) -> Result<(), Error> {
    backend.list(&ListOptions::resources(api::Kind::Node), None).await.map(drop)
}

async fn nodes_at_last(backend: &KubernetesBackend) -> Result<()> {
    let deadline = Instant::now() + EVENTUALLY;
    loop {
        match nodes(backend).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

fn replace(target: &Path, source: &Path) -> Result<()> {
    let temporary = target.with_extension("new");
    std::fs::copy(source, &temporary)?;
    Ok(std::fs::rename(&temporary, target)?)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn renewed_credentials_for_kubernetes_are_used_without_a_restart() -> Result<()> {
    let _alone = alone().await;
    let etcd = tokio::task::spawn_blocking(Etcd::start).await??;
    let endpoint = etcd.endpoint();
    let server = tokio::task::spawn_blocking(move || ApiServer::start(&endpoint)).await??;
    // The server's own pair is signed by the clients' authority, too.
    let pair = server.kubeconfig().parent().context("no folder")?.join("server.pem");
    let key = pair.with_file_name("server-key.pem");
    let role =
        ["create", "clusterrolebinding", "renewed", "--clusterrole=cluster-admin", "--user=kube-apiserver"];
    ensure!(server.kubectl(&role)?.status.success(), "kubectl {role:?}");

    let folder = Folder::new("renewal")?;
    let stranger = Authority::new(folder.path())?;
    let files = stranger.sign("client", "kube-apiserver", &[])?;
    let token = folder.path().join("token");
    std::fs::write(&token, "nobody-knows-this")?;
    let authority = folder.path().join("server-ca.pem");
    std::fs::copy(&stranger.certificate, &authority)?;
    let kubeconfig = |name: &str, authority: &Path, user: String| -> Result<KubernetesConfig> {
        let path = folder.path().join(name);
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {{server: '{}', \
             certificate-authority: {}}}}}]\nusers: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n",
            server.endpoint(),
            authority.display()
        );
        std::fs::write(&path, text)?;
        let calico_api_group = "crd.projectcalico.org/v1".to_owned();
        Ok(KubernetesConfig { calico_api_group, ..KubernetesConfig::from_file(path) })
    };
    let pair_user =
        format!("client-certificate: {}, client-key: {}", files.certificate.display(), files.key.display());
    let by_certificate = kubeconfig("certificate", &server.ca_certificate(), pair_user)?;
    let by_token =
        kubeconfig("token-file", &server.ca_certificate(), format!("tokenFile: {}", token.display()))?;
    let by_authority = kubeconfig("authority", &authority, "token: admin-token".to_owned())?;

    let certificate = KubernetesBackend::connect(&by_certificate).await?;
    let token_file = KubernetesBackend::connect(&by_token).await?;
    let other_authority = KubernetesBackend::connect(&by_authority).await?;
    for (name, backend) in [("certificate", &certificate), ("token", &token_file)] {
        let outcome = nodes(backend).await;
        ensure!(matches!(&outcome, Err(Error::Unauthorized { .. })), "{name}: {outcome:?}");
    }
    ensure!(nodes(&other_authority).await.is_err(), "a server that is not trusted was believed");

    replace(&files.key, &key)?;
    replace(&files.certificate, &pair)?;
    std::fs::write(&token, "admin-token")?;
    replace(&authority, &server.ca_certificate())?;
    nodes_at_last(&certificate).await.context("with a renewed client certificate")?;
    nodes_at_last(&token_file).await.context("with a renewed token")?;
    nodes_at_last(&other_authority).await.context("with a renewed authority")?;
    Ok(())
}
