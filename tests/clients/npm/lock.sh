#!/bin/sh
# Makes the package-lock.json of each folder from its package.json: the version and the digest of every package. Passes its arguments to npm.
set -eu
cd "$(dirname "$0")"
for folder in */; do
  (cd "$folder" && npm install --package-lock-only --ignore-scripts --omit-lockfile-registry-resolved --no-audit --no-fund "$@")
done
