import { existsSync, openSync, readSync } from 'node:fs';
import { z } from 'zod';

/** The variable that names the file in which a suite writes its events. */
export const EVENTS_FILE = 'TRIALGATE_TEST_EVENTS';

/**
 * What a suite says while it runs, a line of JSON each. `vitest-reporter.ts` and `pytest_events.py` write them. They are written as they happen, so that a
 * suite that hangs or is killed has still said which tests ran.
 */
const eventSchema = z.discriminatedUnion('event', [
  /** A file is being loaded, and its tests begin soon. A test that blocks its thread can say no more than this. */
  z.object({ event: z.literal('open'), file: z.string() }),
  z.object({ event: z.literal('start'), file: z.string(), test: z.string() }),
  z.object({
    event: z.literal('end'),
    file: z.string(),
    test: z.string(),
    result: z.enum(['passed', 'failed', 'skipped']),
    seconds: z.number(),
    failure: z.string().optional(),
  }),
  /** All tests of a file have ended. `failure` is one of the file itself: it cannot be loaded, or a hook failed. */
  z.object({ event: z.literal('file'), file: z.string(), seconds: z.number(), failure: z.string().optional() }),
  /** All files have ended. `failure` is one of no file, as an error that no test awaited. */
  z.object({ event: z.literal('done'), failure: z.string().optional() }),
]);
export type TestEvent = z.infer<typeof eventSchema>;

/** Reads the lines that a file has got since the last call. */
export class EventReader {
  readonly #file: string;
  #opened: number | undefined;
  #position = 0;
  #rest = '';

  constructor(file: string) {
    this.#file = file;
  }

  read(): TestEvent[] {
    if (this.#opened === undefined && !existsSync(this.#file)) return [];
    this.#opened ??= openSync(this.#file, 'r');
    const bytes = Buffer.alloc(1 << 16);
    const parts: Buffer[] = [];
    for (let count = -1; count !== 0;) {
      count = readSync(this.#opened, bytes, 0, bytes.length, this.#position);
      this.#position += count;
      parts.push(Buffer.from(bytes.subarray(0, count)));
    }
    // A part of a character can be at the end only together with a part of a line, and each line is written at once.
    const lines = (this.#rest + Buffer.concat(parts).toString()).split('\n');
    this.#rest = lines.pop() ?? '';
    return lines.map((line) => eventSchema.parse(JSON.parse(line)));
  }
}
