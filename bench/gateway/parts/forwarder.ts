import { fileURLToPath } from 'node:url';
import { environment } from '../../../cli/supervisor/component.ts';
import { GATEWAY_HEAP } from '../../../cli/supervisor/components/gateway.ts';
import { plainTarget, type Target } from '../cell.ts';
import { startChild } from './child.ts';

const MAIN = fileURLToPath(new URL('../forwarder/main.ts', import.meta.url));

/** Starts a server that has the gateway's libraries without the gateway. */
export async function startForwarder(engine: string, signal: AbortSignal): Promise<Target> {
  const child = await startChild({
    name: 'the forwarder',
    file: process.execPath,
    args: [...GATEWAY_HEAP, MAIN, engine],
    env: environment({}),
    ready: /listening on (\S+)/,
    signal,
  });
  return { ...plainTarget('forwards only', child.readyMatch, child.stop), pid: child.pid };
}
