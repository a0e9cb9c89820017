import { readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { execFile } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { gzipSync } from 'node:zlib';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { openBrowser } from '../tests/browser/open-browser.ts';
import { FakeOperator, refusing } from '../tests/support/fakes/fake-operator.ts';
import { ADMIN_KEY, TestGateway } from '../tests/support/harness/gateways.ts';
import type { TestPostgres } from '../tests/support/harness/postgres.ts';
import { useServer } from '../tests/support/harness/use-database.ts';
import { recordFailedRun } from '../tests/support/scenarios/failed-run.ts';
import { recordPublication } from '../tests/support/scenarios/publication.ts';
import {
  changeRun,
  recordConversation,
  recordLosses,
  recordOldRuns,
  recordRun,
  recordUnderWay,
} from '../tests/support/scenarios/recorded-run.ts';

const gateway = useServer(new TestGateway<TestPostgres>());
const run = promisify(execFile);
let browser: Browser | undefined;
let page: string;
/** The reason for which there is no browser here, such as a machine without npm's index. */
let noBrowser: string | null = null;

/** Texts that would run or load something if the page treated them as HTML. */
const HTML = '<img src=x onerror="window.ran=1"><script>window.ran=1</script><b>bold</b> javascript:alert(1)';
/** A name without slashes, because of a task's path the last part is shown. The last character turns the order of what follows. */
const NAME = '<img src=x onerror="window.ran=1">\u0007\u202e';
const [RUN, HOSTILE] = ['first', 'hostile'];
const READ_KEY = 'a key that only reads';

let operator = new FakeOperator();
const options = () => ({
  engines: ['http://127.0.0.1:9'],
  page,
  readKey: READ_KEY,
  operateRun: (...asked: Parameters<FakeOperator['operateRun']>) => operator.operateRun(...asked),
  startRun: (...asked: Parameters<FakeOperator['startRun']>) => operator.startRun(...asked),
});

beforeAll(async () => {
  page = await mkdtemp(join(tmpdir(), 'trialgate-page-'));
  await Promise.all([
    openBrowser(AbortSignal.timeout(600_000)).then(
      (opened) => (browser = opened),
      (error: unknown) => (noBrowser = String(error)),
    ),
    // As the installation builds it. Vitest's own NODE_ENV would choose React's parts for development.
    run(
      join(import.meta.dirname, '../node_modules/.bin/vite'),
      ['build', import.meta.dirname, '--outDir', page, '--emptyOutDir'],
      {
        env: { ...process.env, NODE_ENV: 'production' },
      },
    ),
  ]);
  await gateway.start(options());
  await recordRun(gateway.db, RUN, { iterations: 12, groups: 6, size: 8 });
  await recordRun(gateway.db, 'second', { iterations: 5, groups: 2, size: 4 });
  await recordLosses(gateway.db, RUN, 11);
  await recordRun(gateway.db, 'hosted', { iterations: 1, groups: 1, size: 2 });
  await recordUnderWay(gateway.db, 'hosted', 'host-worker-2', ['works', 'works-too']);
  await recordConversation(
    gateway.db,
    {
      trialId: 'talk',
      place: { runId: RUN, groupId: `${RUN}/11.1/0`, trialIndex: 8, task: '/tasks/task-0', agent: 'oneshot' },
    },
    {
      system: 'You repair programs. Answer with one tool call at a time.',
      user: 'The function `median` returns the wrong value for lists of even length. Repair it.',
      reply: 'I look at the file first.',
      name: 'read_file',
      tool: 'src/median.py',
      output: 'def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]\n',
    },
    1,
  );
  await recordFailedRun(gateway.db, HOSTILE, NAME);
  await recordConversation(
    gateway.db,
    {
      trialId: HOSTILE,
      place: { runId: HOSTILE, groupId: `${HOSTILE}/0.1/0`, trialIndex: 0, task: NAME, agent: NAME },
    },
    { system: HTML, user: HTML, reply: `${HTML}\u0007\u202e`, name: HTML, tool: HTML, output: HTML },
    0,
  );
});

beforeEach(({ skip }) => {
  if (noBrowser !== null) skip(`the browser does not install: ${noBrowser}`);
});

afterAll(async () => {
  await browser?.close();
  await gateway.gateway?.close();
  await rm(page, { recursive: true, force: true });
});

type Appearance = { dark?: boolean; narrow?: boolean; key?: string | null };

/** Opens a view in a browser of its own. `faults` are what the browser reported, such as a refusal by the Content-Security-Policy. */
async function open(path: string, { dark = false, narrow = false, key = ADMIN_KEY }: Appearance = {}) {
  if (!browser) throw new Error('there is no browser');
  const context = await browser.newContext({
    // Without a locale, this Chromium uses a POSIX name that no person's browser has.
    locale: 'en-US',
    colorScheme: dark ? 'dark' : 'light',
    viewport: narrow ? { width: 390, height: 800 } : { width: 1280, height: 900 },
  });
  onTestFinished(() => context.close());
  const view = await context.newPage();
  view.setDefaultTimeout(20_000);
  const faults: string[] = [];
  view.on('pageerror', (error) => faults.push(String(error)));
  view.on('console', (message) => {
    if (message.type() === 'error' && !message.text().includes('the server responded with a status of'))
      faults.push(message.text());
  });
  await view.goto(`${gateway.gateway.url}/ui${path}${key === null ? '' : `#key=${key}`}`);
  return { view, faults };
}

const textOf = (view: Page): Promise<string> => view.locator('main').innerText();

test('the page goes from the runs to a run, an iteration and a trial, and each view has the record’s values', async () => {
  const { view, faults } = await open('/');
  await view.getByRole('link', { name: RUN, exact: true }).waitFor();
  expect(view.url()).not.toContain(ADMIN_KEY);
  expect(await view.getByRole('row', { name: RUN }).innerText()).toMatch(/running\s+11\s+\d\.\d{3}/);
  await view.getByRole('link', { name: RUN, exact: true }).click();
  await view.getByRole('heading', { name: 'Iterations' }).waitFor();
  // As `show` computes them, for as many trials as each task has.
  expect(await view.getByRole('row', { name: /^policy version 12 / }).innerText()).toMatch(
    /69 %\s+96 %\s+100 %\s+0\.766/,
  );
  for (const curve of [
    'Reward',
    'Pass rate',
    'Held-out tasks',
    'Length',
    'Entropy',
    'Learning rate',
    'Gradient norm',
    'Seconds by phase',
  ])
    expect(await view.locator('figcaption .title').getByText(curve, { exact: true }).count()).toBe(1);
  expect(await view.locator('figcaption', { hasText: 'Held-out tasks' }).innerText()).toMatch(
    /pass@1 0\.688\s*pass@4 1\s*reward 0\.766/,
  );
  expect(await view.getByRole('row', { name: /^11 / }).innerText()).toMatch(/49 scored, .*1 truncated/);
  // Whoever sees no curve reads its values.
  await view.getByText('Values of Pass rate').click();
  await view.getByRole('region', { name: 'Values of Pass rate' }).waitFor();
  expect(await view.getByRole('region', { name: 'Values of Pass rate' }).getByRole('row').count()).toBe(13);
  await view.getByRole('link', { name: '11', exact: true }).click();
  await view.getByRole('heading', { name: 'Iteration 11' }).waitFor();
  // The heading is there before the groups are.
  await view
    .getByText(/variance/)
    .first()
    .waitFor();
  // Browsers do not count the text of groups out of sight as seen.
  const variances = ((await view.locator('main').textContent()) ?? '').matchAll(/variance ([\d.]+)/g);
  const shown = [...variances].map(([, value]) => Number(value));
  expect(shown).toHaveLength(6);
  expect(shown).toEqual(shown.toSorted((a, b) => b - a));
  await view.goto(`${gateway.gateway.url}/ui/trials/talk`);
  await view.getByText('I look at the file first.').first().waitFor();
  const shownText = await textOf(view);
  for (const text of ['You repair programs.', 'calls read_file', 'src/median.py', 'ordered = sorted(values)', 'Done.'])
    // Each message is shown once, however many requests had it.
    expect([text, shownText.split(text).length - 1]).toEqual([text, 1]);
  // The tools of both calls are the same, so they are listed once.
  expect(shownText.split('1 tool: read_file')).toHaveLength(2);
  expect(shownText.split('Not shown to the model: the request has 1 tool, this model')).toHaveLength(2);
  expect(shownText).toMatch(/version 2 · 12 tokens · 2\.5 s · ended by stop/);
  await view.getByRole('heading', { name: 'Trial talk' }).waitFor();
  expect(faults).toEqual([]);
});

test('the timeline of an iteration has a bar for each trial, whose text says what the trial did', async () => {
  const { view, faults } = await open(`/runs/${RUN}`);
  await view.getByRole('link', { name: 'timeline of iteration 10', exact: true }).click();
  await view.getByRole('heading', { name: 'Timeline of iteration 10' }).waitFor();
  const bars = view.getByRole('region', { name: 'Trials by time' });
  await bars.getByRole('img').first().waitFor();
  expect(await bars.getByRole('img').nth(2).getAttribute('aria-label')).toBe(
    'waits 0.8 s, opens 2.0 s, agent 4.0 s (1.5 s of it waits for the engine), verifies 0.8 s, scored, reward 1.000, 3 calls',
  );
  const text = await textOf(view);
  expect(text).toMatch(/48 trials, 0 stragglers, 0 tried again/);
  expect(text).toMatch(/Lines: batch made after 41 s; version 11 trained after 74 s; iteration ended after 80 s/);
  await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}/iterations/11/timeline`);
  await view.getByText(/1 tried again/).waitFor();
  // The page draws only the rows in view, and those of the end when it is scrolled there.
  await view.evaluate('scrollTo(0, document.body.scrollHeight)');
  const again = bars.getByRole('img', { name: /attempt 1: .*attempt 2: .*truncated/ });
  await again.waitFor();
  await again.click();
  await view
    .getByRole('status')
    .getByText(/^first-11\.1-90-0: attempt 1: /)
    .waitFor();
  expect(faults).toEqual([]);
});

test('the timeline of an iteration with 1,000 trials draws the rows in view and no others', async () => {
  await recordRun(gateway.db, 'large', { iterations: 1, groups: 125, size: 8 });
  const { view } = await open('/runs/large/iterations/0/timeline');
  await view.getByText('1,000 trials').waitFor();
  const bars = view.getByRole('region', { name: 'Trials by time' }).getByRole('img');
  await expect.poll(() => bars.count()).toBeGreaterThan(10);
  await view.evaluate('scrollTo(0, document.body.scrollHeight)');
  await view.getByText('large/0.1/124').waitFor();
  expect(await bars.count()).toBeLessThan(150);
});

test('an address keeps the whole view: tab, coloring and axis are there after a reload', async () => {
  const { view, faults } = await open('/trials/talk?tab=tokens');
  await view.getByLabel('Color by').selectOption('version');
  await view.reload();
  await view.getByText('85 tokens, 42 of them trained, of calls 1, 2').waitFor();
  expect(await view.getByLabel('Color by').inputValue()).toBe('version');
  const token = view.locator('.tokens .token', { hasText: '911' });
  expect(await token.getAttribute('title')).toMatch(/token 84, id 911: log-probability .*policy version 3/);
  expect(await view.locator('.tokens .token.context').count()).toBe(43);
  // A line says the same to those who have no pointer.
  await token.click();
  await view.getByText(/^token 84, id 911: log-probability .*policy version 3/).waitFor();
  await view.getByRole('group', { name: 'Tokens' }).press('ArrowLeft');
  await view.getByText(/^token 83, id 910: /).waitFor();
  await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}?x=minutes&metric=perf%2Fmfu%2Factor`);
  await view.locator('figcaption', { hasText: 'perf/mfu/actor' }).waitFor();
  expect(await view.locator('figcaption', { hasText: 'perf/mfu/actor' }).innerText()).toContain('0.310');
  expect(await view.getByLabel('Draw by').inputValue()).toBe('minutes');
  expect(faults).toEqual([]);
});

test('a filter of trials is in the address, holds for groups and timeline, and a wrong one says why', async () => {
  const { view, faults } = await open(`/runs/${RUN}/iterations/11`);
  await view.getByRole('combobox', { name: 'Outcome' }).selectOption('agent_error');
  await view.getByText('KeyError: 7').waitFor();
  expect(await view.getByRole('row', { name: /scored/ }).count()).toBe(0);
  await view.getByRole('link', { name: 'Timeline', exact: true }).click();
  const bars = view.getByRole('region', { name: 'Trials by time' }).getByRole('img');
  await bars.first().waitFor();
  expect([await bars.count(), new URL(view.url()).search]).toEqual([1, '?outcome=agent_error']);
  await view.getByText(/1 trial shown, 0 stragglers/).waitFor();
  // The choice of an outcome takes what was typed with it, and keeps the focus.
  const outcome = view.getByRole('combobox', { name: 'Outcome' });
  await view.getByRole('textbox', { name: 'Agent' }).fill('oneshot');
  await outcome.focus();
  await outcome.selectOption('truncated');
  await expect.poll(() => new URL(view.url()).search).toBe('?outcome=truncated&agent=oneshot');
  expect(await view.evaluate('document.activeElement?.getAttribute("name")')).toBe('outcome');
  await view.getByRole('button', { name: 'Show all' }).click();
  await view.getByText('51 trials').waitFor();
  await view.getByRole('textbox', { name: 'Reward from' }).fill('2');
  await view.getByRole('textbox', { name: 'to', exact: true }).fill('1');
  await view.getByRole('textbox', { name: 'to', exact: true }).press('Enter');
  await view.getByText('reward_min: is more than reward_max').waitFor();
  await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}/iterations/11?reward_min=many`);
  await view.getByText(/reward_min: .*number/).waitFor();
  expect(faults).toEqual([]);
});

test('a call is copied as a command without a key, as JSON and as a link that leads to it', async () => {
  const { view, faults } = await open('/trials/talk');
  await view.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  const copied = async (name: string): Promise<string> => {
    await view.getByRole('button', { name: `Copy call 2 as ${name}`, exact: true }).click();
    await view.getByRole('status').getByText('copied').waitFor();
    return view.evaluate<string>('navigator.clipboard.readText()');
  };
  const link = await copied('link');
  expect(link).toBe(`${gateway.gateway.url}/ui/trials/talk?attempt=1&call=2`);
  await view.goto(link);
  const command = await copied('curl');
  expect(command).toMatch(/^curl "\$OPENAI_BASE_URL\/chat\/completions" /);
  expect(command).not.toContain(ADMIN_KEY);
  await view.goto(`${link}&tab=transcript`);
  expect(JSON.parse(await copied('JSON')).messages).toHaveLength(4);
  expect(faults).toEqual([]);
});

test('lost work is counted by reason, with links to it', async () => {
  const { view } = await open(`/runs/${RUN}/dropped`);
  await view.getByText('the host was lost').waitFor();
  const text = await textOf(view);
  for (const reason of [
    '1 group: stale',
    '1 trial: truncated',
    '1 trial: agent error',
    '1 attempt: the host was lost (shown by: host)',
    '1 call: truncated sampling',
  ])
    expect(text).toContain(reason);
  await view.getByRole('link', { name: 'show them' }).click();
  await view.getByRole('heading', { name: 'Groups dropped: stale' }).waitFor();
  await view.getByText('KeyError: 7').waitFor();
});

test('HTML, scripts and control characters of a transcript are shown as text: nothing runs and nothing is loaded', async () => {
  const { view, faults } = await open(`/trials/${HOSTILE}`);
  const asked: string[] = [];
  view.on('request', (request) => asked.push(request.url()));
  await view.getByText('Done.').first().waitFor();
  for (const tab of ['transcript', 'output']) {
    await view.goto(`${gateway.gateway.url}/ui/trials/${HOSTILE}?tab=${tab}`);
    await view.locator('main pre:visible', { hasText: 'onerror' }).nth(1).waitFor();
    expect((await textOf(view)).split(HTML).length).toBeGreaterThanOrEqual(3);
    expect(await textOf(view)).toContain('␇⟨U+202E⟩');
    expect(await view.locator('main img, main b, main script').count()).toBe(0);
  }
  const shownName = '<img src=x onerror="window.ran=1">␇⟨U+202E⟩';
  for (const [path, times] of [
    ['/', 1],
    [`/runs/${HOSTILE}`, 3],
    [`/runs/${HOSTILE}/iterations/0`, 3],
    [`/runs/${HOSTILE}/iterations/0/timeline`, 1],
    [`/runs/${HOSTILE}/dropped`, 1],
    [`/trials/${HOSTILE}`, 2],
  ] as const) {
    await view.goto(`${gateway.gateway.url}/ui${path}`);
    await view.getByText(shownName).first().waitFor();
    expect([path, (await textOf(view)).split(shownName).length - 1]).toEqual([path, times]);
    expect(await view.locator('main img').count()).toBe(0);
  }
  await view.goto(`${gateway.gateway.url}/ui/runs/${HOSTILE}`);
  await view.getByText('Settings', { exact: true }).click();
  await view.locator('details pre', { hasText: 'onerror' }).waitFor();
  expect(await view.evaluate('window.ran')).toBeUndefined();
  expect(asked.filter((url) => new URL(url).origin !== gateway.gateway.url)).toEqual([]);
  expect(faults).toEqual([]);
});

test('without a key and with a wrong one the page asks for it, says why, and shows nothing of the record', async () => {
  const { view } = await open(`/runs/${RUN}`, { key: null });
  await view.getByLabel('The deployment’s admin key').fill('wrong');
  expect(await view.getByRole('alert').count()).toBe(0);
  await view.getByRole('button', { name: 'Open' }).click();
  await view.getByRole('alert').waitFor();
  expect(await view.getByRole('alert').innerText()).toMatch(/did not accept the key.*needs the admin key/);
  await view.getByLabel('The deployment’s admin key').fill(ADMIN_KEY);
  await view.getByRole('button', { name: 'Open' }).click();
  await view.getByRole('heading', { name: 'Iterations' }).waitFor();
  await view.getByRole('button', { name: 'Forget the key' }).click();
  await view.getByLabel('The deployment’s admin key').waitFor();
  expect(await view.getByRole('alert').count()).toBe(0);
  // An address of `trialgate open` is pasted into the open tab.
  await view.evaluate(`location.hash = 'key=${ADMIN_KEY}'`);
  await view.getByRole('heading', { name: 'Iterations' }).waitFor();
  expect(view.url()).not.toContain(ADMIN_KEY);
});

test('the page of a run that has ended asks no more by itself; nor does that of an unknown run, and it says why', async () => {
  const { view } = await open(`/runs/${HOSTILE}`);
  await view.getByRole('button', { name: 'Refresh' }).waitFor();
  const asked: string[] = [];
  view.on('request', (request) => asked.push(request.url()));
  await view.getByRole('button', { name: 'Refresh' }).click();
  await expect.poll(() => asked.some((url) => url.endsWith(`/runs/${HOSTILE}`))).toBe(true);
  await view.goto(`${gateway.gateway.url}/ui/runs/none`);
  await view.getByText('there is no run "none"').waitFor();
  await view.getByText('This view is not read again by itself').waitFor();
});

test('engines show their state and the version that they confirmed, and runs under way what their trials do', async () => {
  const { view, faults } = await open('/');
  const engine = 'http://127.0.0.1:9';
  onTestFinished(await recordPublication(gateway.db, RUN, engine));
  await view.getByRole('link', { name: 'Engines and workers' }).click();
  await view.getByRole('region', { name: 'Engines' }).waitFor();
  expect(await view.getByRole('row', { name: engine }).innerText()).toMatch(
    /publication\s+first@12 is being published to it for 4\d s\s+first\s+version 11/,
  );
  const host = view.getByRole('row', { name: 'host-worker-2' });
  await host.getByText('2', { exact: true }).click();
  expect(await host.innerText()).toMatch(/works opens or works, for \d.*\n?.*works-too opens or works/);
  expect(await host.getByRole('link', { name: 'works', exact: true }).getAttribute('href')).toBe('/ui/trials/works');
  expect(await view.getByRole('region', { name: 'Trials under way and queues' }).innerText()).toMatch(
    /first\s+running/,
  );
  expect(await view.getByRole('row', { name: 'host-worker-1' }).innerText()).toMatch(/host-worker-1\s+none\s+1\s+1/);
  expect(faults).toEqual([]);
});

test('a search over transcripts is in the address, marks what it found as text, and leads to the call', async () => {
  const { view, faults } = await open(`/runs/${RUN}`);
  await view.getByRole('link', { name: 'search transcripts' }).click();
  await view.getByRole('searchbox').fill('LEN(ordered) "def median"');
  await view.getByRole('searchbox').press('Enter');
  await view.getByText('3 calls searched, all that the run has.').waitFor();
  expect(new URL(view.url()).searchParams.get('q')).toBe('LEN(ordered) "def median"');
  expect(await view.locator('mark').allInnerTexts()).toEqual(['def median', 'len(ordered)']);
  await view.getByRole('link', { name: 'talk, call 2' }).click();
  await view.getByText('Done.').first().waitFor();
  expect(new URL(view.url()).search).toBe('?attempt=1&call=2');
  await view.goto(`${gateway.gateway.url}/ui/runs/${HOSTILE}/search?q=${encodeURIComponent('<script>window')}`);
  await view.locator('mark').first().waitFor();
  expect(await textOf(view)).toContain(HTML);
  expect(await view.locator('main img, main script, main b').count()).toBe(0);
  expect(await view.evaluate('window.ran')).toBeUndefined();
  await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}/search?q=nowhere`);
  await view.getByText('No message has these words.').waitFor();
  expect(faults).toEqual([]);
});

test('a search that takes too long is not asked again by itself, and goes on after what was searched', async () => {
  const { view } = await open('/');
  const asked: (string | null)[] = [];
  const next = '00000000-0000-4000-8000-000000000000';
  await view.route(`${gateway.gateway.url}/runs/${RUN}/search?*`, async (route) => {
    const after = new URL(route.request().url()).searchParams.get('after');
    asked.push(after);
    const error = { message: 'the database took too long', code: 'query_too_slow' };
    await (after === null
      ? route.fulfill({ json: { run_status: 'running', hits: [], searched: 7, next_after: next } })
      : route.fulfill({ status: 503, json: { error } }));
  });
  await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}/search?q=slow`);
  await view.getByText('7 calls searched.').waitFor();
  await view.getByRole('button', { name: 'Search on' }).click();
  await view.getByText('the database took too long').waitFor();
  await view.getByText('This view is not read again by itself.').first().waitFor();
  expect(asked).toEqual([null, next, next]);
});

test('the curves of a second run lie over those of a run, and the address keeps which', async () => {
  const { view, faults } = await open(`/runs/${RUN}`);
  const values = view.getByRole('region', { name: 'Values of Pass rate' });
  await view.getByText('Values of Pass rate').click();
  await values.waitFor();
  const choice = view.getByLabel('Draw over it');
  expect(await choice.getByRole('option').count()).toBe(1);
  await choice.focus();
  await choice.selectOption('second');
  const curve = view.locator('figure', { hasText: 'Pass rate' });
  const caption = curve.locator('figcaption');
  await caption.getByText('second: pass rate').waitFor();
  expect(new URL(view.url()).search).toBe('?with=second');
  expect([await values.isVisible(), await choice.evaluate('document.activeElement?.tagName')]).toEqual([
    true,
    'SELECT',
  ]);
  // The first run has 12 iterations and the second 5: under the pointer it has no value behind them.
  const plot = curve.locator('.u-over');
  await plot.hover({ position: { x: ((await plot.boundingBox())?.width ?? 2) - 2, y: 90 } });
  await caption.getByText('iteration 11').waitFor();
  await caption.getByText('second: pass rate –').waitFor();
  await view.reload();
  await view.getByLabel('Draw by').selectOption('trials');
  await caption.getByText('second: pass rate').waitFor();
  await view.getByText('Values of Pass rate').click();
  await values.waitFor();
  // The 12 iterations of the one and the 5 of the other end after different numbers of trials.
  expect(await values.getByRole('row').count()).toBe(18);
  await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}?with=none`);
  await view.getByText('there is no run "none"').waitFor();
  await view.getByRole('heading', { name: 'Iterations' }).waitFor();
  expect(faults).toEqual([]);
});

/** Records a run under way for a test alone, and opens its view. */
async function openOwn(runId: string, change: Parameters<typeof changeRun>[2] = {}) {
  operator = new FakeOperator();
  await recordRun(gateway.db, runId, { iterations: 2, groups: 1, size: 2 });
  await changeRun(gateway.db, runId, { status: 'running', ...change });
  const opened = await open(`/runs/${runId}`);
  await opened.view.getByRole('heading', { name: 'Iterations' }).waitFor();
  return opened;
}

test('a button asks the run once, however often it is pressed, says that it does, and then what the run answered', async () => {
  const { view, faults } = await openOwn('pressed');
  const answered = Promise.withResolvers<void>();
  operator.answer = async (runId) => {
    await answered.promise;
    return { run_id: runId, message: `run ${runId} starts no more groups until <b>noon</b>` };
  };
  await view.getByLabel('Pause for').selectOption('8 hours');
  const pause = view.getByRole('button', { name: 'Pause', exact: true });
  await pause.dblclick();
  const status = view.getByRole('region', { name: 'What the run is to do' }).getByRole('status');
  await status.getByText('Run pressed is asked to pause').waitFor();
  expect(await pause.getAttribute('aria-disabled')).toBe('true');
  await view.getByRole('button', { name: 'Stop after this iteration' }).press('Enter');
  await pause.press('Space');
  answered.resolve();
  await status.getByText('run pressed starts no more groups until <b>noon</b>').waitFor();
  expect(operator.asked).toEqual(['pressed {"verb":"pause","seconds":28800}']);
  expect(faults).toEqual([]);
});

test('a run is cancelled only after a question, by keyboard too, and the view then has the run’s new state and its buttons', async () => {
  const { view, faults } = await openOwn('ended');
  operator.answer = async (runId) => {
    await changeRun(gateway.db, runId, { status: 'cancelled', endedAt: new Date() });
    return { run_id: runId, message: `run ${runId} is cancelled` };
  };
  const cancel = view.getByRole('button', { name: 'Cancel …' });
  const dialog = view.getByRole('dialog', { name: 'Cancel run ended?' });
  await cancel.press('Enter');
  await dialog.waitFor();
  await view.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });
  expect(await view.evaluate('document.activeElement?.textContent')).toBe('Cancel …');
  await cancel.press('Enter');
  await dialog.getByRole('button', { name: 'Change nothing' }).click();
  await dialog.waitFor({ state: 'detached' });
  expect(operator.asked).toEqual([]);
  await cancel.press('Enter');
  await dialog.getByRole('button', { name: 'Cancel the run' }).press('Enter');
  await view.getByText('run ended is cancelled').waitFor();
  await cancel.waitFor({ state: 'detached' });
  await view.getByText('This view is not read again by itself.').waitFor();
  expect(operator.asked).toEqual(['ended {"verb":"cancel"}']);
  await view.getByLabel('its failed trials run again').check();
  operator.answer = refusing('the engine runs another model');
  await view.getByRole('button', { name: 'Resume' }).click();
  await view.getByText('the engine runs another model').waitFor();
  expect(operator.asked.slice(1)).toEqual(['ended {"verb":"resume","retry_failed":true}']);
  expect(faults).toEqual([]);
});

test('a redo names the take that the view shows, to the person and to the run', async () => {
  const { view, faults } = await openOwn('redone');
  await view.getByRole('button', { name: 'Redo the last iteration …' }).click();
  const dialog = view.getByRole('dialog', { name: 'Run iteration 1, take 1, of redone again?' });
  await dialog.getByRole('button', { name: 'Run it again' }).click();
  await view.getByText('run redone did redo').waitFor();
  expect(operator.asked).toEqual(['redone {"verb":"redo","iteration":1,"take":1}']);
  expect(faults).toEqual([]);
});

test('a run that is paused says until when, and has a Resume in place of a Pause', async () => {
  const { view } = await openOwn('held', { pausedUntil: new Date(Date.now() + 3_600_000) });
  await view.getByText(/paused: it starts no more groups and no train step until \d/).waitFor();
  await view.getByRole('button', { name: 'Resume' }).waitFor();
  expect(await view.getByRole('button', { name: 'Pause', exact: true }).count()).toBe(0);
});

test('a cancel does not wait until the run has answered to something else', async () => {
  const { view, faults } = await openOwn('urgent');
  const answered = Promise.withResolvers<void>();
  operator.answer = async (runId, { verb }) => {
    if (verb === 'stop') await answered.promise;
    return { run_id: runId, message: `run ${runId} did ${verb}` };
  };
  expect(await view.getByRole('button', { name: 'Resume' }).count()).toBe(0);
  await view.getByRole('button', { name: 'Stop after this iteration' }).click();
  await view.getByText('Run urgent is asked to stop').waitFor();
  await view.getByRole('button', { name: 'Cancel …' }).click();
  await view.getByRole('dialog').getByRole('button', { name: 'Cancel the run' }).click();
  await view.getByText('run urgent did cancel').waitFor();
  answered.resolve();
  expect(operator.asked).toEqual(['urgent {"verb":"stop"}', 'urgent {"verb":"cancel"}']);
  expect(faults).toEqual([]);
});

test('a view that is refused once because others are reading asks again without a word; a second refusal it shows', async () => {
  const { view } = await openOwn('crowded');
  await view.clock.install();
  const url = `${gateway.gateway.url}/runs/crowded`;
  const error = { code: 'too_many_readers', message: 'others are reading' };
  await view.route(url, (route) => route.fulfill({ status: 503, json: { error } }));
  const refused = view.waitForResponse(url);
  await view.reload();
  await refused;
  await view.evaluate('fetch("/health")');
  expect(await view.getByText('others are reading').count()).toBe(0);
  await expect
    .poll(async () => (await view.clock.fastForward(1_000), view.getByText('others are reading').isVisible()), {
      timeout: 30_000,
    })
    .toBe(true);
});

test('a fork is started from a version of the run, and its answer leads to the new run', async () => {
  const { view, faults } = await openOwn('parent');
  operator.answer = async () => {
    await recordRun(gateway.db, 'child', { iterations: 1, groups: 1, size: 2 });
    return { run_id: 'child', message: 'run child started from parent@1' };
  };
  await view.getByText('Fork …').click();
  await view.getByLabel('from policy version').selectOption('1');
  await view.getByText('npx trialgate fork parent@1 optim.lr=1e-5').waitFor();
  await view.getByText('With other settings').click();
  const settings = view.getByLabel('Settings of the fork');
  expect(await settings.inputValue()).toMatch(
    /^tasks: \["t"\]\nagents: \["oneshot"\]\nreward: null\niterations: 2\n(?!.*\bmodel: )/s,
  );
  await settings.fill('iterations: 7');
  await view.getByLabel('as run').fill('child');
  await view.getByLabel('as run').press('Enter');
  await view.getByRole('link', { name: 'Open child' }).click();
  await view.getByRole('heading', { name: 'child', exact: true }).waitFor();
  expect(operator.asked).toEqual(['parent {"verb":"fork","version":1,"run_id":"child","file":"iterations: 7"}']);
  expect(faults).toEqual([]);
});

test('a run is started from an earlier run’s file, a chosen one or a written one, once, with its progress; a refusal says why', async () => {
  operator = new FakeOperator();
  const { view, faults } = await open('/');
  await view.getByText('Start a run …').click();
  const editor = view.getByLabel(/^Run file/);
  await view.getByLabel('As run').selectOption('second');
  await expect
    .poll(() => editor.inputValue())
    .toMatch(/^model: "m"\ntasks: \["t"\]\n.*\nreward: null\niterations: 5\n/);
  const done = Promise.withResolvers<void>();
  operator.start = async (_asked, report) => {
    report(`WARNING: ${NAME}`);
    await done.promise;
    await recordRun(gateway.db, 'begun', { iterations: 1, groups: 1, size: 2 });
    return { run_id: 'begun', message: 'run begun started: npx trialgate show begun' };
  };
  await editor.fill('model: m\niterations: 1\n');
  await view.getByLabel('Name of the run').fill(' begun ');
  const start = view.getByRole('button', { name: 'Check and start' });
  await start.dblclick();
  const status = view.locator('.start').getByRole('status');
  await status.getByText('WARNING: <img src=x onerror="window.ran=1">␇⟨U+202E⟩').waitFor();
  expect(await start.getAttribute('aria-disabled')).toBe('true');
  expect(await view.getByLabel('As run').isDisabled()).toBe(true);
  expect(await view.getByLabel('or from the file').isDisabled()).toBe(true);
  done.resolve();
  await status.getByText('run begun started').waitFor();
  await view.getByRole('row', { name: 'begun' }).waitFor();
  expect(await status.getByRole('link', { name: 'Open begun' }).getAttribute('href')).toBe('/ui/runs/begun');
  operator.start = refusing('own.yaml is not valid:\n  model: expected a string\n  tasks: name at least one');
  const file = { name: 'own.yaml', mimeType: 'application/yaml', buffer: Buffer.from('model: 7\n') };
  await view.getByLabel('or from the file').setInputFiles(file);
  await view.getByText('Run file, in YAML or JSON (own.yaml)').waitFor();
  await expect.poll(() => editor.inputValue()).toBe('model: 7\n');
  await view.getByLabel('Name of the run').fill('');
  await start.press('Enter');
  await status.getByText('tasks: name at least one').waitFor();
  expect(await start.getAttribute('aria-disabled')).toBe('false');
  expect(operator.started).toEqual([
    { file: 'model: m\niterations: 1\n', as: 'second', run_id: 'begun' },
    { file: 'model: 7\n', file_name: 'own.yaml' },
  ]);
  await view.getByLabel('or from the file').setInputFiles({ ...file, buffer: Buffer.alloc(500_000) });
  await status.getByText('own.yaml has more than 65536 bytes').waitFor();
  expect(faults).toEqual([]);
});

test('a run file that is being written, and its check, stay when older runs are shown', async () => {
  operator = new FakeOperator();
  onTestFinished(await recordOldRuns(gateway.db, 60));
  const { view, faults } = await open('/');
  await view.getByText('Start a run …').click();
  const editor = view.getByLabel(/^Run file/);
  await editor.fill('model: m\n');
  const done = Promise.withResolvers<void>();
  operator.start = async (_asked, report) => {
    report('it is tried');
    await done.promise;
    return { run_id: 'late', message: 'run late started' };
  };
  await view.getByRole('button', { name: 'Check and start' }).click();
  const status = view.locator('.start').getByRole('status');
  await status.getByText('it is tried').waitFor();
  await view.getByRole('button', { name: 'Show older runs' }).click();
  await view.getByRole('row', { name: 'old-59' }).waitFor();
  expect(await editor.inputValue()).toBe('model: m\n');
  expect(await status.getByText('it is tried').count()).toBe(1);
  done.resolve();
  await status.getByText('run late started').waitFor();
  expect(faults).toEqual([]);
});

test('who has the key that only reads gets the command that starts a run, and no editor', async () => {
  const { view } = await open('/', { key: READ_KEY });
  await view.getByText('npx trialgate train FILE').waitFor();
  expect(await view.getByText('Start a run …').count()).toBe(0);
});

test('a view of a run under way asks when the gateway says that something changed, and not otherwise; without events it asks again by itself', async () => {
  const { view } = await openOwn('followed');
  await view.clock.install();
  // Some browsers cannot iterate over a stream.
  await view.addInitScript('delete ReadableStream.prototype[Symbol.asyncIterator]');
  let questions = 0;
  let isAway = false;
  await view.route(`${gateway.gateway.url}/runs/followed{,/events}`, (route) => {
    if (!route.request().url().endsWith('/events')) questions++;
    else if (isAway) return route.abort();
    return route.continue();
  });
  /** Lets time pass in the page, and what it asks then be asked. */
  const pass = async (ms: number): Promise<void> => {
    await view.clock.fastForward(ms);
    await view.evaluate('fetch("/health")');
  };
  const say = (reason: string) => changeRun(gateway.db, 'followed', { reason });
  const begun = view.waitForResponse(`${gateway.gateway.url}/runs/followed/events`);
  await view.reload();
  await begun;
  // It asks again when the events have begun, for what happened before.
  const answered = view.waitForResponse((reply) => reply.url().includes('/followed/iterations'));
  // In small steps, because it rests for ten times as long as an answer took.
  await expect.poll(async () => (await pass(100), questions), { timeout: 30_000 }).toBe(2);
  await answered;
  await pass(10_000);
  expect(questions).toBe(2);
  const shows = (text: string, everyMs: number) =>
    expect.poll(async () => (await pass(everyMs), view.getByText(text).isVisible()), { timeout: 30_000 }).toBe(true);
  await say('it waits for a teacher');
  // Less time passes in the page than until it would ask by itself.
  await shows('it waits for a teacher', 40);
  isAway = true;
  await view.reload();
  await view.getByRole('heading', { name: 'Iterations' }).waitFor();
  await say('it goes on');
  await shows('it goes on', 4_000);
});

test('where the gateway changes no runs, the view has the commands to type in place of buttons', async () => {
  await gateway.restart({ ...options(), operateRun: undefined, startRun: undefined });
  onTestFinished(() => gateway.restart(options()));
  const { view } = await openOwn('typed');
  await view.getByText('npx trialgate pause typed').waitFor();
  expect(await view.getByRole('button', { name: /Pause|Cancel|Resume/ }).count()).toBe(0);
  await view.getByText('without the address of Temporal or without an admin key').waitFor();
  await view.getByRole('link', { name: 'Runs', exact: true }).first().click();
  await view.getByText('npx trialgate train FILE').waitFor();
  expect(await view.getByText('Start a run …').count()).toBe(0);
});

test('the page says that the database is away, keeps what it showed, and goes on when it is back', async () => {
  await gateway.restart({ ...options(), settings: { storeWaitMs: 500 } });
  const { view } = await open('/');
  await view.getByRole('link', { name: RUN, exact: true }).waitFor();
  await gateway.postgres.stop('kill');
  await view.getByText('The database cannot be reached').waitFor();
  expect(await view.getByRole('link', { name: RUN, exact: true }).count()).toBe(1);
  await gateway.postgres.start();
  await view.getByText('The database cannot be reached').waitFor({ state: 'detached' });
  expect(await view.getByRole('link', { name: RUN, exact: true }).count()).toBe(1);
});

/** The views, each with a text that it shows once the record is read. */
const VIEWS: [name: string, path: string, text: string][] = [
  ['runs', '/', 'Newest reward mean'],
  ['run', `/runs/${RUN}`, 'Evaluations on held-out tasks'],
  ['iteration', `/runs/${RUN}/iterations/11`, 'Reward minus group mean'],
  ['timeline', `/runs/${RUN}/iterations/11/timeline`, 'Ended last'],
  ['trial', '/trials/talk', 'I look at the file first.'],
  ['tokens', '/trials/talk?tab=tokens', 'Choose a token'],
  ['dropped', `/runs/${RUN}/dropped`, 'the host was lost'],
  ['deployment', '/deployment', 'host-worker-1'],
  ['search', `/runs/${RUN}/search?q=ordered`, 'call 2'],
  ['two-runs', `/runs/${RUN}?with=second`, 'second: pass rate'],
];
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

test.each([{}, { dark: true, narrow: true }])(
  'axe finds nothing in any view, and none is wider than its window: %j',
  async (appearance) => {
    const { view } = await open('/', appearance);
    await view.getByRole('link', { name: RUN, exact: true }).waitFor();
    for (const [name, path, text] of VIEWS) {
      await view.goto(`${gateway.gateway.url}/ui${path}`);
      await view.getByText(text).first().waitFor();
      await expectAccessible(view, [name, ...Object.keys(appearance)].join('-'));
    }
    await view.goto(`${gateway.gateway.url}/ui/deployment`);
    await view.locator('summary', { hasText: '2' }).click();
    await expectAccessible(view, ['hosts', ...Object.keys(appearance)].join('-'));
    await view.goto(`${gateway.gateway.url}/ui/`);
    await view.getByText('Start a run …').click();
    await view.getByLabel('As run').selectOption(RUN);
    await expect.poll(() => view.getByLabel(/^Run file/).inputValue()).toContain('iterations: 12');
    await view.getByRole('button', { name: 'Check and start' }).click();
    await view.getByText('run started started').waitFor();
    await expectAccessible(view, ['start', ...Object.keys(appearance)].join('-'));
    await view.goto(`${gateway.gateway.url}/ui/runs/${RUN}`);
    await view.getByText('Fork …').click();
    await view.getByText('With other settings').click();
    await expectAccessible(view, ['fork', ...Object.keys(appearance)].join('-'));
    await view.getByRole('button', { name: 'Redo' }).click();
    await view.getByRole('dialog').waitFor();
    await expectAccessible(view, ['redo', ...Object.keys(appearance)].join('-'));
  },
);

/** Expects that axe finds nothing in the view, and that it is not wider than its window. */
async function expectAccessible(view: Page, name: string): Promise<void> {
  await keepScreenshot(view, name);
  // It runs in the page by the debugger's protocol, which the Content-Security-Policy does not concern.
  await view.evaluate(AXE);
  const found = await view.evaluate<{ violations: { id: string; nodes: { html: string }[] }[] }>('axe.run()');
  const faults = found.violations.map(({ id, nodes }) => `${name}: ${id}: ${nodes.map(({ html }) => html).join(' ')}`);
  expect(faults).toEqual([]);
  expect(await view.evaluate('document.documentElement.scrollWidth <= innerWidth')).toBe(true);
}

/** Keeps pictures for a person, in the folder that this variable names. */
async function keepScreenshot(view: Page, name: string): Promise<void> {
  const folder = process.env['TRIALGATE_TEST_SCREENSHOTS'];
  if (folder === undefined) return;
  await mkdir(folder, { recursive: true });
  await view.screenshot({ path: join(folder, `${name}.png`) });
}

test('the page’s files are less than 150 kB and served with a strict policy, hashed ones are kept by browsers, and no other file is served', async () => {
  const index = await fetch(`${gateway.gateway.url}/ui/runs/any`);
  const html = await index.text();
  expect(index.headers.get('content-security-policy')).toMatch(/^default-src 'self'; (?!.*unsafe)/);
  expect([index.headers.get('cache-control'), index.headers.get('x-content-type-options')]).toEqual([
    'no-store',
    'nosniff',
  ]);
  const assets = [...html.matchAll(/(?:src|href)="(\/ui\/assets\/[^"]+)"/g)].map(([, path]) => path ?? '');
  expect(assets.length).toBeGreaterThanOrEqual(3);
  let size = 0;
  for (const path of assets) {
    const asset = await fetch(`${gateway.gateway.url}${path}`);
    expect([asset.status, asset.headers.get('cache-control')]).toEqual([200, 'public, max-age=31536000, immutable']);
    size += gzipSync(await asset.bytes()).byteLength;
  }
  expect(size).toBeLessThan(150_000);
  for (const path of ['/ui/assets/..%2findex.html', '/ui/assets/..%2f..%2fpackage.js', '/ui/assets/none.js'])
    expect((await fetch(`${gateway.gateway.url}${path}`)).status).toBe(404);
});
