//! Support for the whole-stack tests.
