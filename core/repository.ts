import { dirname } from 'node:path';

/** The folder of this repository. The installed programs, the agents and the bundled tasks are in it. */
export const REPOSITORY = dirname(import.meta.dirname);
