//! Tests of the command.
