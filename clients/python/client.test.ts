import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { promisify } from 'node:util';
import { expect, onTestFinished, test } from 'vitest';
import { probePython, pythonCandidates } from '../../activities/sandbox/sandbox-python.ts';
import { OPERATIONS } from '../../gateway/http/openapi/operations.ts';
import { ADMIN_KEY, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway();

async function pythonHere(): Promise<string> {
  const pythons = await Promise.all(pythonCandidates().map(probePython));
  const python = pythons.find((each) => each !== null);
  if (!python) throw new Error('no Python 3.9 or newer was found');
  return python.executable;
}

test('the Python client skips the empty lines of a start, and says when the answer was cut', async () => {
  const lines = ['{}', '{"progress":"it is tried"}', '{}'];
  const server = createServer((request, response) => {
    request.resume();
    const all = request.headers.authorization === 'Bearer whole' ? [...lines, '{"run_id":"r","message":"m"}'] : lines;
    response.end(all.map((line) => `${line}\n`).join(''));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  onTestFinished(() => void server.close());
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}`;
  const program = `
import sys
from trialgate_client import TrialgateClient
try:
    for line in TrialgateClient(sys.argv[1], sys.argv[2]).start_run("model: m"):
        print(*line)
except ConnectionError as error:
    print(error)`;
  const said = async (key: string): Promise<string[]> => {
    const options = { cwd: import.meta.dirname };
    const { stdout } = await promisify(execFile)(await pythonHere(), ['-B', '-c', program, url, key], options);
    return stdout.trim().split('\n');
  };
  expect(await said('whole')).toEqual(['progress', 'run_id message']);
  expect(await said('cut')).toEqual(['progress', expect.stringContaining('the answer was cut')]);
});

test('the Python client takes a session from its opening to its deletion and has a method for each operation of the gateway’s API', async () => {
  const operations = JSON.stringify(OPERATIONS.map(({ id }) => id));
  const { stdout } = await promisify(execFile)(await pythonHere(), [
    `${import.meta.dirname}/use_a_session.py`,
    gateway.gateway.url,
    ADMIN_KEY,
    operations,
  ]);
  expect(stdout.trim()).toBe('used');
});
