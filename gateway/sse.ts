import { createParser } from 'eventsource-parser';

/** The `data` of server-sent events, as many as came at once, whatever the boundaries of the chunks: within a character, a line, an event. */
export async function* readEvents(body: AsyncIterable<Uint8Array>): AsyncGenerator<string[]> {
  let ready: string[] = [];
  const parser = createParser({ onEvent: (event) => ready.push(event.data) });
  const decoder = new TextDecoder();
  for await (const bytes of body) {
    parser.feed(decoder.decode(bytes, { stream: true }));
    if (ready.length === 0) continue;
    const events = ready;
    ready = [];
    yield events;
  }
}

export const DONE = '[DONE]';

export const asEvent = (data: string): string => `data: ${data}\n\n`;

/** A reverse proxy must not hold events back. */
export const EVENT_STREAM = { 'content-type': 'text/event-stream; charset=utf-8', 'cache-control': 'no-cache', 'x-accel-buffering': 'no' };
