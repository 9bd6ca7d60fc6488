//! The rate at which the store serves ranges of one object to a plain client.

use crate::load::{self, BLOCK, Failure, Load};
use serde_json::{Value, json};
use slatedb::object_store::{ObjectStore, ObjectStoreExt, path::Path};
use std::sync::Arc;

const RANGE: u64 = 256 << 10;

fn path(image: &str) -> Path {
    Path::from(format!("plain/{image}"))
}

pub(crate) async fn fill(
    store: Arc<dyn ObjectStore>,
    image: &str,
    size: u64,
) -> Result<Value, Failure> {
    let bytes: Vec<u8> = (0..size / BLOCK).flat_map(|block| load::data(block, 0)).collect();
    store.put(&path(image), bytes.into()).await?;
    Ok(json!({}))
}

pub(crate) async fn read(
    store: Arc<dyn ObjectStore>,
    image: &str,
    size: u64,
    load: &Load,
) -> Result<Value, Failure> {
    let path = path(image);
    let one = async |nth: u64| {
        let at = nth % (size / RANGE) * RANGE;
        let data = store.get_range(&path, at..at + RANGE).await?;
        load::check(at / BLOCK, &data)
    };
    load.run(RANGE, u64::MAX, one).await
}
