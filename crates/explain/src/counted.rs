//! Formats counts.

/// A number and a noun, in singular or plural.
#[must_use]
pub fn counted(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_singular() {
        assert_eq!([0, 1, 2].map(|number| counted(number, "test")), ["0 tests", "1 test", "2 tests"]);
    }
}
