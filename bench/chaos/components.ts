import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { INSTALLS } from '../../cli/folders.ts';
import { REPOSITORY } from '../../core/repository.ts';
import { environment, type Component } from '../../cli/supervisor/component.ts';
import type { Components } from '../../cli/supervisor/components/all.ts';
import { healthOf } from '../../cli/supervisor/components/engine.ts';
import { gateway } from '../../cli/supervisor/components/gateway.ts';
import { postgres } from '../../cli/supervisor/components/postgres.ts';
import { temporal } from '../../cli/supervisor/components/temporal.ts';
import { gpuWorker, worker } from '../../cli/supervisor/components/workers.ts';
import { LOOPBACK } from '../../cli/supervisor/gateways.ts';
import type { Plan } from '../../cli/supervisor/plan.ts';

/** The addresses of the links that can be cut, and the paths outside the deployment's folder. */
export const wiring = z.object({
  postgres: z.number(),
  temporal: z.number(),
  engine: z.string(),
  engineLog: z.string(),
});
export type Wiring = z.output<typeof wiring>;

/** Returns a deployment's own components with another engine. They reach each other through links that can be cut. */
export const chaosComponents =
  (wires: Wiring) =>
  (plan: Plan): Components => {
    const through: Plan = {
      ...plan,
      databaseUrl: withPort(plan.databaseUrl, wires.postgres),
      temporalAddress: `${LOOPBACK}:${wires.temporal}`,
    };
    const { note, ...store } = postgres(plan);
    const components = [
      smallEngine(wires),
      store,
      temporal(plan),
      ...plan.gateways.map((own) => gateway(through, own)),
      worker(through, 'workflows'),
      worker(through, 'activities'),
      gpuWorker(through),
    ];
    return { components, notes: note ? [note] : [] };
  };

function withPort(address: string, port: number): string {
  const url = new URL(address);
  url.port = String(port);
  return url.href;
}

function smallEngine({ engine: socket, engineLog }: Wiring): Component {
  return {
    name: 'engine',
    address: `unix:${socket}`,
    needs: [],
    prepare: async () => void mkdirSync(join(socket, '..'), { recursive: true }),
    launch: () => ({
      file: INSTALLS.node,
      args: [join(REPOSITORY, 'bench/chaos/engine.ts'), socket, engineLog],
      env: environment({}),
    }),
    isReady: async (_pid, signal) => (await healthOf(socket, signal)) === 200,
    isHealthy: async (signal) => (await healthOf(socket, signal)) !== 503,
    readyWithinMs: 60_000,
    stopSignal: 'SIGTERM',
    stopWithinMs: 5_000,
  };
}
