import { sql } from 'drizzle-orm';
import { restorePrompts } from '../calls/restore-ids.ts';
import { calls } from '../schema.ts';
import type { Executor } from './transaction.ts';

type Row = { id: string; baseId: string | null; sharedIds: number; prompt: Buffer | null; completion: Buffer | null };

/** The ids of one call's prompt, whole. Reads the calls that it builds on, and no others of its trial. */
export async function readPrompt(db: Executor, callId: string): Promise<Int32Array | null> {
  const { rows } = await db.execute<Row>(sql`
    with recursive line as (
      select id, seq, base_id, shared_ids, prompt_token_ids, completion_token_ids from ${calls} where id = ${callId}
      union all
      select base.id, base.seq, base.base_id, base.shared_ids, base.prompt_token_ids, base.completion_token_ids from ${calls} base join line on base.id = line.base_id
    )
    select id, base_id as "baseId", shared_ids as "sharedIds", prompt_token_ids as prompt, completion_token_ids as completion from line order by seq`);
  const lines = rows.map(({ prompt, completion, ...row }) => ({ ...row, promptTokenIds: idsOf(prompt), completionTokenIds: idsOf(completion) }));
  return restorePrompts(lines).at(-1) ?? null;
}

/** pg hands out slices of a shared buffer at any offset; a typed array needs its own, aligned. */
const idsOf = (raw: Buffer | null): Int32Array | null => raw && new Int32Array(new Uint8Array(raw).buffer);
