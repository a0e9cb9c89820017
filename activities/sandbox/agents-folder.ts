import { join } from 'node:path';
import { REPOSITORY } from '../../core/repository.ts';

/** The folder of the agent files, one for each agent. */
export const agentsFolder = join(REPOSITORY, 'agents');
