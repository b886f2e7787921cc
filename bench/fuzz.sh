#!/usr/bin/env bash
# bench/fuzz.sh [MODULES]: random modules (10,000) through every phase for four machines, executed after each; what fails is kept, reduced,
# in target/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --package rc-test --bin rc-fuzz
exec target/release/rc-fuzz --cases "${1:-10000}" --keep target/fuzz
