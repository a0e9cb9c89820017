import { gzipSync } from 'node:zlib';

const MIB = 2 ** 20;
const USER = '{"role":"user","content":"hi"}';

const repeated = (item: string, bytes: number): string =>
  `${item},`.repeat(Math.floor(bytes / (item.length + 1))) + item;
const withField = (field: string): string => `{"messages":[${USER}],${field}}`;
/** Returns a body that has nothing in common with any other. */
const fresh = (bytes: number): string =>
  `{"messages":[{"role":"user","content":"${Math.random()}${'word '.repeat(bytes / 5)}"}]}`;
const keys = (count: number): string => Array.from({ length: count }, (_, i) => `"k${i}":1`).join();

/** The attacker's request bodies, by their names in the table. */
const BODIES = {
  '40 MiB of {} in an unknown list': () => withField(`"x":[${repeated('{}', 40 * MIB)}]`),
  '30 MiB of {} in an unknown list': () => withField(`"x":[${repeated('{}', 30 * MIB)}]`),
  '8 MiB of {} in an unknown list': () => withField(`"x":[${repeated('{}', 8 * MIB)}]`),
  '{} in an unknown list, as many as may be': () => withField(`"x":[${repeated('{}', 0.7 * MIB)}]`),
  '{} as messages, as many as may be': () => `{"messages":[${repeated('{}', 0.7 * MIB)}]}`,
  'messages, as many as may be': () => `{"messages":[${repeated(USER, 2.4 * MIB)}]}`,
  'messages, as many as stay with the other calls': () => `{"messages":[${repeated(USER, 36 * 1024)}]}`,
  '8 MiB of nested lists': () => withField(`"x":${'['.repeat(4 * MIB)}${']'.repeat(4 * MIB)}`),
  'nested objects, 499 levels, many times': () =>
    withField(`"x":[${repeated(`${'{"a":'.repeat(490)}1${'}'.repeat(490)}`, 1.4 * MIB)}]`),
  'a text of 30 MiB': () => fresh(30 * MIB),
  'a text of 250 KiB': () => fresh(250 * 1024),
  '30 MiB of escaped quotes': () => `{"messages":[{"role":"user","content":"${'\\"'.repeat(15 * MIB)}"}]}`,
  '240,000 keys': () => withField(`"x":{${keys(240_000)}}`),
  '__proto__ and constructor, 200,000 times': () =>
    withField(
      `"__proto__":{"polluted":true},"x":[${repeated('{"__proto__":{"a":1},"constructor":{"prototype":{"b":2}}}', 4 * MIB)}]`,
    ),
  'a prompt of 450,000 numbers': () => withField(`"prompt":[${repeated('1', 0.86 * MIB)}]`),
  'gzip of 30 MiB of {}': () => gzipSync(withField(`"x":[${repeated('{}', 30 * MIB)}]`)),
  'gzip of 200 MiB of blanks': () => gzipSync(Buffer.alloc(200 * MIB, ' ')),
  '16 MiB that the engine refuses': () => withField(`"bench_refuse":"${'x'.repeat(16 * MIB)}"`),
  '16 MiB that are answered': () => fresh(16 * MIB),
} satisfies Record<string, () => string | Buffer>;

export type BodyKind = keyof typeof BODIES;

export function makeBody(kind: BodyKind): { body: Buffer; headers: Record<string, string> } {
  return { body: Buffer.from(BODIES[kind]()), headers: kind.startsWith('gzip') ? { 'content-encoding': 'gzip' } : {} };
}
