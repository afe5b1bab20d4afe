//! Every manifest on a real API server: with strict validation, in a dry run and for real.

use crate::World;
use anyhow::Result;
use manifests::{Like, Options, all, monitoring, objects, to_yaml};

#[test]
fn every_manifest_is_accepted_unchanged() -> Result<()> {
    let world = World::start()?;
    // A dry run creates no namespace for the objects that follow.
    world.apply(&serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "calico-apiserver"}}))?;
    for like in Like::ALL {
        let mut options = Options::new(like, "registry.example.org/tortie", "v1");
        options.set("metrics", "true")?;
        options.set("apiServer.enabled", "true")?;
        options.set("apiServer.caBundle", "Y2VydGlmaWNhdGU=")?;
        options.set("etcd.endpoints", "http://10.0.0.5:2379")?;
        // Once is enough: the definitions are the same in all manifests.
        options.crds = like == Like::Calico;
        options.check()?;
        let objects = all(&options);
        let text = to_yaml(&objects::heading(&options), &objects);
        let base = ["apply", "--server-side", "--validate=strict", "--force-conflicts", "-f", "-"];
        let said =
            world.api_server.kubectl_with_input(&[&base[..], &["--dry-run=server"]].concat(), &text)?;
        assert_eq!(said.lines().count(), objects.len(), "{}: {said}", like.name());
        let said = world.api_server.kubectl_with_input(&base, &text)?;
        assert_eq!(said.lines().count(), objects.len(), "{}: {said}", like.name());
        // The server stores exactly what was sent: applying again changes nothing.
        let generation = |world: &World| -> Result<serde_json::Value> {
            let set = world.json(&["get", "daemonset", like.node_name(), "-n", "kube-system"])?;
            Ok(set["metadata"]["generation"].clone())
        };
        let before = generation(&world)?;
        world.api_server.kubectl_with_input(&base, &text)?;
        assert_eq!(generation(&world)?, before, "{}", like.name());
    }
    let services = to_yaml("", &monitoring::services());
    world
        .api_server
        .kubectl_with_input(&["apply", "--server-side", "--validate=strict", "-f", "-"], &services)?;
    Ok(())
}
