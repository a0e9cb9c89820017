import { posix } from 'node:path';
import { RowRefused, type SweRow } from './row.ts';

/** How the tests of a row are run, as `record_tests.py` reads it. */
export type Framework = {
  framework: 'pytest' | 'django' | 'unittest';
  /** The modules that Django and unittest run. */
  modules: string[];
  django_options: string[];
};

/** The readers of SWE-bench's harness and its forks whose tests pytest runs. */
const OF_PYTEST =
  /^parse_log_(?:pytest(?:_\w+)?|astroid|astropy|flask|marshmallow|matplotlib|pvlib|pydicom|pylint|pyvista|requests|scikit|seaborn|sphinx|sqlfluff|xarray)$/;

/**
 * Returns how the tests of a row are run: what its reader of logs says, otherwise what its names of tests look like.
 * @throws RowRefused for tests that neither pytest nor unittest runs
 */
export function frameworkOf(row: SweRow, testFiles: readonly string[]): Framework {
  const reader = row.install_config?.log_parser ?? row.log_parser ?? null;
  const names = [...row.FAIL_TO_PASS, ...row.PASS_TO_PASS];
  if (reader === 'parse_log_django' || row.repo === 'django/django') return django(row, testFiles);
  if (reader !== null && !OF_PYTEST.test(reader))
    throw new RowRefused(
      `the log parser ${reader} is of a test runner that is not supported: only pytest, unittest and Django's are`,
    );
  if (reader !== null || row.FAIL_TO_PASS.every((name) => /^[^\s:]+\.py(?:::|$)/.test(name)))
    return { framework: 'pytest', modules: [], django_options: [] };
  const dotted = names.map(moduleOfTest);
  if (dotted.every((module) => module !== null))
    return { framework: 'unittest', modules: [...new Set(dotted)].toSorted(), django_options: [] };
  const strange = names[dotted.indexOf(null)] ?? '';
  throw new RowRefused(
    `the test ${JSON.stringify(strange.slice(0, 100))} is named neither as pytest's (file.py::test) nor as unittest's (test (module.Class))`,
  );
}

/** Django's own runner, with the modules that SWE-bench runs: those of the files that the row changes. */
function django({ version }: SweRow, testFiles: readonly string[]): Framework {
  const modules = testFiles
    .filter((file) => file.startsWith('tests/') && file.endsWith('.py'))
    .map((file) => file.slice('tests/'.length, -'.py'.length).replaceAll('/', '.'));
  if (modules.length === 0) throw new RowRefused('test_patch: it changes no test module of Django');
  const options = version === '1.9' ? [] : ['--settings=test_sqlite', '--parallel', '1'];
  return { framework: 'django', modules, django_options: options };
}

/** Returns what unittest loads for a test that is called `test_x (module.Class)`, or `test_x (module.Class.test_x)` from Python 3.11 on. */
function moduleOfTest(name: string): string | null {
  const [, method, place] = /^(\w+) \(([\w.]+)\)$/.exec(name) ?? [];
  if (method === undefined || place === undefined || !place.includes('.')) return null;
  return place.endsWith(`.${method}`) ? place : `${place}.${method}`;
}

/** Returns the folders of tests: of the files with tests, the topmost folder that is called as such folders are. */
export function testFolders(row: SweRow, testFiles: readonly string[]): string[] {
  const named = [...row.FAIL_TO_PASS, ...row.PASS_TO_PASS].flatMap((name) => /^([^\s:]+\.py)::/.exec(name)?.[1] ?? []);
  const folders = [...testFiles, ...named].flatMap((file) => {
    const parts = posix.dirname(file).split('/');
    const depth = parts.findIndex((part) => /^(?:tests?|testing)$/.test(part));
    return depth === -1 ? [] : [parts.slice(0, depth + 1).join('/')];
  });
  return [...new Set(folders)].toSorted();
}
