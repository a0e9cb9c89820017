/** The entry points of a gateway process. They import everything else that it needs. */
export { runGateway } from '../gateway/runtimes/node/main.ts';
export { runHeavyThread } from '../gateway/runtimes/node/heavy-thread.ts';
export { requireDatabase } from './database.ts';
