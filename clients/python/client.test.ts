import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { probePython, pythonCandidates } from '../../activities/sandbox/sandbox-python.ts';
import { OPERATIONS } from '../../gateway/http/openapi/operations.ts';
import { ADMIN_KEY, useGateway } from '../../tests/support/harness/gateways.ts';

const gateway = useGateway();

test('the Python client takes a session from its opening to its deletion and has a method for each operation of the gateway’s API', async () => {
  const pythons = await Promise.all(pythonCandidates().map(probePython));
  const python = pythons.find((each) => each !== null);
  if (!python) throw new Error('no Python 3.9 or newer was found');
  const operations = JSON.stringify(OPERATIONS.map(({ id }) => id));
  const { stdout } = await promisify(execFile)(python.executable, [
    `${import.meta.dirname}/use_a_session.py`,
    gateway.gateway.url,
    ADMIN_KEY,
    operations,
  ]);
  expect(stdout.trim()).toBe('used');
});
