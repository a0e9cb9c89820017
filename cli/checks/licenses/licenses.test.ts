import { expect, test } from 'vitest';
import { LICENSES_ELSEWHERE } from './elsewhere.ts';
import { NPM_EXCEPTIONS, PYTHON_EXCEPTIONS } from './exceptions.ts';
import { npmPackages } from './npm-packages.ts';
import { covers, exceptionFor, isPermissive } from './policy.ts';
import { lockedPackages, pythonPackages } from './python-packages.ts';

test.each([
  ['MIT', true],
  ['MIT OR GPL-3.0-only', true],
  ['MIT AND GPL-3.0-only', false],
  ['(MIT OR GPL-2.0-only) AND Apache-2.0', true],
  ['BSD-2-Clause AND Apache-2.0 WITH LLVM-exception', true],
  ['LGPL-2.1-only', false],
  ['LicenseRef-NVIDIA-Proprietary', false],
  ['SEE LICENSE IN LICENSE', false],
  ['', false],
])('the license check takes the license expression %o as permissive: %o', (expression, permissive) => {
  expect(isPermissive(expression)).toBe(permissive);
});

test('an exception of the license check holds only for the packages and the license that it names', () => {
  const exceptions = [{ packages: ['lib-*'], licenses: ['MPL-2.0'], reason: 'unchanged' }];
  expect(exceptionFor({ name: 'lib-x64', version: '1', license: 'MPL-2.0' }, exceptions)).toBe(exceptions[0]);
  expect(exceptionFor({ name: 'lib-x64', version: '2', license: 'GPL-3.0-only' }, exceptions)).toBeUndefined();
  expect(exceptionFor({ name: 'other', version: '1', license: 'MPL-2.0' }, exceptions)).toBeUndefined();
});

test('the license check reads a Python package’s license from the installed package, else from its own list, else it is unknown', () => {
  expect(pythonPackages([], lockedPackages(['cuda', 'tools'])).find(({ name }) => name === 'vllm')?.license).toBe(
    'Apache-2.0',
  );
  const [installed, missing] = pythonPackages(
    [{ name: 'Some_Package', version: '1', licenses: ['MIT License', 'BSD License'] }],
    [
      { name: 'some-package', version: '1' },
      { name: 'nobody-knows', version: '1' },
    ],
  );
  expect([installed?.license, missing?.license]).toEqual(['MIT AND BSD-3-Clause', undefined]);
});

test('every exception of the license check, and every license in its own list, belongs to a locked package', () => {
  const npm = npmPackages().map(({ name }) => name);
  const python = lockedPackages().map(({ name }) => name);
  const unused = (patterns: readonly string[], names: readonly string[]) =>
    patterns.filter((pattern) => !names.some((name) => covers(pattern, name)));
  expect(
    unused(
      NPM_EXCEPTIONS.flatMap(({ packages }) => packages),
      npm,
    ),
  ).toEqual([]);
  expect(
    unused(
      PYTHON_EXCEPTIONS.flatMap(({ packages }) => packages),
      python,
    ),
  ).toEqual([]);
  expect(unused(Object.keys(LICENSES_ELSEWHERE), python)).toEqual([]);
});
