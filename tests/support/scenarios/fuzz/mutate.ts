import { isObject } from '../../../../gateway/json.ts';
import type { Random } from './random.ts';

/** JSON values that are wrong almost everywhere. */
const ODD: readonly [unknown, ...unknown[]] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  2 ** 53,
  '',
  '\u0000',
  '\ud800',
  '🦀',
  'x'.repeat(70_000),
  [],
  {},
  [null],
  [[]],
  { '': '' },
  [-1, 'a', null],
  Array(5_000).fill(7),
  JSON.parse('{"__proto__": {"polluted": true}}'),
  JSON.parse(`${'['.repeat(2_000)}${']'.repeat(2_000)}`),
  { constructor: { prototype: 1 }, toString: 1, length: -1 },
];

/** Returns text with bytes flipped, cut, repeated or inserted. */
export function mutateBytes(text: string, random: Random): Buffer {
  let bytes: Buffer = Buffer.from(text);
  for (let times = 1 + random.below(3); times > 0; times--) {
    const at = random.below(bytes.length + 1);
    const to = Math.min(bytes.length, at + random.below(200));
    const [head, span, tail] = [bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)];
    bytes = random.pick<() => Buffer>([
      () => Buffer.concat([head, Buffer.from(span.map((byte) => byte ^ (1 << random.below(8)))), tail]),
      () => head,
      () => Buffer.concat([head, tail]),
      () => Buffer.concat([head, span, span, tail]),
      () => Buffer.concat([head, Buffer.alloc(1 + random.below(20)), tail]),
      () =>
        Buffer.concat([
          head,
          Buffer.from(
            random.pick([
              '\n',
              '\n\n',
              'data: ',
              '\r',
              'data: [DONE]\n\n',
              'event: x\n',
              ': \n',
              '\ufeff',
              '"',
              '}',
              '\\u0000',
              'NaN',
            ]),
          ),
          tail,
        ]),
      () => Buffer.concat([head, Buffer.alloc(300_000, 'x'), tail]),
    ])();
  }
  return bytes;
}

/** Returns a JSON value with a part replaced, removed, inserted or repeated. */
export function mutateValue(value: unknown, random: Random): unknown {
  if (random.chance(0.2)) return random.pick(ODD);
  if (Array.isArray(value) && value.length > 0) {
    const at = random.below(value.length);
    return random.pick<() => unknown[]>([
      () => value.with(at, mutateValue(value[at], random)),
      () => value.with(at, mutateValue(value[at], random)),
      () => value.toSpliced(at, 1),
      () => [...value, ...value],
      () => value.toReversed(),
    ])();
  }
  if (!isObject(value) || Object.keys(value).length === 0) return random.pick(ODD);
  const keys = Object.keys(value);
  const key = keys[random.below(keys.length)] ?? '';
  const { [key]: taken, ...rest } = value;
  if (random.chance(0.15)) return rest;
  if (random.chance(0.1))
    return {
      ...value,
      [random.pick(['index', 'n', 'stream', 'error', 'choices', 'usage', 'token_ids', 'x'])]: random.pick(ODD),
    };
  return { ...value, [key]: mutateValue(taken, random) };
}

/** Mutates a JSON body or a stream of events by its structure or as bytes. */
export function mutateText(text: string, random: Random): Buffer {
  if (random.chance(0.4)) return mutateBytes(text, random);
  if (!text.startsWith('data: ')) return Buffer.from(JSON.stringify(mutateValue(JSON.parse(text), random)) ?? '');
  const events = text.split('\n\n').filter(Boolean);
  const at = random.below(events.length);
  const event = events[at] ?? '';
  const changed = random.pick<() => string[]>([
    () => events.with(at, mutateEvent(event, random)),
    () => events.with(at, mutateEvent(event, random)),
    () => events.toSpliced(at, 1),
    () => events.toSpliced(at, 0, events[random.below(events.length)] ?? ''),
    () => events.toReversed(),
    () => events.slice(0, at),
  ])();
  return Buffer.from(changed.map((each) => `${each}\n\n`).join(''));
}

function mutateEvent(event: string, random: Random): string {
  const data = event.slice('data: '.length);
  return data === '[DONE]' ? event : `data: ${JSON.stringify(mutateValue(JSON.parse(data), random))}`;
}
