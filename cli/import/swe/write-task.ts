import { cp, mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stringify } from 'smol-toml';
import { filesOfPatch, requireWholePatch } from './patch-files.ts';
import { frameworkOf, testFolders } from './framework.ts';
import type { SweRow } from './row.ts';

export type TaskSettings = {
  /** The URL or path of the row's repository. */
  url: string;
  /** The container image; null: none. */
  image: string | null;
  /** True when the agent sees the commits before the row's. */
  history: boolean;
  /** True when the shares of passed tests are rewards too. */
  shares: boolean;
};

/** As long as SWE-bench's own harness lets the tests of a row run, and an hour for the agent. */
const SECONDS = { agent: 3600, verifier: 1800 };
const MEMORY_MB = 4096;

/**
 * Makes the task of a row in a new folder.
 * @throws RowRefused for a row of which none can be made
 */
export async function writeSweTask(folder: string, row: SweRow, settings: TaskSettings): Promise<void> {
  requireWholePatch(row.test_patch);
  const testFiles = filesOfPatch(row.test_patch);
  const tests = {
    ...frameworkOf(row, testFiles),
    fail_to_pass: row.FAIL_TO_PASS,
    pass_to_pass: row.PASS_TO_PASS,
    test_files: testFiles,
    test_folders: testFolders(row, testFiles),
    solution_files: filesOfPatch(row.patch),
    shares: settings.shares,
  };
  const files = {
    'task.toml': taskFile(row, settings),
    'instruction.md': `${BEFORE_ISSUE}${row.problem_statement.trim()}\n`,
    'tests/test.sh': TEST_SCRIPT,
    'tests/tests.json': `${JSON.stringify(tests, null, 1)}\n`,
    'tests/test.patch': ended(row.test_patch),
    'solution/solution.patch': ended(row.patch),
  };
  for (const part of ['tests', 'solution']) await mkdir(join(folder, part), { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, name), text);
  for (const name of ['run_tests.py', 'record_tests.py']) await cp(programs(name), join(folder, 'tests', name));
}

const programs = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** git refuses a patch whose last line does not end. */
const ended = (patch: string): string => (patch.endsWith('\n') ? patch : `${patch}\n`);

const BEFORE_ISSUE =
  'The folder in which you start has a repository. Change its files so that the issue below is solved. Tests that you do not see decide.\n\n';

const TEST_SCRIPT = `#!/bin/bash
# The images of SWE-bench, SWE-Gym and SWE-rebench have the packages in this environment.
if [ -f /opt/miniconda3/bin/activate ]; then source /opt/miniconda3/bin/activate testbed; fi
exec "$(command -v python || command -v python3)" -I -S "$TESTS_DIR/run_tests.py"
`;

function taskFile({ instance_id, repo, base_commit, version }: SweRow, { url, image, history }: TaskSettings): string {
  return stringify({
    schema_version: '1.4',
    task: { name: instance_id },
    metadata: { repo, ...(version === null ? {} : { version }) },
    agent: { timeout_sec: SECONDS.agent },
    verifier: { timeout_sec: SECONDS.verifier },
    environment: { memory_mb: MEMORY_MB, ...(image === null ? {} : { docker_image: image }) },
    trialgate: { repository: { url, commit: base_commit, ...(history ? { history } : {}) } },
  });
}
