import { fileURLToPath } from 'node:url';

/** The folder of the agent files, one for each agent. */
export const agentsFolder = fileURLToPath(new URL('../agents', import.meta.url));
