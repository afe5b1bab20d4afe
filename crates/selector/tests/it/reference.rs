//! A slow evaluator that shares nothing with the crate: it reads canonical text directly, character by character, and
//! computes the verdict while reading. It has no tree, no short circuit and no lexer.

use std::collections::BTreeMap;

/// The verdict of canonical selector `text` on `labels`.
pub(crate) fn verdict(text: &str, labels: &BTreeMap<String, String>) -> bool {
    let mut reader = Reader { rest: text, labels };
    let verdict = reader.term();
    assert!(reader.rest.is_empty(), "not canonical: {text}");
    verdict
}

struct Reader<'a> {
    rest: &'a str,
    labels: &'a BTreeMap<String, String>,
}

impl<'a> Reader<'a> {
    fn skip(&mut self, what: &str) -> bool {
        match self.rest.strip_prefix(what) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn until(&mut self, end: char) -> &'a str {
        let (before, after) = self.rest.split_once(end).expect("canonical text is complete");
        self.rest = after;
        before
    }

    fn term(&mut self) -> bool {
        if self.skip("!") {
            return !self.term();
        }
        if self.skip("(") {
            let mut verdicts = vec![self.term()];
            let mut connective = "";
            while !self.skip(")") {
                connective = if self.skip(" && ") { "&&" } else { "||" };
                if connective == "||" {
                    assert!(self.skip(" || "));
                }
                verdicts.push(self.term());
            }
            let truths = verdicts.iter().filter(|verdict| **verdict).count();
            return if connective == "&&" { truths == verdicts.len() } else { truths > 0 };
        }
        if self.skip("all()") || self.skip("global()") {
            return true;
        }
        if self.skip("has(") {
            let label = self.until(')');
            return self.labels.contains_key(label);
        }
        let label = self.until(' ');
        let have = self.labels.get(label).cloned();
        if self.skip("== ") {
            let value = self.value();
            have == Some(value)
        } else if self.skip("!= ") {
            let value = self.value();
            have != Some(value)
        } else if self.skip("contains ") {
            let value = self.value();
            have.is_some_and(|have| {
                (0..=have.len()).any(|at| have.as_bytes()[at..].starts_with(value.as_bytes()))
            })
        } else if self.skip("starts with ") {
            let value = self.value();
            have.is_some_and(|have| {
                have.bytes().zip(value.bytes()).filter(|(a, b)| a == b).count() == value.len()
            })
        } else if self.skip("ends with ") {
            let value = self.value();
            have.is_some_and(|have| {
                have.bytes().rev().zip(value.bytes().rev()).take_while(|(a, b)| a == b).count() == value.len()
            })
        } else {
            let negative = self.skip("not ");
            assert!(self.skip("in {"));
            let mut found = false;
            while !self.skip("}") {
                self.skip(", ");
                let value = self.value();
                found |= have.as_ref() == Some(&value);
            }
            found != negative
        }
    }

    fn value(&mut self) -> String {
        let quote = self.rest.chars().next().expect("a quote");
        assert!(quote == '"' || quote == '\'');
        self.rest = &self.rest[1..];
        self.until(quote).to_owned()
    }
}
