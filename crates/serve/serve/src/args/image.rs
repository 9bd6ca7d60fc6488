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
    /// Make an image of zeroes, where none exists.
    Create {
        /// The address of the image.
        url: StoreUrl,
        /// The size of the image, with K, M, G or T: a multiple of the block size.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        size: u64,
        /// The size of a block, a power of two from 512 to 64K: a smaller read or write transfers a
        /// whole block.
        #[arg(long, value_name = "BYTES", value_parser = block_bytes, default_value = "4K")]
        block_size: u32,
        #[command(flatten)]
        key: KeyFile,
        #[command(flatten)]
        store: Store,
    },
    /// Show the properties of an image and its server; the server continues.
    Info(ImageArgs),
    /// Keep the present state of an image under a name; its server continues.
    ///
    /// The snapshot contains all data that was flushed before.
    Snapshot {
        /// The address of the image, and the name of the snapshot behind @.
        #[arg(value_name = "URL@NAME")]
        url: StoreUrl,
        #[command(flatten)]
        store: Store,
    },
    /// Make an image from a snapshot, at once and without a copy.
    ///
    /// The new image is in the same bucket. Later changes of one image do not affect the other
    /// image.
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
    /// To make an image larger, its server can continue, and has the new size after a restart. To
    /// make an image smaller, stop its server first.
    Resize {
        /// The address of the image.
        url: StoreUrl,
        /// The new size of the image, with K, M, G or T: a multiple of the block size.
        #[arg(long, value_name = "BYTES", value_parser = bytes)]
        size: u64,
        /// Make the image smaller: data behind the new end is gone for good, except in snapshots.
        /// The command takes the image over, so a running server fails: stop it first. Shrinking an
        /// encrypted image needs --key-file.
        #[arg(long)]
        shrink: bool,
        #[command(flatten)]
        key: KeyFile,
        #[command(flatten)]
        store: Store,
    },
    /// Read all of an image and its snapshots, and report damage.
    ///
    /// The image's server continues. An encrypted image can be checked without its key, but then
    /// only its checksums are verified.
    Check {
        #[command(flatten)]
        image: ImageArgs,
        #[command(flatten)]
        key: KeyFile,
    },
    /// List the images of a bucket or of a folder in it.
    Ls {
        /// The bucket or folder, such as s3://BUCKET or s3://BUCKET/FOLDER.
        #[arg(value_name = "URL", value_parser = beside)]
        folder: StoreUrl,
        /// Print JSON.
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Make an image from the contents of a file, a device or an NBD export.
    ///
    /// The source must not change meanwhile.
    Import {
        /// The size of a block, a power of two from 512 to 64K; zeroes fill the end of the file up
        /// to a whole block.
        #[arg(long, value_name = "BYTES", value_parser = block_bytes, default_value = "4K",
              conflicts_with = "resume")]
        block_size: u32,
        #[command(flatten)]
        transfer: TransferArgs,
    },
    /// Copy an image or a snapshot to a file, a device or an NBD export.
    ///
    /// The image's server may continue, but must not write to the image meanwhile. A snapshot does
    /// not change.
    Export(TransferArgs),
    /// Show what an image has lost of its log; with --cut or --skip, repair the image.
    ///
    /// If the loss keeps the image from opening, --cut or --skip repairs the image. The repair
    /// replaces the image's server. If a server of the image may still run, the command first waits
    /// a minute, until that server must have noticed.
    Repair {
        /// The address of the image.
        url: StoreUrl,
        /// Continue with the image as it was before the lost part.
        #[arg(long, conflicts_with = "skip")]
        cut: bool,
        /// Continue with all that exists: bytes that the lost part changed are as they were before.
        #[arg(long)]
        skip: bool,
        /// Do not wait: the server that has not closed the image is certainly dead.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        store: Store,
    },
    /// Remove an image with its snapshots, or with @NAME a snapshot.
    ///
    /// Stop the server of an image before you remove the image; to remove a snapshot, the server
    /// can continue. The removal of an image replaces its server. If a server of the image may
    /// still run, the command first waits a minute, until that server must have noticed.
    Rm {
        /// The address of the image or snapshot.
        url: StoreUrl,
        /// Remove the image or snapshot. Without this option, the command only says what it would
        /// remove, and fails.
        #[arg(long)]
        yes: bool,
        /// Do not wait: the server that has not closed the image is certainly dead.
        #[arg(long)]
        now: bool,
        #[command(flatten)]
        store: Store,
    },
}

#[derive(Args, Debug)]
pub(crate) struct ImageArgs {
    /// The address of the image.
    pub(crate) url: StoreUrl,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) store: Store,
}

#[derive(Args, Debug)]
pub(crate) struct TransferArgs {
    /// The address of the image; for an export, @NAME behind it selects a snapshot.
    pub(crate) url: StoreUrl,
    /// The other end: PATH, nbd://HOST/EXPORT, nbd+unix:///EXPORT?socket=PATH.
    #[arg(value_name = "OTHER", value_hint = clap::ValueHint::FilePath)]
    other: PathBuf,
    /// Resume an interrupted copy: an import copies the blocks that the image lacks, an export
    /// continues with the file that the interrupted export has left.
    #[arg(long)]
    resume: bool,
    #[command(flatten)]
    key: KeyFile,
    #[command(flatten)]
    store: Store,
}

impl TransferArgs {
    pub(crate) fn wanted(&self) -> io::Result<Transfer> {
        Ok(Transfer {
            url: self.url.clone(),
            store: self.key.with(self.store.options())?,
            other: self.other.clone(),
            resume: self.resume,
        })
    }
}

#[derive(Args, Debug)]
pub(crate) struct KeyFile {
    /// The key of an encrypted image; a new image becomes encrypted. A file with 32 bytes, or 64
    /// hexadecimal digits, that other users may not read: head -c 32 /dev/urandom > FILE, after
    /// umask 077.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) key_file: Option<PathBuf>,
}

impl KeyFile {
    /// Adds the key to the options of a store.
    ///
    /// # Errors
    /// The key cannot be read, or other users may read it, too.
    pub(crate) fn with(&self, store: StoreOptions) -> io::Result<StoreOptions> {
        let key = self.key_file.as_deref().map(read_key).transpose()?;
        Ok(StoreOptions { key, ..store })
    }
}

#[derive(Args, Debug)]
pub(crate) struct Store {
    /// The address of the store, if it is not the usual one: http://HOST:PORT; for Azure with the
    /// account behind it, http://HOST:PORT/ACCOUNT.
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The time limit for one request to the store.
    #[arg(long, value_name = "SECONDS", default_value = "30",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

impl Store {
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

/// Parses the address of a bucket or folder; returns the address of an image in it.
fn beside(text: &str) -> Result<StoreUrl, String> {
    let url: Result<StoreUrl, String> = format!("{}/image", text.trim_end_matches('/')).parse();
    url.map_err(|_| format!("{text}: expected s3://BUCKET or s3://BUCKET/FOLDER"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_the_parent_of_an_image() {
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
    fn impossible_block_sizes_are_refused() {
        assert_eq!((block_bytes("4K"), block_bytes("65536")), (Ok(4096), Ok(65_536)));
        for wrong in ["0", "256", "3K", "128K", "x"] {
            assert!(block_bytes(wrong).is_err(), "{wrong}");
        }
    }
}
