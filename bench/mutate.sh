#!/usr/bin/env bash
# bench/mutate.sh [SECONDS]: broken texts, pipelines, rewrite rules and messages to the language server, each for an hour (3600 s); input that makes
# rc panic, hang or take much memory is kept in target/mutate.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build --release --locked --package rc-test --bin rc-mutate --package rc-kit --bin rc-lsp
status=0
for what in text pipelines rules messages; do
  target/release/rc-mutate "$what" --seconds "${1:-3600}" || status=1
done
exit $status
