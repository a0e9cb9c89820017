import { sql } from 'drizzle-orm';
import { textOf } from '../calls/outline.ts';
import { restorePrompts } from '../calls/restore-ids.ts';
import { parseStored } from '../calls/restore.ts';
import { shortRequest } from '../calls/shorten.ts';
import { concat } from '../../core/token-ids.ts';
import { calls } from '../schema.ts';
import type { Executor } from './transaction.ts';

type Row = {
  id: string;
  baseId: string | null;
  sharedIds: number;
  prompt: Buffer | null;
  completion: Buffer | null;
  request: Buffer | null;
  response: Buffer | null;
};

/**
 * A turn as it is read. `tokenIds` has the ids of prompt and completion, and is empty when the prompt's ids are unknown. `text` has the
 * prompt and the reply of a text completion.
 */
export type ReadTurn = { prompt: Int32Array | null; tokenIds: Int32Array; text: string };

/** A call that another one builds on, with its ids and text. */
export type KnownTurn = { callId: string } & Pick<ReadTurn, 'tokenIds' | 'text'>;

/** Reads the prompt and the reply of one call. It reads only this call and the calls that it builds on, and of those only the ones after `known`. */
export async function readTurn(
  db: Executor,
  callId: string,
  known: KnownTurn | null = null,
): Promise<ReadTurn | undefined> {
  const { rows } = await db.execute<Row>(sql`
    with recursive line as (
      select id, seq, base_id, shared_ids, protocol, request, response, prompt_token_ids, completion_token_ids from ${calls} where id = ${callId}
      union all
      select base.id, base.seq, base.base_id, base.shared_ids, base.protocol, base.request, base.response, base.prompt_token_ids, base.completion_token_ids
      from ${calls} base join line on base.id = line.base_id where base.id is distinct from ${known?.callId ?? null}::uuid
    )
    select id, base_id as "baseId", shared_ids as "sharedIds", prompt_token_ids as prompt, completion_token_ids as completion,
      case when protocol = 'completions' then request end as request, case when protocol = 'completions' then response end as response
    from line order by seq`);
  const lines = rows.map(({ prompt, completion, ...row }) => ({
    ...row,
    promptTokenIds: idsOf(prompt),
    completionTokenIds: idsOf(completion),
  }));
  const last = lines.at(-1);
  if (!last) return undefined;
  const prompt = restorePrompts(lines, known).at(-1) ?? null;
  return {
    prompt,
    tokenIds: prompt ? concat(prompt, last.completionTokenIds ?? []) : new Int32Array(),
    text: rows.reduce(textAfter, known?.text ?? ''),
  };
}

/** Returns the prompt and the reply of a text completion, built on those of the call before. A chat call has none. */
function textAfter(before: string, { request, response }: Row): string {
  if (!request) return '';
  const { prompt } = shortRequest.parse(parseStored(request));
  return (prompt ? before.slice(0, prompt[0]) + prompt[1] : '') + textOf(response && parseStored(response));
}

/** pg returns slices of a shared buffer at any offset; a typed array needs its own aligned buffer. */
const idsOf = (raw: Buffer | null): Int32Array | null => raw && new Int32Array(new Uint8Array(raw).buffer);
