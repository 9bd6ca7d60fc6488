//! SlateDB with a key for each block. No timer of SlateDB flushes: this program calls `flush`.

use crate::load::{self, BLOCK, Failure, Load};
use serde_json::{Value, json};
use slatedb::{Db, Settings, object_store::ObjectStore};
use std::{path::Path, sync::Arc};

/// Number of blocks before each flush while the whole image is written.
const FILL_FLUSH: u64 = 1024;

async fn open(store: Arc<dyn ObjectStore>, image: &str) -> Result<Db, Failure> {
    let settings = Settings { flush_interval: None, ..Settings::default() };
    Ok(Db::builder(format!("slatedb/{image}"), store).with_settings(settings).build().await?)
}

async fn put(db: &Db, block: u64, round: u64) -> Result<(), Failure> {
    db.put(block.to_be_bytes(), load::data(block, round)).await?;
    Ok(())
}

pub(crate) async fn fill(
    store: Arc<dyn ObjectStore>,
    image: &str,
    size: u64,
) -> Result<Value, Failure> {
    let db = open(store, image).await?;
    for block in 0..size / BLOCK {
        put(&db, block, 0).await?;
        if block % FILL_FLUSH == FILL_FLUSH - 1 {
            db.flush().await?;
        }
    }
    db.flush().await?;
    db.close().await?;
    Ok(json!({}))
}

pub(crate) async fn write(
    store: Arc<dyn ObjectStore>,
    image: &str,
    size: u64,
    load: &Load,
    flush: u64,
) -> Result<Value, Failure> {
    let db = open(store, image).await?;
    let order = load.order(size);
    let one = async |nth: u64| {
        put(&db, order.at(nth) / BLOCK, nth).await?;
        if nth % flush == flush - 1 {
            db.flush().await?;
        }
        Ok(())
    };
    let report = load.run(BLOCK, u64::MAX, one).await?;
    db.close().await?;
    Ok(report)
}

pub(crate) async fn read(
    store: Arc<dyn ObjectStore>,
    image: &str,
    size: u64,
    load: &Load,
) -> Result<Value, Failure> {
    let db = open(store, image).await?;
    let order = load.order(size);
    let one = async |nth: u64| {
        let block = order.at(nth) / BLOCK;
        let data = db.get(block.to_be_bytes()).await?.ok_or("a block is missing")?;
        load::check(block, &data)
    };
    // No block is read twice, because the cache of SlateDB has the blocks that were read.
    let report = load.run(BLOCK, size / BLOCK, one).await?;
    db.close().await?;
    Ok(report)
}

pub(crate) async fn write_flushed(
    store: Arc<dyn ObjectStore>,
    image: &str,
    (count, round): (u64, u64),
    written: &Path,
) -> Result<Value, Failure> {
    let db = open(store, image).await?;
    for block in 0..count {
        put(&db, block, round).await?;
        db.flush().await?;
    }
    std::fs::write(written, "")?;
    std::future::pending().await
}

pub(crate) async fn count_lost(
    store: Arc<dyn ObjectStore>,
    image: &str,
    (count, round): (u64, u64),
) -> Result<Value, Failure> {
    let db = open(store, image).await?;
    let mut lost = 0;
    for block in 0..count {
        let found = db.get(block.to_be_bytes()).await?;
        lost += u64::from(found.is_none_or(|found| found != load::data(block, round)));
    }
    db.close().await?;
    Ok(json!({ "lost": lost }))
}
