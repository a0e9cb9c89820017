import { isUtf8 } from 'node:buffer';
import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { MAX_REWARD } from '../../core/weighted-reward.ts';
import { VerifierError } from './errors.ts';

/** Python's `float` reads these, `1_000` among them. */
const NUMBER = /^[+-]?(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)(e[+-]?\d+(_\d+)*)?$/i;
const MAX_BYTES = 65_536;

export type VerifierRewards = {
  /** Named rewards: finite numbers. */
  rewards: Record<string, number>;
  /** The part that each turn earned, for rewards that were given turn by turn. `rewards` has the sums. */
  turnRewards?: Record<string, number[]>;
};

/**
 * Reads what the tests wrote, by the rules of Harbor 0.26 (`harbor/verifier/verifier.py`): `reward.json` (names to rewards) if it is there, otherwise
 * `reward.txt` (one number, named `reward`). A reward is a number that float32 holds, or `true` or `false` as 1 or 0. Our own addition is a
 * list that has the part of each turn.
 * @param context what is known about the run, for the error
 * @throws VerifierError that names the file and what was found in it
 */
export async function readRewards(folder: string, context: string): Promise<VerifierRewards> {
  const json = await readSmall(join(folder, 'reward.json'), context);
  if (json === null) return { rewards: { reward: await readRewardText(folder, context) } };
  const entries = Object.entries(parseObject(json, context));
  if (entries.length === 0) throw new VerifierError(`reward.json holds no reward. ${context}`);
  const rewards = new Map<string, number>();
  const turnRewards = new Map<string, number[]>();
  for (const [name, value] of entries) {
    const where = `reward.json: ${name}`;
    if (!Array.isArray(value)) rewards.set(name, checked(where, value, context));
    else {
      const parts = value.map((part, turn) => checked(`${where}[${turn}]`, part, context));
      const sum = parts.reduce((a, b) => a + b, 0);
      rewards.set(name, checked(`${where}: the sum of all turns`, sum, context));
      turnRewards.set(name, parts);
    }
  }
  return {
    rewards: Object.fromEntries(rewards),
    ...(turnRewards.size === 0 ? {} : { turnRewards: Object.fromEntries(turnRewards) }),
  };
}

async function readRewardText(folder: string, context: string): Promise<number> {
  // A byte order mark is white space here, and not in Python.
  const text = (await readSmall(join(folder, 'reward.txt'), context))?.replace(/^\uFEFF/, 'a byte order mark, ').trim();
  if (text === undefined)
    throw new VerifierError(`no reward: neither reward.json nor reward.txt was written. ${context}`);
  return checked('reward.txt', NUMBER.test(text) ? Number(text.replaceAll('_', '')) : text, context);
}

function checked(where: string, value: unknown, context: string): number {
  if (typeof value === 'boolean') return Number(value);
  // The addition turns -0 into 0.
  if (typeof value === 'number' && Math.abs(value) <= MAX_REWARD) return value + 0;
  const found = typeof value === 'number' ? String(value) : JSON.stringify(value);
  throw new VerifierError(`${where}: a reward is a finite number, found ${found.slice(0, 100)}. ${context}`);
}

function parseObject(json: string, context: string): object {
  try {
    const value: unknown = JSON.parse(json);
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) return value;
  } catch {
    // Text that is not JSON gets the same error below as JSON that is not an object.
  }
  throw new VerifierError(
    `reward.json is not an object of numbers, found ${JSON.stringify(json.slice(0, 100))}. ${context}`,
  );
}

/**
 * Returns null if there is no such regular file. A sandbox's user wrote the file, so links are not followed and its content is not trusted.
 * @throws VerifierError for a file that is too long or not UTF-8
 */
export async function readSmall(path: string, context: string, maxBytes = MAX_BYTES): Promise<string | null> {
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK).catch(() => null);
  if (!file) return null;
  try {
    if (!(await file.stat()).isFile()) return null;
    const { buffer, bytesRead } = await file.read(Buffer.alloc(maxBytes + 1), 0, maxBytes + 1, 0);
    if (bytesRead > maxBytes) throw new VerifierError(`${basename(path)} is longer than ${maxBytes} bytes. ${context}`);
    const bytes = buffer.subarray(0, bytesRead);
    if (!isUtf8(bytes)) throw new VerifierError(`${basename(path)} is not UTF-8. ${context}`);
    return bytes.toString('utf8');
  } finally {
    await file.close();
  }
}
