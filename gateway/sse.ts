import { createParser } from 'eventsource-parser';

/** The `data` of each server-sent event, whatever the boundaries of the chunks: within a character, a line, an event. */
export async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const ready: string[] = [];
  const parser = createParser({ onEvent: (event) => ready.push(event.data) });
  const decoder = new TextDecoder();
  for await (const bytes of body) {
    parser.feed(decoder.decode(bytes, { stream: true }));
    yield* ready.splice(0);
  }
}

export const DONE = '[DONE]';

export const asEvent = (data: string): string => `data: ${data}\n\n`;
