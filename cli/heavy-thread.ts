import { loadGateway } from './load-gateway.ts';

/** The gateway's thread for heavy requests, from one file as the gateway itself. */
const { runHeavyThread } = await loadGateway();
await runHeavyThread();
