//! Snapshots live in `tests/`.
