#!/usr/bin/env bash
# One full call on a machine with a GPU where nothing is but this folder: installs the wheel, then measures, the most telling first.
#
#   bench/gpu_call.sh [PART…]      parts: check sweep models train decode scripts (all of them where none is named)
#
# It takes from carry/ (ignored by git): the wheel that `maturin build` made; sweep.py with the peers' rows, gpu_baseline.py, rc_gpu.py,
# rc_prof.py and rc_decode.py; scripts/*.py, which run last. SEEDS="1 2" names the sweep's seeds, OUT the folder that gets a log of each
# part. Every part has its own time limit, so that one that hangs costs only itself.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
OUT=${OUT:-carry/out}
mkdir -p "$OUT"
export PYTHONUNBUFFERED=1
PARTS=${*:-check sweep models train decode scripts}

# limited SECONDS NAME COMMAND…: runs it with a limit, its output in a log and the log's end here.
limited() {
  local seconds=$1 name=$2 start=$SECONDS status
  shift 2
  timeout -k 5 "$seconds" "$@" >"$OUT/$name.log" 2>&1
  status=$?
  printf '== %s: exit %s, %s s\n' "$name" "$status" $((SECONDS - start))
  grep -v Warning "$OUT/$name.log" | cut -c1-400 | tail -n "${LINES_SHOWN:-12}"
}

python3 -m pip install -q --no-deps --force-reinstall carry/*.whl || exit 1
for part in $PARTS; do
  case $part in
    check) limited 90 check python3 -m pytest -q -x test/torch/test_devices.py test/torch/test_modes.py ;;
    sweep)
      for seed in ${SEEDS:-1 2}; do
        limited 170 "sweep$seed" python3 carry/sweep.py "$seed" --backends "${BACKENDS:-rc}" --peers carry/sweep_h200.jsonl --json "$OUT/sweep.jsonl"
      done
      ;;
    models) MODES=${MODES:-eager,rc} limited 120 models python3 carry/rc_gpu.py infer ${MODELS:-} ;;
    train) MODES=${MODES:-rc} limited 150 train python3 carry/rc_gpu.py train resnet50 bert gpt2 llama8 vitl ;;
    decode) limited 90 decode python3 carry/rc_decode.py ;;
    profile) LINES_SHOWN=80 limited 90 profile python3 carry/rc_prof.py ${PROFILE:-infer resnet50 bert gpt2 llama8 vitl} ;;
    scripts)
      for script in carry/scripts/*.py; do
        [ -e "$script" ] && LINES_SHOWN=40 limited 60 "$(basename "$script" .py)" python3 "$script"
      done
      ;;
    *) printf 'gpu_call: there is no part %s\n' "$part" >&2 ;;
  esac
done
# One file comes back more surely than many.
tar -C "$OUT" -czf "$OUT/logs.tgz" $(cd "$OUT" && ls | grep -E '\.(log|jsonl)$')
