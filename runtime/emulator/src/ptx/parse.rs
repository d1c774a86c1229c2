//! (being written)
use super::{Module, ParseError};

/// Parses a module.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    let _ = text;
    Ok(Module::default())
}
