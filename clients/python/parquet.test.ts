import { execFile } from 'node:child_process';
import { mkdtemp, readFile, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { parquetReadObjects } from 'hyparquet';
import { compressors } from 'hyparquet-compressors';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { INSTALLS } from '../../cli/folders.ts';
import { ADMIN_KEY, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway();

let folder: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'trialgate-parquet-'));
});
afterAll(() => rm(folder, { recursive: true }));

type Ended = { code: number; stdout: string; stderr: string };
const write = (file: string, ...args: string[]): Promise<Ended> =>
  promisify(execFile)(INSTALLS.python, ['-m', 'trialgate_parquet', file, ...args], {
    cwd: import.meta.dirname,
    env: { ...process.env, TRIALGATE_URL: gateway.gateway.url, TRIALGATE_ADMIN_KEY: ADMIN_KEY },
  }).then(
    (output) => ({ code: 0, ...output }),
    (error: Ended) => error,
  );

const HELLO = [{ role: 'user', content: 'hello' }];
const CALL = { id: 'c1', type: 'function', function: { name: 'ls', arguments: '{"path": "/"}' } };
const TOOLS = [{ type: 'function', function: { name: 'ls', parameters: { type: 'object' } } }];

test('a session’s samples are written as Parquet with ids, labels, log-probabilities, messages and reward', async () => {
  const trial = await gateway.trial();
  const messages = [
    { role: 'user', content: [{ type: 'text', text: 'look' }] },
    { role: 'assistant', content: null, tool_calls: [CALL] },
    { role: 'tool', tool_call_id: 'c1', content: 'a.txt' },
  ];
  expect((await trial.chat({ model: 'any', messages, tools: TOOLS })).status).toBe(200);
  await gateway.admin('POST', `/sessions/${trial.id}/reward`, { reward: 0.5 });
  const file = join(folder, 'one.parquet');
  expect(await write(file, '--min-reward', '0.5')).toMatchObject({
    code: 0,
    stdout: `1 samples of 1 sessions are in ${file}\n`,
  });
  const buffer = await readFile(file);
  const [row, ...more] = await parquetReadObjects({
    file: buffer.buffer.slice(buffer.byteOffset, buffer.byteOffset + buffer.byteLength),
    compressors,
  });
  expect(more).toEqual([]);
  expect(row).toMatchObject({
    input_ids: [1n, 9690n, 198n, 61n, 8012n, 17n, 1073n, 2n],
    labels: [-100n, -100n, -100n, 61n, 8012n, 17n, 1073n, 2n],
    logprobs: [0, 0, 0, -4.25, -2.5, -0.125, -1, -0.5],
    reward: 0.5,
    session_id: trial.id,
  });
  expect(JSON.parse(String(row?.['tools']))).toEqual(TOOLS);
  expect(row?.['messages']).toMatchObject([
    { role: 'user', content: 'look' },
    { role: 'assistant', content: '', tool_calls: [CALL] },
    { role: 'tool', tool_call_id: 'c1', content: 'a.txt' },
    { role: 'assistant', content: expect.stringContaining('Hello') },
  ]);
});

test('an export without a matching sample says so and what to do', async () => {
  expect(await write(join(folder, 'none.parquet'), '--run', 'nobody')).toMatchObject({
    code: 1,
    stderr: expect.stringContaining('no sample matches'),
  });
});

test('the trials of evaluations are left out unless they are asked for', async () => {
  for (const groupId of ['r/0/0', 'r/eval@1/0', 'r/eval@1.2/0'])
    expect((await (await gateway.trial({ groupId })).chat({ model: 'any', messages: HELLO })).status).toBe(200);
  const file = join(folder, 'evaluations.parquet');
  expect((await write(file)).stdout).toMatch(
    /; left out: 2 sessions of evaluations \(--with-evaluations writes them\)\n$/,
  );
  expect((await write(file, '--with-evaluations')).stdout).not.toContain('left out');
  expect((await write(file, '--group', 'r/eval@1/0')).stdout).toContain('1 samples of 1 sessions');
});

test('an export that fails leaves the file of an earlier one as it was, and no other file', async () => {
  await (await gateway.trial()).chat({ model: 'any', messages: HELLO });
  const file = join(folder, 'kept.parquet');
  await write(file);
  const before = await readFile(file);
  expect(await write(file, '--outcome', 'nonsense')).toMatchObject({ code: 1 });
  expect(await readFile(file)).toEqual(before);
  expect((await readdir(folder)).filter((each) => each.startsWith('kept'))).toEqual(['kept.parquet']);
});

test('a session that is deleted while it is exported is left out', async () => {
  const groupId = 'deleted';
  const [deleted, kept] = [await gateway.trial({ groupId }), await gateway.trial({ groupId })];
  for (const trial of [deleted, kept]) await trial.chat({ model: 'any', messages: HELLO });
  const file = join(folder, 'deleted.parquet');
  const program = `
import sys, trialgate_parquet
from trialgate_client import TrialgateClient
class Deleting(TrialgateClient):
    def samples(self, trial_id, attempt=None):
        if trial_id == sys.argv[4]:
            self.delete(trial_id)
        return super().samples(trial_id, attempt)
counts = trialgate_parquet.write(Deleting(sys.argv[1], sys.argv[2]), {"group_id": "deleted"}, sys.argv[3])
print(counts.rows, counts.sessions, counts.deleted)`;
  const { stdout } = await promisify(execFile)(
    INSTALLS.python,
    ['-c', program, gateway.gateway.url, ADMIN_KEY, file, deleted.id],
    { cwd: import.meta.dirname },
  );
  expect(stdout).toBe('1 2 1\n');
});

test('a call that is recorded while its session is exported is left out', async () => {
  const trial = await gateway.trial({ groupId: 'living' });
  await trial.chat({ model: 'any', messages: HELLO });
  const file = join(folder, 'living.parquet');
  const program = `
import json, sys, trialgate_parquet, urllib.request
from trialgate_client import TrialgateClient
class Asking(TrialgateClient):
    def samples(self, trial_id, attempt=None):
        body = json.dumps({"model": "any", "messages": [{"role": "user", "content": "more"}]}).encode()
        headers = {"Authorization": "Bearer " + sys.argv[5], "Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(sys.argv[4] + "/chat/completions", body, headers)).close()
        return super().samples(trial_id, attempt)
counts = trialgate_parquet.write(Asking(sys.argv[1], sys.argv[2]), {"group_id": "living"}, sys.argv[3])
print(counts.rows)`;
  const { stdout } = await promisify(execFile)(
    INSTALLS.python,
    ['-c', program, gateway.gateway.url, ADMIN_KEY, file, trial.baseUrl, trial.key],
    { cwd: import.meta.dirname },
  );
  expect(stdout).toBe('1\n');
});
