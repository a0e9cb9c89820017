#!/bin/sh
# Makes requirements-*.txt from requirements-*.in: the versions and digests of every package that the Python clients of tests need. Passes its arguments to uv (`--upgrade`).
set -eu
cd "$(dirname "$0")"
for name in sdks litellm aider google crewai llama-index google-adk harbor; do
  python=3.11
  # Harbor needs it.
  [ "$name" = harbor ] && python=3.12
  "${UV:-uv}" pip compile --quiet --universal --python-version "$python" --generate-hashes --no-annotate --only-binary :all: \
    --custom-compile-command 'sh tests/clients/python/lock.sh' "requirements-$name.in" --output-file "requirements-$name.txt" "$@"
done
