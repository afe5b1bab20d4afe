//! A shell in a place of the lab, whose prompt shows the place.

use crate::servers::find_program;
use crate::settings::Variables;

/// The command line of a shell, and the variables for its prompt.
pub(crate) fn words(lab: &str, place: &str) -> (Vec<String>, Variables) {
    let bash = find_program("bash", "").ok().map(|path| path.display().to_string());
    choose(bash, lab, place)
}

fn choose(bash: Option<String>, lab: &str, place: &str) -> (Vec<String>, Variables) {
    let where_one_is = format!("{place}@{lab}");
    match bash {
        // The user's start-up files would set another prompt.
        Some(bash) => (
            vec![bash, "--noprofile".to_owned(), "--norc".to_owned()],
            [("PS1".to_owned(), format!("{where_one_is}:\\w\\$ "))].into(),
        ),
        None => (vec!["sh".to_owned()], [("PS1".to_owned(), format!("{where_one_is}$ "))].into()),
    }
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn the_prompt_shows_the_place() {
        let (words, variables) = choose(Some("/bin/bash".to_owned()), "second", "shop/cart");
        assert_eq!(words, ["/bin/bash", "--noprofile", "--norc"]);
        assert_eq!(variables["PS1"], "shop/cart@second:\\w\\$ ");
        assert_eq!(choose(None, "lab", "node1").1["PS1"], "node1@lab$ ");
    }
}
