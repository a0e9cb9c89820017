import { fileURLToPath } from 'node:url';

/** Where agents are described: one file an agent. */
export const agentsFolder = fileURLToPath(new URL('../agents', import.meta.url));
