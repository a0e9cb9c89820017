import { z } from 'zod';
import { same, type GeneratedReply } from '../scenarios/generated.ts';

const ids = z.array(z.number());
const sampleList = z.object({
  samples: z.array(
    z.object({
      token_ids: ids,
      loss_mask: ids,
      logprobs: ids,
      policy_versions: z.array(z.number().nullable()),
      call_ids: z.array(z.string()),
    }),
  ),
});

export type TrainedTurn = Required<GeneratedReply> & { untrainable: string | null };

/** Lists where a trial's samples (`GET /sessions/{id}/samples`) are not its turns, each trained once. */
export function sampleFaults(made: unknown, turns: Map<string, TrainedTurn>): string[] {
  const { samples } = sampleList.parse(made);
  const faults: string[] = [];
  const trained = new Map<string, number>();
  for (const [i, { token_ids, loss_mask, logprobs, policy_versions, call_ids }] of samples.entries()) {
    if (new Set([token_ids, loss_mask, logprobs, policy_versions].map((list) => list.length)).size > 1)
      faults.push(`sample ${i}'s lists are not equally long`);
    if (loss_mask.some((mask, at) => mask === 0 && (logprobs[at] !== 0 || policy_versions[at] !== null)))
      faults.push(`sample ${i} has a log-probability or a version where it does not train`);
    const leaf = turns.get(call_ids.at(-1) ?? '');
    if (!same(token_ids, [...(leaf?.prompt ?? []), ...(leaf?.completion ?? [])]))
      faults.push(`sample ${i} is not its last call's prompt and completion`);
    for (const id of call_ids) {
      const call = turns.get(id);
      const start = call?.prompt.length ?? 0;
      const end = start + (call?.completion.length ?? 0);
      if (!same(token_ids.slice(start, end), call?.completion ?? []))
        faults.push(`sample ${i} lacks what call ${id} sampled`);
      if (loss_mask[start] !== 1) continue;
      trained.set(id, (trained.get(id) ?? 0) + 1);
      if (!same(logprobs.slice(start, end), call?.logprobs ?? []))
        faults.push(`sample ${i} has other log-probabilities than call ${id}`);
      if (policy_versions.slice(start, end).some((version, at) => version !== call?.versions[at]))
        faults.push(`sample ${i} has other versions than call ${id}`);
    }
  }
  const trainable = [...turns.values()].filter(({ untrainable }) => untrainable === null);
  for (const [id, { untrainable }] of turns) {
    const times = trained.get(id) ?? 0;
    if (times !== (untrainable === null ? 1 : 0))
      faults.push(`call ${id} (${untrainable ?? 'trainable'}) is trained ${times} times`);
  }
  const masked = samples.reduce((sum, { loss_mask }) => sum + loss_mask.filter(Boolean).length, 0);
  const sampled = trainable.reduce((sum, call) => sum + call.completion.length, 0);
  if (masked !== sampled) faults.push(`${sampled} tokens were sampled, and ${masked} are trained`);
  return faults;
}
