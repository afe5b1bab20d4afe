//! The grammar, lowest precedence first:
//!
//! ```text
//! selector := <empty> | or
//! or       := and ( "||" and )*
//! and      := unary ( "&&" unary )*
//! unary    := "!"* primary                      pairs of "!" vanish, unless a canonical form is read back
//! primary  := "(" or ")" | has(label) | all() | global() | label comparison
//! ```
//!
//! The parser keeps its own stack of open parentheses instead of recursing, so that text made of nothing but
//! parentheses costs memory in proportion to its length and no call stack. Depth is counted on the tree that is
//! built, since that is what evaluation and drop walk down. It reports the leftmost mistake and then stops: what
//! follows the first mistake in an expression is guesswork.

use crate::error::{ParseError, ParseErrorKind};
use crate::lexer::{Lexer, Token, excerpt};
use crate::node::Node;
use crate::{MAX_LENGTH, MAX_NESTING};

#[cfg(test)]
mod tests;

/// A finished operand and the depth of its tree.
struct Operand {
    node: Node,
    depth: usize,
}

/// An open group: the position of its operands on the shared operand stack.
///
/// The finished `&&` terms are between `or_start` and `and_start`; the operands of the term being read follow
/// `and_start`.
#[derive(Clone, Copy)]
struct Group {
    negations: usize,
    or_start: usize,
    and_start: usize,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    operands: Vec<Operand>,
    group: Group,
    outer: Vec<Group>,
    keeps_pairs: bool,
}

pub(crate) fn parse(text: &str) -> Result<Node, ParseError> {
    Parser::new(text)?.run()
}

/// Reads a canonical form, in which `!!` is a negated group that was itself a negation.
pub(crate) fn parse_canonical(text: &str) -> Result<Node, ParseError> {
    let mut parser = Parser::new(text)?;
    parser.keeps_pairs = true;
    parser.run()
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Result<Self, ParseError> {
        Ok(Self {
            lexer: Lexer::new(text)?,
            operands: Vec::new(),
            group: Group { negations: 0, or_start: 0, and_start: 0 },
            outer: Vec::new(),
            keeps_pairs: false,
        })
    }

    fn run(&mut self) -> Result<Node, ParseError> {
        let mut token = self.lexer.next()?;
        if token == Token::End {
            return Ok(Node::All);
        }
        loop {
            let mut negations = 0;
            while token == Token::Not {
                negations = if self.keeps_pairs { negations + 1 } else { 1 - negations };
                token = self.lexer.next()?;
            }
            if token == Token::LeftParen {
                let start = self.operands.len();
                let inner = Group { negations, or_start: start, and_start: start };
                self.outer.push(std::mem::replace(&mut self.group, inner));
                token = self.lexer.next()?;
                continue;
            }
            let node = self.primary(token)?;
            self.push(Operand { node, depth: 1 }, negations)?;
            if self.after_operand()? {
                return Ok(self.operands.pop().map_or(Node::All, |whole| whole.node));
            }
            token = self.lexer.next()?;
        }
    }

    /// Reads what may follow an operand: a connective, any number of closing parentheses, or the end, for which it
    /// returns true.
    fn after_operand(&mut self) -> Result<bool, ParseError> {
        loop {
            match self.lexer.next()? {
                Token::And => return Ok(false),
                Token::Or => {
                    self.finish_and()?;
                    self.group.and_start = self.operands.len();
                    return Ok(false);
                }
                Token::RightParen => {
                    let Some(outer) = self.outer.pop() else {
                        return Err(self.trailing_content());
                    };
                    let whole = self.finish_or()?;
                    let negations = std::mem::replace(&mut self.group, outer).negations;
                    self.push(whole, negations)?;
                }
                Token::End if self.outer.is_empty() => {
                    let whole = self.finish_or()?;
                    self.operands.push(whole);
                    return Ok(true);
                }
                _ if self.outer.is_empty() => return Err(self.trailing_content()),
                _ => {
                    let found = self.lexer.found();
                    return Err(self.lexer.error_here(ParseErrorKind::ExpectedRightParen { found }));
                }
            }
        }
    }

    fn trailing_content(&self) -> ParseError {
        let remainder = self.lexer.remainder();
        self.lexer.error_here(ParseErrorKind::TrailingContent { remainder })
    }

    fn push(&mut self, mut operand: Operand, negations: usize) -> Result<(), ParseError> {
        for _ in 0..negations {
            let depth = self.deeper(operand.depth)?;
            operand = Operand { node: Node::Not(Box::new(operand.node)), depth };
        }
        self.operands.push(operand);
        Ok(())
    }

    /// Combines the operands of the `&&` term being read into one.
    fn finish_and(&mut self) -> Result<(), ParseError> {
        let start = self.group.and_start;
        if self.operands.len() - start > 1 {
            let (nodes, depth) = self.take(start)?;
            self.operands.push(Operand { node: Node::And(nodes), depth });
        }
        Ok(())
    }

    /// Combines everything that the open group has read into one operand.
    fn finish_or(&mut self) -> Result<Operand, ParseError> {
        self.finish_and()?;
        let start = self.group.or_start;
        if self.operands.len() - start > 1 {
            let (nodes, depth) = self.take(start)?;
            return Ok(Operand { node: Node::Or(nodes), depth });
        }
        // A group is only finished after an operand, so there is one; `all()` is never used.
        Ok(self.operands.pop().unwrap_or(Operand { node: Node::All, depth: 1 }))
    }

    fn take(&mut self, start: usize) -> Result<(Box<[Node]>, usize), ParseError> {
        let deepest = self.operands[start..].iter().map(|operand| operand.depth).max().unwrap_or(0);
        let depth = self.deeper(deepest)?;
        let nodes = self.operands.drain(start..).map(|operand| operand.node).collect();
        Ok((nodes, depth))
    }

    fn deeper(&self, depth: usize) -> Result<usize, ParseError> {
        if depth >= MAX_NESTING {
            return Err(self.lexer.error_here(ParseErrorKind::TooDeep));
        }
        Ok(depth + 1)
    }

    fn primary(&mut self, token: Token<'a>) -> Result<Node, ParseError> {
        match token {
            Token::Has(label) => Ok(Node::Has { label: label.into() }),
            Token::All => Ok(Node::All),
            Token::Global => Ok(Node::Global),
            Token::Label(label) => self.comparison(label),
            _ => {
                let found = self.lexer.found();
                Err(self.lexer.error_here(ParseErrorKind::UnexpectedToken { found }))
            }
        }
    }

    fn comparison(&mut self, label: &str) -> Result<Node, ParseError> {
        let operator = self.lexer.next()?;
        match operator {
            Token::Equal => Ok(Node::Equal { label: label.into(), value: self.text("==")? }),
            Token::NotEqual => Ok(Node::NotEqual { label: label.into(), value: self.text("!=")? }),
            Token::Contains => Ok(Node::Contains { label: label.into(), value: self.text("contains")? }),
            Token::StartsWith => {
                Ok(Node::StartsWith { label: label.into(), value: self.text("starts with")? })
            }
            Token::EndsWith => Ok(Node::EndsWith { label: label.into(), value: self.text("ends with")? }),
            Token::In => Ok(Node::In { label: label.into(), values: self.set("in")? }),
            Token::NotIn => Ok(Node::NotIn { label: label.into(), values: self.set("not in")? }),
            Token::End => Err(self.lexer.error_here(ParseErrorKind::UnexpectedEnd { label: excerpt(label) })),
            _ => {
                let found = self.lexer.found();
                Err(self.lexer.error_here(ParseErrorKind::ExpectedComparison { found }))
            }
        }
    }

    fn text(&mut self, operator: &'static str) -> Result<Box<str>, ParseError> {
        match self.lexer.next()? {
            Token::Text(value) => Ok(value.into()),
            _ => {
                let found = self.lexer.found();
                Err(self.lexer.error_here(ParseErrorKind::ExpectedString { operator, found }))
            }
        }
    }

    /// A set literal: sorted and without duplicates, so that the canonical form does not depend on the order written.
    fn set(&mut self, operator: &'static str) -> Result<Box<[Box<str>]>, ParseError> {
        if self.lexer.next()? != Token::LeftBrace {
            let found = self.lexer.found();
            return Err(self.lexer.error_here(ParseErrorKind::ExpectedSet { operator, found }));
        }
        let mut values: Vec<&str> = Vec::new();
        let mut token = self.lexer.next()?;
        while let Token::Text(value) = token {
            values.push(value);
            token = self.lexer.next()?;
            if token != Token::Comma {
                break;
            }
            token = self.lexer.next()?;
        }
        if token != Token::RightBrace {
            let found = self.lexer.found();
            return Err(self.lexer.error_here(ParseErrorKind::ExpectedRightBrace { found }));
        }
        debug_assert!(values.len() <= MAX_LENGTH, "each value takes at least two bytes of input");
        values.sort_unstable();
        values.dedup();
        Ok(values.into_iter().map(Box::from).collect())
    }
}
