#!/usr/bin/env bash
# bench/fuzz.sh [MODULES]: random modules (10,000) through every phase for four machines, executed after each, and run as machine code of this CPU;
# what fails is kept, reduced, in target/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --package rc-test --bin rc-fuzz --package rc-tools --bin rc-run
exec target/release/rc-fuzz --run target/release/rc-run --cases "${1:-10000}" --keep target/fuzz
