//! Every output format, for one recorded hour of a shop.

use crate::{data, run};
use explain::Cluster;
use flows_cli::{Clusters, Failure, Flow, json};

fn compare(name: &str, text: &str) {
    let path = data("golden").join(name);
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::create_dir_all(data("golden")).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "differs from {} (set UPDATE_EXPECT to accept)", path.display());
}

async fn shown(words: &[&str]) -> String {
    let file = data("shop.jsonl");
    let words: Vec<&str> = words.iter().copied().chain(["--input-file", file.to_str().unwrap()]).collect();
    let (outcome, out, said) = run(&words, "", None).await;
    assert_eq!((outcome, said.as_str()), (Ok(()), ""), "{words:?}");
    out
}

#[tokio::test]
async fn lists() {
    compare("compact.txt", &shown(&[]).await);
    compare("table.txt", &shown(&["-o", "table"]).await);
    compare(
        "dict.txt",
        &shown(&["-o", "dict", "--to-pod", "shop/web-7d9f-x2k9z", "--tier", "platform"]).await,
    );
    compare(
        "names.txt",
        &shown(&[
            "--print-policy-names",
            "--color",
            "always",
            "--last",
            "4",
            "--verdict",
            "passed",
            "--verdict",
            "denied",
        ])
        .await,
    );
    compare(
        "filtered.txt",
        &shown(&[
            "--since",
            "3m",
            "--not",
            "--from-namespace",
            "load",
            "--to-label",
            "app=web",
            "--reporter",
            "dst",
        ])
        .await,
    );
}

#[tokio::test]
async fn figures() {
    let mut text = String::new();
    for words in [
        &["top"][..],
        &["top", "--by", "connections", "--group", "source", "--count", "3"],
        &["top", "--group", "destination"],
        &["top", "--group", "namespace"],
        &["top", "--group", "policy", "--by", "packets"],
        &["stats"],
        &["stats", "--policies", "--by", "connections"],
        &["stats", "-o", "json", "--tier", "platform"],
    ] {
        text.push_str(&format!("$ flows {}\n{}\n", words.join(" "), shown(words).await));
    }
    compare("figures.txt", &text);
}

fn recorded() -> Vec<Flow> {
    json::read(&std::fs::read_to_string(data("shop.jsonl")).unwrap()).unwrap()
}

#[tokio::test]
async fn recommendation() {
    let file = data("shop.jsonl");
    let words = ["recommend", "--input-file", file.to_str().unwrap()];
    let (outcome, out, said) = run(&words, "", None).await;
    compare("recommended.yaml", &out);
    compare("recommended.notes", &format!("{outcome:?}\n{said}"));
    // The order in which flows arrive does not matter.
    let mut lines: Vec<String> = std::fs::read_to_string(&file).unwrap().lines().map(String::from).collect();
    lines.reverse();
    let (_, again, _) = run(&["recommend", "--input-file", "-"], &lines.join("\n"), None).await;
    assert_eq!(again, out);
    // Calico's own validation accepts every policy.
    let documents =
        api::document::read("recommended.yaml", out.as_bytes(), api::document::Checks::Everything).unwrap();
    assert!(documents.len() >= 5, "{}", documents.len());
    assert!(documents.iter().all(|document| document.warnings().is_empty()));
}

/// No differences where every workload has labels; and a broken recommendation would be noticed.
#[test]
fn a_recommendation_is_checked() {
    use flows_cli::recommend::{Options, labels::Detail, labels::Labelled, recommend, verify::verify};
    let options = Options { namespaces: vec!["shop".into()], tier: "default".into(), order: 1000 };
    let mut flows = recorded();
    flows.retain(|flow| &*flow.key.source.name != "bare");
    let made = recommend(&flows, &options);
    assert_eq!(made.differences, []);
    assert!(made.allowed > 5 && made.denied > 2, "{} {}", made.allowed, made.denied);
    let labels = Labelled::new(&flows, Detail::Usual);
    let mut policies = made.policies.clone();
    let database = policies.iter_mut().find(|policy| policy.name == "recommended-db").unwrap();
    database.ingress = Some(Vec::new());
    let found = verify(&flows, &policies, &labels, &options).differences;
    assert_eq!(found.len(), 1);
    assert!(found[0].was_allowed && found[0].flow.contains("db-0:5432"), "{found:?}");
    policies.retain(|policy| policy.name != "recommended-db");
    let found = verify(&flows, &policies, &labels, &options).differences;
    assert!(found.iter().any(|found| !found.was_allowed && found.flow.contains("debug")), "{found:?}");
}

fn clusters() -> Clusters {
    let add = |cluster: &mut Cluster, name: &str| {
        let text = std::fs::read_to_string(data(name)).unwrap();
        cluster.add_manifest(serde_json::from_str(&text).unwrap()).unwrap();
    };
    let mut before = Cluster::new();
    add(&mut before, "cluster.json");
    let mut after = before.clone();
    add(&mut after, "tried.json");
    before.complete();
    after.complete();
    assert!(after.problems().is_empty(), "{:?}", after.problems());
    Clusters { before, after }
}

#[tokio::test]
async fn impact() {
    let file = data("shop.jsonl");
    let words = ["impact", "-f", "tried.yaml", "--input-file", file.to_str().unwrap(), "--exit-code"];
    let (outcome, out, _) = run(&words, "", Some(clusters())).await;
    compare("impact.txt", &out);
    assert_eq!(outcome, Err(Failure { message: String::new(), code: 1 }), "there is something to see");
    // The same cluster twice changes nothing.
    let same = Clusters { before: clusters().before, after: clusters().before };
    let (outcome, out, _) = run(&words, "", Some(same)).await;
    assert_eq!(outcome, Ok(()));
    assert!(out.starts_with("0 flows would be denied, 0 allowed, 0 would depend on the address; "), "{out}");
    let (_, json, _) = run(&[&words[..], &["-o", "json"]].concat(), "", Some(clusters())).await;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(!value["changes"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn json_output_can_be_read_back() {
    let flows = recorded();
    let lines: String = flows.iter().map(|flow| format!("{}\n", json::write(flow, false))).collect();
    assert_eq!(json::read(&lines).unwrap(), flows);
    // A correction replaces what it corrects.
    let mut later = flows[0].clone();
    later.counters.packets_in += 1;
    let corrected = json::read(&format!("{lines}{}\n", json::write(&later, true))).unwrap();
    assert_eq!((corrected.len(), &corrected[0]), (flows.len(), &later));
    let error = json::read("\n{}\n").unwrap_err();
    assert!(error.starts_with("line 2: "), "{error}");
}

#[tokio::test]
async fn hostile_names_stay_on_their_line() {
    let mut flow = recorded().remove(1);
    flow.key.source.name = "x\u{1b}[2J\nkind: Tier".into();
    flow.source_labels = ["app=a\nb: c", "run=r"].into_iter().collect();
    let line = json::write(&flow, false);
    let (_, out, _) = run(&["--input-file", "-"], &line, None).await;
    assert!(!out.contains('\u{1b}') && out.lines().count() == 1, "{out}");
    let (_, out, _) = run(&["recommend", "--input-file", "-"], &line, None).await;
    assert!(!out.lines().any(|line| line.trim_start().starts_with("kind: Tier")), "{out}");
    let (outcome, ..) = run(&["-f", "--input-file", "-"], &line, None).await;
    assert!(outcome.unwrap_err().message.contains("--follow needs"));
}
