import { join } from 'node:path';
import { expect, test } from 'vitest';
import { z } from 'zod';
import { failureFields, makeLog, textOf, type LogFields, type LogFormat } from './log.ts';
import { logRecord } from './log-record.ts';
import { TrialgateError } from './errors.ts';

const SCHEMA = join(import.meta.dirname, 'log-record.schema.json');
const WRITE = 'vitest run --project fast core/log-record.test.ts -u';

function written(format: LogFormat, message: string, fields?: LogFields): string {
  const lines: string[] = [];
  makeLog({ process: 'gateway', pid: 7, format, write: (line) => lines.push(line) })(message, fields);
  expect(lines).toHaveLength(1);
  return lines[0] ?? '';
}

test(`the schema file of a log's records, which Python's tests read too, is that of the declaration; "${WRITE}" writes it`, async () => {
  await expect(`${JSON.stringify(z.toJSONSchema(logRecord), null, 2)}\n`).toMatchFileSnapshot(SCHEMA);
});

test('a line in JSON is a record of the schema, and one in text has the time, the process, the level, the same words, and the run and the trial if they do not name it', () => {
  const trace_id = '4bf92f3577b34da6a3ce929d0e0e4736';
  const fields = { level: 'warning', run_id: 'r', trial_id: 'r-0.1-2-3', call_id: 'c', trace_id } as const;
  expect(logRecord.parse(JSON.parse(written('json', 'a call failed', fields)))).toEqual({
    ...fields,
    time: expect.any(String),
    process: 'gateway',
    pid: 7,
    message: 'a call failed',
  });
  expect(logRecord.parse(JSON.parse(written('json', 'listening'))).level).toBe('info');
  expect(written('text', 'a call failed', fields)).toMatch(
    /^\d{4}-\d\d-\d\dT[\d:.]+Z gateway: WARNING: a call failed \[run r, trial r-0\.1-2-3\]$/,
  );
  expect(written('text', 'run r is over', { run_id: 'r' })).toMatch(/gateway: run r is over$/);
});

test('a failure’s line has its code, or its class, and its stack: in text on lines that are set in', () => {
  const refused = new TrialgateError('bad_input', 'no');
  expect(logRecord.parse(JSON.parse(written('json', 'no', failureFields(refused))))).toMatchObject({
    error: 'bad_input',
    stack: expect.stringContaining('log-record.test.ts'),
  });
  expect(failureFields(new RangeError('x')).error).toBe('RangeError');
  expect(failureFields('x')).toEqual({});
  const [first, ...rest] = written('text', 'no', failureFields(refused)).split('\n');
  expect(first).toMatch(/gateway: no$/);
  expect(rest.length).toBeGreaterThan(0);
  for (const line of rest) expect(line).toMatch(/^ {4}at /);
});

test('a failure’s stack has its frames whatever the length of its message, and the causes, also those of a failure of many', () => {
  const cause = new AggregateError([new RangeError('the port is closed')], 'x'.repeat(20_000));
  const { stack = '' } = failureFields(new Error(`select ${'y'.repeat(20_000)}`, { cause }));
  expect(stack.length).toBeLessThan(8_000);
  expect(stack.split('\n').filter((line) => line.includes('log-record.test.ts')).length).toBeGreaterThanOrEqual(3);
  expect(stack).toMatch(
    /^Error: select y+\n {4}at [^]*\n {4}caused by AggregateError: x+\n[^]*\n {4}caused by RangeError: the port is closed\n/,
  );
});

const HOSTILE = [
  'line\n2026-01-01T00:00:00.000Z gateway: a line of its own\r\n',
  '\u001b[2J\u009b31m\u0000\u2028\u2029\u0085',
  '{"level":"error"}\n{"time":"x"}',
  '\ud800 half a pair',
  `${'😀'.repeat(20_000)}`,
  'x\n'.repeat(5_000_000),
];

test.each(HOSTILE)('whatever text others send, a line stays one line of bounded length (text %#)', (text) => {
  const error = Object.assign(new Error(text), { code: text });
  for (const format of ['text', 'json'] as const) {
    const line = written(format, text, { trial_id: text, run_id: text, error: text });
    expect(line.length).toBeLessThan(60_000);
    // oxlint-disable-next-line no-control-regex
    expect(line).not.toMatch(/[\n\r\u001b\u0080-\u009f\u2028\u2029\u0000]/);
    expect(line.isWellFormed()).toBe(true);
    if (format === 'json') logRecord.parse(JSON.parse(line));
    const withStack = written(format, 'x', failureFields(error));
    expect(withStack.length).toBeLessThan(60_000);
    if (format === 'json') logRecord.parse(JSON.parse(withStack));
    else for (const more of withStack.split('\n').slice(1)) expect(more).toMatch(/^ {4}/);
    // What another program wrote into a stack is shown to people too.
    const some = text.slice(0, 20_000);
    // oxlint-disable-next-line no-control-regex
    const control = /[\r\u001b\u0080-\u009f\u2028\u2029\u0000]/;
    expect(textOf({ level: 'info', message: some, stack: some })).not.toMatch(control);
  }
});
