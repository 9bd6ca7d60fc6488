//! The blocks to read or write, the number of clients and the time limit; and the measured figures.

use futures_util::future::try_join_all;
use hdrhistogram::Histogram;
use nowait_harness::order::{Access, Order};
use nowait_harness::usage::Used;
use serde::Deserialize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

pub(crate) const BLOCK: u64 = 4096;

#[derive(Debug, Deserialize)]
pub(crate) struct Load {
    clients: u64,
    runtime_ms: u64,
    seed: u64,
}

impl Load {
    /// Returns the order of the blocks of an image, in which each comes once.
    pub(crate) fn order(&self, size: u64) -> Order {
        Order::new(Access::Random, size, BLOCK, self.seed)
    }

    /// Clients call `one`, with the number of the call, until the time is over or after `most`
    /// calls.
    pub(crate) async fn run<F>(
        &self,
        bytes: u64,
        most: u64,
        one: impl Fn(u64) -> F,
    ) -> Result<serde_json::Value, Failure>
    where
        F: Future<Output = Result<(), Failure>>,
    {
        let runtime = Duration::from_millis(self.runtime_ms);
        let (begun, done) = (AtomicU64::new(0), AtomicU64::new(0));
        let taken_ns = Mutex::new(Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?);
        let (before, start) = (Used::now()?, Instant::now());
        let client = async || -> Result<(), Failure> {
            while start.elapsed() < runtime {
                let nth = begun.fetch_add(1, Relaxed);
                if nth >= most {
                    break;
                }
                let at = Instant::now();
                one(nth).await?;
                let ns = at.elapsed().as_nanos() as u64;
                taken_ns.lock().expect("no client panics").saturating_record(ns);
                done.fetch_add(1, Relaxed);
            }
            Ok(())
        };
        try_join_all((0..self.clients).map(|_| client())).await?;
        let (seconds, used) = (start.elapsed().as_secs_f64(), Used::now()?.less(before));
        let taken_ns = taken_ns.into_inner().expect("no client panics");
        let us = |quantile| taken_ns.value_at_quantile(quantile) as f64 / 1e3;
        let ios = done.into_inner();
        if ios == 0 {
            return Err("no request has ended".into());
        }
        Ok(serde_json::json!({
            "ios": ios,
            "bytes": ios * bytes,
            "iops": ios as f64 / seconds,
            "bytes_per_s": (ios * bytes) as f64 / seconds,
            "cpu_us_per_io": used.cpu_us / ios as f64,
            "latency_us_p50": us(0.5),
            "latency_us_p99": us(0.99),
        }))
    }
}

/// The data cannot be compressed, and begin with the block's number.
pub(crate) fn data(block: u64, round: u64) -> Vec<u8> {
    let mut state = (block + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ round;
    let word = || {
        // xorshift*: a state that is not zero never becomes zero.
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes()
    };
    let mut bytes: Vec<u8> =
        std::iter::repeat_with(word).take(BLOCK as usize / 8).flatten().collect();
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes
}

pub(crate) fn check(block: u64, bytes: &[u8]) -> Result<(), Failure> {
    match bytes.len() >= 8 && bytes[..8] == block.to_le_bytes() {
        true => Ok(()),
        false => Err(format!("block {block} has other data").into()),
    }
}
