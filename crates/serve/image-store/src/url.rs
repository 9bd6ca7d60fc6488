//! The address of an image: a store, a bucket or folder in it, and the name of the image there.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// The kinds of stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// Amazon S3 and compatible stores.
    S3,
    /// Google Cloud Storage.
    Gs,
    /// Azure Blob Storage.
    Az,
    /// A folder of this machine.
    File,
    /// The memory of this process, for tests.
    Memory,
}

impl Scheme {
    const ALL: [(&'static str, Scheme); 5] = [
        ("s3", Scheme::S3),
        ("gs", Scheme::Gs),
        ("az", Scheme::Az),
        ("file", Scheme::File),
        ("memory", Scheme::Memory),
    ];

    fn name(self) -> &'static str {
        Scheme::ALL.iter().find(|it| it.1 == self).map_or("", |it| it.0)
    }
}

/// The address of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreUrl {
    /// The kind of the store.
    pub scheme: Scheme,
    /// The bucket or the container; for a folder, its path.
    pub bucket: String,
    /// The name of the image, below which its objects lie. The name may have several parts,
    /// separated by `/`.
    pub image: String,
    /// The name of a snapshot; `None`: the address means the image itself.
    pub snapshot: Option<String>,
}

impl StoreUrl {
    /// Returns `true` if a text begins with the name of a scheme and `://`.
    pub fn is_meant_by(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// Parses the name of an image; returns `None` if the name is not an address on a store.
    ///
    /// # Errors
    /// One line that says why the address is not valid.
    pub fn of_path(path: &Path) -> Result<Option<StoreUrl>, String> {
        let text = path.to_str().filter(|text| StoreUrl::is_meant_by(text));
        text.map(str::parse).transpose()
    }

    /// Returns the last part of the image's name.
    pub fn last_name(&self) -> &str {
        self.image.rsplit('/').next().unwrap_or(&self.image)
    }
}

fn scheme(text: &str) -> Option<(Scheme, &str)> {
    let (name, rest) = text.split_once("://")?;
    Scheme::ALL.iter().find(|it| it.0 == name).map(|it| (it.1, rest))
}

impl FromStr for StoreUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<StoreUrl, String> {
        let expected = || {
            format!("{text}: expected s3://BUCKET/IMAGE, gs://…, az://… or file:///FOLDER/IMAGE")
        };
        let (scheme, rest) = scheme(text).ok_or_else(expected)?;
        let (rest, snapshot) = match rest.rsplit_once('@') {
            Some((_, name)) if name.is_empty() || name.contains('/') => {
                return Err(format!("{text}: expected the name of a snapshot after @"));
            }
            Some((rest, name)) => (rest, Some(name.to_owned())),
            None => (rest, None),
        };
        let (bucket, image) = match scheme {
            // The last part is the image, and all before it the folder.
            Scheme::File => rest.rsplit_once('/').map(|(folder, image)| match folder {
                "" => ("/", image),
                _ => (folder, image),
            }),
            _ => rest.split_once('/'),
        }
        .ok_or_else(expected)?;
        if scheme == Scheme::File && !bucket.starts_with('/') {
            return Err(format!("{text}: expected file:///FOLDER/IMAGE"));
        }
        if bucket.is_empty() {
            return Err(expected());
        }
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let is_name = image.split('/').all(plain) && !image.contains(|c: char| c.is_control());
        if !is_name || image.len() > 512 {
            return Err(format!("{text}: the image's name is empty or not a valid object name"));
        }
        let (bucket, image) = (bucket.to_owned(), image.to_owned());
        Ok(StoreUrl { scheme, bucket, image, snapshot })
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bucket = self.bucket.trim_end_matches('/');
        write!(f, "{}://{bucket}/{}", self.scheme.name(), self.image)?;
        self.snapshot.iter().try_for_each(|name| write!(f, "@{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (Scheme, String, String, Option<String>) {
        let url: StoreUrl = text.parse().unwrap();
        assert_eq!(url.to_string(), text);
        (url.scheme, url.bucket, url.image, url.snapshot)
    }

    #[test]
    fn a_place_is_read_and_shown_as_it_was_written() {
        let name = |it: &str| it.to_owned();
        let it = parts("s3://bucket/vm");
        assert_eq!(it, (Scheme::S3, name("bucket"), name("vm"), None));
        let it = parts("gs://b/a/vm@monday");
        assert_eq!(it, (Scheme::Gs, name("b"), name("a/vm"), Some(name("monday"))));
        let it = parts("file:///srv/images/vm");
        assert_eq!(it, (Scheme::File, name("/srv/images"), name("vm"), None));
        assert_eq!(parts("file:///vm").1, "/");
        assert_eq!("az://c/a/vm".parse::<StoreUrl>().unwrap().last_name(), "vm");
    }

    #[test]
    fn a_wrong_address_is_refused_in_one_line() {
        for wrong in [
            "s3://",
            "s3://b",
            "s3://b/",
            "s3:///vm",
            "s3://b/a//c",
            "s3://b/../c",
            "s3://b/vm@",
            "s3://b@x/vm",
            "ftp://b/vm",
            "vm.img",
            "file://vm",
            "file://host/vm",
            "s3://b/a\nb",
        ] {
            let said = wrong.parse::<StoreUrl>().unwrap_err();
            assert!(said.starts_with(wrong), "{said}");
        }
    }
}
