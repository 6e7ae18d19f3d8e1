//! Output: data on stdout, messages on stderr.
//!
//! Nothing here panics. If the reader of stdout goes away (`firesteel … | head`), the program exits silently with success. If
//! stderr is closed, only messages are lost.

use std::fmt::Display;
use std::io::{self, ErrorKind, Write};

/// Writes data and messages.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer;

/// The reader of stdout is gone. Not an error, but there is nothing left to do.
#[derive(Debug, thiserror::Error)]
#[error("the reader of the output is gone")]
pub(crate) struct ReaderGone;

impl Printer {
    /// Writes data to stdout, and a newline if it has none.
    pub(crate) fn data(self, text: impl Display) -> anyhow::Result<()> {
        let mut text = text.to_string();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let mut out = io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
            Err(error) => Err(anyhow::Error::from(error).context("cannot write the output")),
            Ok(()) => Ok(()),
        }
    }

    /// Writes a message line to stderr.
    pub(crate) fn talk(self, line: impl Display) {
        // In one write, so that lines from several processes do not interleave.
        let _ = io::stderr().lock().write_all(format!("{line}\n").as_bytes());
    }

    /// Writes a warning to stderr.
    pub(crate) fn warn(self, line: impl Display) {
        self.talk(format_args!("Warning: {line}"));
    }
}

/// Output format of verbs that show objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Json,
    Yaml,
}

impl Format {
    /// Renders a value in this format.
    pub(crate) fn render(self, value: &serde_json::Value) -> anyhow::Result<String> {
        Ok(match self {
            Format::Json => serde_json::to_string_pretty(value)?,
            Format::Yaml => serde_saphyr::to_string(value)?,
        })
    }
}

/// Rows as columns, each as wide as its widest cell, two spaces apart.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let mut widths = Vec::new();
    for row in rows {
        for (at, cell) in row.iter().enumerate() {
            let width = cell.chars().count();
            match widths.get_mut(at) {
                Some(known) => *known = width.max(*known),
                None => widths.push(width),
            }
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(cell);
            line.extend(std::iter::repeat_n(' ', width + 2 - cell.chars().count()));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::columns;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [vec!["KEY".to_owned(), "VALUE".to_owned()], vec!["a.longer.key".to_owned(), "1".to_owned()]];
        assert_eq!(columns(&rows), "KEY           VALUE\na.longer.key  1\n");
    }
}
