import { once } from 'node:events';
import { startGateway, type NodeGatewayOptions } from './start-gateway.ts';

/** Runs the gateway until `signal` aborts. Prints its address as one line, and failures in its log. */
export async function runGateway(options: NodeGatewayOptions, signal: AbortSignal): Promise<void> {
  const gateway = await startGateway(options);
  const open = options.adminKey === null ? '; without an admin key, its session routes are open to this machine' : '';
  const { engines, enginesFile, enginesKubernetes } = options;
  const found = [
    enginesFile === undefined ? '' : `, those in ${enginesFile}`,
    enginesKubernetes === undefined ? '' : `, the pods with ${enginesKubernetes.selector}`,
  ].join('');
  console.log(`gateway listening on ${gateway.url}, ${engines.length} engine(s)${found}${open}`);
  if (!signal.aborted) await once(signal, 'abort');
  await gateway.close();
}
