//! The CSI driver, called like a kubelet does.

use crate::clients::connect;
use crate::mounts::{alone, below};
use anyhow::{Context as _, Result, ensure};
use daemon::ShutdownHandle;
use pod2daemon::for_tests::csi_proto::identity_client::IdentityClient;
use pod2daemon::for_tests::csi_proto::node_client::NodeClient;
use pod2daemon::for_tests::csi_proto::volume_capability::{AccessType, MountVolume};
use pod2daemon::for_tests::csi_proto::{
    GetPluginCapabilitiesRequest, GetPluginInfoRequest, NodeGetCapabilitiesRequest, NodeGetInfoRequest,
    NodePublishVolumeRequest, NodeUnpublishVolumeRequest, ProbeRequest, VolumeCapability,
};
use pod2daemon::for_tests::{Homes, serve_driver};
use rustix::mount::{MountFlags, mount, mount_bind};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use tonic::Code;
use tonic::transport::Channel;

const VOLUME: &str = "csi-0a1b";

/// A node's folders and a driver that serves them.
struct Node<'a> {
    folder: &'a Path,
    client: NodeClient<Channel>,
}

impl Node<'_> {
    fn target(&self) -> PathBuf {
        self.folder.join("kubelet/pods/u-1/volumes/kubernetes.io~csi/v/mount")
    }

    fn home(&self) -> PathBuf {
        self.folder.join("nodeagent")
    }

    fn request(&self) -> NodePublishVolumeRequest {
        let said = [
            ("csi.storage.k8s.io/pod.name", "web"),
            ("csi.storage.k8s.io/pod.namespace", "shop"),
            ("csi.storage.k8s.io/pod.uid", "u-1"),
            ("csi.storage.k8s.io/serviceAccount.name", "default"),
            ("csi.storage.k8s.io/ephemeral", "true"),
        ];
        NodePublishVolumeRequest {
            volume_id: VOLUME.to_owned(),
            target_path: self.target().display().to_string(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: false,
            volume_context: said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }

    async fn publish(&mut self) -> Result<()> {
        let request = self.request();
        self.client.node_publish_volume(request).await?;
        Ok(())
    }

    async fn unpublish(&mut self) -> Result<()> {
        let target_path = self.target().display().to_string();
        let request = NodeUnpublishVolumeRequest { volume_id: VOLUME.to_owned(), target_path };
        self.client.node_unpublish_volume(request).await?;
        Ok(())
    }

    /// Checks a complete volume, as seen from the pod and from the node.
    fn check_complete(&self, is_read_only: bool) -> Result<()> {
        let mounts = below(&self.target())?;
        ensure!(mounts.len() == 2, "{mounts:?}");
        let harmless = |options: &str| {
            ["nosuid", "nodev", "noexec"].iter().all(|one| options.split(',').any(|it| it == *one))
        };
        for ((place, kind, options), expected) in mounts.iter().zip(["", "nodeagent"]) {
            ensure!(place == expected && harmless(options), "{mounts:?}");
            ensure!(!expected.is_empty() || kind == "tmpfs", "{mounts:?}");
            ensure!(options.split(',').any(|it| it == "ro") == is_read_only, "{mounts:?}");
        }
        let mode = std::fs::metadata(self.target())?.permissions().mode() & 0o7777;
        ensure!(mode == 0o755, "{mode:o}");
        // The pod sees what Felix creates there.
        let inner = self.home().join("mount").join(VOLUME);
        std::fs::write(inner.join("socket"), "")?;
        ensure!(self.target().join("nodeagent/socket").exists());
        let same =
            std::fs::metadata(self.target().join("nodeagent"))?.ino() == std::fs::metadata(&inner)?.ino();
        ensure!(same, "another folder");
        let text = std::fs::read_to_string(self.home().join("creds").join(format!("{VOLUME}.json")))?;
        ensure!(
            text == r#"{"UID":"u-1","Workload":"web","Namespace":"shop","ServiceAccount":"default"}"#,
            "{text}"
        );
        Ok(())
    }

    fn check_gone(&self) -> Result<()> {
        let mounts = below(&self.target())?;
        ensure!(mounts.is_empty() && !self.target().exists(), "{mounts:?}");
        for folder in ["mount", "creds"] {
            let left = std::fs::read_dir(self.home().join(folder)).map(Iterator::count).unwrap_or_default();
            ensure!(left == 0, "{left} entries are left in {folder}");
        }
        Ok(())
    }
}

/// A driver in a mount namespace of the test's own.
fn with_driver<F>(purpose: &str, work: F) -> Result<()>
where
    F: AsyncFnOnce(Node<'_>) -> Result<()> + Send,
{
    alone(purpose, |folder| {
        // Threads that are started here are in the same namespace.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let socket = folder.join("csi.sock");
            let (end, shutdown) = ShutdownHandle::new();
            let homes = Homes::under(&folder.join("nodeagent"));
            let serving = async { serve_driver(&socket, "node1".to_owned(), homes, shutdown).await };
            let working = async {
                let client = NodeClient::new(connect(&socket).await?);
                let outcome = work(Node { folder, client }).await;
                end.request();
                outcome
            };
            let (served, worked) = tokio::join!(serving, working);
            worked?;
            served?;
            ensure!(!socket.exists(), "the socket goes with the driver");
            Ok(())
        })
    })
}

#[test]
fn volumes_are_created_and_removed_and_every_call_may_be_repeated() -> Result<()> {
    with_driver("csi-twice", async |mut node| {
        for _ in 0..2 {
            for _ in 0..2 {
                node.publish().await?;
                node.check_complete(false)?;
            }
            for _ in 0..2 {
                node.unpublish().await?;
                node.check_gone()?;
            }
        }
        Ok(())
    })
}

#[test]
fn a_read_only_volume_cannot_be_written() -> Result<()> {
    with_driver("csi-read-only", async |mut node| {
        let mut request = node.request();
        request.readonly = true;
        for _ in 0..2 {
            node.client.node_publish_volume(request.clone()).await?;
            node.check_complete(true)?;
        }
        for place in ["file", "nodeagent/file"] {
            let error = std::fs::write(node.target().join(place), "").expect_err(place);
            assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "{place}");
        }
        node.unpublish().await?;
        node.check_gone()
    })
}

/// What a killed driver, or Calico's, left behind.
type Left = fn(&Node<'_>) -> Result<()>;

#[test]
fn volumes_are_completed_and_removed_from_every_initial_state() -> Result<()> {
    fn tmpfs(node: &Node<'_>) -> Result<()> {
        std::fs::create_dir_all(node.target())?;
        Ok(mount(
            "tmpfs",
            node.target(),
            "tmpfs",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            c"size=8k,mode=0755",
        )?)
    }
    fn inner(node: &Node<'_>) -> Result<()> {
        tmpfs(node)?;
        Ok(std::fs::create_dir(node.target().join("nodeagent"))?)
    }
    fn bound(node: &Node<'_>) -> Result<()> {
        inner(node)?;
        let home = node.home().join("mount").join(VOLUME);
        std::fs::create_dir_all(&home)?;
        Ok(mount_bind(&home, node.target().join("nodeagent"))?)
    }
    fn folder(node: &Node<'_>) -> Result<()> {
        Ok(std::fs::create_dir_all(node.home().join("mount").join(VOLUME))?)
    }
    fn foreign_home(node: &Node<'_>) -> Result<()> {
        bound(node)?;
        // The node's folder was cleared: the mounted folder has been deleted.
        Ok(std::fs::remove_dir_all(node.home())?)
    }
    let beginnings: [(&str, Left); 5] = [
        ("csi-left-folder", folder),
        ("csi-left-tmpfs", tmpfs),
        ("csi-left-inner", inner),
        ("csi-left-bound", bound),
        ("csi-left-gone", foreign_home),
    ];
    for (what, left) in beginnings {
        with_driver(what, async |mut node| {
            left(&node)?;
            node.publish().await?;
            node.check_complete(false).context(what)?;
            node.unpublish().await?;
            node.check_gone().context(what)?;
            left(&node)?;
            node.unpublish().await?;
            node.check_gone().context(what)
        })?;
    }
    // Calico's driver mounts another layer for each call.
    with_driver("csi-left-stack", async |mut node| {
        bound(&node)?;
        bound(&node)?;
        node.publish().await?;
        node.unpublish().await?;
        node.check_gone()
    })
}

#[test]
fn paths_that_could_lead_elsewhere_are_refused_with_their_code() -> Result<()> {
    with_driver("csi-refused", async |mut node| {
        let outside = node.folder.join("outside");
        std::fs::create_dir_all(outside.join("kept"))?;
        let link = node.folder.join("kubelet/link");
        std::fs::create_dir_all(node.folder.join("kubelet"))?;
        std::os::unix::fs::symlink(&outside, &link)?;
        let up = node.folder.join("kubelet/../outside").display().to_string();
        let link = link.display().to_string();
        for (volume, target) in [
            ("../../outside", node.target().display().to_string().as_str()),
            (VOLUME, &up),
            (VOLUME, &link),
            (VOLUME, "outside"),
            (VOLUME, "/"),
        ] {
            let request = NodePublishVolumeRequest {
                volume_id: volume.to_owned(),
                target_path: target.to_owned(),
                ..node.request()
            };
            let status = node.client.node_publish_volume(request).await.expect_err(target);
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            let request =
                NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: target.to_owned() };
            let status = node.client.node_unpublish_volume(request).await.expect_err(target);
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        }
        assert!(outside.join("kept").exists() && below(node.folder)?.is_empty());

        // The volume of another pod, and one of another driver.
        node.publish().await?;
        let mut request = node.request();
        request.volume_context.insert("csi.storage.k8s.io/pod.uid".to_owned(), "u-2".to_owned());
        let status = node.client.node_publish_volume(request).await.expect_err("another pod");
        assert_eq!(status.code(), Code::AlreadyExists, "{status}");
        node.check_complete(false)?;
        node.unpublish().await?;
        std::fs::create_dir_all(node.target())?;
        mount("proc", node.target(), "proc", MountFlags::empty(), None)?;
        let status = node.client.node_publish_volume(node.request()).await.expect_err("another driver");
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(node.unpublish().await.is_err());
        assert!(node.target().join("self").exists(), "it is not ours to unmount");
        Ok(())
    })
}

#[test]
fn a_link_that_a_pod_puts_into_its_volume_leads_nowhere() -> Result<()> {
    with_driver("csi-link", async |mut node| {
        let precious = node.folder.join("precious");
        std::fs::create_dir(&precious)?;
        mount("tmpfs", &precious, "tmpfs", MountFlags::empty(), None)?;
        std::fs::write(precious.join("file"), "")?;
        // Left by a driver that was killed before it mounted the folder inside, while a pod uses the rest.
        std::fs::create_dir_all(node.target())?;
        mount("tmpfs", node.target(), "tmpfs", MountFlags::empty(), None)?;
        std::os::unix::fs::symlink(&precious, node.target().join("nodeagent"))?;
        assert!(node.publish().await.is_err());
        node.unpublish().await?;
        assert!(precious.join("file").exists(), "it was unmounted through the link");
        node.check_gone()
    })
}

#[test]
fn it_reports_its_identity() -> Result<()> {
    with_driver("csi-identity", async |mut node| {
        let mut identity = IdentityClient::new(connect(&node.folder.join("csi.sock")).await?);
        let info = identity.get_plugin_info(GetPluginInfoRequest {}).await?.into_inner();
        assert_eq!(info.name, "csi.tigera.io");
        identity.get_plugin_capabilities(GetPluginCapabilitiesRequest {}).await?;
        assert_eq!(identity.probe(ProbeRequest {}).await?.into_inner().ready, Some(true));
        assert_eq!(node.client.node_get_info(NodeGetInfoRequest {}).await?.into_inner().node_id, "node1");
        node.client.node_get_capabilities(NodeGetCapabilitiesRequest {}).await?;
        // Volumes are not staged, and there is no method for it.
        let mut raw = tonic::client::Grpc::new(connect(&node.folder.join("csi.sock")).await?);
        raw.ready().await?;
        let codec = tonic_prost::ProstCodec::<NodeGetInfoRequest, NodeGetInfoRequest>::default();
        let path = tonic::codegen::http::uri::PathAndQuery::from_static("/csi.v1.Node/NodeStageVolume");
        let status =
            raw.unary(tonic::Request::new(NodeGetInfoRequest {}), path, codec).await.expect_err("staging");
        assert_eq!(status.code(), Code::Unimplemented);
        let mode = std::fs::metadata(node.folder.join("csi.sock"))?.permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600);
        Ok(())
    })
}

/// A driver as a separate process, killed when dropped.
struct Driver(Child);

impl Driver {
    /// Starts it in the namespace of this thread.
    fn start(folder: &Path) -> Result<Self> {
        let program = testkit::example("driver")?;
        Ok(Self(Command::new(program).arg(folder.join("csi.sock")).arg(folder.join("nodeagent")).spawn()?))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_driver_killed_at_any_moment_continues_where_it_stopped() -> Result<()> {
    alone("csi-killed", |folder| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let socket = folder.join("csi.sock");
            for round in 0..16_u64 {
                let driver = Driver::start(folder)?;
                let mut node = Node { folder, client: NodeClient::new(connect(&socket).await?) };
                let call =
                    async { if round % 2 == 0 { node.publish().await } else { node.unpublish().await } };
                // At some point during the call.
                let _ = tokio::time::timeout(Duration::from_micros(150 * (round / 2)), call).await;
                drop(driver);
                let _driver = Driver::start(folder)?;
                let mut node = Node { folder, client: NodeClient::new(connect(&socket).await?) };
                if round % 2 == 0 {
                    node.publish().await?;
                    node.check_complete(false).with_context(|| format!("round {round}"))?;
                } else {
                    node.unpublish().await?;
                    node.check_gone().with_context(|| format!("round {round}"))?;
                }
            }
            Ok(())
        })
    })
}
