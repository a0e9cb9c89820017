import { z } from 'zod';
import { FOUND_BY, RUN_STATUSES } from '../../../store/schema.ts';
import { engine } from './schemas.ts';

const seconds = z.number().describe('Seconds since the epoch');

const deploymentEngine = engine.extend({
  confirmed: z
    .object({ version: z.int(), at: seconds })
    .nullable()
    .describe('The policy version of its run that it confirmed last'),
  awaits: z
    .enum(['publication', 'repair'])
    .nullable()
    .describe(
      'Why it is out of rotation: `publication`: its version is being published. `repair`: other engines serve that version and it has not confirmed it; it joined later or failed, and a repair may be under way. Null while it is in rotation or drains',
    ),
  awaits_since: seconds.nullable(),
  trouble: z.string().nullable().describe('Why this process’s last call did not take it'),
  load: z
    .object({
      running: z.int(),
      waiting: z.int(),
      kv_use: z.number().nullable().describe('The part of the KV cache in use, from 0 to 1'),
      kv_tokens: z.number().nullable(),
      at: seconds,
    })
    .nullable()
    .describe('What it told this process of itself when a call last came; null: nothing'),
  escapes: z.int().describe('Trials of this process that left it because it was loaded'),
  trials: z.int().describe('Trials of runs under way whose last recorded call it answered'),
  long_calls: z.int().describe('Calls that have been under way for several seconds, at all gateways'),
  longest_call_at: seconds.nullable().describe('The start of the first of them'),
});

export const deploymentState = z.object({
  now: seconds.describe('The time of the answer, by the clock of PostgreSQL'),
  engines: z.array(deploymentEngine),
  discovery: z
    .array(
      z.object({
        found_by: z.enum(FOUND_BY),
        engines: z.int().nullable().describe('How many were found last'),
        failing_since: seconds.nullable(),
        reason: z.string().nullable(),
      }),
    )
    .describe('The ways in which this process finds engines'),
  calls: z
    .object({
      in_flight: z.int(),
      wait_for_budget: z.int().describe('They wait for what other calls of their trial have reserved'),
      wait_for_room: z.int().describe('They wait for room in a KV cache'),
    })
    .describe('Of this process'),
  runs: z
    .array(
      z.object({
        run_id: z.string(),
        status: z.enum(RUN_STATUSES),
        reason: z.string().nullable(),
        waits_for_engines_since: seconds.nullable().describe('Another run has the engines'),
        open_groups: z.int(),
        unclaimed_groups: z
          .int()
          .describe('With `rollouts: external`: no program has claimed them. They count nowhere else'),
        unopened_trials: z.int().describe('Trials of open groups that no attempt was opened for: they wait for a slot'),
        trials_under_way: z.int(),
        verifying: z.int().describe('Those of them that take no more calls'),
        between_attempts: z.int(),
        stragglers: z.int().describe('Trials under way whose group has ended'),
        oldest: z
          .object({ trial_id: z.string(), opened_at: seconds })
          .nullable()
          .describe('The trial under way whose attempt was opened first'),
      }),
    )
    .describe('The runs under way'),
  hosts: z
    .array(
      z.object({
        host: z.string(),
        attempts: z.int().describe('Attempts that ended there'),
        lost: z.int().describe('Those that ended by an infrastructure error of the host'),
        last_at: seconds.nullable().describe('The end of the last of them; null before one has ended'),
        under_way: z.int().describe('Attempts whose sandbox it opens or has now'),
        sandboxes: z
          .array(
            z.object({
              trial_id: z.string(),
              attempt: z.int(),
              run_id: z.string(),
              opened_at: seconds,
              verifying: z.boolean().describe('The trial takes no more calls'),
            }),
          )
          .describe('Up to 20 of those under way, the oldest first'),
      }),
    )
    .describe(
      'The workers that have or had attempts of the open groups, and those that ended within a day, of the newest iterations and of evaluations',
    ),
});
export type DeploymentReply = z.output<typeof deploymentState>;
export type DeploymentEngineReply = z.output<typeof deploymentEngine>;
