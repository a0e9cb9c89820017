import { loadGateway } from './load-gateway.ts';

/** Runs the gateway's thread for heavy requests, loaded from one file like the gateway itself. */
const { runHeavyThread } = await loadGateway();
await runHeavyThread();
