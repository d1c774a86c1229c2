//! What reaches the terminal: stdout that may close early, colours, progress bars.
//!
//! Invariants: writing to a pipe that its reader closed ends the command quietly; colours and progress bars appear only on a
//! terminal, and never with `NO_COLOR` set (colours) or `TERM=dumb`.

use std::{
    fmt,
    io::{self, IsTerminal, Write},
};

#[cfg(feature = "llvm")]
use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Writes to stdout.
pub fn print(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    out.write_fmt(text)
        .and_then(|()| out.flush())
        .map_err(Failure::output)
}

/// Writes to stderr. What cannot be written there has nobody to be told.
pub fn warn(text: fmt::Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Writes a line to stdout and returns from the function if that fails.
macro_rules! say {
    ($($arg:tt)*) => {
        $crate::terminal::print(format_args!("{}\n", format_args!($($arg)*)))?
    };
}
pub(crate) use say;

/// Prints `value` as indented JSON.
pub fn json(value: &serde_json::Value) -> Result<(), Failure> {
    print(format_args!("{value:#}\n"))
}

/// Whether errors are printed in colour.
pub fn colour() -> bool {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    io::stderr().is_terminal()
        && set("NO_COLOR").is_none()
        && set("TERM").is_none_or(|t| t != "dumb")
}

#[cfg(feature = "llvm")]
/// A progress bar over `length` steps; hidden where stderr is no terminal.
pub fn progress(length: u64) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(length);
    let template = if colour() {
        "{bar:30.cyan} {pos}/{len} {msg}"
    } else {
        "{bar:30} {pos}/{len} {msg}"
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Lines up rows of cells; columns named in `right` are flushed right.
pub fn table(header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::new();
        for (column, cell) in cells.enumerate() {
            let pad = widths[column].saturating_sub(cell.chars().count());
            if column > 0 {
                line.push_str("  ");
            }
            if right.contains(&column) {
                line.extend(std::iter::repeat_n(' ', pad));
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', pad));
            }
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    };
    let mut text = line(&mut header.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::table;

    #[test]
    fn tables_line_up() {
        let rows = [
            vec!["rmsnorm<bf16>".to_owned(), "8".to_owned()],
            vec!["axpy".to_owned(), "1024".to_owned()],
        ];
        assert_eq!(
            table(&["kernel", "ms"], &rows, &[1]),
            "kernel           ms\nrmsnorm<bf16>     8\naxpy           1024\n"
        );
    }
}
