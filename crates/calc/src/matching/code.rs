//! A selector compiled for many evaluations: names of labels are symbols, so that looking one up compares numbers.
//!
//! It means exactly what its selector means; the test compares the two.

use crate::symbols::{Symbol, Symbols};
use selector::{Node, Selector};

/// A compiled selector. It holds a reference to each name that it mentions: see [`Code::release`].
#[derive(Debug)]
pub(crate) enum Code {
    Always,
    Has(Symbol),
    Equal(Symbol, Box<[u8]>),
    NotEqual(Symbol, Box<[u8]>),
    Contains(Symbol, Box<str>),
    StartsWith(Symbol, Box<[u8]>),
    EndsWith(Symbol, Box<[u8]>),
    In(Symbol, Box<[Box<[u8]>]>),
    NotIn(Symbol, Box<[Box<[u8]>]>),
    Not(Box<Code>),
    And(Box<[Code]>),
    Or(Box<[Code]>),
}

/// Something with labels, its own and inherited ones.
pub(crate) trait Labelled {
    /// Returns the value of a label.
    fn value(&self, name: Symbol) -> Option<&[u8]>;
}

impl Code {
    /// Compiles a selector. The parser limits the depth of the tree.
    pub(crate) fn compile(selector: &Selector, names: &mut Symbols) -> Self {
        Self::of(selector.root(), names)
    }

    fn of(node: &Node, names: &mut Symbols) -> Self {
        let bytes = |text: &str| Box::from(text.as_bytes());
        let list = |texts: &[Box<str>]| texts.iter().map(|text| Box::from(text.as_bytes())).collect();
        match node {
            Node::All | Node::Global => Self::Always,
            Node::Has { label } => Self::Has(names.acquire(label)),
            Node::Equal { label, value } => Self::Equal(names.acquire(label), bytes(value)),
            Node::NotEqual { label, value } => Self::NotEqual(names.acquire(label), bytes(value)),
            Node::Contains { label, value } => Self::Contains(names.acquire(label), value.clone()),
            Node::StartsWith { label, value } => Self::StartsWith(names.acquire(label), bytes(value)),
            Node::EndsWith { label, value } => Self::EndsWith(names.acquire(label), bytes(value)),
            Node::In { label, values } => Self::In(names.acquire(label), list(values)),
            Node::NotIn { label, values } => Self::NotIn(names.acquire(label), list(values)),
            Node::Not(operand) => Self::Not(Box::new(Self::of(operand, names))),
            Node::And(operands) => Self::And(operands.iter().map(|node| Self::of(node, names)).collect()),
            Node::Or(operands) => Self::Or(operands.iter().map(|node| Self::of(node, names)).collect()),
        }
    }

    /// Whether it matches these labels.
    pub(crate) fn matches(&self, labels: &impl Labelled) -> bool {
        match self {
            Self::Always => true,
            Self::Has(name) => labels.value(*name).is_some(),
            Self::Equal(name, value) => labels.value(*name) == Some(value),
            Self::NotEqual(name, value) => labels.value(*name) != Some(value),
            Self::Contains(name, part) => labels.value(*name).is_some_and(|value| contains(value, part)),
            Self::StartsWith(name, start) => {
                labels.value(*name).is_some_and(|value| value.starts_with(start))
            }
            Self::EndsWith(name, end) => labels.value(*name).is_some_and(|value| value.ends_with(end)),
            Self::In(name, values) => labels.value(*name).is_some_and(|value| is_one_of(values, value)),
            Self::NotIn(name, values) => !labels.value(*name).is_some_and(|value| is_one_of(values, value)),
            Self::Not(operand) => !operand.matches(labels),
            Self::And(operands) => operands.iter().all(|operand| operand.matches(labels)),
            Self::Or(operands) => operands.iter().any(|operand| operand.matches(labels)),
        }
    }

    /// Calls `visit` with each mentioned name, each time that it is mentioned.
    pub(crate) fn for_each_name(&self, visit: &mut impl FnMut(Symbol)) {
        match self {
            Self::Always => {}
            Self::Has(name)
            | Self::Equal(name, _)
            | Self::NotEqual(name, _)
            | Self::Contains(name, _)
            | Self::StartsWith(name, _)
            | Self::EndsWith(name, _)
            | Self::In(name, _)
            | Self::NotIn(name, _) => visit(*name),
            Self::Not(operand) => operand.for_each_name(visit),
            Self::And(operands) | Self::Or(operands) => {
                for operand in operands {
                    operand.for_each_name(visit);
                }
            }
        }
    }

    /// Releases the references to names. Must be called once, before it is dropped.
    pub(crate) fn release(&self, names: &mut Symbols) {
        self.for_each_name(&mut |name| names.release(name));
    }
}

/// Values are UTF-8, and UTF-8 text can only be found at the start of a character, so comparing bytes is enough.
fn contains(value: &[u8], part: &str) -> bool {
    std::str::from_utf8(value).is_ok_and(|value| value.contains(part))
}

/// The list is sorted.
fn is_one_of(values: &[Box<[u8]>], value: &[u8]) -> bool {
    values.binary_search_by(|have| (**have).cmp(value)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::{Code, Labelled};
    use crate::labels::{LabelSetId, LabelSets};
    use crate::symbols::Symbol;
    use proptest::prelude::*;
    use selector::Selector;
    use std::collections::BTreeMap;

    struct One<'a>(&'a LabelSets, LabelSetId);

    impl Labelled for One<'_> {
        fn value(&self, name: Symbol) -> Option<&[u8]> {
            self.0.get(self.1).get(name)
        }
    }

    fn expression() -> impl Strategy<Value = String> {
        let label = prop::sample::select(vec!["a", "b", "c", "projectcalico.org/namespace"]);
        let value = prop::sample::select(vec!["", "x", "xy", "yx", "ü", "xüy"]);
        let leaf = (label, 0..10u8, value.clone(), value).prop_map(|(label, kind, v, w)| match kind {
            0 => "all()".to_owned(),
            1 => format!("has({label})"),
            2 => format!("{label} == '{v}'"),
            3 => format!("{label} != '{v}'"),
            4 => format!("{label} contains '{v}'"),
            5 => format!("{label} starts with '{v}'"),
            6 => format!("{label} ends with '{v}'"),
            7 => format!("{label} in {{'{v}', '{w}'}}"),
            8 => format!("{label} not in {{'{v}', '{w}'}}"),
            _ => "global()".to_owned(),
        });
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                inner.clone().prop_map(|a| format!("!({a})")),
                prop::collection::vec(inner.clone(), 2..4).prop_map(|all| format!("({})", all.join(" && "))),
                prop::collection::vec(inner, 2..4).prop_map(|all| format!("({})", all.join(" || "))),
            ]
        })
    }

    fn labels() -> impl Strategy<Value = BTreeMap<String, String>> {
        prop::collection::btree_map(
            prop::sample::select(vec!["a", "b", "c", "projectcalico.org/namespace"]).prop_map(str::to_owned),
            prop::sample::select(vec!["", "x", "xy", "yx", "ü", "xüy", "z"]).prop_map(str::to_owned),
            0..4,
        )
    }

    proptest! {
        #[test]
        fn it_means_what_the_selector_means(text in expression(), labels in labels()) {
            let selector = Selector::parse(&text).unwrap();
            let mut sets = LabelSets::default();
            let id = sets.acquire(&model::feed::Labels::from(&labels));
            let code = Code::compile(&selector, &mut sets.names);
            prop_assert_eq!(code.matches(&One(&sets, id)), selector.evaluate(&labels), "{}", text);
            code.release(&mut sets.names);
            sets.release(id);
            prop_assert_eq!(sets.names.len(), 0);
        }
    }
}
