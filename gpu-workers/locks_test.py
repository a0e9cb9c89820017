"""Tests the locks that the installer gives to pip: requirements-*.txt, made by lock.sh from requirements-*.in."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

FOLDER = Path(__file__).parent
LOCKS = ["cpu", "torch-cpu", "cuda", "dev", "tools"]
LINUX = {"sys_platform": "linux", "platform_system": "Linux", "platform_machine": "x86_64"}


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """Returns each package of a lock with its digests."""
    text = (FOLDER / f"requirements-{name}.txt").read_text()
    lines = [line for line in re.sub(r"\\\n\s*", "", text).splitlines() if line and not line.lstrip().startswith("#")]
    return [(Requirement(line.split("--hash")[0]), re.findall(r"--hash=(\S+)", line)) for line in lines]


def requirements_of(file: str) -> list[Requirement]:
    lines = [line for line in (FOLDER / file).read_text().splitlines() if line and not line.startswith("#")]
    included = [requirement for line in lines if line.startswith("-r ") for requirement in requirements_of(line[3:])]
    return included + [Requirement(line) for line in lines if not line.startswith("-r ")]


def locked(name: str, python: str) -> dict[str, str]:
    """Returns the version of each package that a Python of this version gets."""
    environment = LINUX | {"python_full_version": f"{python}.0", "python_version": python}
    versions: dict[str, str] = {}
    for requirement, _ in entries(name):
        if requirement.marker and not requirement.marker.evaluate(environment):
            continue
        package = canonicalize_name(requirement.name)
        assert package not in versions, f"{package} is locked twice for Python {python}"
        versions[package] = str(requirement.specifier).removeprefix("==")
    return versions


def names(*files: str) -> set[str]:
    return {canonicalize_name(requirement.name) for file in files for requirement in requirements_of(file)}


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_python_lock_has_one_exact_version_and_digests(name: str) -> None:
    assert entries(name)
    for requirement, digests in entries(name):
        assert re.fullmatch(r"==[^*,]+", str(requirement.specifier)), requirement
        assert requirement.url is None
        assert digests, requirement
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in digests), requirement


@pytest.mark.parametrize("name", LOCKS)
def test_a_python_lock_names_no_package_index(name: str) -> None:
    text = (FOLDER / f"requirements-{name}.txt").read_text()
    assert not re.search(r"://|--(index-url|extra-index-url|find-links|trusted-host)", text)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("name", ["cpu", "cuda", "dev", "tools"])
def test_the_versions_of_a_python_lock_satisfy_the_requirements_file_that_it_was_made_from(
    name: str, python: str
) -> None:
    versions = locked(name, python)
    for requirement in requirements_of(f"requirements-{name}.in"):
        version = versions[canonicalize_name(requirement.name)]
        assert requirement.specifier.contains(version, prereleases=True), requirement


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_the_trainers_lock_and_the_tests_lock_have_the_same_version_of_a_package_in_both(
    device: str, python: str
) -> None:
    versions, for_tests = locked(device, python), locked("dev", python)
    both = versions.keys() & for_tests.keys()
    assert {name: versions[name] for name in both} == {name: for_tests[name] for name in both}


def test_every_requirement_of_an_installed_python_package_is_locked_or_listed_as_excluded() -> None:
    """uv reads the metadata of only one wheel of a version; the wheel that is installed may require more."""
    device = "cuda" if is_installed("vllm") else "cpu"
    locks = [device, "dev"] if device == "cuda" else ["cpu", "torch-cpu", "dev"]
    packages = {name for lock in locks for name in for_this_python(lock)}
    excluded = ["common"] if device == "cuda" else ["common", "cpu"]
    left_out = names(*(f"requirements-{part}-excluded.txt" for part in excluded))
    missing: set[str] = set()
    seen: set[tuple[str, str]] = set()
    waiting = [(name, "") for name in packages]
    while waiting:
        name, extra = waiting.pop()
        if (name, extra) in seen or name not in packages:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, distribution(name).requires or []):
            if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
                continue
            needed = canonicalize_name(requirement.name)
            waiting += [(needed, wanted) for wanted in requirement.extras]
            if needed not in packages | left_out:
                missing.add(f"{name} asks for {requirement}")
    assert missing == set()


def is_installed(name: str) -> bool:
    try:
        return distribution(name) is not None
    except PackageNotFoundError:
        return False


def for_this_python(name: str) -> set[str]:
    """Returns the packages of a lock that this machine's Python gets."""
    requirements = [requirement for requirement, _ in entries(name)]
    return {canonicalize_name(each.name) for each in requirements if not each.marker or each.marker.evaluate()}
