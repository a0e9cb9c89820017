import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { runs } from '../../store/schema.ts';
import { openAttempt } from '../../store/queries/open-attempt.ts';
import { useDatabase } from '../../tests/support/harness/use-database.ts';
import { resolveConfig } from '../config/resolve.ts';
import { pageAddress } from './page-address.ts';

const store = useDatabase();

test('the page’s address names the view of a run or a trial, with the admin key after the `#`, or the read-only key if that is wanted', async () => {
  const home = await mkdtemp(join(tmpdir(), 'trialgate-home-'));
  onTestFinished(() => rm(home, { recursive: true }));
  await store.db.insert(runs).values({ id: 'first', config: {} });
  await openAttempt(store.db, { trialId: 'a/b', attempt: 1 });
  const flags = {
    home,
    database_url: store.postgres.url,
    gateway_url: 'http://127.0.0.1:8080',
    admin_key: 'a key of+',
  };
  const { config } = resolveConfig({ cwd: home, env: {}, flags });
  const address = (id?: string) => pageAddress(config, id);
  expect(await address()).toBe('http://127.0.0.1:8080/ui/#key=a%20key%20of%2B');
  expect(await address('first')).toBe('http://127.0.0.1:8080/ui/runs/first#key=a%20key%20of%2B');
  expect(await address('a/b')).toBe('http://127.0.0.1:8080/ui/trials/a%2Fb#key=a%20key%20of%2B');
  await expect(pageAddress(config, 'first', { readOnly: true })).rejects.toMatchObject({
    code: 'missing_prerequisite',
    message: expect.stringContaining('read_key'),
  });
  const withRead = resolveConfig({ cwd: home, env: { TRIALGATE_READ_KEY: 'only to read' }, flags }).config;
  expect(await pageAddress(withRead, 'first', { readOnly: true })).toBe(
    'http://127.0.0.1:8080/ui/runs/first#key=only%20to%20read',
  );
  await expect(address('frst')).rejects.toMatchObject({
    code: 'not_found',
    message: expect.stringMatching(/^there is no run and no trial frst \(did you mean first\?\): /),
  });
});
