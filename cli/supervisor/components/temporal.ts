import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { INSTALLS } from '../../folders.ts';
import { environment, type Component } from '../component.ts';
import { TEMPORAL_POLLING } from '../../temporal-polling.ts';
import { LOOPBACK } from '../gateways.ts';
import type { Plan } from '../plan.ts';
import { requireFree } from '../ports.ts';

const run = promisify(execFile);

/** Our own Temporal: its development server with a file behind it. */
export function temporal(plan: Plan): Component {
  const { temporal_ui_port: uiPort } = plan.config;
  const port = plan.ports.temporal;
  const page = uiPort === undefined ? ['--headless'] : ['--ui-port', String(uiPort)];
  return {
    name: 'temporal',
    address: plan.temporalAddress + (uiPort === undefined ? '' : `, page http://${LOOPBACK}:${uiPort}`),
    needs: [],
    async prepare() {
      await plan.held.handOver(port, LOOPBACK, 'Temporal', 'temporal_port');
      if (uiPort !== undefined) await requireFree(uiPort, LOOPBACK, "Temporal's page", 'temporal_ui_port');
    },
    launch: () => ({
      file: INSTALLS.temporal,
      args: [
        'server', 'start-dev', ...page, '--ip', LOOPBACK, '--port', String(port), '--db-filename', plan.folders.temporalDb,
        '--log-level', 'warn', '--disable-config-file', ...TEMPORAL_POLLING,
      ],
      env: environment({ XDG_CONFIG_HOME: plan.folders.cache }),
      cwd: plan.folders.home,
    }),
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
  const options = ['--address', plan.temporalAddress, '--namespace', 'default', '--command-timeout', '5s', '--disable-config-file'];
  const { stdout } = await run(INSTALLS.temporal, [...args, ...options], { signal, env: environment({ XDG_CONFIG_HOME: plan.folders.cache }) });
  return stdout;
}
