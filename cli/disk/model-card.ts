import { basename, isAbsolute } from 'node:path';
import { stringify } from 'yaml';
import type { RunConfig } from '../../core/run-config/run-config.ts';
import { weightVersionOf } from '../../core/weight-version.ts';
import type { RunRecord, Summary } from '../show/run-record.ts';
import { passRate } from '../show/run-table.ts';

/** Returns the README of a model folder, with the header that the Hugging Face hub reads. */
export function modelCard(record: RunRecord, config: RunConfig, version: number): string {
  // The path of a local model means nothing on another machine, so only its name is written.
  const base = isAbsolute(config.model) ? basename(config.model) : config.model;
  const header = stringify({ base_model: base, library_name: 'transformers', tags: ['trialgate', config.objective] });
  const held = record.evaluations.map((row) => [`policy ${row.policy_version}, held-out tasks`, ...rewardsOf(row)]);
  const trained = record.iterations.map((row) => [`iteration ${row.iteration}`, ...rewardsOf(row)]);
  const rows = [...held, ...trained].map((cells) => `| ${cells.join(' | ')} |`);
  return [
    `---\n${header}---`,
    `# ${record.run}, policy version ${version}`,
    `${base}, trained by Trialgate with ${config.objective.toUpperCase()}. Weight version: \`${weightVersionOf(record.run, version)}\`.`,
    ...(rows.length > 0 ? [['| | reward mean | pass rate |', '|---|---|---|', ...rows].join('\n')] : []),
    `## Settings\n\n\`\`\`yaml\n${stringify(settingsOf(config, rateOf(record)))}\`\`\``,
    '',
  ].join('\n\n');
}

/** Returns the learning rate of the last step. The run file may leave it to the trainer. */
const rateOf = ({ iterations }: RunRecord): number | undefined =>
  iterations.findLast(({ metrics }) => metrics['actor/lr'] !== undefined)?.metrics['actor/lr'];

/** The settings that shape the training. Paths and URLs of this machine are left out. */
const settingsOf = (
  {
    iterations,
    groups_per_iteration,
    group_size,
    max_staleness,
    max_prompt_length,
    max_response_length,
    constrained_decoding,
    sampling,
    optim,
    objective,
    lora_rank,
    lora_alpha,
    target_modules,
  }: RunConfig,
  rate: number | undefined,
) => ({
  iterations,
  groups_per_iteration,
  group_size,
  max_staleness,
  max_prompt_length,
  max_response_length,
  objective,
  optim: { ...optim, lr: optim.lr ?? rate ?? null },
  constrained_decoding,
  sampling,
  ...(lora_rank > 0 ? { lora_rank, lora_alpha, target_modules } : {}),
});

const rewardsOf = (row: Summary): string[] => [row.reward?.mean.toFixed(3) ?? '–', passRate(row)];
