//! Tests that need the parser's insides: the work counter and the shape of the tree.

use super::*;

fn steps(text: &str) -> usize {
    let mut parser = Parser::new(text).unwrap();
    parser.run().ok();
    parser.lexer.steps
}

/// Each family of inputs is measured at two sizes: the work may grow with the length, not with its square.
#[test]
fn work_grows_with_length() {
    let families: [fn(usize) -> String; 9] = [
        |n| "(".repeat(n),
        |n| format!("{}all(){}", "(".repeat(n), ")".repeat(n)),
        |n| format!("{}all()", "!".repeat(n)),
        |n| format!("a == 'b'{}", " || a == 'b'".repeat(n)),
        |n| format!("a in {{{}}}", "'x',".repeat(n)),
        |n| format!("a starts{}with 'x'", " ".repeat(n)),
        |n| format!("a not{}with 'x'", " ".repeat(n)),
        |n| format!("has({}a)", "\t".repeat(n)),
        |n| format!("a == '{}", "x".repeat(n)),
    ];
    for family in families {
        for size in [100, 2000] {
            let text = family(size);
            let steps = steps(&text);
            assert!(steps <= 3 * text.len() + 16, "{steps} steps for {} bytes: {text:.40}", text.len());
        }
    }
}

#[test]
fn redundant_parentheses_do_not_nest() {
    let levels = 20_000;
    let text = format!("{}has(a){}", "(".repeat(levels), ")".repeat(levels));
    assert_eq!(parse(&text), Ok(Node::Has { label: "a".into() }));
}

#[test]
fn nesting_is_bounded_on_the_tree() {
    let nots = |levels: usize| format!("{}has(a){}", "!(".repeat(levels), ")".repeat(levels));
    assert!(parse(&nots(MAX_NESTING - 1)).is_ok());
    assert_eq!(parse(&nots(MAX_NESTING)).unwrap_err().kind(), &ParseErrorKind::TooDeep);

    let groups =
        |levels: usize| format!("{}has(a){}", "has(b)&&(has(c)||".repeat(levels), ")".repeat(levels));
    assert!(parse(&groups(MAX_NESTING / 2 - 1)).is_ok());
    assert_eq!(parse(&groups(MAX_NESTING / 2)).unwrap_err().kind(), &ParseErrorKind::TooDeep);
}

#[test]
fn precedence_and_grouping() {
    let has = |label: &str| Node::Has { label: label.into() };
    let expected = Node::Or(Box::new([
        Node::And(Box::new([Node::Not(Box::new(has("a"))), has("b")])),
        has("c"),
        Node::And(Box::new([Node::Or(Box::new([has("d"), has("e")])), has("f")])),
    ]));
    assert_eq!(parse("!has(a) && has(b) || has(c) || (has(d) || has(e)) && has(f)"), Ok(expected));
}
