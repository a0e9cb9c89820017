import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { temporaryHome, writeFiles } from '../../tests/support/harness/sandbox-fixtures.ts';
import { homeFolders } from '../folders.ts';
import { destinationOf } from './destination.ts';
import { removeLoggerStates, writeLoggerState } from './logger-state.ts';
import { originOf } from './span.ts';

test('of a deleted run neither the state of its loggers nor the list of its sent spans stays, and of other runs both do', async () => {
  await using place = await temporaryHome();
  const { home } = place;
  const { logger, digest: destination } = destinationOf(home, { name: 'otel', endpoint: 'http://127.0.0.1:4318' });
  const nothing = { name: 'n', written: 0, traces: 0, failing_since: null, reason: null, complete: null };
  const [state, sent] = [join(homeFolders(home).loggers, 'state'), join(homeFolders(home).loggers, 'otel')];
  const sentOf = (id: string): string => `${originOf({ id, createdAt: new Date(0) })}.0123456789ab.sent`;
  for (const run of ['gone', 'gone-too', 'g']) {
    writeLoggerState(home, { run, logger, destination, ...nothing });
    await writeFiles(sent, { [sentOf(run)]: 'group 0\n' });
  }
  removeLoggerStates(home, 'gone');
  expect((await readdir(sent)).toSorted()).toEqual([sentOf('g'), sentOf('gone-too')]);
  expect((await readdir(state)).map((name) => name.split('.')[0]).toSorted()).toEqual(['g', 'gone-too']);
});
