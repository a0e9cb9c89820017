import { appendFileSync, mkdirSync, mkdtempSync, renameSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { makeLog, type LogFields } from '../../core/log.ts';
import { logRecord } from '../../core/log-record.ts';
import { until } from '../../tests/support/harness/until.ts';
import { errorSummary } from './logs.ts';
import { showLogs, type LogOptions } from './show-logs.ts';

/** Makes a deployment's folder of logs. */
function logsOf(files: Record<string, string[]>): string {
  const home = mkdtempSync(join(tmpdir(), 'trialgate-logs-'));
  onTestFinished(() => rmSync(home, { recursive: true }));
  mkdirSync(join(home, 'logs'));
  for (const [name, lines] of Object.entries(files))
    writeFileSync(join(home, 'logs', name), lines.map((line) => `${line}\n`).join(''));
  return home;
}

/** Returns a record of a process as it writes it, at a second of an hour. */
function record(second: number, process: string, message: string, fields?: LogFields): string {
  const lines: string[] = [];
  makeLog({ process, format: 'json', write: (line) => lines.push(line) })(message, fields);
  return JSON.stringify({
    ...JSON.parse(lines[0] ?? ''),
    time: `2026-11-29T10:00:${String(second).padStart(2, '0')}.000Z`,
  });
}

/** Collects what is printed until the test ends. */
function printed(): string[] {
  const lines: string[] = [];
  const spies = [vi.spyOn(console, 'log').mockImplementation((line: string) => void lines.push(line))];
  onTestFinished(() => spies.forEach((spy) => spy.mockRestore()));
  return lines;
}

async function shown(home: string, options: Partial<LogOptions>): Promise<string[]> {
  const lines = printed();
  await showLogs(home, { lines: '40', follow: false, json: false, ...options }, new AbortController().signal);
  return lines.splice(0);
}

function deployment(): string {
  const home = logsOf(FILES);
  // vLLM writes no year into its lines: it is that of the file.
  const written = new Date('2026-11-29T12:00:00Z');
  utimesSync(join(home, 'logs/vllm.log'), written, written);
  return home;
}

const FILES = {
  'gateway.log': [
    record(1, 'gateway', 'gateway listening on http://127.0.0.1:8700'),
    record(4, 'gateway', 'a call failed', { level: 'warning', run_id: 'first', trial_id: 'first-0.1-2-3' }),
    record(5, 'gateway', 'another call failed', { level: 'warning', trial_id: 'first-2-0.1-2-3' }),
    record(8, 'gateway', 'a refusal', { trial_id: 'first-eval.0-7-1' }),
  ],
  'activity-worker.log': [
    record(3, 'activity-worker', 'WARNING: no output', { level: 'warning', run_id: 'first' }),
    record(6, 'activity-worker', 'the logger csv of run first fails: no disk', { level: 'error' }),
  ],
  'gpu-worker.log': [record(7, 'gpu-worker', 'trainStep of first@1: train, pack 1 of 2', { run_id: 'first' })],
  'vllm.log': ['(EngineCore pid=7) WARNING 11-29 10:00:02 [core.py:1] slow'],
  'postgres.log': [
    '2026-11-29 10:00:02.000 UTC [7] LOG:  ready',
    '2026-11-29 10:00:09.500 UTC [7] ERROR:  the row of first-0.1-2-3 is gone',
    '\tof no time of its own',
  ],
};

test('`logs RUN` shows the lines about one run of all processes in the order of time, and none of a run whose id begins with its', async () => {
  const home = deployment();
  expect(await shown(home, { name: 'first' })).toEqual([
    'activity-worker | 2026-11-29T10:00:03.000Z WARNING: no output',
    'gateway         | 2026-11-29T10:00:04.000Z WARNING: a call failed',
    'activity-worker | 2026-11-29T10:00:06.000Z ERROR: the logger csv of run first fails: no disk',
    'gpu-worker      | 2026-11-29T10:00:07.000Z trainStep of first@1: train, pack 1 of 2',
    'gateway         | 2026-11-29T10:00:08.000Z a refusal',
    'postgres        | 2026-11-29 10:00:09.500 UTC [7] ERROR:  the row of first-0.1-2-3 is gone',
  ]);
  expect(await shown(home, { name: 'first-2' })).toEqual([
    'gateway         | 2026-11-29T10:00:05.000Z WARNING: another call failed',
  ]);
  expect(await shown(home, { name: 'first', lines: '1', level: 'warning' })).toEqual([
    'gateway         | 2026-11-29T10:00:04.000Z WARNING: a call failed',
    'activity-worker | 2026-11-29T10:00:06.000Z ERROR: the logger csv of run first fails: no disk',
    'postgres        | 2026-11-29 10:00:09.500 UTC [7] ERROR:  the row of first-0.1-2-3 is gone',
  ]);
  await expect(shown(home, { name: 'firs' })).rejects.toThrow(
    /no log of firs .*no line there about a run.*activity-worker, gateway, gpu-worker, postgres, vllm/,
  );
});

test('`logs` shows all logs in the order of time, and `logs COMPONENT` the one, as its program wrote it or, of ours, as text', async () => {
  const home = deployment();
  const all = await shown(home, {});
  expect(all).toHaveLength(11);
  expect(all.slice(0, 4).map((line) => line.split('|')[0]?.trim())).toEqual([
    'gateway',
    'postgres',
    'vllm',
    'activity-worker',
  ]);
  // A line without a time belongs to the line above it.
  expect(all.slice(-2)).toEqual([
    expect.stringMatching(/ERROR: {2}the row/),
    'postgres        | \tof no time of its own',
  ]);
  expect(await shown(home, { name: 'gpu-worker' })).toEqual([
    '2026-11-29T10:00:07.000Z trainStep of first@1: train, pack 1 of 2',
  ]);
  expect(await shown(home, { name: 'postgres', lines: '1' })).toEqual(['\tof no time of its own']);
});

test('`logs --json` prints the lines of all programs as records of the one schema', async () => {
  const lines = (await shown(deployment(), { json: true })).map((line) => logRecord.parse(JSON.parse(line)));
  expect(lines.filter(({ level }) => level === 'error').map(({ process }) => process)).toEqual([
    'activity-worker',
    'postgres',
  ]);
  expect(lines.find(({ process }) => process === 'postgres')).toEqual({
    time: '2026-11-29T10:00:02.000Z',
    level: 'info',
    process: 'postgres',
    message: '2026-11-29 10:00:02.000 UTC [7] LOG:  ready',
  });
});

test('`logs RUN --follow` shows new lines about the run, whole ones, also of a component that starts later', async () => {
  const home = deployment();
  const end = new AbortController();
  const lines = printed();
  const options = { name: 'first', lines: '0', follow: true, json: false };
  const following = showLogs(home, options, end.signal);
  const gateway = join(home, 'logs/gateway.log');
  const [half, rest] = ['{"time":"2026-11-29T10:01:00.000Z",', '"level":"info","process":"gateway","message":"x"}\n'];
  try {
    // Lines are added until the first is seen: only then is it sure where `logs` began to read.
    await until(() => {
      appendFileSync(gateway, `${record(30, 'gateway', 'begins', { run_id: 'first' })}\n`);
      return lines.some((line) => line.endsWith('begins'));
    });
    appendFileSync(gateway, `${record(31, 'gateway', 'of another', { run_id: 'other' })}\n${half}`);
    writeFileSync(join(home, 'logs/gateway-2.log'), `${record(32, 'gateway', 'from two', { run_id: 'first' })}\n`);
    await until(() => lines.includes('gateway-2       | 2026-11-29T10:00:32.000Z from two'));
    appendFileSync(gateway, rest.replace('"message"', '"run_id":"first","message"'));
    await until(() => lines.includes('gateway         | 2026-11-29T10:01:00.000Z x'));
    expect(lines.join('\n')).not.toContain('of another');
  } finally {
    end.abort();
    await following;
  }
});

test('a line that is longer than usual counts as one, and so does one with bars of progress', async () => {
  const long = record(1, 'gateway', 'x'.repeat(7_000));
  const home = logsOf({ 'gateway.log': [record(0, 'gateway', 'first'), long], 'vllm.log': ['a', '10 %\r20 %\r30 %'] });
  expect(await shown(home, { name: 'gateway', lines: '1' })).toEqual([expect.stringContaining('xxx')]);
  expect(await shown(home, { name: 'gateway', lines: '2' })).toHaveLength(2);
  expect(await shown(home, { name: 'vllm', lines: '1' })).toEqual(['10 % 20 % 30 %']);
});

test('nothing that a log has in it reaches the terminal as a control character', async () => {
  const evil = '\u001b[2J\u001b]0;owned\u0007\u009b';
  const stack = `Error: x\n  ${evil}`;
  const home = logsOf({
    'gpu-worker.log': [JSON.stringify({ ...JSON.parse(record(1, 'gpu-worker', 'failed')), message: evil, stack })],
    'vllm.log': [`10:00 ${evil}\tx`],
  });
  for (const options of [{}, { json: true }, { name: 'vllm' }])
    // oxlint-disable-next-line no-control-regex
    expect((await shown(home, options)).join('\n')).not.toMatch(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/);
});

test('a line that is being written when `logs --follow` begins is shown once, whole', async () => {
  const home = logsOf({ 'gateway.log': [record(1, 'gateway', 'begins')] });
  const gateway = join(home, 'logs/gateway.log');
  const next = record(2, 'gateway', 'is whole');
  appendFileSync(gateway, next.slice(0, 40));
  const end = new AbortController();
  const lines = printed();
  const following = showLogs(home, { lines: '40', follow: true, json: false }, end.signal);
  try {
    await until(() => lines.length > 0);
    appendFileSync(gateway, `${next.slice(40)}\n`);
    await until(() => lines.some((line) => line.endsWith('is whole')));
    expect(lines.map((line) => line.split('Z ')[1])).toEqual(['begins', 'is whole']);
  } finally {
    end.abort();
    await following;
  }
});

test('a log that is begun anew while `logs --follow` runs loses no line of before', async () => {
  const home = logsOf({ 'gateway.log': [record(1, 'gateway', 'begins'), record(2, 'gateway', 'more')] });
  const gateway = join(home, 'logs/gateway.log');
  const end = new AbortController();
  const lines = printed();
  const following = showLogs(home, { lines: '40', follow: true, json: false }, end.signal);
  try {
    await until(() => lines.length === 2);
    // Between two looks at the log all of this is one step.
    appendFileSync(gateway, `${record(3, 'gateway', 'last of before')}\n`);
    renameSync(gateway, `${gateway}.1`);
    writeFileSync(gateway, `${record(4, 'gateway', 'anew')}\n`);
    await until(() => lines.length === 4);
    expect(lines.map((line) => line.split('Z ')[1])).toEqual(['begins', 'more', 'last of before', 'anew']);
  } finally {
    end.abort();
    await following;
  }
});

test('`logs NAME --follow` of a mistyped name fails at once; `--run` waits for a run of which no line is known', async () => {
  const home = deployment();
  await expect(shown(home, { name: 'gatway', follow: true })).rejects.toThrow(
    /no log of gatway .*gateway.*--follow --run gatway/,
  );
  await expect(shown(home, { name: 'gatway', run: 'first' })).rejects.toThrow(/no log of gatway/);
  expect(await shown(home, { name: 'gateway', run: 'first', level: 'warning' })).toHaveLength(1);
  // A run without a line of the level is known all the same.
  expect(await shown(home, { name: 'first-2', level: 'error' })).toEqual([]);
  vi.spyOn(console, 'error').mockImplementation(() => {});
  onTestFinished(() => void vi.mocked(console.error).mockRestore());
  await showLogs(home, { run: 'later', lines: '1', follow: true, json: false }, AbortSignal.abort());
  expect(console.error).toHaveBeenCalledWith('no line is about run later yet');
});

test('`--level` also finds the lines of before the log was begun anew, and `--json` tells gateways apart', async () => {
  const home = logsOf({
    'gateway-2.log.1': [record(1, 'gateway', 'old', { level: 'error' })],
    'gateway-2.log': [record(2, 'gateway', 'new', { level: 'error' })],
    'gateway.log': [],
  });
  const lines = await shown(home, { level: 'error', json: true });
  expect(
    lines.map((line) => logRecord.parse(JSON.parse(line))).map(({ process, message }) => [process, message]),
  ).toEqual([
    ['gateway-2', 'old'],
    ['gateway-2', 'new'],
  ]);
});

test('the reason why a process ended is its errors before lines that only name one, with what failed', () => {
  const failed = {
    level: 'error',
    stack: 'Traceback (most recent call last):\n  File "x"\nZeroDivisionError: by zero',
  } as const;
  expect(
    errorSummary([
      record(1, 'gpu-worker', 'connects again after an error'),
      record(2, 'gpu-worker', 'trainStep failed', failed),
      record(3, 'gpu-worker', 'stopping'),
    ]),
  ).toBe('trainStep failed: ZeroDivisionError: by zero');
  expect(errorSummary([record(1, 'gateway', 'after an error'), 'error: the port is taken'])).toBe(
    'error: the port is taken',
  );
  expect(errorSummary([record(1, 'gateway', 'after an error'), record(2, 'gateway', 'x')])).toBe('after an error');
});

test('the reason why a process ended is made of its records’ messages', () => {
  expect(errorSummary([record(1, 'gateway', 'begins'), record(2, 'gateway', 'error: the port is taken'), 'x'])).toBe(
    'error: the port is taken',
  );
});
