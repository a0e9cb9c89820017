/** What a gateway's process runs: all else of it comes with these. */
export { runGateway } from '../gateway/main.ts';
export { runHeavyThread } from '../gateway/node/heavy-thread.ts';
export { requireDatabase } from './database.ts';
