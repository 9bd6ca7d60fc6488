//! The command line of `nowait image`.

use clap::{Args, Subcommand};
use nowait_image_store::transfer::Transfer;
use nowait_image_store::{StoreOptions, StoreUrl, read_key};
use nowait_server::bytes;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const IMAGE_SHORT: &str = "\
URL: s3://BUCKET/IMAGE, gs://BUCKET/IMAGE, az://CONTAINER/IMAGE, file:///FOLDER/IMAGE

Examples:
  nowait image create s3://disks/vm --size 20G
  nowait serve vm=s3://disks/vm --nbd unix:/run/nbd.sock
  nowait image snapshot s3://disks/vm@monday
More of each, and where credentials come from: nowait image --help";

pub(crate) const IMAGE_EXAMPLES: &str = "\
URL: s3://BUCKET/IMAGE, gs://BUCKET/IMAGE, az://CONTAINER/IMAGE, file:///FOLDER/IMAGE. Credentials
come from the environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL,
GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, …
Exit code 0; 1: failed, or a check that has found something; 2: wrong usage.

Examples:
  nowait image create s3://disks/vm --size 20G
  nowait serve vm=s3://disks/vm --nbd unix:/run/nbd.sock
  nowait image import s3://disks/vm disk.raw
  (umask 077; head -c 32 /dev/urandom > vm.key)
  nowait image create s3://disks/secret --size 20G --key-file vm.key
  nowait image export s3://disks/vm copy.raw
  nowait image snapshot s3://disks/vm@monday
  nowait serve monday=s3://disks/vm@monday --read-only --nbd unix:/run/monday.sock
  nowait image export s3://disks/vm@monday backup.raw
  nowait image clone s3://disks/vm@monday s3://disks/vm2
  nowait image resize s3://disks/vm --size 40G
  nowait image resize s3://disks/vm --size 10G --shrink
  nowait image ls s3://disks
  nowait image info s3://disks/vm --endpoint http://127.0.0.1:9000
  nowait image check s3://disks/vm --json | jq .findings
  nowait image repair s3://disks/vm --cut
  nowait image rm s3://disks/vm@monday --yes
  nowait image rm s3://disks/vm --yes";

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Make an image of zeroes, where none is.
    Create {
        /// Where.
        url: StoreUrl,
        /// Its size, with K, M, G or T: whole blocks.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        size: u64,
        /// Bytes of a block, a power of two from 512 to 64K: what is smaller is read and written
        /// as one.
        #[arg(long, value_name = "BYTES", value_parser = block_bytes, default_value = "4K")]
        block_size: u32,
        #[command(flatten)]
        key: KeyFile,
        #[command(flatten)]
        store: Store,
    },
    /// Show what an image is and which server has it; that one goes on.
    Info(ImageArgs),
    /// Keep an image as it is now under a name; its server goes on.
    ///
    /// The snapshot has all that was flushed before.
    Snapshot {
        /// The image, and the name behind @.
        #[arg(value_name = "URL@NAME")]
        url: StoreUrl,
        #[command(flatten)]
        store: Store,
    },
    /// Make an image of a snapshot, at once and without a copy.
    ///
    /// In the same bucket, at any size; it goes its own way from there.
    Clone {
        /// The snapshot.
        #[arg(value_name = "URL@NAME")]
        url: StoreUrl,
        /// The new image.
        #[arg(value_name = "NEW")]
        to: StoreUrl,
        #[command(flatten)]
        store: Store,
    },
    /// Make an image larger, or with --shrink smaller.
    ///
    /// Larger: its server goes on, and has the new size when it is started again. Smaller: when
    /// its server has ended.
    Resize {
        /// Which.
        url: StoreUrl,
        /// Its new size, with K, M, G or T: whole blocks.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        size: u64,
        /// Make it smaller: what is behind its new end is gone for good, but for what snapshots
        /// have of it. The image is taken over, so a server that has it fails: stop it first. Of
        /// an encrypted image, this needs --key-file.
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        key: KeyFile,
        #[command(flatten)]
        store: Store,
    },
    /// Read all of an image and its snapshots, and find damage.
    ///
    /// Its server goes on. An encrypted one is read without its key, too, and then only its
    /// checksums are compared.
    Check {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        key: KeyFile,
    },
    /// List the images of a bucket or of a folder in it.
    Ls {
        /// s3://BUCKET or s3://BUCKET/FOLDER, say.
        #[arg(value_name = "URL", value_parser = beside)]
        folder: StoreUrl,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Make an image of the content of a file, a device or an NBD export.
    ///
    /// The source must not change meanwhile.
    Import {
        /// Bytes of a block, a power of two from 512 to 64K; the end of the file is filled with
        /// zeroes to a whole one.
        #[arg(long, value_name = "BYTES", value_parser = block_bytes, default_value = "4K",
              conflicts_with = "resume")]
        block_size: u32,
        #[command(flatten)]
        transfer: TransferArgs,
    },
    /// Copy an image or a snapshot to a file, a device or an NBD export.
    ///
    /// Its server may go on, but must not write to the image meanwhile; a snapshot does not change.
    Export(TransferArgs),
    /// Show what an image has lost of its log, and let it go on without.
    ///
    /// For an image that is not opened any more because of that; --cut or --skip says how it goes
    /// on. Its server is replaced; if it has not closed the image, the command waits for a minute
    /// until it must have noticed.
    Repair {
        /// Which.
        url: StoreUrl,
        /// Go on with the image as it was before what is lost.
        #[arg(long, conflicts_with = "skip")]
        cut: bool,
        /// Go on with all that is there: what was lost is as it was before.
        #[arg(long)]
        skip: bool,
        /// Do not wait: the server that has not closed it is surely dead.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Remove an image with its snapshots, or with @NAME a snapshot.
    ///
    /// An image when its server has ended, a snapshot while its server goes on. If its server has
    /// not closed it, it is replaced, and the command waits for a minute until it must have
    /// noticed.
    Rm {
        /// Which.
        url: StoreUrl,
        /// Do it: without this it is only said what would go.
        #[arg(long)]
        yes: bool,
        /// Do not wait: the server that has not closed it is surely dead.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        store: Store,
    },
}

/// Which image is looked at, and how that is told.
#[derive(Args, Debug)]
pub(crate) struct ImageArgs {
    /// Which.
    pub(crate) url: StoreUrl,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

/// What is copied.
#[derive(Args, Debug)]
pub(crate) struct TransferArgs {
    /// The image, for an export perhaps with @SNAPSHOT.
    pub(crate) url: StoreUrl,
    /// The other end: PATH, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH.
    #[arg(value_name = "OTHER", value_hint = clap::ValueHint::FilePath)]
    other: PathBuf,
    /// Go on with what was interrupted: an import with the blocks that the image has not, an export
    /// with the file that it has left.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    key: KeyFile,
    #[command(flatten)]
    store: Store,
}

impl TransferArgs {
    /// Returns the same for those that copy.
    ///
    /// # Errors
    /// The key cannot be read.
    pub(crate) fn wanted(&self) -> io::Result<Transfer> {
        Ok(Transfer {
            url: self.url.clone(),
            store: self.key.with(self.store.options())?,
            other: self.other.clone(),
            resume: self.resume,
        })
    }
}

/// Where the key of an encrypted image is.
#[derive(Args, Debug)]
pub(crate) struct KeyFile {
    /// The key of an encrypted image; a new one is encrypted by it. A file with 32 bytes, or 64
    /// hexadecimal digits, that other users may not read: head -c 32 /dev/urandom > FILE, after
    /// umask 077.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
}

impl KeyFile {
    /// Adds the key to how a store is used.
    ///
    /// # Errors
    /// It cannot be read, or other users may read it, too.
    pub(crate) fn with(&self, store: StoreOptions) -> io::Result<StoreOptions> {
        let key = self.key_file.as_deref().map(read_key).transpose()?;
        Ok(StoreOptions { key, ..store })
    }
}

/// How a store is reached.
#[derive(Args, Debug)]
pub(crate) struct Store {
    /// Where the store is, if not where its kind usually is: http://HOST:PORT, for Azure with the
    /// account behind it, http://HOST:PORT/ACCOUNT.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// How long the store may take for one request.
    #[arg(long, value_name = "SECONDS", default_value = "30",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl Store {
    /// Returns the same for the store.
    pub(crate) fn options(&self) -> StoreOptions {
        StoreOptions {
            endpoint: self.endpoint.clone(),
            request_timeout: Duration::from_secs(self.timeout),
            ..StoreOptions::default()
        }
    }
}

fn block_bytes(text: &str) -> Result<u32, String> {
    let bytes = bytes(text)?;
    let fits = bytes.is_power_of_two() && (512..=64 << 10).contains(&bytes);
    let wrong = || "a power of two from 512 to 64K".to_owned();
    u32::try_from(bytes).ok().filter(|_| fits).ok_or_else(wrong)
}

/// Returns the place of an image in a folder.
fn beside(text: &str) -> Result<StoreUrl, String> {
    let url: Result<StoreUrl, String> = format!("{}/image", text.trim_end_matches('/')).parse();
    url.map_err(|_| format!("{text}: expected s3://BUCKET or s3://BUCKET/FOLDER, say"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_where_an_image_would_lie() {
        for (text, image) in [
            ("s3://b", "s3://b/image"),
            ("s3://b/", "s3://b/image"),
            ("s3://b/c/d", "s3://b/c/d/image"),
            ("file:///srv", "file:///srv/image"),
        ] {
            assert_eq!(beside(text).unwrap().to_string(), image);
        }
        for wrong in ["", "b", "s3://", "ftp://b"] {
            assert!(beside(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn blocks_have_a_size_that_is_possible() {
        assert_eq!((block_bytes("4K"), block_bytes("65536")), (Ok(4096), Ok(65_536)));
        for wrong in ["0", "256", "3K", "128K", "x"] {
            assert!(block_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
