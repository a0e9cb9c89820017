import { z } from 'zod';

/** From the least to the most severe. Python's names, in small letters. */
export const LOG_LEVELS = ['debug', 'info', 'warning', 'error'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const id = z.string().min(1).max(256);

/**
 * A line of a process's log in JSON. The processes in Python write the same (`gpu-workers/trialgate_gpu/log.py`); `log-record.schema.json`
 * is made of this, and tests in both languages check what they write against it.
 */
export const logRecord = z.strictObject({
  time: z.iso.datetime({ precision: 3 }).describe('when it was written, in UTC'),
  level: z.enum(LOG_LEVELS).describe('`info` unless something is wrong'),
  process: z.string().min(1).max(64).describe('what wrote it: `gateway`, `activity-worker`, `gpu-worker`, …'),
  pid: z.int().min(1).optional().describe('its process id; absent in a Worker'),
  message: z.string().describe('what happened, as one line'),
  run_id: id.optional().describe('the run that it is about'),
  trial_id: id.optional().describe('the trial that it is about'),
  call_id: id.optional().describe("the model call that it is about, by the record's id"),
  trace_id: z
    .string()
    .regex(/^[0-9a-f]{32}$/)
    .optional()
    .describe("the client's trace, as the `traceparent` of the call names it"),
  error: z.string().min(1).max(256).optional().describe('the code or the class of a failure'),
  stack: z.string().optional().describe('where the failure arose'),
});

export type LogRecord = z.output<typeof logRecord>;
