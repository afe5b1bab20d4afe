//! Parses the output of `iptables-save`: the chains, and which of their rules are ours.
//!
//! A rule is ours by the hash in its comment, or because it refers to a chain of ours, as rules of versions before
//! hashes do. The text of foreign rules is not kept.

use rules::hash::{COMMENT_PREFIX, RuleHash};
use rules::tree::ChainName;
use std::collections::BTreeMap;

/// The prefixes that names of our chains have or once had.
const PREFIXES: [&str; 8] =
    ["cali-", "califw-", "calitw-", "califh-", "calith-", "calipi-", "calipo-", "felix-"];

/// Rules that old versions put into the kernel's own chains without a hash.
const OLD_RULES: [&str; 2] = [
    " felix-masq-ipam-pools ",
    "-o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE",
];

/// The output of `iptables-save` in place of a table that the nft variant cannot show.
const INCOMPATIBLE: &str = "is incompatible, use 'nft' tool.";

/// The owner of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// Ours, with this hash.
    Ours(RuleHash),
    /// Ours, of a version that wrote no hash or a different one.
    Old,
    /// Foreign.
    Foreign,
}

/// A rule in the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedRule {
    /// Its owner.
    pub mark: Mark,
    /// The text after the chain's name, for our rules in foreign chains: they are removed by it.
    pub text: Option<String>,
}

/// The chains of a table with their rules.
pub(super) type Saved = BTreeMap<ChainName, Vec<SavedRule>>;

/// Whether a chain of this name is ours.
pub(super) fn is_ours(chain: &str) -> bool {
    PREFIXES.iter().any(|prefix| chain.starts_with(prefix))
}

/// Parses the output of `iptables-save -t table`.
///
/// # Errors
/// When the output says that the table cannot be shown.
pub(super) fn parse(output: &str) -> Result<Saved, String> {
    let mut saved = Saved::new();
    for line in output.lines() {
        if line.starts_with('#') && line.ends_with(INCOMPATIBLE) {
            let table = line.trim_start_matches("# Table ").split(' ').next().unwrap_or_default();
            return Err(format!(
                "iptables-save cannot show table {table}: it holds rules that only nft can show; remove those rules"
            ));
        }
        if let Some(rest) = line.strip_prefix(':') {
            saved.entry(first_word(rest).into()).or_default();
        } else if let Some(rest) = line.strip_prefix("-A ") {
            let chain = first_word(rest);
            let text = rest[chain.len()..].trim_start();
            let mark = mark_of(chain, text);
            let kept = (mark != Mark::Foreign && !is_ours(chain)).then(|| text.to_owned());
            saved.entry(chain.into()).or_default().push(SavedRule { mark, text: kept });
        }
    }
    Ok(saved)
}

fn first_word(text: &str) -> &str {
    text.split([' ', '\t']).next().unwrap_or_default()
}

fn mark_of(chain: &str, rule: &str) -> Mark {
    if let Some(hash) = comment_hash(rule) {
        return RuleHash::parse(hash).map_or(Mark::Old, Mark::Ours);
    }
    let leads_to_ours = ["-j ", "--jump ", "-g ", "--goto "]
        .iter()
        .flat_map(|flag| rule.match_indices(flag).map(|(at, flag)| &rule[at + flag.len()..]))
        .any(is_ours);
    let old = chain == "POSTROUTING" && OLD_RULES.iter().any(|known| format!(" {rule} ").contains(known));
    if leads_to_ours || old { Mark::Old } else { Mark::Foreign }
}

/// The hash in the first comment that has one.
fn comment_hash(rule: &str) -> Option<&str> {
    rule.match_indices("--comment ")
        .find_map(|(at, flag)| hash_at_start(rule[at + flag.len()..].trim_start_matches('"')))
}

/// The hash at the start of a comment.
pub(super) fn hash_at_start(comment: &str) -> Option<&str> {
    let rest = comment.strip_prefix(COMMENT_PREFIX)?;
    let end = rest.find(|one: char| !(one.is_ascii_alphanumeric() || one == '-' || one == '_'));
    Some(&rest[..end.unwrap_or(rest.len())]).filter(|hash| !hash.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{Mark, parse};

    fn marks(output: &str, chain: &str) -> String {
        let saved = parse(output).expect("a table");
        let one = |mark: &Mark| match mark {
            Mark::Ours(hash) => hash.to_string(),
            Mark::Old => "old".to_owned(),
            Mark::Foreign => "-".to_owned(),
        };
        saved[chain].iter().map(|rule| one(&rule.mark)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn whose_rules_they_are() {
        let output = "*filter\n:INPUT ACCEPT [0:0]\n:cali-INPUT - [0:0]\n\
            -A INPUT -m comment --comment \"cali:Cz_u1IQiXIMmKD4c\" -j cali-INPUT\n\
            -A INPUT -m comment --comment cali:Cz_u1IQiXIMmKD4d -j ACCEPT\n\
            -A INPUT -m comment --comment \"cali:short\" -j ACCEPT\n\
            -A INPUT -j felix-INPUT\n-A INPUT -g califw-x\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n\
            -A INPUT -m comment --comment \"see cali:Cz_u1IQiXIMmKD4c\" -j ACCEPT\n\
            -A cali-INPUT -m comment --comment \"x\" -m comment --comment \"cali:AAAAAAAAAAAAAAAA\" -j DROP\nCOMMIT\n";
        assert_eq!(marks(output, "INPUT"), "Cz_u1IQiXIMmKD4c Cz_u1IQiXIMmKD4d old old old - -");
        assert_eq!(marks(output, "cali-INPUT"), "AAAAAAAAAAAAAAAA");
        let saved = parse(output).expect("a table");
        assert_eq!(saved["INPUT"][3].text.as_deref(), Some("-j felix-INPUT"));
        assert_eq!((&saved["INPUT"][5].text, &saved["cali-INPUT"][0].text), (&None, &None));
    }

    #[test]
    fn rules_of_old_versions_in_postrouting() {
        let output = "*nat\n-A POSTROUTING -m set --match-set felix-masq-ipam-pools src -j MASQUERADE\n\
            -A POSTROUTING -o tunl0 -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL -j MASQUERADE\n\
            -A POSTROUTING -j MASQUERADE\n";
        assert_eq!(marks(output, "POSTROUTING"), "old old -");
    }

    #[test]
    fn a_table_that_cannot_be_shown_is_an_error() {
        let error = parse("# Table `filter' is incompatible, use 'nft' tool.\n").expect_err("an error");
        assert!(error.contains("filter"), "{error}");
    }
}
