//! A kubelet's requests as values, or a refusal with its code. Pure.

use crate::proto::csi::volume_capability::AccessType;
use crate::proto::csi::{NodePublishVolumeRequest, NodeUnpublishVolumeRequest};
use crate::volume::{Credentials, Error, Volume, VolumeName};
use std::path::PathBuf;
use tonic::Status;

/// The keys of the pod's attributes, which a kubelet sends if the CSIDriver has `podInfoOnMount`.
const POD: &str = "csi.storage.k8s.io/pod.name";
const NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
const UID: &str = "csi.storage.k8s.io/pod.uid";
const ACCOUNT: &str = "csi.storage.k8s.io/serviceAccount.name";
/// The key of the volume's attribute.
const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Parses the request to create a volume.
pub(super) fn publish(request: NodePublishVolumeRequest) -> Result<Volume, Status> {
    let name = name(&request.volume_id)?;
    let target = target(request.target_path)?;
    match request.volume_capability.and_then(|capability| capability.access_type) {
        Some(AccessType::Mount(mount)) => {
            // As in Calico's driver.
            if !mount.fs_type.is_empty() {
                tracing::warn!(volume = %name, "the type of file system is ignored: {}", mount.fs_type);
            }
            if !mount.mount_flags.is_empty() {
                tracing::warn!(volume = %name, "mount flags are ignored: {}", mount.mount_flags.join(" "));
            }
        }
        Some(AccessType::Block(_)) => {
            return Err(Status::invalid_argument("block volumes are not supported"));
        }
        None => return Err(Status::invalid_argument("the request has no volume capability")),
    }
    let said = |key: &str| request.volume_context.get(key).cloned().filter(|value| !value.is_empty());
    if said(EPHEMERAL).is_some_and(|value| value != "true") {
        return Err(Status::invalid_argument(
            "only ephemeral volumes, which are part of a pod, are supported",
        ));
    }
    let (Some(pod), Some(namespace), Some(uid), Some(service_account)) =
        (said(POD), said(NAMESPACE), said(UID), said(ACCOUNT))
    else {
        let missing: Vec<&str> =
            [POD, NAMESPACE, UID, ACCOUNT].into_iter().filter(|key| said(key).is_none()).collect();
        return Err(Status::invalid_argument(format!(
            "the request does not name the pod of the volume ({} missing): the CSIDriver needs podInfoOnMount: true",
            missing.join(", ")
        )));
    };
    let owner = Credentials { uid, name: pod, namespace, service_account };
    Ok(Volume { name, target, is_read_only: request.readonly, owner })
}

/// Parses the request to remove a volume.
pub(super) fn unpublish(request: NodeUnpublishVolumeRequest) -> Result<(VolumeName, PathBuf), Status> {
    Ok((name(&request.volume_id)?, target(request.target_path)?))
}

/// The status code of a failure.
pub(super) fn status(error: &Error) -> Status {
    let text = error.to_string();
    match error {
        Error::Target { .. } => Status::invalid_argument(text),
        Error::Foreign { .. } => Status::failed_precondition(text),
        Error::Taken { .. } => Status::already_exists(text),
        Error::Kernel { .. } => Status::internal(text),
    }
}

fn name(text: &str) -> Result<VolumeName, Status> {
    match text {
        "" => Err(Status::invalid_argument("Volume ID not provided")),
        text => VolumeName::parse(text).map_err(|error| Status::invalid_argument(error.to_string())),
    }
}

fn target(text: String) -> Result<PathBuf, Status> {
    if text.is_empty() {
        Err(Status::invalid_argument("Target path not provided"))
    } else {
        Ok(PathBuf::from(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::csi::VolumeCapability;
    use crate::proto::csi::volume_capability::{BlockVolume, MountVolume};
    use tonic::Code;

    fn request() -> NodePublishVolumeRequest {
        let said = [
            (POD, "web"),
            (NAMESPACE, "shop"),
            (UID, "u-1"),
            (ACCOUNT, "default"),
            (EPHEMERAL, "true"),
            ("own", "x"),
        ];
        NodePublishVolumeRequest {
            volume_id: "csi-1".to_owned(),
            target_path: "/var/lib/kubelet/pods/u-1/volumes/kubernetes.io~csi/v/mount".to_owned(),
            volume_capability: Some(VolumeCapability {
                access_type: Some(AccessType::Mount(MountVolume::default())),
            }),
            readonly: true,
            volume_context: said.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        }
    }

    #[test]
    fn a_kubelets_request() {
        let volume = publish(request()).unwrap();
        assert_eq!((volume.name.to_string().as_str(), volume.is_read_only), ("csi-1", true));
        assert_eq!(volume.owner.to_string(), "shop/web");
        // Older kubelets do not send that it is ephemeral.
        let mut old = request();
        old.volume_context.remove(EPHEMERAL);
        publish(old).unwrap();
    }

    #[test]
    fn refusals_and_their_codes() {
        type Change = fn(&mut NodePublishVolumeRequest);
        let changes: [(Change, &str); 9] = [
            (|request| request.volume_id.clear(), "Volume ID not provided"),
            (|request| request.volume_id = "../../../etc".to_owned(), "cannot be the name"),
            (|request| request.target_path.clear(), "Target path not provided"),
            (|request| request.volume_capability = None, "no volume capability"),
            (
                |request| request.volume_capability = Some(VolumeCapability { access_type: None }),
                "no volume capability",
            ),
            (
                |request| {
                    let access_type = Some(AccessType::Block(BlockVolume {}));
                    request.volume_capability = Some(VolumeCapability { access_type });
                },
                "block volumes are not supported",
            ),
            (|request| _ = request.volume_context.remove(UID), "csi.storage.k8s.io/pod.uid missing"),
            (|request| request.volume_context.clear(), "podInfoOnMount"),
            (
                |request| _ = request.volume_context.insert(EPHEMERAL.to_owned(), "false".to_owned()),
                "ephemeral",
            ),
        ];
        for (change, reason) in changes {
            let mut request = request();
            change(&mut request);
            let status = publish(request).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains(reason), "{reason}: {status}");
        }
        let code = |volume: &str, target: &str| {
            let request =
                NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: target.to_owned() };
            unpublish(request).map(drop).map_err(|status| status.code())
        };
        assert_eq!(code("a", "/x"), Ok(()));
        for (volume, target) in [("", "/x"), ("a", ""), ("a/b", "/x")] {
            assert_eq!(code(volume, target), Err(Code::InvalidArgument));
        }
    }
}
