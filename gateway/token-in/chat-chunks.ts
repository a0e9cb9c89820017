import { onlyChoice } from '../chat/hide.ts';
import { badReply } from '../chat/rejection.ts';
import { openingChunk, type ChunkHead } from '../chat/whole-as-chunks.ts';
import { isObject, type JsonObject } from '../json.ts';

/** vLLM's stream of generated text as the chunks that its chat route would have sent. */
export async function* chatChunks(generated: AsyncIterable<JsonObject>, { prompt, model }: { prompt: number[]; model: unknown }): AsyncGenerator<JsonObject> {
  const created = Math.floor(Date.now() / 1000);
  let begun = false;
  for await (const { request_id: id, usage, ...chunk } of generated) {
    const head: ChunkHead = { id, object: 'chat.completion.chunk', created, model };
    if (!begun) yield { ...openingChunk(head), prompt_token_ids: prompt };
    begun = true;
    const choice = onlyChoice(chunk);
    if (choice) {
      const { text, ...rest } = choice;
      if (typeof text !== 'string') throw badReply('has no text');
      yield { ...head, choices: [{ ...rest, delta: { content: text } }] };
    }
    if (isObject(usage) && !choice) yield { ...head, choices: [], usage };
  }
}
