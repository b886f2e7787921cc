#!/usr/bin/env bash
# What it costs to ship a model: the size of librc_runtime.so, loading GPT-2, a call from C, the check of 150 arguments. PROFILE=dev builds faster.
# The smallest kernel there is takes about a tenth of a microsecond, so a call's time is what the call itself costs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

profile=${PROFILE:-release}
target=${CARGO_TARGET_DIR:-target}
bin=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
cargo build --quiet --profile "$profile" --locked --package rc-tools --package rc-examples --package rc-c
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

strip -o "$work/librc_runtime.so" "$bin/librc_runtime.so"
printf 'librc_runtime.so: %.1f MB\n' "$(stat -c %s "$work/librc_runtime.so" | awk '{print $1 / 1e6}')"
cc -std=c11 -O2 -Wall -I embed/c/include -o "$work/calls" bench/embedding/calls.c -L "$bin" -lrc_runtime -Wl,-rpath,"$(realpath "$bin")"

# A function of so many arguments that adds the first two.
adds() {
  local args
  args=$(for ((i = 0; i < $1; i++)); do printf '%%x%d: tensor<2x4xf32>, ' "$i"; done)
  printf 'func.func @main(%s) -> tensor<2x4xf32> {\n  %%y = core.add %%x0, %%x1 : tensor<2x4xf32>\n  func.return %%y\n}\n' "${args%, }"
}
for count in 2 150; do
  adds "$count" > "$work/adds.ir"
  "$bin/rc-opt" --emit=package -o "$work/adds.rcp" "$work/adds.ir"
  "$work/calls" "$work/adds.rcp" 100 5000
done

"$bin/gpt2" -o "$work/gpt2.ir"
"$bin/rc-opt" --emit=package -o "$work/gpt2.rcp" "$work/gpt2.ir"
printf 'GPT-2, its weights apart, '
"$work/calls" "$work/gpt2.rcp" 20
cargo bench --quiet --package rc-runtime --bench guard
