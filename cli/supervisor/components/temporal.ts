import { execFile } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { isolation } from '../../../activities/sandbox/isolation.ts';
import { INSTALLS } from '../../folders.ts';
import { environment, type Component } from '../component.ts';
import { LOOPBACK } from '../gateways.ts';
import type { GuardOptions } from '../../temporal/guard-options.ts';
import { socketFolder, type Plan } from '../plan.ts';
import { requireFree } from '../ports.ts';

const run = promisify(execFile);

const GUARD = fileURLToPath(new URL('../../temporal/guard.ts', import.meta.url));

/**
 * Arguments that set how often Temporal's development server looks for tasks. Its default of 20 times a second delays every task
 * by up to 50 ms, and a small iteration has some fifty tasks one after the other.
 */
export const TEMPORAL_POLLING = ['transfer', 'timer'].flatMap((queue) => [
  '--dynamic-config-value',
  `history.${queue}ProcessorMaxPollRPS=200`,
]);

/**
 * Starts our own Temporal: its development server with a file as storage. Where bubblewrap works, it runs in a network of its
 * own, behind a guard that lets no sandbox through.
 */
export function temporal(plan: Plan): Component {
  const { temporal_ui_port: uiPort } = plan.config;
  const port = plan.ports.temporal;
  let bwrap: string | null = null;
  const page = uiPort === undefined ? ['--headless'] : ['--ui-port', String(uiPort)];
  return {
    name: 'temporal',
    address: plan.temporalAddress + (uiPort === undefined ? '' : `, page http://${LOOPBACK}:${uiPort}`),
    needs: [],
    async prepare() {
      bwrap = (await isolation()).bwrap;
      mkdirSync(socketFolder(plan.config.home), { recursive: true, mode: 0o700 });
      await plan.held.handOver(port, LOOPBACK, 'Temporal', 'temporal_port');
      if (uiPort !== undefined) await requireFree(uiPort, LOOPBACK, "Temporal's page", 'temporal_ui_port');
    },
    launch: () => {
      const args = [
        'server',
        'start-dev',
        ...page,
        '--ip',
        LOOPBACK,
        '--port',
        String(port),
        '--db-filename',
        plan.folders.temporalDb,
        '--log-level',
        'warn',
        '--disable-config-file',
        ...TEMPORAL_POLLING,
      ];
      const ports = uiPort === undefined ? [port] : [port, uiPort];
      const forwarded = ports.map((each, index) => ({
        port: each,
        socket: path.join(socketFolder(plan.config.home), `temporal-${index}`),
      }));
      const guard: GuardOptions | null =
        bwrap === null ? null : { bwrap, ports: forwarded, file: INSTALLS.temporal, args };
      return {
        ...(guard ? { file: INSTALLS.node, args: [GUARD, JSON.stringify(guard)] } : { file: INSTALLS.temporal, args }),
        env: environment({ XDG_CONFIG_HOME: plan.folders.cache, TZ: 'UTC' }),
        cwd: plan.folders.home,
      };
    },
    isReady: async (_pid, signal) => {
      await temporalCli(plan, ['operator', 'namespace', 'describe', 'default'], signal);
      return true;
    },
    readyWithinMs: 60_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 10_000,
  };
}

/** Runs Temporal's own CLI against the plan's server. Rejects when it fails. */
export async function temporalCli(plan: Plan, args: string[], signal: AbortSignal): Promise<string> {
  const options = [
    '--address',
    plan.temporalAddress,
    '--namespace',
    'default',
    '--command-timeout',
    '5s',
    '--disable-config-file',
  ];
  const { stdout } = await run(INSTALLS.temporal, [...args, ...options], {
    signal,
    env: environment({ XDG_CONFIG_HOME: plan.folders.cache, TZ: 'UTC' }),
  });
  return stdout;
}
