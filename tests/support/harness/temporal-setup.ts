import { Connection } from '@temporalio/client';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { INSTALLS } from '../../../cli/folders.ts';
import { TEMPORAL_POLLING } from '../../../cli/supervisor/components/temporal.ts';
import { freePort } from '../../../core/free-port.ts';
import { sleep } from '../../../core/sleep.ts';

const HOST = '127.0.0.1';
const READY_MS = 120_000;

/** A workflow's history is deleted only after the server has noted that the workflow's earlier tasks are done, by default twice a minute. */
const EARLY_DELETION = ['--dynamic-config-value', 'history.transferProcessorUpdateAckInterval="1s"'];

/** The server takes a fifth less processor time for a task with a file of this mode than with a database in memory. */
const WITHOUT_SYNC = ['journal_mode=WAL', 'synchronous=OFF'].flatMap((pragma) => ['--sqlite-pragma', pragma]);

/** Starts the Temporal server that all test files of a run share. Its data are in a temporary file that is never read again, so it can end at once. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const port = await freePort(HOST);
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-temporal-'));
  const data = ['--db-filename', join(folder, 'temporal.db'), ...WITHOUT_SYNC];
  const place = ['--ip', HOST, '--port', `${port}`, '--headless', '--disable-config-file', ...data];
  const server = spawn(
    INSTALLS.temporal,
    ['server', 'start-dev', ...place, '--log-level', 'error', ...TEMPORAL_POLLING, ...EARLY_DELETION],
    { stdio: ['ignore', 'ignore', 'inherit'] },
  );
  const exited = once(server, 'exit');
  const end = () => server.kill('SIGKILL');
  // The setup of PostgreSQL turns SIGTERM into an exit.
  process.once('exit', end);
  const address = `${HOST}:${port}`;
  await Promise.race([
    untilReady(address),
    exited.then(([code, signal]) => {
      throw new Error(`Temporal's server ended with ${signal ?? code} before it was ready`);
    }),
  ]);
  project.provide('temporalAddress', address);
  return async () => {
    process.off('exit', end);
    end();
    await exited;
    await rm(folder, { recursive: true });
  };
}

async function untilReady(address: string): Promise<void> {
  const deadline = Date.now() + READY_MS;
  for (;;) {
    const connection = Connection.lazy({ address });
    try {
      await connection.withDeadline(Date.now() + 5_000, () =>
        connection.workflowService.describeNamespace({ namespace: 'default' }),
      );
      return;
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await sleep(50);
    } finally {
      await connection.close();
    }
  }
}
