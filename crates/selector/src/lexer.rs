//! Splits selector text into tokens, one at a time, on request of the parser.
//!
//! Written by hand, like the parser: what a word means depends on the token before it (`in` is an operator
//! after a label and a label elsewhere), names and parentheses may not be separated in `has(`, and the two
//! together are small. A combinator library would hide these rules rather than shorten them, and would cost
//! allocations on a path that runs for every selector of every policy.
//!
//! The lexer looks at each byte a bounded number of times and remembers only whether the last token was a label.

use crate::error::{ParseError, ParseErrorKind};
use crate::{MAX_LABEL_LENGTH, MAX_LENGTH};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    Label(&'a str),
    Text(&'a str),
    LeftBrace,
    RightBrace,
    Comma,
    Equal,
    NotEqual,
    In,
    NotIn,
    Contains,
    StartsWith,
    EndsWith,
    Not,
    All,
    Global,
    Has(&'a str),
    LeftParen,
    RightParen,
    And,
    Or,
    End,
}

pub(crate) struct Lexer<'a> {
    text: &'a str,
    /// Where the next token is looked for.
    position: usize,
    /// Where the last token began.
    start: usize,
    /// The last token, if it was a label: then a word is an operator.
    label: Option<&'a str>,
    /// Number of bytes examined, for the test that work grows linearly with length.
    #[cfg(test)]
    pub(crate) steps: usize,
}

/// Whether `text` is a valid label name in a selector.
pub fn is_valid_label(text: &str) -> bool {
    (1..=MAX_LABEL_LENGTH).contains(&text.len()) && text.bytes().all(is_identifier_byte)
}

fn is_identifier_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-')
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str) -> Result<Self, ParseError> {
        if text.len() > MAX_LENGTH {
            return Err(ParseError::new(ParseErrorKind::TooLong { length: text.len() }, text, 0));
        }
        Ok(Self {
            text,
            position: 0,
            start: 0,
            label: None,
            #[cfg(test)]
            steps: 0,
        })
    }

    /// An error about the token returned last.
    pub(crate) fn error_here(&self, kind: ParseErrorKind) -> ParseError {
        ParseError::new(kind, self.text, self.start)
    }

    /// The source text of the token returned last, for messages.
    pub(crate) fn found(&self) -> Box<str> {
        let found = &self.text[self.start..self.position];
        if found.is_empty() { "end of selector".into() } else { excerpt(found) }
    }

    /// Everything from the token returned last to the end, for messages.
    pub(crate) fn remainder(&self) -> Box<str> {
        excerpt(&self.text[self.start..])
    }

    pub(crate) fn next(&mut self) -> Result<Token<'a>, ParseError> {
        self.skip_blanks();
        self.start = self.position;
        let after = self.label.take();
        let Some(&first) = self.text.as_bytes().get(self.position) else {
            return Ok(Token::End);
        };
        match first {
            b'(' => Ok(self.symbol(1, Token::LeftParen)),
            b')' => Ok(self.symbol(1, Token::RightParen)),
            b'{' => Ok(self.symbol(1, Token::LeftBrace)),
            b'}' => Ok(self.symbol(1, Token::RightBrace)),
            b',' => Ok(self.symbol(1, Token::Comma)),
            b'=' => self.doubled("==", Token::Equal),
            b'&' => self.doubled("&&", Token::And),
            b'|' => self.doubled("||", Token::Or),
            b'!' if self.rest().starts_with("!=") => Ok(self.symbol(2, Token::NotEqual)),
            b'!' => Ok(self.symbol(1, Token::Not)),
            b'"' | b'\'' => self.string(first),
            _ => match after {
                Some(label) => self.operator(label),
                None => self.operand(),
            },
        }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    fn advance(&mut self, length: usize) {
        self.position += length;
        self.count(length);
    }

    #[cfg(test)]
    fn count(&mut self, steps: usize) {
        self.steps += steps;
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "the counting version, compiled for tests, needs it")]
    fn count(&self, _steps: usize) {}

    fn symbol(&mut self, length: usize, token: Token<'a>) -> Token<'a> {
        self.advance(length);
        token
    }

    fn doubled(&mut self, spelling: &'static str, token: Token<'a>) -> Result<Token<'a>, ParseError> {
        if self.rest().starts_with(spelling) {
            Ok(self.symbol(2, token))
        } else {
            Err(self.error_here(ParseErrorKind::SingleCharacter { expected: spelling }))
        }
    }

    fn string(&mut self, quote: u8) -> Result<Token<'a>, ParseError> {
        let body = &self.rest()[1..];
        match body.find(char::from(quote)) {
            Some(length) => {
                self.advance(length + 2);
                Ok(Token::Text(&body[..length]))
            }
            None => Err(self.error_here(ParseErrorKind::UnterminatedString)),
        }
    }

    /// A word after a label must be an operator.
    fn operator(&mut self, label: &str) -> Result<Token<'a>, ParseError> {
        let found = if let Some(length) = self.words(&["contains"]) {
            Some((length, Token::Contains))
        } else if let Some(length) = self.words(&["starts", "with"]) {
            Some((length, Token::StartsWith))
        } else if let Some(length) = self.words(&["ends", "with"]) {
            Some((length, Token::EndsWith))
        } else if let Some(length) = self.words(&["not", "in"]) {
            Some((length, Token::NotIn))
        } else {
            self.words(&["in"]).map(|length| (length, Token::In))
        };
        match found {
            Some((length, token)) => Ok(self.symbol(length, token)),
            None => {
                let found = excerpt(self.rest());
                let label = excerpt(label);
                Err(self.error_here(ParseErrorKind::ExpectedOperator { label, found }))
            }
        }
    }

    /// The length of these words at the current position, with optional blanks between them, if no identifier continues
    /// directly after the last one.
    fn words(&mut self, words: &[&str]) -> Option<usize> {
        let mut rest = self.rest();
        let whole = rest.len();
        for (index, word) in words.iter().enumerate() {
            if index > 0 {
                let trimmed = rest.trim_start_matches([' ', '\t']);
                self.count(rest.len() - trimmed.len());
                rest = trimmed;
            }
            rest = rest.strip_prefix(word)?;
            self.count(word.len());
        }
        if rest.bytes().next().is_some_and(is_identifier_byte) {
            return None;
        }
        Some(whole - rest.len())
    }

    /// A word where an operand may begin: a function or a label.
    fn operand(&mut self) -> Result<Token<'a>, ParseError> {
        let rest = self.rest();
        if rest.starts_with("has(") {
            self.advance("has(".len());
            self.skip_blanks();
            let label = self.identifier()?;
            self.close("has")?;
            return Ok(Token::Has(label));
        }
        if rest.starts_with("all(") {
            self.advance("all(".len());
            self.close("all")?;
            return Ok(Token::All);
        }
        if rest.starts_with("global(") {
            self.advance("global(".len());
            self.close("global")?;
            return Ok(Token::Global);
        }
        let label = self.identifier()?;
        self.label = Some(label);
        Ok(Token::Label(label))
    }

    fn identifier(&mut self) -> Result<&'a str, ParseError> {
        let rest = self.rest();
        let length = rest.bytes().position(|byte| !is_identifier_byte(byte)).unwrap_or(rest.len());
        let kind = match length {
            0 => ParseErrorKind::ExpectedIdentifier { found: first_character(rest) },
            1..=MAX_LABEL_LENGTH => {
                self.advance(length);
                return Ok(&rest[..length]);
            }
            _ => ParseErrorKind::LabelTooLong { label: excerpt(&rest[..length]), length },
        };
        Err(ParseError::new(kind, self.text, self.position))
    }

    fn close(&mut self, function: &'static str) -> Result<(), ParseError> {
        self.skip_blanks();
        if self.rest().starts_with(')') {
            self.advance(1);
            return Ok(());
        }
        Err(ParseError::new(ParseErrorKind::UnclosedFunction { function }, self.text, self.position))
    }

    fn skip_blanks(&mut self) {
        let blanks = self.rest().bytes().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        self.advance(blanks);
    }
}

fn first_character(text: &str) -> Box<str> {
    text.chars().next().map_or_else(|| "end of selector".into(), |c| c.to_string().into())
}

/// A piece of input short enough for a message, on one line.
pub(crate) fn excerpt(text: &str) -> Box<str> {
    const LONGEST: usize = 40;
    let mut characters = text.chars();
    let mut shown = String::new();
    for character in characters.by_ref().take(LONGEST) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if characters.next().is_some() {
        shown.push_str("...");
    }
    shown.into()
}
