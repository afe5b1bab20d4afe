//! Properties that hold for every selector: generated expressions in random spelling, and random garbage.

use std::collections::BTreeMap;

use proptest::prelude::*;
use selector::{MAX_LABEL_LENGTH, Selector};

use crate::reference;

/// A random expression as text, written with random spacing, quotes and redundant parentheses.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("all()".to_owned()),
        Just("global( )".to_owned()),
        label().prop_map(|label| format!("has( {label})")),
        (label(), blank(), operator(), value())
            .prop_map(|(label, blank, operator, value)| format!("{label} {operator}{blank}{value}")),
        (label(), membership(), prop::collection::vec(value(), 0..4), any::<bool>()).prop_map(
            |(label, membership, values, trailing)| {
                let comma = if trailing && !values.is_empty() { "," } else { "" };
                format!("{label} {membership}{{{}{comma}}}", values.join(","))
            }
        ),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        let several = (prop::collection::vec(inner.clone(), 1..4), blank());
        prop_oneof![
            inner.clone().prop_map(|inner| format!("!({inner})")),
            inner.clone().prop_map(|inner| format!("!!{inner}")),
            inner.clone().prop_map(|inner| format!("! {inner}")),
            inner.prop_map(|inner| format!("( {inner} )")),
            several.clone().prop_map(|(all, blank)| all.join(&format!("{blank}&&{blank}"))),
            several.clone().prop_map(|(all, blank)| all.join(&format!("{blank}||{blank}"))),
            several.prop_map(|(all, blank)| format!("({})", all.join(&format!(" ||{blank}")))),
        ]
    })
}

fn label() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "in", "not", "has", "a.b/c-d_e"])
}

fn operator() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["==", "!=", "contains", "starts with", "startswith", "ends  with", "endswith"])
}

fn membership() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["in", "in ", "not in ", "notin", "not \tin\t"])
}

fn value() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "'x'", "\"y\"", "''", "'xy'", "\"yx\"", "'x y'", "'\"'", "\"'\"", "'é'", "'(x)'", "'}'",
    ])
}

fn blank() -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(vec!["", " ", "\t", "  "])
}

fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
    let values = prop::sample::select(vec!["", "x", "y", "xy", "yx", "xyx", "x y", "\"", "'", "é", "(x)"]);
    prop::collection::btree_map(label().prop_map(str::to_owned), values.prop_map(str::to_owned), 0..5)
}

/// The canonical form with adjacent negations cancelled, as parsing does.
fn without_double_negation(canonical: &str) -> String {
    // "!!" inside a value would be cut as well, but no generated value has one.
    let mut text = canonical.to_owned();
    while text.contains("!!") {
        text = text.replace("!!", "");
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn canonical_form_round_trips(text in expression()) {
        let selector = Selector::parse(&text).unwrap();
        let again = Selector::parse(selector.canonical()).unwrap();
        prop_assert_eq!(again.canonical(), without_double_negation(selector.canonical()));
        if !selector.canonical().contains("!!") {
            prop_assert_eq!(&again, &selector);
            prop_assert_eq!(again.unique_id(), selector.unique_id());
        }
        // From the second time on nothing changes.
        let third = Selector::parse(again.canonical()).unwrap();
        prop_assert_eq!(third.canonical(), again.canonical());
    }

    #[test]
    fn a_canonical_form_is_read_back_exactly(text in expression(), other in expression()) {
        let selector = Selector::parse(&text).unwrap();
        let again = Selector::from_canonical(selector.canonical());
        prop_assert_eq!(again.root(), selector.root());
        prop_assert_eq!(again.unique_id(), selector.unique_id());
        let joined = Selector::parse(&format!("({text}) && (!({other}))")).unwrap();
        let joined_again = selector.and_not(&Selector::parse(&other).unwrap());
        prop_assert_eq!(joined_again.unique_id(), joined.unique_id());
        prop_assert_eq!(joined_again.root(), joined.root());
    }

    #[test]
    fn evaluation_agrees_with_the_reference(text in expression(), labels in labels()) {
        let selector = Selector::parse(&text).unwrap();
        let expected = reference::verdict(selector.canonical(), &labels);
        prop_assert_eq!(selector.evaluate(&labels), expected);
        let again = Selector::parse(selector.canonical()).unwrap();
        prop_assert_eq!(again.evaluate(&labels), expected);
        let negated = Selector::parse(&format!("!({text})")).unwrap();
        prop_assert_eq!(negated.evaluate(&labels), !expected);
    }

    #[test]
    fn prefixed_selector_sees_prefixed_labels(text in expression(), labels in labels()) {
        let selector = Selector::parse(&text).unwrap();
        let prefixed = selector.with_key_prefix("pcsa.");
        let renamed: BTreeMap<String, String> =
            labels.iter().map(|(name, value)| (format!("pcsa.{name}"), value.clone())).collect();
        prop_assert_eq!(prefixed.evaluate(&renamed), selector.evaluate(&labels));
        prop_assert_eq!(prefixed.evaluate(&labels), selector.evaluate(&()));
        let again = Selector::parse(prefixed.canonical()).unwrap();
        prop_assert_eq!(again.canonical(), without_double_negation(prefixed.canonical()));
    }

    #[test]
    fn restrictions_hold_for_every_selected_object(text in expression(), labels in labels()) {
        let selector = Selector::parse(&text).unwrap();
        let restrictions = selector.label_restrictions();
        if selector.evaluate(&labels) {
            for (label, restriction) in &restrictions {
                let value = labels.get(&**label).map(String::as_str);
                prop_assert!(restriction.admits(value), "{} {:?}: {:?}", text, restriction, value);
                prop_assert!(restriction.possible_to_satisfy());
            }
        }
    }

    #[test]
    fn garbage_is_refused_with_a_place(text in "[ab=!&|(){}'\", \\t\\nahslin.é]{0,40}") {
        check_any_text(&text)?;
    }

    #[test]
    fn any_text_is_accepted_or_refused(text in any::<String>()) {
        check_any_text(&text)?;
    }

    #[test]
    fn damaged_selectors(text in expression(), at in any::<prop::sample::Index>(), insert in "[()!&|={}'\", ]{0,2}") {
        let boundaries: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        let (before, after) = text.split_at(*at.get(&boundaries));
        let cut: String = after.chars().skip(1).collect();
        check_any_text(&format!("{before}{insert}{cut}"))?;
    }

    #[test]
    fn label_names(text in "[a-c_./ -]{0,6}", long in 500..530usize) {
        let usable = Selector::parse(&format!("has({text})")).is_ok_and(|s| s.canonical() == format!("has({text})"));
        prop_assert_eq!(selector::is_valid_label(&text), usable);
        prop_assert_eq!(selector::is_valid_label(&"x".repeat(long)), long <= MAX_LABEL_LENGTH);
    }
}

fn check_any_text(text: &str) -> Result<(), TestCaseError> {
    match Selector::parse(text) {
        Ok(selector) => {
            let again = Selector::parse(selector.canonical());
            prop_assert!(again.is_ok(), "{} became {}", text, selector);
        }
        Err(error) => {
            prop_assert!(text.is_char_boundary(error.position()));
            prop_assert_eq!(error.column(), text[..error.position()].chars().count() + 1);
            let rendered = error.render(text);
            prop_assert_eq!(rendered.lines().count(), 3, "{}", rendered);
            let caret = rendered.lines().nth(2).and_then(|line| line.find('^'));
            prop_assert!(caret.is_some());
        }
    }
    Ok(())
}
