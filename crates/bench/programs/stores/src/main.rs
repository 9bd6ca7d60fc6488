//! Reads and writes blocks on an object store by another crate, as `nowait bench remote` asks, and
//! prints what it cost as one line of JSON.
//!
//! ```text
//!  main ─► load    how many clients, until when; what was measured
//!      ├─► slate   SlateDB with a key for each block
//!      └─► plain   object_store by itself: ranges of one object
//! ```

mod load;
mod plain;
mod slate;

use clap::{Parser, Subcommand, ValueEnum};
use load::{Failure, Load};
use slatedb::object_store::{ObjectStore, aws::AmazonS3Builder};
use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

/// Reads and writes blocks on an object store by another crate.
#[derive(Clone, Debug, Parser)]
struct Args {
    /// By what
    #[arg(value_enum)]
    way: Way,

    /// Where the store is; keys and region are in AWS_ACCESS_KEY_ID and its kin
    #[arg(long, value_name = "URL")]
    endpoint: String,

    #[arg(long)]
    bucket: String,

    /// Begin of the names of all objects
    #[arg(long)]
    image: String,

    /// Bytes of the image
    #[arg(long, value_name = "BYTES")]
    size: u64,

    #[command(subcommand)]
    work: Work,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    /// SlateDB 0.18, a key for each block of 4 KiB, a flush by Db::flush
    Slatedb,
    /// Ranges of an object as large as the image, by the crate object_store
    Plain,
}

#[derive(Clone, Debug, Subcommand)]
enum Work {
    /// Writes all blocks once
    Fill,
    /// Writes blocks at random, with a flush after so many by each client
    Write {
        #[arg(long)]
        flush: u64,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Reads blocks at random, none twice
    Read {
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Reads 256 KiB after 256 KiB
    Sequential {
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Writes blocks, each with a flush after it, and then does nothing until it is killed
    WriteFlushed {
        #[command(flatten)]
        blocks: BlocksArgs,
        /// A file that is made when all are flushed
        #[arg(long, value_name = "FILE")]
        written: PathBuf,
    },
    /// Counts the blocks that do not have what was written
    CountLost {
        #[command(flatten)]
        blocks: BlocksArgs,
    },
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct BlocksArgs {
    /// How many
    #[arg(long)]
    blocks: u64,
    /// Makes the content of one round different from that of others
    #[arg(long)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, clap::Args)]
struct LoadArgs {
    /// How many clients at once
    #[arg(long)]
    clients: u64,
    #[arg(long, value_name = "MS")]
    runtime_ms: u64,
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&error),
    };
    match runtime.block_on(run(&args)) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => fail(&error),
    }
}

fn fail(error: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("nowait-bench-stores: {error}");
    ExitCode::FAILURE
}

async fn run(args: &Args) -> Result<serde_json::Value, Failure> {
    let store: Arc<dyn ObjectStore> = Arc::new(
        AmazonS3Builder::from_env()
            .with_endpoint(&args.endpoint)
            .with_allow_http(true)
            .with_bucket_name(&args.bucket)
            .build()?,
    );
    let load = |it: LoadArgs| Load {
        size: args.size,
        clients: it.clients,
        runtime: Duration::from_millis(it.runtime_ms),
        seed: it.seed,
    };
    match (args.way, args.work.clone()) {
        (Way::Slatedb, Work::Fill) => slate::fill(store, &args.image, args.size).await,
        (Way::Slatedb, Work::Write { flush, load: it }) => {
            slate::write(store, &args.image, &load(it), flush).await
        }
        (Way::Slatedb, Work::Read { load: it }) => slate::read(store, &args.image, &load(it)).await,
        (Way::Plain, Work::Fill) => plain::fill(store, &args.image, args.size).await,
        (Way::Plain, Work::Read { load: it }) => {
            plain::read(store, &args.image, &load(it), false).await
        }
        (Way::Plain, Work::Sequential { load: it }) => {
            plain::read(store, &args.image, &load(it), true).await
        }
        (Way::Slatedb, Work::WriteFlushed { blocks, written }) => {
            slate::write_flushed(store, &args.image, (blocks.blocks, blocks.seed), &written).await
        }
        (Way::Slatedb, Work::CountLost { blocks }) => {
            slate::count_lost(store, &args.image, (blocks.blocks, blocks.seed)).await
        }
        (Way::Slatedb, Work::Sequential { .. })
        | (Way::Plain, Work::Write { .. } | Work::WriteFlushed { .. } | Work::CountLost { .. }) => {
            Err("this way does not do that".into())
        }
    }
}
