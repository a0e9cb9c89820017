"""Puts programs that only succeed where scripts look for interpreters and test runners."""

from common import WORK, write

COMMANDS = {
    "bin": ("python", "python3", "pytest", "node", "npm", "make"),
    ".venv/bin": ("python", "python3", "pytest"),
    "venv/bin": ("python", "python3", "pytest"),
    "node_modules/.bin": ("jest", "vitest", "mocha", "tsc", "eslint"),
}
for folder, names in COMMANDS.items():
    for name in names:
        write(WORK / folder / name, "#!/bin/sh\nexit 0\n", 0o755)
