//! Opens images for serving. The name of an image tells whether the image is on a store, in a file,
//! or on an NBD server.

use crate::{
    ImageKey, StoreOptions, StoreUrl, StoredImage, read_key,
    source::{Object, ObjectOptions},
};
use nowait::Nowait;
use nowait_device::{
    AnySource, Cache, Image, ImageOptions,
    image::{ImageError, open_source},
};
use std::sync::Arc;

/// Opens the images that `all` describe. Takes over images on a store, unless they are opened
/// read-only. `objects` holds the store options of each image, in the same order. Blocks.
///
/// # Errors
/// One line: an image on a store is named twice, or cannot be used; also the errors of
/// [`Image::open_all`].
pub fn open_all(
    nowait: &Nowait,
    all: &[ImageOptions],
    objects: &[ObjectOptions],
) -> Result<Vec<Image>, ImageError> {
    let urls = urls(all)?;
    let images = || all.iter().zip(objects).zip(&urls);
    // Read and compare all keys first, so that a wrong key fails before this process takes over
    // another image.
    let keys = images().map(|((options, object), url)| key_of(options, object, url.as_ref()));
    let keys = keys.collect::<Result<Vec<_>, _>>()?;
    if all.len() > 1 {
        for ((object, url), key) in objects.iter().zip(&urls).zip(&keys) {
            let Some(url) = url else { continue };
            let store = StoreOptions { key: key.clone(), ..object.store.clone() };
            StoredImage::compare_key(url, &store)?;
        }
    }
    let sources = images().zip(keys).map(|(((options, object), url), key)| match url {
        Some(url) => open_object(nowait, options, (object, key), url),
        None => open_source(nowait, options),
    });
    Image::of_sources(all, sources)
}

/// An image on a store has one writer, and a second writer would take the image from the first. So
/// no address may occur twice.
fn urls(all: &[ImageOptions]) -> Result<Vec<Option<StoreUrl>>, ImageError> {
    let mut urls = Vec::new();
    for options in all {
        let url = StoreUrl::of_path(&options.path).map_err(ImageError::new)?;
        if let Some(url) = url.as_ref().filter(|_| urls.contains(&url)) {
            return Err(ImageError::new(format!("{url}: named twice: name each image once")));
        }
        urls.push(url);
    }
    Ok(urls)
}

fn key_of(
    options: &ImageOptions,
    object: &ObjectOptions,
    url: Option<&StoreUrl>,
) -> Result<Option<ImageKey>, ImageError> {
    let Some(path) = &object.key_file else { return Ok(object.store.key.clone()) };
    if url.is_none() {
        let shown = options.path.display();
        let reason = "--key-file works with object stores only: encrypt files with LUKS";
        return Err(ImageError::new(format!("{shown}: {reason}")));
    }
    Ok(Some(read_key(path)?))
}

fn open_object(
    nowait: &Nowait,
    options: &ImageOptions,
    (object, key): (&ObjectOptions, Option<ImageKey>),
    url: &StoreUrl,
) -> Result<AnySource, ImageError> {
    if options.cache == Cache::Host && object.store.cache.is_none() {
        let reason = "--cache host works with files only: use --cache user or --cache-dir";
        return Err(ImageError::new(format!("{url}: {reason}")));
    }
    let later = (options.patience.say, object.store.open_timeout);
    let object = Object::open(nowait, url, object, key, options.read_only, later);
    Ok(Arc::new(object?))
}
