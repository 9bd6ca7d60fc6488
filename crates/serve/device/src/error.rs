//! The reasons why an image cannot be served.

use core::fmt;
use nowait::Error;

/// The reason why an image cannot be served, in one line.
#[derive(Debug)]
pub struct ImageError(String);

impl ImageError {
    /// Makes an error of the line that describes it.
    pub fn new(text: String) -> ImageError {
        ImageError(text)
    }
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ImageError {}

impl From<std::io::Error> for ImageError {
    fn from(error: std::io::Error) -> ImageError {
        ImageError(error.to_string())
    }
}

impl From<Error> for ImageError {
    fn from(error: Error) -> ImageError {
        ImageError(error.to_string())
    }
}
