import { loadGateway } from './load-gateway.ts';

/** Runs the gateway's thread for heavy requests. Like the gateway, it is loaded from one bundled file. */
const { runHeavyThread } = await loadGateway();
await runHeavyThread();
