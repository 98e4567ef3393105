#!/usr/bin/env bash
# Compiles each public header as a translation unit of its own, included twice: no header may need another before it,
# define something twice, or warn.
#   COMPILER=... compile_alone.sh gcc|clang|nvcc INCLUDE_DIR WORK_DIR
# Exit 77: the compiler is not on this machine.
set -euo pipefail
kind=$1 include=$2 work=$3
if [ -z "${COMPILER:-}" ] || ! command -v "$COMPILER" >/dev/null; then
  echo "SKIPPED: no $kind on this machine"
  exit 77
fi

warnings=(-Wall -Wextra -Wshadow -Wnon-virtual-dtor -Wcast-align -Woverloaded-virtual -Werror)
case $kind in
  # Its front end for host code is what differs; the rest is the host compiler again.
  nvcc) flags=(-std=c++20 -x cu -cuda -Xcompiler "$(IFS=,; echo "${warnings[*]}")" --Werror all-warnings -o "$work/out.ii") ;;
  *) flags=(-std=c++20 -pedantic -fsyntax-only "${warnings[@]}") ;;
esac

mkdir -p "$work"
failed=0 count=0
for header in "$include"/terrace/*.hpp "$include"/terrace/*.h; do
  [ -e "$header" ] || continue
  name=terrace/$(basename "$header")
  # cuda.hpp is the one header that includes CUDA, so only nvcc has what it needs.
  [ "$name" = terrace/cuda.hpp ] && [ "$kind" != nvcc ] && continue
  unit=$work/$(basename "$header").cpp
  printf '#include "%s"\n#include "%s"\n' "$name" "$name" >"$unit"
  "$COMPILER" "${flags[@]}" -I"$include" "$unit" || { echo "FAILED: $name does not compile alone"; failed=1; }
  count=$((count + 1))
done
[ $count -gt 0 ] || { echo "FAILED: no headers in $include/terrace"; exit 1; }

[ $failed -ne 0 ] || echo "$count headers compile alone with $kind"
exit $failed
