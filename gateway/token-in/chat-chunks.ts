import { choicesOf } from '../../store/calls/choices.ts';
import { asObject, type Chunk } from '../chat/token-json.ts';
import { badReply } from '../chat/rejection.ts';
import { openingChunks, type ChunkHead } from '../chat/whole-as-chunks.ts';
import { isObject, type JsonObject } from '../json.ts';

/** Converts vLLM's stream of generated text into the chunks that its chat route would send. */
export async function* chatChunks(
  generated: AsyncIterable<Chunk[]>,
  { prompt, model, n }: { prompt: number[]; model: unknown; n: number },
): AsyncGenerator<JsonObject[]> {
  const created = Math.floor(Date.now() / 1000);
  let begun = false;
  for await (const chunks of generated) {
    yield chunks.map(asObject).flatMap((chunk) => {
      const head: ChunkHead = { id: chunk.request_id, object: 'chat.completion.chunk', created, model };
      const opening = begun ? [] : openingChunks(head, n, prompt);
      begun = true;
      return [...opening, ...chatChunk(head, chunk)];
    });
  }
}

function chatChunk(head: ChunkHead, chunk: JsonObject): JsonObject[] {
  const choices = choicesOf(chunk).map(({ text, ...rest }) => {
    if (typeof text !== 'string') throw badReply('has no text');
    return { ...rest, delta: { content: text } };
  });
  if (choices.length > 0) return [{ ...head, choices }];
  return isObject(chunk.usage) ? [{ ...head, choices: [], usage: chunk.usage }] : [];
}
