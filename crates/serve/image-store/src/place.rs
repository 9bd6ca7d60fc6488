//! A store and where an image is in it, as a URL and the environment say.

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

/// How a store is used.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Where the store is, if not where its kind usually is: `http://HOST:PORT`, say.
    pub endpoint: Option<String>,
    /// How long one request may take.
    pub request_timeout: Duration,
    /// How long it may take until an image is open.
    pub open_timeout: Duration,
    /// Has data that need not be asked for again, of all images that have it.
    pub cache: Option<Arc<Cache>>,
    /// The key of the image, if it is encrypted, or is to be. What needs no data needs no key.
    pub key: Option<ImageKey>,
    /// Is told, in one line, what is lost, and when the store takes nothing, or does again.
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

/// A store, and where an image is in it.
#[derive(Clone, Debug)]
pub struct Place {
    /// The bucket, container or folder.
    pub store: Arc<dyn ObjectStore>,
    /// Below which the objects of the image are.
    pub prefix: Path,
    /// The store, if it is a folder.
    folder: Option<Arc<Folder>>,
}

/// The stores of `memory://NAME/…`, by their names.
static MEMORIES: LazyLock<nowait_sys::mutex::Mutex<BTreeMap<String, Arc<InMemory>>>> =
    LazyLock::new(Default::default);

impl Place {
    /// Makes what is needed to reach a store; asks it for nothing. Credentials come from the
    /// environment: `AWS_ACCESS_KEY_ID`, `GOOGLE_APPLICATION_CREDENTIALS`,
    /// `AZURE_STORAGE_ACCOUNT_NAME` and their like.
    ///
    /// # Errors
    /// What is missing or wrong, in one line.
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
        let prefix = Path::parse(&url.image).map_err(|error| format!("{url}: {error}"))?;
        Ok(Place { store, prefix, folder })
    }

    /// Returns where an image is in a store that is there.
    #[cfg(test)]
    pub(crate) fn in_store(store: Arc<dyn ObjectStore>, prefix: &str) -> Place {
        Place { store, prefix: prefix.into(), folder: None }
    }

    /// Removes what killed PUTs have left for so long.
    pub(crate) async fn sweep(&self, older: Duration) {
        let Some(folder) = self.folder.clone() else { return };
        let prefix = self.prefix.clone();
        let swept = tokio::task::spawn_blocking(move || folder.sweep(&prefix, older));
        drop(swept.await);
    }

    /// Returns where an object of an image is whose path this is.
    pub fn path(&self, image: ImageId, key: Key) -> Path {
        Path::from(format!("{}/{}", self.prefix, key.name(image)))
    }

    /// Returns where another image of the store is.
    ///
    /// # Errors
    /// The path is none.
    pub(crate) fn beside(&self, path: &str) -> Result<Place, String> {
        let prefix = Path::parse(path).map_err(|error| error.to_string())?;
        Ok(self.at(prefix))
    }

    /// Returns where the image at a path of the store is.
    pub(crate) fn at(&self, prefix: Path) -> Place {
        Place { prefix, ..self.clone() }
    }
}

/// Returns an error as it can be shown.
pub(crate) fn one_line(error: &object_store::Error) -> String {
    /// Where a machine of each of the clouds asks for the credentials of its role.
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

/// The machine tries again, and knows what that means: the store's client does not.
fn retries() -> RetryConfig {
    RetryConfig { max_retries: 0, ..RetryConfig::default() }
}

/// Returns the time-out as the clients read it: later than that of our own.
fn timeout(options: &StoreOptions) -> String {
    format!("{} seconds", options.request_timeout.as_secs() + 2)
}

/// Chooses what TLS takes its ciphers from, unless the program has.
fn choose_ciphers() {
    let _ = rustls::crypto::ring::default_provider().install_default();
}

fn is_plain(endpoint: Option<&String>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// Tells whether a variable is on, as the clients read it.
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
        // What is said here goes before both variables for it.
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
        // Its client appends a / in any case.
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
        // Its client would ask the emulator's usual address.
        let why = "with AZURE_STORAGE_USE_EMULATOR, AZURITE_BLOB_STORAGE_URL says where";
        return Err(format!("{url}: {why} it is, not --endpoint"));
    }
    if let Some(endpoint) = options.endpoint.clone().or(said(&builder, AzureConfigKey::Endpoint)) {
        builder = builder.with_endpoint(endpoint.trim_end_matches('/').to_owned());
    }
    if is_plain(said(&builder, AzureConfigKey::Endpoint).as_ref()) {
        builder = builder.with_allow_http(true);
    }
    Ok(builder)
}
