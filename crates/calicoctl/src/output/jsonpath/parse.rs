//! Parses a template. All syntax is checked here; nothing is looked up.

use serde_json::Value;

/// The maximum nesting of ranges and filters; a template that needs more is a mistake.
const DEEPEST: usize = 32;

/// A parsed template.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Template {
    pub(super) parts: Vec<Part>,
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// Literal text.
    Text(String),
    /// The values that a path finds.
    Path(Path),
    /// The template up to `{end}`, for each value.
    Range { over: Path, body: Vec<Part> },
}

/// A path: its start, then its steps.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) from_root: bool,
    pub(super) steps: Vec<Step>,
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Field(String),
    Recursive,
    Wildcard,
    Slice { start: Option<i64>, end: Option<i64>, step: usize, single: bool },
    Union(Vec<Vec<Step>>),
    Filter(Filter),
}

/// A condition on the elements of a list.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Filter {
    Exists(Operand),
    Compare(Operand, Operator, Operand),
}

/// One side of a condition.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Operand {
    Path(Path),
    Literal(Value),
}

/// The comparison of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

type Result<T> = std::result::Result<T, String>;

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self> {
        // Bodies of the open ranges, the innermost last; the first is the template itself.
        let mut open: Vec<(Option<Path>, Vec<Part>)> = vec![(None, Vec::new())];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            push(&mut open, Part::Text(before.to_owned()));
            let end = action_length(after)?;
            let action = after[..end].trim();
            rest = &after[end + 1..];
            if action == "end" {
                match open.pop() {
                    Some((Some(over), body)) => push(&mut open, Part::Range { over, body }),
                    _ => return Err("there is no range to end".to_owned()),
                }
            } else if let Some(path) = action.strip_prefix("range").filter(|path| path.starts_with(' ')) {
                if open.len() > DEEPEST {
                    return Err("ranges are nested too deeply".to_owned());
                }
                open.push((Some(Reader::new(path.trim()).whole_path()?), Vec::new()));
            } else if action.starts_with(['"', '\'']) {
                let mut reader = Reader::new(action);
                let literal = reader.quoted()?;
                reader.expect_end()?;
                push(&mut open, Part::Text(literal));
            } else if !action.is_empty() {
                push(&mut open, Part::Path(Reader::new(action).whole_path()?));
            }
        }
        push(&mut open, Part::Text(rest.to_owned()));
        match (open.pop(), open.is_empty()) {
            (Some((None, parts)), true) => Ok(Self { parts }),
            _ => Err("unexpected end of text: a range lacks its {end}".to_owned()),
        }
    }
}

fn push(open: &mut [(Option<Path>, Vec<Part>)], part: Part) {
    if let (Some((_, body)), false) = (open.last_mut(), part == Part::Text(String::new())) {
        body.push(part);
    }
}

/// The length of an action up to its closing brace; braces in quotes do not count.
fn action_length(text: &str) -> Result<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (place, character) in text.char_indices() {
        match quote {
            _ if escaped => escaped = false,
            _ if character == '\\' => escaped = true,
            Some(open) if character == open => quote = None,
            Some(_) => {}
            None if character == '}' => return Ok(place),
            None if matches!(character, '"' | '\'') => quote = Some(character),
            None => {}
        }
    }
    Err(if quote.is_some() { "unterminated quoted string" } else { "unclosed action" }.to_owned())
}

/// Parses a path.
struct Reader<'a> {
    rest: &'a str,
    depth: usize,
}

impl<'a> Reader<'a> {
    fn new(rest: &'a str) -> Self {
        Self { rest, depth: 0 }
    }

    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect_end(&self) -> Result<()> {
        if self.rest.is_empty() { Ok(()) } else { Err(format!("unexpected '{}'", self.rest)) }
    }

    fn whole_path(&mut self) -> Result<Path> {
        if !self.rest.starts_with(['.', '[', '$', '@', '*']) {
            return Err(format!("unrecognized identifier {}", self.rest));
        }
        let path = self.path()?;
        self.expect_end()?;
        Ok(path)
    }

    fn path(&mut self) -> Result<Path> {
        let from_root = self.take("$");
        if !from_root {
            self.take("@");
        }
        Ok(Path { from_root, steps: self.steps()? })
    }

    fn steps(&mut self) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.take("..") {
                steps.push(Step::Recursive);
                if !self.rest.starts_with(['[', '*']) && !self.rest.is_empty() {
                    steps.push(Step::Field(self.name()));
                }
            } else if self.take(".") {
                if self.rest.starts_with(['[', '*']) {
                    continue;
                }
                let name = self.name();
                if !name.is_empty() {
                    steps.push(Step::Field(name));
                }
            } else if self.take("*") {
                steps.push(Step::Wildcard);
            } else if self.take("[") {
                let inside = self.bracket()?;
                steps.push(self.bracketed(inside)?);
            } else {
                return Ok(steps);
            }
        }
    }

    /// A name up to its delimiter; a backslash escapes the next character.
    fn name(&mut self) -> String {
        let mut name = String::new();
        let mut characters = self.rest.char_indices();
        while let Some((place, character)) = characters.next() {
            match character {
                '\\' => name.extend(characters.next().map(|(_, next)| next)),
                '.' | '[' | ']' | '*' | ')' | ' ' | '=' | '!' | '<' | '>' | ',' => {
                    self.rest = &self.rest[place..];
                    return name;
                }
                other => name.push(other),
            }
        }
        self.rest = "";
        name
    }

    /// The text up to the matching closing bracket.
    fn bracket(&mut self) -> Result<&'a str> {
        let (mut depth, mut quote) = (1_usize, None);
        let text = self.rest;
        for (place, character) in text.char_indices() {
            match (quote, character) {
                (Some(open), _) if character == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(character),
                (None, '[') => depth += 1,
                (None, ']') => {
                    depth -= 1;
                    if depth == 0 {
                        self.rest = &text[place + 1..];
                        return Ok(&text[..place]);
                    }
                }
                (None, _) => {}
            }
        }
        Err("unterminated array".to_owned())
    }

    fn bracketed(&self, inside: &str) -> Result<Step> {
        let inside = inside.trim();
        if self.depth > DEEPEST {
            return Err("conditions are nested too deeply".to_owned());
        }
        if inside == "*" || inside.is_empty() {
            return Ok(Step::Wildcard);
        }
        if let Some(condition) = inside.strip_prefix("?(").and_then(|text| text.strip_suffix(')')) {
            return Ok(Step::Filter(Reader { rest: condition.trim(), depth: self.depth + 1 }.filter()?));
        }
        let members = members(inside);
        if members.len() > 1 {
            let all = members.iter().map(|member| {
                Ok(match self.bracketed(member)? {
                    Step::Union(mut paths) if paths.len() == 1 => paths.remove(0),
                    other => vec![other],
                })
            });
            return Ok(Step::Union(all.collect::<Result<_>>()?));
        }
        if inside.starts_with(['"', '\'']) {
            let mut reader = Reader { rest: inside, depth: self.depth };
            let name = reader.raw_quoted()?;
            reader.expect_end()?;
            // As in kubectl, a dot inside the quotes leads one level down.
            let path = format!(".{name}");
            let mut inner = Reader { rest: &path, depth: self.depth + 1 };
            let steps = inner.steps()?;
            inner.expect_end()?;
            return Ok(Step::Union(vec![steps]));
        }
        slice(inside)
    }

    fn filter(&mut self) -> Result<Filter> {
        let left = self.operand()?;
        self.rest = self.rest.trim_start();
        if self.rest.is_empty() {
            return Ok(Filter::Exists(left));
        }
        let operators = [
            ("==", Operator::Equal),
            ("!=", Operator::Unequal),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
        ];
        let found = operators.into_iter().find(|(text, _)| self.take(text));
        let Some((_, operator)) = found else {
            let word = self.rest.split_whitespace().next().unwrap_or_default();
            return Err(format!("unrecognized operator '{word}'"));
        };
        self.rest = self.rest.trim_start();
        let right = self.operand()?;
        self.rest = self.rest.trim_start();
        self.expect_end()?;
        Ok(Filter::Compare(left, operator, right))
    }

    fn operand(&mut self) -> Result<Operand> {
        if self.rest.starts_with(['@', '$', '.']) {
            return Ok(Operand::Path(self.path()?));
        }
        if self.rest.starts_with(['"', '\'']) {
            return Ok(Operand::Literal(Value::String(self.quoted()?)));
        }
        let end = self.rest.find([' ', '=', '!', '<', '>']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match serde_json::from_str::<Value>(word) {
            Ok(value @ (Value::Bool(_) | Value::Number(_) | Value::Null)) => Ok(Operand::Literal(value)),
            _ => Err(format!("expected a value (text in quotes, a number, true or false), found '{word}'")),
        }
    }

    /// A literal, with the escapes that kubectl knows.
    fn quoted(&mut self) -> Result<String> {
        let raw = self.raw_quoted()?;
        let mut text = String::new();
        let mut characters = raw.chars();
        while let Some(character) = characters.next() {
            match character {
                '\\' => match characters.next() {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(other) => text.push(other),
                    None => {}
                },
                other => text.push(other),
            }
        }
        Ok(text)
    }

    /// The text inside quotes, unchanged.
    fn raw_quoted(&mut self) -> Result<&'a str> {
        let unterminated = || "unterminated quoted string".to_owned();
        let quote = self.rest.chars().next().ok_or_else(unterminated)?;
        let text = &self.rest[quote.len_utf8()..];
        let mut escaped = false;
        for (place, character) in text.char_indices() {
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                _ if character == quote => {
                    self.rest = &text[place + character.len_utf8()..];
                    return Ok(&text[..place]);
                }
                _ => {}
            }
        }
        Err(unterminated())
    }
}

/// The members of a union, split at commas outside quotes.
fn members(text: &str) -> Vec<&str> {
    let (mut found, mut begin, mut quote) = (Vec::new(), 0, None);
    for (place, character) in text.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(character),
            (None, ',') => {
                found.push(text[begin..place].trim());
                begin = place + 1;
            }
            (None, _) => {}
        }
    }
    found.push(text[begin..].trim());
    found
}

/// `3`, `1:4`, `::2`.
fn slice(text: &str) -> Result<Step> {
    let number = |text: &str| match text.trim() {
        "" => Ok(None),
        number => number.parse::<i64>().map(Some).map_err(|_| format!("'{number}' is not an index")),
    };
    let parts: Vec<&str> = text.split(':').collect();
    match parts.as_slice() {
        [index] => {
            let start = number(index)?;
            Ok(Step::Slice { start, end: None, step: 1, single: true })
        }
        [start, end] => Ok(Step::Slice { start: number(start)?, end: number(end)?, step: 1, single: false }),
        [start, end, step] => {
            let step = number(step)?.unwrap_or(1);
            let step = usize::try_from(step).ok().filter(|step| *step > 0);
            let step = step.ok_or("step must be greater than 0")?;
            Ok(Step::Slice { start: number(start)?, end: number(end)?, step, single: false })
        }
        _ => Err(format!("'{text}' is not an index")),
    }
}
