import { parseObject, type JsonObject } from '../../../gateway/json.ts';
import { readBroken } from '../harness/gateways.ts';

export type ProtocolEvent = JsonObject & { type: string };

/** Reads a stream's named events in order, and whether its connection broke. */
export async function readEvents(response: Response): Promise<{ events: ProtocolEvent[]; broken: boolean }> {
  const { text, broken } = await readBroken(response);
  return { events: eventsIn(text), broken };
}

export const typesOf = (events: readonly ProtocolEvent[]): string[] => events.map(({ type }) => type);

export function eventsIn(text: string): ProtocolEvent[] {
  const events = text.split('\n\n').filter((event) => event !== '' && !event.startsWith(':'));
  return events.map((event) => {
    const [, name, data] = /^event: (.+)\ndata: (.+)$/.exec(event) ?? [];
    const parsed = parseObject(data ?? '');
    if (!parsed || typeof parsed.type !== 'string' || parsed.type !== name)
      throw new Error(`an event is not named by its type: ${event}`);
    return { ...parsed, type: parsed.type };
  });
}
