import { z } from 'zod';
import { startsWith } from '../../store/ids.ts';
import type { Step } from './converse.ts';

const ids = z.array(z.number());
const turn = z.object({
  call_id: z.string(),
  prompt_token_ids: ids,
  completion_token_ids: ids,
  continuation: z.string().nullable(),
  parent_call_id: z.string().nullable(),
  untrainable: z.string().nullable(),
});
const session = z.object({ turns: z.array(turn) });
const sampleList = z.object({
  samples: z.array(z.object({ token_ids: ids, loss_mask: ids, logprobs: ids, policy_versions: z.array(z.number().nullable()), call_ids: z.array(z.string()) })),
});
type Turn = z.output<typeof turn>;
type Sample = z.output<typeof sampleList>['samples'][number];

type Seen = {
  steps: Step[];
  /** What `GET /sessions/{id}` and `/samples` answer. */
  session: unknown;
  samples: unknown;
  /** Ids as text, without the end of the turn. */
  decode: (completion: number[]) => string | Promise<string>;
  /** What the engine was given and gave, in the order of the calls, where it can tell. */
  generated?: { prompt: number[]; completion: number[] }[];
};

/** Where a trial's record or samples differ from what its agent saw, or from what the engine was given and gave. Empty: nowhere. */
export async function recordFaults({ steps, session: record, samples: made, decode, generated }: Seen): Promise<string[]> {
  const { turns } = session.parse(record);
  const { samples } = sampleList.parse(made);
  const faults = turns.length === steps.length ? [] : [`${steps.length} calls were made, and ${turns.length} recorded`];
  const byId = new Map(turns.map((each) => [each.call_id, each]));
  for (const [i, each] of turns.entries()) {
    const engine = generated?.[i];
    if (engine && !(same(engine.prompt, each.prompt_token_ids) && same(engine.completion, each.completion_token_ids))) faults.push(`turn ${i} differs from what the engine was given or gave`);
    const step = steps[i];
    const text = await decode(each.completion_token_ids);
    const isShown = !step || step.tools || shows(step.text, text) || ((await decode(each.prompt_token_ids)).endsWith('\uFFFD') && shows(step.text, text, true));
    if (!isShown) faults.push(`turn ${i} was seen as ${JSON.stringify(step?.text)} and recorded as ${JSON.stringify(text)}`);
    if (step?.continues && !isClean(each, byId.get(each.parent_call_id ?? ''))) faults.push(`turn ${i} is ${each.continuation}`);
    if (step && !step.continues && each.continuation === 'clean') faults.push(`turn ${i} is glued onto what it does not continue`);
  }
  return [...faults, ...sampleFaults(samples, byId)];
}

/** A token's text holds no more characters than that. */
const TOKEN = 24;

/**
 * A reply that was cut within a character: a decoder writes U+FFFD there, a stream leaves out what its last token had begun.
 * `within`: its prompt ended within a character. What an engine shows of that beginning is the engine's own; the rest must be there.
 */
function shows(seen: string, recorded: string, within = false): boolean {
  if (seen === recorded) return true;
  const [whole, rest] = [seen.replace(/\uFFFD+$/, ''), within ? recorded.replace(/^\uFFFD+/, '') : recorded];
  const end = rest.replace(/\uFFFD+$/, '');
  if (within && (seen.endsWith(rest) || whole.endsWith(end))) return true;
  return rest.endsWith('\uFFFD') && rest.startsWith(whole) && rest.length - whole.length <= TOKEN;
}

function isClean({ continuation, prompt_token_ids }: Turn, parent: Turn | undefined): boolean {
  return continuation === 'clean' && parent !== undefined && startsWith(prompt_token_ids, [...parent.prompt_token_ids, ...parent.completion_token_ids]);
}

function sampleFaults(samples: Sample[], turns: Map<string, Turn>): string[] {
  const faults: string[] = [];
  const trained = new Map<string, number>();
  for (const [i, { token_ids, loss_mask, logprobs, policy_versions, call_ids }] of samples.entries()) {
    if (new Set([token_ids, loss_mask, logprobs, policy_versions].map((list) => list.length)).size > 1) faults.push(`sample ${i}'s lists are not equally long`);
    const leaf = turns.get(call_ids.at(-1) ?? '');
    if (!same(token_ids, [...(leaf?.prompt_token_ids ?? []), ...(leaf?.completion_token_ids ?? [])])) faults.push(`sample ${i} is not its last call's prompt and completion`);
    for (const id of call_ids) {
      const call = turns.get(id);
      const start = call?.prompt_token_ids.length ?? 0;
      if (!same(token_ids.slice(start, start + (call?.completion_token_ids.length ?? 0)), call?.completion_token_ids ?? [])) faults.push(`sample ${i} lacks what call ${id} sampled`);
      if (loss_mask[start] === 1) trained.set(id, (trained.get(id) ?? 0) + 1);
    }
  }
  const trainable = [...turns.values()].filter(({ untrainable }) => untrainable === null);
  for (const [id, { untrainable }] of turns) {
    const times = trained.get(id) ?? 0;
    if (times !== (untrainable === null ? 1 : 0)) faults.push(`call ${id} (${untrainable ?? 'trainable'}) is trained ${times} times`);
  }
  const masked = samples.reduce((sum, { loss_mask }) => sum + loss_mask.filter(Boolean).length, 0);
  const sampled = trainable.reduce((sum, call) => sum + call.completion_token_ids.length, 0);
  if (masked !== sampled) faults.push(`${sampled} tokens were sampled, and ${masked} are trained`);
  return faults;
}

const same = (a: readonly number[], b: readonly number[]): boolean => a.length === b.length && startsWith(a, b);
