"""
Runs tests in this process and writes the status of each test that is asked for. `run_tests.py` starts it; Python 3.6
is enough.

A test is asked for by the name that a data set has for it. The data sets took their names from what test runners
printed, so a test of pytest whose parameters have a space is called by the part before it.
"""

import importlib.util
import json
import os
import runpy
import sys
import unittest

# pytest is imported before a folder of the agent's is on the path, so that no module of the agent's takes its place.
try:
    import pytest
except ImportError:
    pytest = None


# From the best to the worst.
STATUSES = ["PASSED", "XFAIL", "SKIPPED", "XPASS", "ERROR", "FAILED"]


class Statuses:
    """The status of each test, by its names. Where several tests have one name, the worst of them counts."""

    def __init__(self, wanted: set) -> None:
        self.wanted = wanted
        self.found = {}

    def note(self, names: set, status: str) -> None:
        for name in names & self.wanted:
            self.found[name] = max(status, self.found.get(name, status), key=STATUSES.index)

    def write(self, path: str) -> None:
        with open(path + ".partial", "w") as file:
            json.dump(self.found, file)
        os.replace(path + ".partial", path)


def put_work_on_path(*folders: str) -> None:
    """Adds folders after Python's library and before installed packages, which may have the repository too."""
    installed = [i for i, path in enumerate(sys.path) if path.endswith(("site-packages", "dist-packages"))]
    place = installed[0] if installed else len(sys.path)
    sys.path[place:place] = folders


def names_of_pytest(node_id: str) -> set:
    """Returns all names that SWE-bench's readers of pytest's output give a test."""
    first = node_id.split()[0]
    names = {node_id, " ".join(node_id.split()), first}
    main, bracket, option = first.partition("[")
    # pylint, requests and pydicom: of a path as parameter only the last part.
    if bracket and option.startswith("/") and not option.startswith("//") and "*" not in option:
        names.add(f"{main}[/{option.split('/')[-1]}")
    # matplotlib.
    names |= {name.replace("MouseButton.LEFT", "1").replace("MouseButton.RIGHT", "3") for name in names}
    return names


class PytestRecorder:
    """A plugin that leaves only the tests that are asked for, and records them."""

    def __init__(self, statuses: Statuses) -> None:
        self.statuses = statuses
        self.config = None

    def pytest_configure(self, config) -> None:
        self.config = config

    def names(self, node_id: str) -> set:
        return names_of_pytest(self.config.cwd_relative_nodeid(node_id))

    def pytest_collection_modifyitems(self, config, items: list) -> None:
        others = [item for item in items if not self.names(item.nodeid) & self.statuses.wanted]
        config.hook.pytest_deselected(items=others)
        dropped = set(others)
        items[:] = [item for item in items if item not in dropped]

    def pytest_runtest_logreport(self, report) -> None:
        names = self.names(report.nodeid)
        expects_failure = hasattr(report, "wasxfail")
        if report.failed:
            self.statuses.note(names, "FAILED" if report.when == "call" else "ERROR")
        elif report.skipped:
            self.statuses.note(names, "XFAIL" if expects_failure else "SKIPPED")
        elif report.when == "call" and report.passed:
            self.statuses.note(names, "XPASS" if expects_failure else "PASSED")


def run_pytest(order: dict, statuses: Statuses) -> None:
    if pytest is None:
        sys.exit(f"There is no pytest in {sys.executable}: the sandbox lacks the task's packages.")
    put_work_on_path(os.getcwd())
    files = sorted({name.split("::")[0] for name in statuses.wanted})
    there = [file for file in files if os.path.exists(file)]
    if not there:
        sys.exit(f"None of the files with the tests is there: {', '.join(files[:10])}")
    recorder = PytestRecorder(statuses)
    # Other processes of pytest-xdist would not have the recorder.
    alone = ["-n0"] if importlib.util.find_spec("xdist") else []
    pytest.main([*there, *alone, "-rfE", "--tb=short", "--color=no"], plugins=[recorder])


def record_unittest(statuses: Statuses) -> None:
    """Lets every result of unittest, and so of Django, tell the statuses of its tests."""

    def names_of(test: unittest.TestCase) -> set:
        whole = str(test)
        names = {whole}
        method, _, place = whole.partition(" (")
        # From Python 3.11 on, the method is a part of the name in brackets too.
        before = place.replace(f".{method})", ")")
        names |= {f"{method} ({before}", f"{method} ({before[:-1]}.{method})"}
        line = test.shortDescription()
        # A runner prints the first line of a description last, and Django's reader takes that line for the name.
        return names | {line} if line else names

    def recorded(name: str, status: str) -> None:
        original = getattr(unittest.TestResult, name)

        def record(self, test, *more):
            # The subtests that passed do not count.
            if name != "addSubTest":
                statuses.note(names_of(test), status)
            elif more[1] is not None:
                statuses.note(names_of(test), "FAILED")
            return original(self, test, *more)

        setattr(unittest.TestResult, name, record)

    for name, status in (
        ("addSuccess", "PASSED"),
        ("addFailure", "FAILED"),
        ("addError", "ERROR"),
        ("addSkip", "SKIPPED"),
        ("addExpectedFailure", "XFAIL"),
        ("addUnexpectedSuccess", "XPASS"),
        ("addSubTest", "FAILED"),
    ):
        recorded(name, status)


def run_django(order: dict, statuses: Statuses) -> None:
    record_unittest(statuses)
    tests = os.path.join(os.getcwd(), "tests")
    put_work_on_path(tests, os.getcwd())
    sys.argv = ["runtests.py", "--verbosity", "2", *order["django_options"], *order["modules"]]
    runpy.run_path(os.path.join(tests, "runtests.py"), run_name="__main__")


def run_unittest(order: dict, statuses: Statuses) -> None:
    record_unittest(statuses)
    put_work_on_path(os.getcwd())
    suite = unittest.TestSuite()
    for module in order["modules"]:
        suite.addTests(unittest.defaultTestLoader.loadTestsFromName(module))
    unittest.TextTestRunner(verbosity=2).run(suite)


def main() -> None:
    with open(sys.argv[1]) as file:
        order = json.load(file)
    statuses = Statuses(set(order["fail_to_pass"]) | set(order["pass_to_pass"]))
    try:
        {"pytest": run_pytest, "django": run_django, "unittest": run_unittest}[order["framework"]](order, statuses)
    finally:
        statuses.write(order["report"])


if __name__ == "__main__":
    main()
