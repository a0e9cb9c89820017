#!/bin/sh
# Makes requirements-*.txt from requirements-*.in: every package that they bring, pinned and with its digests, for Python 3.11 to 3.13.
# Versions stay as they are where they fit. `--upgrade` takes the newest ones, `--upgrade-package NAME` those of one package.
set -eu
cd "$(dirname "$0")"
UV=${UV:-uv}

compile() {
  name=$1
  shift
  echo "requirements-$name.txt"
  "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes --only-binary :all: \
    --custom-compile-command 'sh gpu-workers/lock.sh' "requirements-$name.in" --output-file "requirements-$name.txt" "$@"
}

compile cpu --excludes requirements-common-excluded.txt --excludes requirements-cpu-excluded.txt "$@"
compile cuda --excludes requirements-common-excluded.txt "$@"
# It goes into the environment of either, so it takes their versions.
compile dev --constraints requirements-cpu.txt --constraints requirements-cuda.txt "$@"
compile tools "$@"
# It goes beside the environment of either, and leaves out what that has.
compile trl --excludes requirements-trl-excluded.txt --constraints requirements-cpu.txt --constraints requirements-cuda.txt "$@"
# Each is an environment of its own.
compile loggers "$@"
compile mlflow-server --excludes requirements-mlflow-server-excluded.txt "$@"
