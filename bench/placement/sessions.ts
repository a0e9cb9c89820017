import { Random } from '../../tests/support/scenarios/fuzz/random.ts';

/** One call of an agent: the new tokens of its prompt, the tokens of its reply, and the seconds that its tools take afterwards. */
export type Turn = { appended: number; output: number; toolSeconds: number };
/** `shared` is the part of the first prompt that all sessions have, `task` the part that its group has. */
export type Session = { id: number; group: number; shared: number; task: number; turns: Turn[] };

export type Shape = {
  sessions: number;
  groupSize: number;
  /** The median number of turns and its sigma. */
  turns: readonly [median: number, sigma: number];
  /** The largest prompt with its reply. */
  context: number;
  seed: number;
};

const SHARED = 6_000;
const TASK = 1_500;
const MOST_TURNS = 99;
const FEWEST_TURNS = 5;
const MOST_APPENDED = 32_000;
const MOST_OUTPUT = 8_000;
const MOST_TOOL_SECONDS = 120;

/**
 * Draws sessions of coding agents from log-normal distributions that were fitted to published recordings. Turns a session: NVIDIA-NeMo/RL
 * #3663, 610 recorded sessions (5 / 29 / 56 / 85 / 99). New tokens a turn: TraceLab (tracelab.cs.washington.edu), Claude Code, cached
 * prefixes of 32 to 64 thousand tokens (951 at the median, 5,300 at 90%). Tokens of a reply: TraceLab's mean of 523. The tools' time is an
 * assumption: 1 s at the median, 6.8 s at 90%.
 */
export function drawSessions({ sessions, groupSize, turns: [median, sigma], context, seed }: Shape): Session[] {
  const random = new Random(seed);
  const logNormal = (middle: number, spread: number, most: number) =>
    Math.min(Math.max(Math.round(middle * Math.exp(spread * normal(random))), 1), most);
  return Array.from({ length: sessions }, (_, id) => {
    const count = Math.max(logNormal(median, sigma, MOST_TURNS), FEWEST_TURNS);
    const turns: Turn[] = [];
    let length = SHARED + TASK;
    for (let i = 0; i < count; i++) {
      const appended = i === 0 ? 0 : logNormal(951, 1.34, MOST_APPENDED);
      const output = logNormal(250, 1.2, MOST_OUTPUT);
      length += appended + output;
      if (length > context) break;
      const toolSeconds = Math.min(Math.exp(1.5 * normal(random)), MOST_TOOL_SECONDS);
      turns.push({ appended, output, toolSeconds });
    }
    return { id, group: Math.floor(id / groupSize), shared: SHARED, task: TASK, turns };
  });
}

const normal = (random: Random): number =>
  Math.sqrt(-2 * Math.log(1 - random.next())) * Math.cos(2 * Math.PI * random.next());
