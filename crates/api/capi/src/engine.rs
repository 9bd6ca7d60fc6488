//! Engines and their options.

use crate::{
    guard::{Failure, c_text, ending, guarded, making},
    text::copy_out,
};
use core::{
    ffi::{c_char, c_int},
    mem::offset_of,
};
use nowait::{BackendChoice, Builder, Errno, Nowait, SubmitMode};
use nowait_engine::Config;
use std::ffi::CString;

/// `NOWAIT_COUNT`.
const COUNT: u32 = 1;
/// `NOWAIT_ENVIRONMENT`.
const ENVIRONMENT: u32 = 2;

/// `nowait_engine`.
pub struct Engine {
    pub(crate) nowait: Nowait,
    reason: CString,
}

/// `nowait_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Size of the caller's structure, in bytes.
    pub size: usize,
    /// `NOWAIT_BACKEND_*`.
    pub backend: u32,
    /// `NOWAIT_SUBMIT_*`.
    pub submit: u32,
    /// Most threads for blocking calls; 0: the default.
    pub workers: u32,
    /// `COUNT`, `ENVIRONMENT`.
    pub flags: u32,
    /// Size of the page cache; 0: the default.
    pub cache_bytes: u64,
    /// Most requests in flight; 0: the default.
    pub max_requests: u64,
    /// Most bytes that the requests in flight use; 0: the default.
    pub max_bytes: u64,
}

/// Starts an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_engine_create(
    options: *const Options,
    engine: *mut *mut Engine,
) -> c_int {
    // SAFETY: the caller's pointers, as the header requires.
    unsafe {
        making(engine, || {
            let options =
                if options.is_null() { Options::default() } else { Options::read(options)? };
            let nowait = options.builder()?.build()?;
            let reason = c_text(nowait.backend_reason().to_owned());
            Ok(Engine { nowait, reason })
        })
    }
}

/// Destroys the handle of an engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_engine_destroy(engine: *mut Engine) {
    // SAFETY: the caller's engine, or null.
    unsafe { ending(engine) }
}

/// Returns the backend in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_engine_backend(engine: *const Engine) -> c_int {
    // SAFETY: the caller's engine.
    match unsafe { &*engine }.nowait.backend() {
        BackendChoice::Auto => 0,
        BackendChoice::Uring => 1,
        BackendChoice::Kaio => 2,
        BackendChoice::Threads => 3,
    }
}

/// Returns the reason for this backend.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_engine_reason(engine: *const Engine) -> *const c_char {
    // SAFETY: the caller's engine.
    unsafe { &*engine }.reason.as_ptr()
}

/// Writes a report of the engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_engine_report(
    engine: *const Engine,
    text: *mut c_char,
    size: usize,
) -> i64 {
    // SAFETY: the caller's engine and memory.
    guarded(|| unsafe {
        let report = (*engine).nowait.report();
        Ok(copy_out(report.trim_end(), text, size))
    })
}

impl Options {
    /// The caller's structure may be of an older or newer version, and so of another size: missing
    /// fields are 0, and additional fields must be 0.
    ///
    /// # Safety
    /// `from` points to as many bytes as its `size` says.
    unsafe fn read(from: *const Options) -> Result<Options, Failure> {
        // SAFETY: the size is the first field of every version.
        let size = unsafe { from.cast::<usize>().read() };
        if !(offset_of!(Options, backend)..=SIZE_MAX).contains(&size) {
            return Err(refused(&format!("size is {size}: begin with NOWAIT_OPTIONS_INIT")));
        }
        let mut options = Options::default();
        let known = size.min(size_of::<Options>());
        // SAFETY: both sides have `known` bytes, and any bytes are valid options.
        unsafe {
            let to = core::ptr::from_mut(&mut options).cast::<u8>();
            to.copy_from_nonoverlapping(from.cast::<u8>(), known);
        }
        // SAFETY: the caller has `size` bytes.
        let more =
            unsafe { core::slice::from_raw_parts(from.cast::<u8>().add(known), size - known) };
        if more.iter().any(|byte| *byte != 0) {
            return Err(refused("an option that this version of the library does not know"));
        }
        Ok(options)
    }

    fn builder(&self) -> Result<Builder, Failure> {
        if self.flags & !(COUNT | ENVIRONMENT) != 0 {
            return Err(refused("unknown flags"));
        }
        let mut config = match self.flags & ENVIRONMENT {
            0 => Config::default(),
            _ => nowait_engine::Options::from_env().config,
        };
        config.stats = self.flags & COUNT != 0;
        match self.backend {
            0 => {}
            1 => config.backend = BackendChoice::Uring,
            2 => config.backend = BackendChoice::Kaio,
            3 => config.backend = BackendChoice::Threads,
            _ => return Err(refused("backend is none of NOWAIT_BACKEND_*")),
        }
        match self.submit {
            0 => {}
            1 => return Err(refused(INLINE_WAS_REMOVED)),
            2 => config.submit = SubmitMode::Offload,
            _ => return Err(refused("submit is none of NOWAIT_SUBMIT_*")),
        }
        if self.workers != 0 {
            config.workers_max = self.workers as usize;
        }
        if self.cache_bytes != 0 {
            config.cache_bytes = self.cache_bytes;
        }
        if self.max_requests != 0 {
            config.limits.requests = usize::try_from(self.max_requests).unwrap_or(usize::MAX);
        }
        if self.max_bytes != 0 {
            config.limits.bytes = self.max_bytes;
        }
        Ok(Builder::from_config(config))
    }
}

const INLINE_WAS_REMOVED: &str =
    "submit is 1 (inline), a mode that was removed: use NOWAIT_SUBMIT_AUTO";

/// No version of the options will be larger.
const SIZE_MAX: usize = 4096;

fn refused(because: &str) -> Failure {
    Failure::new(Errno::INVAL, "start of the engine", because)
}
