#!/usr/bin/env bash
# Installs the Debian packages that are missing; does nothing, quickly, where all are there; never asks a question.
#   cmake/install-deps.sh build    what the library, the server and their tests are built from
#   cmake/install-deps.sh test     also the tools of `make test` (default)
set -euo pipefail

build_packages=(
  g++ cmake ninja-build ccache pkg-config python3
  libxxhash-dev libfmt-dev libssl-dev liburing-dev librocksdb-dev             # core
  libdnnl-dev ocl-icd-opencl-dev libpcre2-dev libutf8proc-dev nlohmann-json3-dev # engine; oneDNN's CMake file asks for OpenCL
  libcpp-httplib-dev libcli11-dev prometheus-cpp-dev zlib1g-dev               # server
  libgtest-dev libgmock-dev libbenchmark-dev                                  # tests and benchmarks
)
test_packages=(clang clang-format clang-tidy libclang-rt-14-dev)

case ${1:-test} in
  build) packages=("${build_packages[@]}") ;;
  test) packages=("${build_packages[@]}" "${test_packages[@]}") ;;
  *) echo "usage: cmake/install-deps.sh [build|test]" >&2; exit 2 ;;
esac

if ! command -v dpkg-query >/dev/null; then
  echo "install-deps: not a Debian system, nothing was installed. Needed, by their Debian names:" >&2
  echo "  ${packages[*]}" >&2
  exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${binary:Package}\n' 2>/dev/null | sed -n 's/^installed \([^:]*\).*/\1/p')
mapfile -t missing < <(printf '%s\n' "${packages[@]}" | grep -vxF "$installed" || true)
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "install-deps: packages are missing, and neither root nor sudo without a password is at hand. Please run:" >&2
    echo "  sudo apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo -n)
fi

echo "install-deps: installing ${missing[*]}"
apt_get() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@"; }
apt_get update
apt_get install --no-install-recommends "${missing[@]}"
