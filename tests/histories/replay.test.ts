import { bundleWorkflowCode, DefaultLogger, Worker, type WorkerOptions } from '@temporalio/worker';
import { cpSync, globSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeAll, expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import { workflowBundle } from '../../cli/workflow-bundle.ts';
import { readHistories, type HistoryFile } from './read-histories.ts';
import { installRuntime } from '../support/harness/workflow-worker.ts';

type Bundle = WorkerOptions['workflowBundle'];
const files = readHistories();
const WORKFLOWS = path.join(REPOSITORY, 'workflows');
beforeAll(installRuntime);

const ADVICE = `
Runs that are alive would stand still with this change. Put it behind patched('name') and leave the recordings as they are. Record again
(node tests/histories/record.ts) only what no run can be alive of. See "Deploying a change" in docs/operating.md.`;

/** Returns a line for each execution that these workflows cannot continue. */
async function broken(bundle: Bundle, { name, executions }: HistoryFile): Promise<string[]> {
  const failures: string[] = [];
  let at = 0;
  for await (const { workflowId, error } of Worker.runReplayHistories({ workflowBundle: bundle }, executions)) {
    at++;
    if (error) failures.push(`${name}, line ${at}, ${workflowId}: ${error.name}: ${error.message}`);
  }
  if (at !== executions.length) failures.push(`${name}: ${at} of ${executions.length} executions were replayed`);
  return failures;
}

/** Bundles the workflows with one line of `rollout-group.ts` changed. */
async function bundleWith(line: string, changed: string): Promise<Bundle> {
  const folder = mkdtempSync(path.join(tmpdir(), 'trialgate-replay-'));
  try {
    const workflows = path.join(folder, 'workflows');
    cpSync(WORKFLOWS, workflows, { recursive: true });
    for (const name of ['core', 'node_modules']) symlinkSync(path.join(REPOSITORY, name), path.join(folder, name));
    const file = path.join(workflows, 'rollout-group.ts');
    const code = readFileSync(file, 'utf8');
    expect(code).toContain(line);
    writeFileSync(
      file,
      `import { patched as isNew } from '@temporalio/workflow';\nvoid isNew;\n${code.replace(line, changed)}`,
    );
    return await bundleWorkflowCode({
      workflowsPath: path.join(workflows, 'index.ts'),
      logger: new DefaultLogger('ERROR'),
    });
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test.each(files)('Temporal replays every recorded history with the workflows’ present code: $name', async (file) => {
  const failures = await broken(await workflowBundle(), file);
  expect(failures, failures.join('\n') + ADVICE).toEqual([]);
});

test('Temporal’s replay finds an activity that was added to a workflow, and accepts it behind a patch', async () => {
  const line = 'const limits = await store.openGroup(group);';
  const call = 'await store.missingVersion({ runId: group.runId });';
  const file = files.find(({ name }) => name.endsWith('quorum.jsonl.gz'));
  if (!file) throw new Error('no run with a quorum is recorded');
  const failures = await broken(await bundleWith(line, `${call} ${line}`), file);
  expect(failures).not.toEqual([]);
  for (const failure of failures) expect(failure).toContain('DeterminismViolationError');
  expect(await broken(await bundleWith(line, `if (isNew('look-first')) ${call} ${line}`), file)).toEqual([]);
});

test('every patch in the workflows’ code is in a recorded history', () => {
  const sources = globSync('*.ts', { cwd: WORKFLOWS, exclude: ['*.test.ts'] }).map((file) =>
    readFileSync(path.join(WORKFLOWS, file), 'utf8'),
  );
  const patches = sources.flatMap((text) => [...text.matchAll(/\bpatched\('([\w-]+)'\)/g)].map(([, name]) => name));
  const events = files.flatMap(({ executions }) => executions.flatMap(({ history }) => history.events));
  const markers = events.flatMap(
    ({ markerRecordedEventAttributes: marker }) =>
      marker?.details?.['patch-data']?.payloads?.map(({ data }) => Buffer.from(data ?? []).toString()) ?? [],
  );
  expect([...new Set(patches)].filter((name) => !markers.some((marker) => marker.includes(`"${name}"`)))).toEqual([]);
});

test('every type of workflow is in a recorded history', () => {
  const index = readFileSync(path.join(WORKFLOWS, 'index.ts'), 'utf8');
  const exported = [...index.matchAll(/\{ (.+) \}/g)].flatMap(([, names = '']) => names.split(', '));
  const replayed = new Set(files.flatMap(({ executions }) => executions.map(({ type }) => type)));
  expect([...replayed].toSorted()).toEqual(exported.toSorted());
});
