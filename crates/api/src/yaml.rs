//! JSON values as YAML text, byte for byte as Calico's tools print them.
//!
//! Those use Go's YAML library: keys in its natural order (digits count as numbers), lists not indented below their
//! key, text in the first style that can represent it (plain, single quotes, double quotes; a literal block if there
//! are line breaks), lines folded at the first space after column 80.
//!
//! Only writes; [`crate::document`] reads users' files.

mod order;
mod style;

#[cfg(test)]
mod tests;

use serde_json::{Map, Number, Value};
use style::{Style, is_escaped};

/// Lines are folded at the first space after this column.
const WIDTH: usize = 80;

/// Longest name, in bytes, that is written as `name:`; longer ones need the `?` form.
const LONGEST_NAME: usize = 128;

/// The value as one YAML document, ending with a line break.
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut writer = Writer { out: String::new(), column: 0 };
    match value {
        Value::Object(fields) if !fields.is_empty() => writer.map(fields, 0),
        Value::Array(items) if !items.is_empty() => writer.list(items, 0),
        scalar => writer.scalar(scalar, 0, Place::Value),
    }
    writer.end_line();
    writer.out
}

/// A float as Go's `%v` prints it: `1e+06`, `0.5`, `100`.
#[must_use]
pub fn go_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let Some((digits, power)) = scientific.split_once('e') else { return scientific };
    let Ok(power) = power.parse::<i32>() else { return scientific };
    if value == 0.0 || (-4..6).contains(&power) {
        return value.to_string();
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.abs())
}

/// The position of a scalar: names may not be folded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Name,
    Value,
}

struct Writer {
    out: String,
    /// Characters on the current line.
    column: usize,
}

impl Writer {
    /// Writes the entries of a map; the first one continues the current line if that holds only indentation and dashes.
    fn map(&mut self, fields: &Map<String, Value>, indent: usize) {
        for (name, value) in order::sorted(fields) {
            self.start_line(indent);
            if name.len() > LONGEST_NAME || name.contains('\n') {
                self.put("? ");
                self.text(name, indent, Place::Value);
                self.start_line(indent);
            } else {
                self.text(name, indent, Place::Name);
            }
            self.put(":");
            match value {
                Value::Object(fields) if !fields.is_empty() => {
                    self.end_line();
                    self.map(fields, indent + 2);
                }
                // The dash itself counts as indentation, so the list is as far left as its name.
                Value::Array(items) if !items.is_empty() => {
                    self.end_line();
                    self.list(items, indent);
                }
                scalar => {
                    self.put(" ");
                    self.scalar(scalar, indent, Place::Value);
                }
            }
        }
    }

    fn list(&mut self, items: &[Value], indent: usize) {
        for item in items {
            self.start_line(indent);
            self.put("- ");
            match item {
                Value::Object(fields) if !fields.is_empty() => self.map(fields, indent + 2),
                Value::Array(items) if !items.is_empty() => self.list(items, indent + 2),
                scalar => self.scalar(scalar, indent, Place::Value),
            }
        }
    }

    /// Writes a value that needs no lines of its own. `indent` is that of the enclosing collection.
    fn scalar(&mut self, value: &Value, indent: usize, place: Place) {
        match value {
            Value::Null => self.put("null"),
            Value::Bool(truth) => self.put(if *truth { "true" } else { "false" }),
            Value::Number(number) => self.put(&number_text(number)),
            Value::String(text) => self.text(text, indent, place),
            Value::Array(_) => self.put("[]"),
            Value::Object(_) => self.put("{}"),
        }
    }

    fn text(&mut self, text: &str, indent: usize, place: Place) {
        let folded = (place == Place::Value).then_some(indent + 2);
        match Style::of(text, place == Place::Name) {
            Style::Plain => self.folding(text, folded, Self::push),
            Style::Single => {
                self.put("'");
                self.folding(text, folded, |writer, character| {
                    if character == '\'' {
                        writer.push('\'');
                    }
                    writer.push(character);
                });
                self.put("'");
            }
            Style::Double => self.double_quoted(text, folded),
            Style::Literal => self.literal(text, indent + 2),
        }
    }

    /// Writes text that may be folded at single spaces once a line is full.
    fn folding(&mut self, text: &str, folded: Option<usize>, mut write: impl FnMut(&mut Self, char)) {
        let mut after_space = false;
        let mut characters = text.chars().enumerate().peekable();
        while let Some((index, character)) = characters.next() {
            let next = characters.peek().map(|(_, next)| *next);
            let single =
                character == ' ' && !after_space && index > 0 && next.is_some_and(|next| next != ' ');
            after_space = character == ' ';
            match folded {
                Some(indent) if single && self.column > WIDTH => self.break_line(indent),
                _ => write(self, character),
            }
        }
    }

    fn double_quoted(&mut self, text: &str, folded: Option<usize>) {
        self.put("\"");
        let mut after_space = false;
        let mut characters = text.chars().enumerate().peekable();
        while let Some((index, character)) = characters.next() {
            let next = characters.peek().map(|(_, next)| *next);
            if is_escaped(character) {
                self.escape(character);
                after_space = false;
                continue;
            }
            let is_space = character == ' ';
            match folded {
                Some(indent)
                    if is_space && !after_space && index > 0 && next.is_some() && self.column > WIDTH =>
                {
                    self.break_line(indent);
                    // A space at the beginning of a line would be lost without this.
                    if next == Some(' ') {
                        self.put("\\");
                    }
                }
                _ => self.push(character),
            }
            after_space = is_space;
        }
        self.put("\"");
    }

    fn escape(&mut self, character: char) {
        let letter = match character {
            '\0' => '0',
            '\u{07}' => 'a',
            '\u{08}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{0b}' => 'v',
            '\u{0c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => character,
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ => {
                let code = u32::from(character);
                let text = match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                self.put(&text);
                return;
            }
        };
        self.push('\\');
        self.push(letter);
    }

    /// Writes a literal block: the header, then the lines unchanged.
    fn literal(&mut self, text: &str, indent: usize) {
        let hint = if text.starts_with([' ', '\n']) { "2" } else { "" };
        let chomp = match text.strip_suffix('\n') {
            None => "-",
            Some(rest) if rest.is_empty() || rest.ends_with('\n') => "+",
            Some(_) => "",
        };
        self.put(&format!("|{hint}{chomp}"));
        let lines = text.strip_suffix('\n').unwrap_or(text);
        for line in lines.split('\n') {
            self.end_line();
            if line.is_empty() {
                // An empty line has no indentation, but must still be written.
                self.out.push('\n');
            } else {
                self.start_line(indent);
                self.put(line);
            }
        }
    }

    /// Ensures that the current line ends with `indent` columns of indentation, unless it contains only that (and
    /// dashes) already.
    fn start_line(&mut self, indent: usize) {
        if self.column == indent && self.current_line_is_indentation() {
            return;
        }
        self.end_line();
        for _ in 0..indent {
            self.push(' ');
        }
    }

    fn current_line_is_indentation(&self) -> bool {
        let line = self.out.rsplit('\n').next().unwrap_or_default();
        line.is_empty() || line.ends_with(' ') && line.bytes().all(|byte| matches!(byte, b' ' | b'-' | b'?'))
    }

    fn break_line(&mut self, indent: usize) {
        self.end_line();
        for _ in 0..indent {
            self.push(' ');
        }
    }

    fn end_line(&mut self) {
        if self.column > 0 {
            self.out.push('\n');
            self.column = 0;
        }
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn push(&mut self, character: char) {
        self.out.push(character);
        self.column += 1;
    }
}

fn number_text(number: &Number) -> String {
    match number.as_f64() {
        Some(value) if number.is_f64() => go_float(value),
        _ => number.to_string(),
    }
}
