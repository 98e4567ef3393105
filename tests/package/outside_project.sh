#!/usr/bin/env bash
# Installs the library into a prefix of its own and moves that, then builds and runs a program against it: with
# find_package and with pkg-config. For the shared library, looks at what it exports.
#   outside_project.sh static|shared SOURCE_DIR WORK_DIR
set -euo pipefail
kind=$1 source=$2 work=$3
here=$(dirname "$(readlink -f "$0")")
program=$source/examples/quickstart.cpp

step() { printf -- '-- %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*"; exit 1; }

install_package() {
  step "build and install, $kind"
  read -ra options <<<"${TERRACE_OPTIONS:-}"
  cmake -S "$source" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" \
    -DTERRACE_BUILD_ENGINE=OFF -DTERRACE_BUILD_TESTS=OFF -DTERRACE_BUILD_EXAMPLES=OFF -DTERRACE_BUILD_BENCHMARKS=OFF \
    -DBUILD_SHARED_LIBS="$([ "$kind" = shared ] && echo ON || echo OFF)" >/dev/null
  cmake --build "$work/build"
  rm -rf "$work/first" "$work/prefix"
  cmake --install "$work/build" --prefix "$work/first" >/dev/null
  mv "$work/first" "$work/prefix"  # a package must not remember where it was installed
  libdir=$(dirname "$(find "$work/prefix" -name 'libterrace.*' | head -1)")
}

with_find_package() {
  step "an outside project with find_package"
  rm -rf "$work/outside"
  cmake -S "$here/outside" -B "$work/outside" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" -DPROGRAM="$program" >/dev/null
  cmake --build "$work/outside"
  "$work/outside/outside"
}

with_pkg_config() {
  step "the same with pkg-config"
  local static=() flags
  [ "$kind" = static ] && static=(--static)
  read -ra flags < <(PKG_CONFIG_PATH=$libdir/pkgconfig pkg-config "${static[@]}" --cflags --libs terrace)
  "$CXX" -std=c++20 "$program" -o "$work/by-pkg-config" "${flags[@]}"
  LD_LIBRARY_PATH=$libdir "$work/by-pkg-config"
}

# Only what a public header declares may be visible: each exported name is a word of some header.
check_exports() {
  step "exported symbols"
  local symbols name words
  symbols=$(nm -DC --defined-only "$libdir/libterrace.so" | sed -E 's/^[0-9a-f]+ . //; s/^(typeinfo|typeinfo name|vtable) for //' | sort -u)
  grep -q '^terrace::Cache::open(' <<<"$symbols" || fail "terrace::Cache::open is not exported"
  words=$(cat "$work"/prefix/include/terrace/*.hpp | grep -oE '[A-Za-z_][A-Za-z_0-9]*' | sort -u)
  while IFS= read -r symbol; do
    [[ $symbol =~ ^terrace::([A-Za-z_0-9]+) ]] || fail "exported, but not ours: $symbol"
    name=${BASH_REMATCH[1]}
    [ "$name" != internal ] || fail "exported, but internal: $symbol"
    grep -qxF "$name" <<<"$words" || fail "exported, but in no public header: $symbol"
  done <<<"$symbols"
  printf '%s symbols, all of public headers\n' "$(wc -l <<<"$symbols")"
}

install_package
with_find_package
with_pkg_config
if [ "$kind" = shared ]; then check_exports; fi
