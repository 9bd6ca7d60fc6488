#!/usr/bin/env bash
# Builds the documentation as a book, with rustdoc beside it.
#
#   docs/, ARCHITECTURE.md, CONTRIBUTING.md -> target/book/src - mdbook -> dist/docs
#   the crates ------------------------------------ cargo doc -----------> dist/docs/docs/api
#
# The documents outside docs/ are pages of the book, too. All keep their relative places, so their
# links work; only the list of pages is rewritten for the folder above.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mdbook=0.5.4 # the version that the book was tried with
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
book=$target/book built=$PWD/dist/docs
PATH=$PATH:$target/tools/bin
if [ "$(mdbook --version 2>/dev/null)" != "mdbook v$mdbook" ]; then
    echo "installing mdbook $mdbook in $target/tools (some minutes, once)"
    cargo install --locked mdbook --version "$mdbook" --no-default-features --features search \
        --root "$target/tools"
    hash -r
fi
rm -rf "$book" "$built"
mkdir -p "$book/src"
cp -r docs ARCHITECTURE.md CONTRIBUTING.md "$book/src"
cp book.toml "$book"
rm "$book/src/docs/SUMMARY.md"
sed -e 's|](|](docs/|' -e 's|](docs/\.\./|](|' docs/SUMMARY.md >"$book/src/SUMMARY.md"
mdbook build "$book" -d "$built"
echo '<meta http-equiv="refresh" content="0; url=docs/README.html">' >"$built/index.html"
cargo doc --workspace --no-deps --lib --features "$(cargo x features)"
cp -r "$target/doc" "$built/docs/api"
# No other check finds broken links from the page docs/api.md to rustdoc.
for page in $(grep -o '](api/[^)]*' docs/api.md | cut -c3-); do
    [ -e "$built/docs/$page" ] || { echo "docs/api.md: there is no $page" >&2 && exit 1; }
done
echo "docs: $built/index.html"
