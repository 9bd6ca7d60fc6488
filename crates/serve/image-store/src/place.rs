//! Access to a store, and the place of an image in the store, from a URL and the environment.

use crate::cache::Cache;
use crate::folder::Folder;
use crate::url::{Scheme, StoreUrl};
use nowait_image_format::{ImageId, ImageKey, Key};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey, S3ConditionalPut};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, RetryConfig};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The options of a store.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The address of the store, if it is not the usual one of its kind: `http://HOST:PORT`, say.
    pub endpoint: Option<String>,
    /// The time limit for one request to the store.
    pub request_timeout: Duration,
    /// The time limit for opening or editing an image.
    pub open_timeout: Duration,
    /// The cache for data, which several images may share.
    pub cache: Option<Arc<Cache>>,
    /// The key of an encrypted image, existing or new.
    pub key: Option<ImageKey>,
    /// The function that gets a line of text when data of an image is lost, and when the store
    /// begins or ceases to fail. [`crate::Object`] uses the function of the image's `patience`
    /// instead.
    pub say: Option<fn(&str)>,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            endpoint: None,
            request_timeout: Duration::from_secs(30),
            open_timeout: Duration::from_mins(1),
            cache: None,
            key: None,
            say: None,
        }
    }
}

/// A store, and the place of an image in it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The bucket, container or folder.
    pub store: Arc<dyn ObjectStore>,
    /// The path below which the image's objects lie: the name of the image, with `%` and two digits
    /// for each byte that the crate `object_store` keeps out of paths.
    pub prefix: Path,
    folder: Option<Arc<Folder>>,
}

static MEMORIES: LazyLock<nowait_sys::mutex::Mutex<BTreeMap<String, Arc<InMemory>>>> =
    LazyLock::new(Default::default);

impl Place {
    /// Prepares access to a store; sends no request to it. Credentials come from the environment:
    /// `AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME` and
    /// similar variables.
    ///
    /// # Errors
    /// One line that says which setting is missing or wrong.
    pub fn new(url: &StoreUrl, options: &StoreOptions) -> Result<Place, String> {
        let said = |error: object_store::Error| format!("{url}: {}", one_line(&error));
        let mut folder = None;
        let store: Arc<dyn ObjectStore> = match url.scheme {
            Scheme::S3 => Arc::new(s3(url, options).build().map_err(said)?),
            Scheme::Gs => Arc::new(gs(url, options).build().map_err(said)?),
            Scheme::Az => Arc::new(az(url, options)?.build().map_err(said)?),
            Scheme::File => {
                let opened = Arc::new(Folder::open(&url.bucket).map_err(said)?);
                folder = Some(Arc::clone(&opened));
                opened
            }
            Scheme::Memory => MEMORIES.lock().entry(url.bucket.clone()).or_default().clone(),
        };
        Ok(Place { store, prefix: Path::from(url.image.as_str()), folder })
    }

    #[cfg(test)]
    pub(crate) fn in_store(store: Arc<dyn ObjectStore>, prefix: &str) -> Place {
        Place { store, prefix: prefix.into(), folder: None }
    }

    /// If the store is a folder, runs [`Folder::sweep`] on a thread that may block.
    pub(crate) async fn sweep(&self, older: Duration) {
        let Some(folder) = self.folder.clone() else { return };
        let prefix = self.prefix.clone();
        let swept = tokio::task::spawn_blocking(move || folder.sweep(&prefix, older));
        drop(swept.await);
    }

    /// Returns the path of an object of this image.
    pub fn path(&self, image: ImageId, key: Key) -> Path {
        self.below(&key.name(image))
    }

    pub(crate) fn below(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), Path::join)
    }

    pub(crate) fn beside(&self, image: &str) -> Place {
        self.at(Path::from(image))
    }

    pub(crate) fn at(&self, prefix: Path) -> Place {
        Place { prefix, ..self.clone() }
    }
}

/// Returns an error as one line for users, of at most 400 characters.
pub(crate) fn one_line(error: &object_store::Error) -> String {
    /// The address at which a cloud's machine requests the credentials of its role.
    const ROLE: &str = "://169.254.169.254/";
    let text = error.to_string();
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let hint = if line.contains(ROLE) {
        "no credentials in the environment, and this machine has no role: "
    } else {
        ""
    };
    format!("{hint}{line}").chars().take(400).collect()
}

/// Turns off the retries of the crate `object_store`. The state machine repeats operations itself,
/// because only the state machine knows the meaning of a repeated PUT.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Longer than `request_timeout`, so that `request_timeout` applies first.
fn timeout(options: &StoreOptions) -> String {
    format!("{} seconds", options.request_timeout.as_secs() + 2)
}

fn choose_ciphers() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn is_plain(endpoint: Option<&String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Returns `true` if the text of a variable means "on" to the crate `object_store`.
fn is_yes(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "on" | "yes" | "y")
}

fn s3(url: &StoreUrl, options: &StoreOptions) -> AmazonS3Builder {
    choose_ciphers();
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(&url.bucket)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retries())
        .with_config(AmazonS3ConfigKey::Client(ClientConfigKey::Timeout), timeout(options));
    if let Some(endpoint) = &options.endpoint {
        // This setting takes precedence over the environment variables that name an endpoint.
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, endpoint);
    }
    let said = |key| builder.get_config_value(&key);
    let endpoint = said(AmazonS3ConfigKey::S3Endpoint).or(said(AmazonS3ConfigKey::Endpoint));
    if is_plain(endpoint.as_ref()) {
        builder = builder.with_allow_http(true);
    }
    builder
}

fn gs(url: &StoreUrl, options: &StoreOptions) -> GoogleCloudStorageBuilder {
    choose_ciphers();
    let client = GoogleConfigKey::Client;
    let mut builder = GoogleCloudStorageBuilder::from_env()
        .with_bucket_name(&url.bucket)
        .with_retry(retries())
        .with_config(client(ClientConfigKey::Timeout), timeout(options));
    if let Some(endpoint) = &options.endpoint {
        builder = builder.with_base_url(endpoint);
    }
    if let Some(endpoint) = builder.get_config_value(&GoogleConfigKey::BaseUrl) {
        // The crate `object_store` appends a / in any case.
        builder = builder.with_base_url(endpoint.trim_end_matches('/'));
    }
    if is_plain(options.endpoint.as_ref()) {
        builder = builder.with_config(client(ClientConfigKey::AllowHttp), "true");
    }
    builder
}

fn az(url: &StoreUrl, options: &StoreOptions) -> Result<MicrosoftAzureBuilder, String> {
    choose_ciphers();
    let mut builder = MicrosoftAzureBuilder::from_env()
        .with_container_name(&url.bucket)
        .with_retry(retries())
        .with_config(AzureConfigKey::Client(ClientConfigKey::Timeout), timeout(options));
    let said = |builder: &MicrosoftAzureBuilder, key| builder.get_config_value(&key);
    let is_emulator = said(&builder, AzureConfigKey::UseEmulator).is_some_and(|it| is_yes(&it));
    if said(&builder, AzureConfigKey::AccountName).is_none() && !is_emulator {
        return Err(format!("{url}: no account: set AZURE_STORAGE_ACCOUNT_NAME"));
    }
    if options.endpoint.is_some() && is_emulator {
        // The crate `object_store` would ignore the endpoint, and use the emulator's usual address.
        let advice = "set AZURITE_BLOB_STORAGE_URL";
        return Err(format!("{url}: --endpoint excludes AZURE_STORAGE_USE_EMULATOR: {advice}"));
    }
    if let Some(endpoint) = options.endpoint.clone().or(said(&builder, AzureConfigKey::Endpoint)) {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if is_plain(said(&builder, AzureConfigKey::Endpoint).as_ref()) {
        builder = builder.with_allow_http(true);
    }
    Ok(builder)
}
