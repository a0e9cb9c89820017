import { hostname, userInfo } from 'node:os';
import { REPOSITORY } from '../../core/repository.ts';

type Json = string | number | boolean | null | Json[] | { [key: string]: Json };

/** The fields that no replay reads and that tell where a history was recorded. */
const LEFT_OUT = new Set([
  'stackTrace',
  'taskId',
  'identity',
  'requestId',
  'workerVersion',
  'binaryChecksum',
  'links',
  'header',
  'lastHeartbeatDetails',
]);

/** Returns a history in Temporal's JSON form without traces of the machine that recorded it: `home` becomes `/home`, a worker its task queue. */
export function anonymous(history: Json, home: string): Json {
  const without = strip(history, home);
  const told = JSON.stringify(readable(without));
  for (const secret of [hostname(), REPOSITORY, home, `${userInfo().username}@`]) {
    if (told.includes(secret)) throw new Error(`a history contains a name of this machine: ${secret}`);
  }
  return without;
}

function strip(value: Json, home: string): Json {
  if (Array.isArray(value)) return value.map((each) => strip(each, home));
  if (typeof value !== 'object' || value === null)
    return typeof value === 'string' ? value.replaceAll(home, '/home') : value;
  // A sticky queue has the name of its worker.
  if (value['kind'] === 'TASK_QUEUE_KIND_STICKY')
    return { kind: value['kind'], normalName: value['normalName'] ?? null, name: 'sticky' };
  const entries = Object.entries(value).filter(([key]) => !LEFT_OUT.has(key));
  const own = Object.fromEntries(entries.map(([key, each]) => [key, strip(each, home)]));
  const text = textOf(value);
  return text === null ? own : { ...own, data: Buffer.from(text.replaceAll(home, '/home')).toString('base64') };
}

/** Returns the value with its payloads decoded to text. */
function readable(value: Json): Json {
  if (Array.isArray(value)) return value.map(readable);
  if (typeof value !== 'object' || value === null) return value;
  const text = textOf(value);
  return text ?? Object.fromEntries(Object.entries(value).map(([key, each]) => [key, readable(each)]));
}

/** Returns the text of a payload, or null for any other value. */
function textOf({ metadata, data }: { [key: string]: Json }): string | null {
  return typeof metadata === 'object' && typeof data === 'string' ? Buffer.from(data, 'base64').toString() : null;
}
