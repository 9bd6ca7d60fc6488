//! Reads and writes blocks on an object store by another crate, for `nowait bench remote`, and
//! prints the cost as one line of JSON.
//!
//! ```text
//!  main ─► load    the number of clients, the time of the end; the figures
//!      ├─► slate   SlateDB with a key for each block
//!      └─► plain   object_store by itself: ranges of one object
//! ```

mod load;
mod plain;
mod slate;

use load::{Failure, Load};
use serde::Deserialize;
use serde_json::Value;
use slatedb::object_store::{ObjectStore, aws::AmazonS3Builder};
use std::{path::PathBuf, process::ExitCode, sync::Arc};

/// The environment has the keys and the region of the store: AWS_ACCESS_KEY_ID and others.
#[derive(Debug, Deserialize)]
struct Job {
    way: Way,
    endpoint: String,
    bucket: String,
    /// The name of the image, which is in the names of all its objects.
    image: String,
    size: u64,
    work: Work,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// SlateDB, a key for each block of 4 KiB, a flush by `Db::flush`.
    Slatedb,
    /// Ranges of an object as large as the image, by the crate object_store.
    Plain,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    /// Writes all blocks once.
    Fill,
    /// Writes random blocks, and flushes once for each `flush` writes of all clients together.
    Write { flush: u64, load: Load },
    /// Reads random blocks, each at most once.
    Read(Load),
    /// Reads the image in order, 256 KiB at a time.
    Sequential(Load),
    /// Writes `blocks` blocks, each with a flush after it, makes the file `written`, and waits
    /// until the process is killed. The seed gives each round its own content.
    WriteFlushed { blocks: u64, seed: u64, written: PathBuf },
    CountLost { blocks: u64, seed: u64 },
}

fn main() -> ExitCode {
    let printed = run().map(|report| println!("{report}"));
    let explain = |why: Failure| nowait_harness::error::Failure::new(why.to_string()).report();
    printed.map_or_else(explain, |()| ExitCode::SUCCESS)
}

#[tokio::main]
async fn run() -> Result<Value, Failure> {
    let job =
        std::env::args().nth(1).ok_or("the job is missing: `nowait bench remote` makes it")?;
    let Job { way, endpoint, bucket, image, size, work } = serde_json::from_str(&job)?;
    let store: Arc<dyn ObjectStore> = Arc::new(
        AmazonS3Builder::from_env()
            .with_endpoint(endpoint)
            .with_allow_http(true)
            .with_bucket_name(bucket)
            .build()?,
    );
    match (way, work) {
        (Way::Slatedb, Work::Fill) => slate::fill(store, &image, size).await,
        (Way::Slatedb, Work::Write { flush, load }) => {
            slate::write(store, &image, size, &load, flush).await
        }
        (Way::Slatedb, Work::Read(load)) => slate::read(store, &image, size, &load).await,
        (Way::Slatedb, Work::WriteFlushed { blocks, seed, written }) => {
            slate::write_flushed(store, &image, (blocks, seed), &written).await
        }
        (Way::Slatedb, Work::CountLost { blocks, seed }) => {
            slate::count_lost(store, &image, (blocks, seed)).await
        }
        (Way::Plain, Work::Fill) => plain::fill(store, &image, size).await,
        (Way::Plain, Work::Sequential(load)) => plain::read(store, &image, size, &load).await,
        (way, work) => Err(format!("{way:?} does not do {work:?}").into()),
    }
}
