#!/usr/bin/env bash
# The commands of the jobs that `cargo x ci` runs (xtask/src/ci.rs). Usage: ci.sh JOB QUICK: not
# empty for the short form: fewer interleavings, smaller files. ALL: not empty in a run of all jobs,
# which builds all crates of the tests anyway. X: the program of `cargo x`. FEATURES: what cargo
# builds the workspace with. OWN: a folder for builds with other flags, which would otherwise
# overwrite the usual builds. Exit 77: the job cannot run here, and said why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Runs tests; fails also if no test ran.
tests() {
    "$@" 2>&1 | awk '{ print; fflush() } /test result: .* [1-9][0-9]* passed/ { ran = 1 }
        END { if (!ran) { print "no test ran"; exit 1 } }'
}

# Sets variables, except in the short form.
full() {
    # shellcheck disable=SC2163 # NAME=VALUE
    [ -n "$QUICK" ] || export "$@"
}

# Builds a part of the workspace; in a run of all jobs, all of it, as the tests do. Alone, a part
# has other features, so its dependencies would be built again.
build() {
    if [ -n "$ALL" ]; then set -- --workspace --all-targets; fi
    cargo build --features "$FEATURES" "$@"
}

skip() {
    echo "skipped: $*"
    exit 77
}

needs_nightly() {
    rustup component list --toolchain nightly --installed 2>/dev/null | grep "^$1" >/dev/null ||
        skip "there is no nightly toolchain with the component $1"
}

nightly() { rustup run nightly cargo "$@"; }

# The target that the compiler builds for by default.
host() { rustc -vV | sed -n 's/^host: //p'; }

# A seed from the hash of the commit, for a run of the simulator that is new for each commit and can
# be repeated.
of_commit() {
    local commit
    if commit=$(git rev-parse HEAD 2>/dev/null); then export SIM_COMMIT=$commit; fi
}

# Builds for the simulated machine, with its profile, and with atomic operations that it observes
# (crates/verify/machine/src/cores.rs). Clippy is the compiler, because a separate lint would check
# all crates once more, which takes as long as the build. It compiles only the crates of the
# workspace; the other crates are built as for all tests. CLIPPY_ARGS has the arguments that follow
# `--` in `cargo clippy -- ...`.
on_the_machine() {
    local args=(-Dwarnings --cfg simulated --cfg observed -Cpasses=tsan
        -Cllvm-args=-tsan-instrument-func-entry-exit=0)
    RUSTC_WORKSPACE_WRAPPER=clippy-driver \
        CLIPPY_ARGS=$(printf '%s__CLIPPY_HACKERY__' "${args[@]}") \
        tests cargo test --config crates/verify/machine/profile.toml "$@"
}

job_fmt() { cargo fmt --all --check; }

job_tidy() { "$X" tidy; }

# The rules of .vale.ini for documents and comments of code.
job_prose() {
    local vale=.stamps/vale/vale
    [ -x "$vale" ] || skip "no Vale; \`make setup\` builds it where there is a go command"
    git rev-parse --git-dir >/dev/null || skip "no git repository, which lists the files"
    git ls-files -z --cached --others --exclude-standard '*.md' '*.rs' '*.py' '*.c' '*.h' |
        xargs -0 sh -c 'for file; do [ -f "$file" ] && printf "%s\0" "$file"; done; true' sh |
        xargs -0 "$vale" --output=line
}

job_crates() { bash packaging/crates.sh --no-verify; }

job_dist() { "$X" dist; }

job_clippy() {
    cargo clippy --workspace --all-targets --features "$FEATURES" -- -D warnings
}

# Documents the libraries, not the programs: the tool has the same name as the crate `nowait`, so
# their pages would collide. The examples are included, because then dependencies have the features
# with which clippy has checked them. The API in the pages is compared with its list.
job_doc() {
    RUSTDOCFLAGS="-D warnings" \
        cargo doc --workspace --no-deps --lib --examples --features "$FEATURES"
    "$X" api check
}

job_test() {
    full NOWAIT_FULL=1 SCALE=full
    of_commit
    tests cargo test --workspace --no-fail-fast --features "$FEATURES"
}

# Random operations on real files, which a run of all tests leaves out. `--workspace` gives
# dependencies the features with which the other tests have built them.
job_random() { tests cargo test --workspace --test random --features "$FEATURES"; }

# Fails if the other jobs skipped more tests than are allowed on a machine with all programs.
job_skips() {
    local count allowed
    count=$(cat "${OWN%/*}"/skips-{test,random}.txt 2>/dev/null | tee /dev/stderr | wc -l) || true
    allowed=$(grep -v '^#' tests/skips.allowed)
    echo "$count skipped, $allowed allowed"
    [ "$count" -le "$allowed" ]
}

job_examples() {
    build -p nowait --examples
    local folder
    folder=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$folder'" EXIT
    examples "$folder"
    tutorials
}

# Runs an example, whose output must contain the text. Usage: example TEXT NAME ARGUMENT...
example() {
    echo "$2:"
    "${OWN%/*}/debug/examples/$2" "${@:3}" | tee /dev/stderr | grep -F "$1" >/dev/null ||
        { echo "example $2 did not say \`$1\`" && return 1; }
}

# Runs the examples of the native API on files made for it. Usage: examples FOLDER
examples() {
    local bytes=$(((9 << 20) + 123)) lines name number total # more than a copy has in flight
    seq 1 2000000 >"$1/from"
    truncate -s "$bytes" "$1/from"
    lines=$(wc -l <"$1/from")
    example "$bytes bytes, $lines lines" read_file "$1/from"
    for name in copy tokio_copy; do
        rm -f "$1/to"
        example "$bytes bytes in " "$name" "$1/from" "$1/to"
        cmp "$1/from" "$1/to"
    done
    example "Direct, pool" tokio_random "$1/from" 50
    # The last line of the file has no line end.
    example "$((2 * (lines + 1))) lines" smol_lines "$1/from" "$1/to"
    total=$((2 * bytes))
    for number in {0..99}; do
        head -c "$((number * 100))" "$1/from" >"$1/small-$number"
        total=$((total + number * 100))
    done
    example "102 files, $total bytes" many_files "$1"
}

# Runs the commands of the tutorials, each page in a new folder on a disk: the blocks of a page that
# are marked as `sh` are one script. A page that fails leaves no server behind.
tutorials() {
    local page script folder
    export NOWAIT=$PWD CARGO_NET_OFFLINE=true CARGO_TARGET_DIR=${OWN%/*}/tutorials
    PATH=$PWD/dist/bin:$PWD/.stamps/stores/moto/bin:$PATH
    for page in docs/tutorials/*.md; do
        echo "$page:"
        script=$(sed -n '/^```sh$/,/^```$/{/^```/!p}' "$page")
        [ -n "$script" ] || continue # python.md quotes an example, which python/tests runs
        folder=$(mktemp -d /var/tmp/nowait-tutorial.XXXXXX)
        (cd "$folder" && timeout 5m bash -euo pipefail -c "trap 'jobs -p | xargs -r kill' EXIT
$script") || { echo "$page failed" && rm -rf "$folder" && return 1; }
        rm -rf "$folder"
    done
}

job_python() {
    full NOWAIT_FULL=1
    build -p nowait-python -p nowait-vllm -p nowait-tests --lib --bin seccomp-run
    tests "$X" python
}

# Tests the Python package with each installed interpreter.
job_pythons() {
    full NOWAIT_FULL=1
    build -p nowait-python -p nowait-vllm -p nowait-tests --lib --bin seccomp-run
    tests "$X" python all
}

job_loom() {
    export LOOM_MAX_PREEMPTIONS=2
    full LOOM_MAX_PREEMPTIONS=3
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$OWN tests cargo test --config xtask/loom.toml \
        -p nowait-retry -p nowait-block -p nowait-cache --lib loom_
}

# Tests the whole engine on a simulated machine. `--workspace` gives dependencies the features with
# which the other tests have built them.
job_simulated() {
    of_commit
    on_the_machine --workspace --features "$FEATURES" --test simulation --test machine
}

# Under Miri, files and the time are real, system calls take addresses as numbers, and transfers are
# not shortened at random.
job_miri() {
    needs_nightly miri
    export MIRIFLAGS="-Zmiri-disable-isolation -Zmiri-permissive-provenance \
        -Zmiri-no-short-fd-operations"
    export CARGO_TARGET_DIR=$OWN PROPTEST_CASES=4
    full PROPTEST_CASES=32
    # Leaves out the tests of safe code, which take millions of steps; the quick form runs those in
    # which frames change their owner.
    local cache=(--skip policy --skip readahead)
    # Whole requests of futures on the backend of threads; the quick form runs those whose buffers
    # have two owners for a time.
    local vectors=()
    if [ -n "$QUICK" ]; then
        cache=(buddy frames page_wait lend mapping::tests::trunc threads)
        vectors=(dropped cancelled)
    fi
    tests nightly miri test -p nowait-retry --lib
    tests nightly miri test -p nowait-cache --lib -- "${cache[@]}"
    tests nightly miri test -p nowait --lib -- operation reactor
    tests nightly miri test -p nowait --test stream_vectors -- "${vectors[@]}"
}

job_asan() { sanitize address; }

job_tsan() { sanitize thread; }

# Runs tests under a sanitizer: of all crates that share memory with the kernel or between threads,
# and on the real backends. The preload library is left out, because a sanitizer's runtime replaces
# the same functions.
sanitize() {
    needs_nightly rust-src
    local packages=(retry block cache file engine process posix) tests=(
        conformance threads interrupt system storm cancel engine in_memory streams user async_file
        stream_vectors cursor control event_loop queue vectored file advice random
    )
    # A thread of the engine has its own descriptors, without standard error: a report that it wrote
    # to descriptor 2 would be lost, or go into another file. So reports go to files.
    rm -rf "$OWN/reports"
    mkdir -p "$OWN/reports"
    trap 'tail -v -n +1 "$OWN"/reports/* 2>/dev/null || true' EXIT
    export ASAN_OPTIONS="halt_on_error=1:log_path=$OWN/reports/report"
    export TSAN_OPTIONS="$ASAN_OPTIONS:suppressions=$PWD/xtask/thread.suppressions"
    export NOWAIT_SANITIZER=$1 CARGO_TARGET_DIR=$OWN NOWAIT_SEEDS=${NOWAIT_SEEDS:-4}
    # The standard library is built with the sanitizer, too; otherwise its atomics look like races.
    RUSTFLAGS="-Zsanitizer=$1" tests nightly test -Zbuild-std --target "$(host)" --no-fail-fast \
        --lib --features "$FEATURES" -p nowait "${packages[@]/#/-pnowait-}" "${tests[@]/#/--test=}"
}

# Fuzzes each target for FUZZ_SECONDS from its corpus, to which new inputs are added. The flags are
# those of cargo-fuzz: they count edges, trace compared values, and check memory.
job_fuzz() {
    needs_nightly rust-std
    local target
    export CARGO_TARGET_DIR=$OWN RUSTFLAGS="--cfg fuzzing -Zsanitizer=address \
        -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
        -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
        -Cllvm-args=-sanitizer-coverage-pc-table \
        -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
    for target in nbd_handshake nbd_requests vhost_queue log_object log_store; do
        nightly run --release --manifest-path fuzz/Cargo.toml --target "$(host)" --bin "$target" \
            -- "fuzz/corpus/$target" "-max_total_time=${FUZZ_SECONDS:-60}" -max_len=70000 \
            -rss_limit_mb=2048
    done
}

# Lints and builds a program with crates that no other job builds, and runs it once. Usage: peer
# NAME OPTION WORD...: its folder; the option of `nowait bench` that names it; further words
peer() {
    local manifest=crates/bench/programs/$1/Cargo.toml
    CARGO_TARGET_DIR=$OWN cargo clippy --release --locked --manifest-path "$manifest"
    CARGO_TARGET_DIR=$OWN cargo build --release --locked --manifest-path "$manifest"
    dist/bin/nowait bench "${@:3}" --quick --rounds 1 "$2" "$OWN/release/nowait-bench-$1"
}

# The runtimes of other crates.
job_futures() { peer futures --program futures --size 64M; }

# SlateDB, and a plain client of object stores. `nowait` serves and edits the images on the store.
job_stores() {
    local store=.stamps/stores/versitygw
    [ -x "$store" ] || skip "$store is not there: setup builds it with go"
    peer stores --peers remote --size 16M --delay 1 --store "$store" \
        --case flush,flush-16,flush-64,read,read-16,sequential,killed
}

# Random operations on real files, 10,000 seeds on each backend; then as many seeds of the programs
# on the simulated machine, and all deliberate mistakes that it can find; then many seeds of the
# simulator, optimized, beginning with a seed from the commit's hash.
job_soak() {
    NOWAIT_SEEDS=${NOWAIT_SEEDS:-10000} tests cargo test -p nowait --test random
    SEEDS=10000 MISTAKE_SEEDS=10000 on_the_machine -p nowait-machine
    SEEDS=200000 tests cargo test -p nowait-objects
    local seed=${SIM_SEED:-$(git rev-parse HEAD 2>/dev/null || echo 0)}
    CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS=true \
        CARGO_TARGET_DIR=$OWN env -u SIM_SEED cargo run --release -p nowait-simulator -- \
        --seed "$seed" --seeds "${SOAK_SEEDS:-20000}"
}

"job_$1"
