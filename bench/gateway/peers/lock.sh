#!/bin/sh
# Makes the locks of the gateways that benchmarks compare with: the version and the digests of every package. Passes its arguments to uv.
set -eu
cd "$(dirname "$0")"
for name in vllm-router litellm; do
  "${UV:-uv}" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --only-binary :all: \
    --custom-compile-command 'sh bench/gateway/peers/lock.sh' "requirements-$name.in" --output-file "requirements-$name.txt" "$@"
done
cd portkey
npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund
