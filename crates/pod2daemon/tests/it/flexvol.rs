//! The FlexVolume driver, called like a kubelet does.

use crate::mounts::{alone, below};
use anyhow::{Result, ensure};
use pod2daemon::for_tests::{Homes, answer_flexvol};

#[test]
fn volumes_are_created_and_removed_and_every_call_may_be_repeated() -> Result<()> {
    alone("flexvol", |folder| {
        let target = folder.join("kubelet/pods/u-1/volumes/nodeagent~uds/v");
        std::fs::create_dir_all(&target)?;
        let homes = Homes::under(&folder.join("nodeagent"));
        let say = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            answer_flexvol(&words, &homes, true).to_string()
        };
        let options = r#"{"kubernetes.io/fsGroup":"0","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"shop",
            "kubernetes.io/pod.uid":"u-1","kubernetes.io/readwrite":"rw","kubernetes.io/serviceAccount.name":"default"}"#;
        let at = target.display().to_string();
        for _ in 0..2 {
            assert_eq!(say(&["mount", &at, options]), r#"{"status":"Success","message":"Mount ok."}"#);
        }
        ensure!(below(&target)?.len() == 2, "{:?}", below(&target)?);
        std::fs::write(folder.join("nodeagent/mount/u-1/socket"), "")?;
        ensure!(target.join("nodeagent/socket").exists() && folder.join("nodeagent/creds/u-1.json").exists());
        for _ in 0..2 {
            assert_eq!(say(&["unmount", &at]), r#"{"status":"Success","message":"Unmount Ok"}"#);
        }
        ensure!(below(folder)?.is_empty() && !folder.join("nodeagent/mount/u-1").exists());
        ensure!(!folder.join("nodeagent/creds/u-1.json").exists());
        let refused = say(&["mount", "/", options]);
        ensure!(
            refused.starts_with(r#"{"status":"Failure","message":"Failure to mount: the target /"#),
            "{refused}"
        );
        Ok(())
    })
}
