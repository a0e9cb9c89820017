import { closest, distance } from 'fastest-levenshtein';
import { placeTask, requirePackages } from '../../activities/sandbox/place-task.ts';
import { agentEnvironment } from '../../activities/environments/agent-environment.ts';
import { requireHidden } from '../../activities/run/require-hidden.ts';
import { loadAgent } from '../../activities/sandbox/load-agent.ts';
import { reachedNetwork } from '../../activities/sandbox/network.ts';
import { requireNetwork } from '../../activities/tasks/require-network.ts';
import { TrialgateError } from '../../core/errors.ts';
import type { AgentEntry } from '../../core/run-config/agent-file.ts';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import type { Task } from '../../core/task.ts';
import { progressLine } from '../progress.ts';
import { findTask, requireIsolation } from '../run/try-agent.ts';
import type { Attack } from './attack.ts';
import { PROGRAMS } from './programs.ts';
import { REPLIES } from './replies.ts';
import { tryAttacks, type AttackReport } from './try-attacks.ts';

export type AttackOptions = {
  /** A task's folder, or a row: `train.jsonl#17`. */
  task: string;
  agent: AgentEntry;
  config: RunConfig;
  /** The names of the attacks to try, parted by commas; undefined: all. */
  only?: string;
  home: string;
  unsandboxed: boolean;
};

/**
 * Tries the attacks on a user's task, with the line of progress on standard error.
 * @throws TrialgateError `bad_input` for a wrong task, agent or attack
 */
export async function attackTask(options: AttackOptions, signal: AbortSignal): Promise<AttackReport> {
  const { config, home } = options;
  await requireIsolation(options);
  const [task, agent] = [await findTask(options.task, config, home), await loadAgent(options.agent)];
  requireHidden([agent], config, [task]);
  const attacks = attacksOn(task, options.only);
  const line = progressLine();
  try {
    const report = (text: string): void => line.show(text);
    const place = await placeTask(task, config, { home, signal, report });
    requirePackages(agent, place);
    const network = requireNetwork(task, agent.name, reachedNetwork(place.backend, config.network ?? agent.network));
    const environment = await agentEnvironment(agent, { home, signal, report });
    return await tryAttacks({
      task,
      agent,
      place,
      environment,
      network,
      weights: config.reward_weights,
      attacks,
      home,
      report,
      signal,
    });
  } finally {
    line.end();
  }
}

/**
 * Returns the attacks on a task: programs, and on a row also replies.
 * @throws TrialgateError `bad_input` that names an attack that there is not, and the one that is most like it
 */
export function attacksOn({ kind }: Pick<Task, 'kind'>, only?: string): Attack[] {
  const all: Attack[] = kind === 'row' ? [...REPLIES, ...PROGRAMS] : [...PROGRAMS];
  if (only === undefined) return all;
  const names = only.split(',').map((name) => name.trim());
  const known = all.map(({ name }) => name);
  for (const name of names) {
    if (known.includes(name)) continue;
    const like = closest(name, known);
    const hint = distance(name, like) <= 3 ? `: do you mean ${like}?` : `; there are ${known.join(', ')}`;
    const where = kind === 'row' ? 'a row' : 'a task folder';
    throw new TrialgateError('bad_input', `--only: there is no attack ${name} on ${where}${hint}`);
  }
  return all.filter(({ name }) => names.includes(name));
}
