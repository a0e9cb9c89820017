"""
Judges the work of an agent on a task that was made from a row of SWE-bench, SWE-Gym or SWE-rebench.

The files that decide how tests run, and the tests themselves, become again what they were at the commit. Then the row's
own changes to its tests are applied, and `record_tests.py` runs the tests that the row names. The reward is 1 if all of
them passed, else 0. Python 3.6 and its library are enough, because the images of old repositories have nothing newer.
"""

import ctypes
import fnmatch
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TESTS = os.environ["TESTS_DIR"]
WORK = os.environ["WORK_DIR"]
LOGS = os.path.join(os.environ["LOGS_DIR"], "verifier")

# Names of files and folders with which the agent could change how tests run, in any folder.
STEERING = [
    ".gitattributes",
    "conftest.py",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "sitecustomize.py",
    "usercustomize.py",
    ".pytest_cache",
    "__pycache__",
    "*.pyc",
    "*.pth",
    "*.dist-info",
    "*.egg-info",
]


def git(*arguments: str) -> bytes:
    env = {
        "PATH": os.environ["PATH"],
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "HOME": "/nonexistent",
    }
    safe = ["-c", "safe.directory=*", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false"]
    return subprocess.run(["git", *safe, *arguments], cwd=WORK, env=env, stdout=subprocess.PIPE, check=True).stdout


def is_steering(path: str) -> bool:
    return any(fnmatch.fnmatchcase(part, name) for part in path.split("/") for name in STEERING)


def restore(settings: dict) -> None:
    """
    Gives the files that decide about the tests the content that they have at the commit. Those that the reference
    solution changes stay the agent's.
    """
    solution = set(settings["solution_files"])
    files, folders = set(settings["test_files"]), tuple(folder + "/" for folder in settings["test_folders"])

    def decides(path: str) -> bool:
        if path in files:
            return True
        return path not in solution and (path.startswith(folders) or is_steering(path))

    for folder, names, leaves in os.walk(WORK):
        inside = os.path.relpath(folder, WORK)
        prefix = "" if inside == "." else inside + "/"
        if inside == ".":
            names.remove(".git")
        for name in list(names):
            if prefix + name in files or is_steering(name):
                shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
                names.remove(name)
        for name in leaves:
            if decides(prefix + name):
                os.unlink(os.path.join(folder, name))
    tracked = [os.fsdecode(path) for path in git("ls-tree", "-r", "-z", "--name-only", "HEAD").split(b"\0") if path]
    ours = [path for path in tracked if decides(path)]
    for start in range(0, len(ours), 500):
        git("--literal-pathspecs", "checkout", "--quiet", "--force", "HEAD", "--", *ours[start : start + 500])


def run(settings: dict) -> dict:
    """Runs the tests and returns the status of each that the row names."""
    place = tempfile.mkdtemp()
    report = os.path.join(place, "report.json")
    order = os.path.join(place, "order.json")
    program = shutil.copy(os.path.join(TESTS, "record_tests.py"), place)
    with open(order, "w") as file:
        json.dump({**settings, "report": report}, file)
    adopt_orphans()
    child = subprocess.Popen([sys.executable, program, order], cwd=WORK, stdin=subprocess.DEVNULL)
    child.wait()
    end_descendants()
    try:
        with open(report) as file:
            found = json.load(file)
        return {str(name): str(status) for name, status in found.items()}
    except (OSError, ValueError, AttributeError):
        print("The tests left no report.")
        return {}


def adopt_orphans() -> None:
    """Makes this process the parent of what its descendants leave running, so that it can be found."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)


def end_descendants() -> None:
    """Ends what the tests left running, which could write a reward of its own."""
    deadline = time.time() + 10
    while time.time() < deadline:
        found = descendants()
        if not found:
            return
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
            except OSError:
                pass
        time.sleep(0.01)


def descendants() -> list:
    parents = {}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError):
            continue
    found, layer = [], {os.getpid()}
    while layer:
        layer = {pid for pid, parent in parents.items() if parent in layer}
        found.extend(layer)
    return found


def main() -> None:
    with open(os.path.join(TESTS, "tests.json")) as file:
        settings = json.load(file)
    restore(settings)
    git("apply", "--whitespace=nowarn", os.path.join(TESTS, "test.patch"))
    status = run(settings)
    # A test that is skipped is not solved, and not broken either.
    solved = [name for name in settings["fail_to_pass"] if status.get(name) in ("PASSED", "XFAIL")]
    kept = [name for name in settings["pass_to_pass"] if status.get(name) in ("PASSED", "XFAIL", "SKIPPED")]
    for title, wanted, passed in (("FAIL_TO_PASS", "fail_to_pass", solved), ("PASS_TO_PASS", "pass_to_pass", kept)):
        print(f"{title}: {len(passed)} of {len(settings[wanted])}")
        for name in sorted(set(settings[wanted]) - set(passed))[:50]:
            print(f"  {status.get(name, 'NOT RUN')} {name}")
    share = {
        "fail_to_pass": fraction(solved, settings["fail_to_pass"]),
        "pass_to_pass": fraction(kept, settings["pass_to_pass"]),
    }
    reward = {"reward": int(all(part == 1 for part in share.values()))}
    for name in os.listdir(LOGS):
        path = os.path.join(LOGS, name)
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    with open(os.path.join(LOGS, "reward.json"), "w") as file:
        json.dump({**reward, **share} if settings["shares"] else reward, file)


def fraction(part: list, whole: list) -> float:
    return len(part) / len(whole) if whole else 1.0


if __name__ == "__main__":
    main()
