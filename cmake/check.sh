#!/usr/bin/env bash
# Configures, builds and tests one preset; `make test` runs it once a preset, a person can run each alone.
#   cmake/check.sh PRESET         exits non-zero where anything fails
#   cmake/check.sh total          what the runs since `cmake/check.sh start` add up to
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:?usage: cmake/check.sh PRESET (cmake --list-presets shows them)}
totals=build/checks.txt # preset, passed, failed, skipped
mkdir -p build
# One compilation serves every preset in which a source comes out the same, whatever the folder.
export CCACHE_NOHASHDIR=1 CCACHE_BASEDIR="$PWD"

record() {
  echo "$preset $1 $2 $3" >>"$totals"
  printf '== %s: %s passed, %s failed, %s skipped (%d s)\n' "$preset" "$1" "$2" "$3" "$SECONDS"
}

# A test binary of which only some tests were skipped has passed for ctest: those are listed.
count() {
  local results=build/$preset/results.xml
  attribute() { sed -nE "s/^[[:space:]]*$1=\"([0-9]+)\".*/\1/p" "$results" | head -1; }
  local tests failures skipped
  tests=$(attribute tests) failures=$(attribute failures) skipped=$(attribute skipped)
  grep -hE '^\[  SKIPPED \] .* \([0-9]+ ms\)$' "build/$preset/Testing/Temporary/LastTest.log" || true
  record $((tests - failures - skipped)) "$failures" "$skipped"
}

check() {
  if [ "$preset" = cuda ] && ! PATH="$PATH:/usr/local/cuda/bin" command -v nvcc >/dev/null; then
    echo "== cuda: SKIPPED: no nvcc on this machine"
    record 0 0 1
    return
  fi
  echo "== $preset: configure and build"
  local configured status=0
  configured=$(cmake --preset "$preset" 2>&1) || { printf '%s\n' "$configured"; exit 1; }
  cmake --build --preset "$preset" -- -k 0
  echo "== $preset: test (built after $SECONDS s)"
  ctest --preset "$preset" --output-junit "$PWD/build/$preset/results.xml" || status=$?
  count
  return $status
}

case $preset in
  start) rm -f "$totals" ;;
  total) awk '{ p += $2; f += $3; s += $4 } END { printf "%d passed, %d failed, %d skipped\n", p, f, s }' "$totals" ;;
  *) check ;;
esac
