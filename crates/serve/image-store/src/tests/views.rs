//! Views: images as readers see them at one moment.

use super::checks::{BLOCK, change, image};
use crate::image::StoredImage;
use crate::place::StoreOptions;
use crate::url::StoreUrl;
use crate::view::{RUN_BYTES_MAX, View};
use nowait_image_format::Key;
use std::io;

fn viewed(url: &StoreUrl) -> View {
    View::open(url, &StoreOptions::default()).unwrap()
}

/// Returns the offset, the length and the first byte of each piece.
fn runs(view: &View, start: u64) -> Vec<(u64, usize, u8)> {
    let mut runs = Vec::new();
    let read = view.read_from(start, |at, data| {
        assert!(data.iter().all(|byte| *byte == data[0]));
        runs.push((at, data.len(), data[0]));
        Ok(())
    });
    read.unwrap();
    runs
}

#[test]
fn stored_data_is_read_in_order_and_the_writer_continues() {
    let url = image("viewed");
    let serving = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    let view = viewed(&url);
    let block = BLOCK as usize;
    assert_eq!(runs(&view, 0), [(BLOCK, 2 * block, 1), (3 * BLOCK, 3 * block, 2)]);
    assert_eq!(runs(&view, 4 * BLOCK), [(4 * BLOCK, 2 * block, 2)]);
    assert_eq!((view.stored_bytes_from(0), view.stored_bytes_from(2 * BLOCK)), (20480, 16384));
    assert_eq!((view.has(0), view.has(1), view.has(6)), (false, true, false));
    assert!(view.is_current().unwrap());
    // Another writer opens the image and writes nothing: the image does not change.
    drop(serving);
    let serving = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    assert!(view.is_current().unwrap());
    assert_eq!(viewed(&url).state(), view.state());
    serving.write_at(0, vec![9; block]).unwrap();
    serving.flush().unwrap();
    assert!(!view.is_current().unwrap());
    assert_ne!(viewed(&url).state(), view.state());
    assert_eq!(runs(&view, 0).len(), 2, "it stays as it was");
    let written = viewed(&url).state();
    serving.discard(0, BLOCK).unwrap();
    serving.flush().unwrap();
    assert_ne!(viewed(&url).state(), written);
}

#[test]
fn long_runs_are_read_in_parts() {
    let url: StoreUrl = "memory://long/vm".parse().unwrap();
    let size = 4 * RUN_BYTES_MAX;
    let image = StoredImage::create(&url, &StoreOptions::default(), size, 4096).unwrap();
    image.write_at(BLOCK, vec![5; RUN_BYTES_MAX as usize + BLOCK as usize]).unwrap();
    image.flush().unwrap();
    let view = viewed(&url);
    let parts = [(BLOCK, RUN_BYTES_MAX as usize, 5), (BLOCK + RUN_BYTES_MAX, BLOCK as usize, 5)];
    assert_eq!(runs(&view, 0), parts);
}

#[test]
fn damage_and_errors_of_the_caller_are_errors() {
    let url = image("hit");
    let view = viewed(&url);
    let mut seen = 0;
    let refused = view.read_from(0, |_, _| {
        seen += 1;
        Err(io::Error::from(io::ErrorKind::StorageFull))
    });
    assert_eq!((refused.unwrap_err().kind(), seen), (io::ErrorKind::StorageFull, 1));
    change(&url, Key::Segment(2), |mut bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        Some(bytes)
    });
    let error = view.read_from(0, |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("log/") && error.contains("damaged"), "{error}");
    change(&url, Key::Segment(1), |_| None);
    let error = view.read_from(0, |_, _| Ok(())).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    let none = View::open(&"memory://hit/none".parse().unwrap(), &StoreOptions::default());
    assert!(none.unwrap_err().to_string().contains("no such image"));
}

#[test]
fn many_readers_see_one_moment_while_the_writer_continues() {
    let url = image("readers");
    let options = StoreOptions::default();
    let serving = StoredImage::open(&url, &options).unwrap();
    let open = || StoredImage::open_read_only(&url, &options).unwrap();
    let readers = [open(), open()];
    serving.write_at(BLOCK, vec![9; BLOCK as usize]).unwrap();
    serving.flush().unwrap();
    for reader in &readers {
        let read = reader.read_at(0, 8 * BLOCK).unwrap();
        let blocks: Vec<u8> = read.chunks(BLOCK as usize).map(|block| block[7]).collect();
        assert_eq!(blocks, [0, 1, 1, 2, 2, 2, 0, 0]);
        reader.flush().unwrap();
        assert!(reader.write_at(0, vec![1; BLOCK as usize]).is_err());
        assert!(reader.discard(0, BLOCK).is_err());
        let outside = [(0, 100), (100, BLOCK), (4 << 20, BLOCK), (u64::MAX - 4095, 2 * BLOCK)];
        for (offset, len) in outside {
            let error = reader.read_at(offset, len).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{offset} {len}");
        }
        let figures = reader.figures();
        assert!(figures.costs.gets > 3 && figures.costs.puts == 0, "{figures:?}");
        assert_eq!(reader.status().to_string(), "read only, as of epoch 2");
    }
    change(&url, Key::Segment(1), |_| None);
    let error = readers[0].read_at(BLOCK, BLOCK).unwrap_err().to_string();
    assert!(error.contains("the server moved its data"), "{error}");
    assert_eq!(readers[0].read_at(4 * BLOCK, BLOCK).unwrap()[0], 2);
    let none = StoredImage::open_read_only(&"memory://readers/none".parse().unwrap(), &options);
    assert!(none.unwrap_err().to_string().contains("no such image"));
}
