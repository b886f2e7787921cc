#!/usr/bin/env bash
# Builds librc_runtime.so and puts it, its header and its pkg-config file under DESTDIR/PREFIX: `scripts/install-c.sh "" /usr/local`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

prefix=$2
to=$1$2
cargo build --release --locked --package rc-c
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
install -D -m 755 "${CARGO_TARGET_DIR:-target}/release/librc_runtime.so" "$to/lib/librc_runtime.so"
install -D -m 644 embed/c/include/rc.h "$to/include/rc.h"
mkdir -p "$to/lib/pkgconfig"
sed -e "s|@PREFIX@|$prefix|" -e "s|@VERSION@|$version|" embed/c/rc_runtime.pc.in > "$to/lib/pkgconfig/rc_runtime.pc"
