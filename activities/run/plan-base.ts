import { and, eq, isNotNull } from 'drizzle-orm';
import { policyVersions, runs } from '../../store/schema.ts';
import type { Deps } from '../deps.ts';
import type { LoadBaseInput } from '../../core/gpu-contract.ts';
import { readRun } from './read-run.ts';

/** Returns what the trainer needs to make policy version 0. A fork's version 0 is a checkpoint already, made when it was forked. */
export const planBase =
  (deps: Deps) =>
  async (input: { runId: string }): Promise<LoadBaseInput> => {
    const config = await readRun(deps.db, input.runId);
    const { model, head_dtype, lora_rank, lora_alpha, target_modules, enable_router_replay, seed, trainer_server } =
      config;
    const [fork] = await deps.db
      .select({ checkpoint: policyVersions.checkpoint })
      .from(policyVersions)
      .innerJoin(runs, eq(runs.id, policyVersions.runId))
      .where(and(eq(policyVersions.runId, input.runId), eq(policyVersions.version, 0), isNotNull(runs.forkedFrom)));
    return {
      run_id: input.runId,
      model: fork?.checkpoint ?? model,
      home: deps.home,
      head_dtype,
      lora_rank,
      lora_alpha,
      target_modules,
      enable_router_replay,
      seed,
      trainer_server,
    };
  };
