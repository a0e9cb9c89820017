import { expect, test } from 'vitest';
import { readEnvironment } from './settings.ts';

const WHOLE = {
  HYPERDRIVE: { connectionString: 'postgres://a@b/c' },
  TRIALGATE_SECRET: 'a secret of sixteen characters',
  TRIALGATE_ADMIN_KEY: 'the admin key',
  TRIALGATE_ENGINES: 'https://one.example/, http://two.example:8000',
};

test('a Cloudflare Worker reads the gateway’s engines and settings from its bindings', () => {
  const { engines, settings } = readEnvironment({
    ...WHOLE,
    TRIALGATE_HOLD_SECONDS: '1.5',
    TRIALGATE_TOKEN_IN: 'false',
    TRIALGATE_BUDGET_END: '',
  });
  expect(engines).toEqual(['https://one.example', 'http://two.example:8000']);
  expect(settings).toMatchObject({
    maxBodyBytes: 16 * 2 ** 20,
    holdMs: 1500,
    tokenIn: false,
    budgetEnd: 'length',
    idleMs: 600_000,
  });
});

test.each([
  ['HYPERDRIVE', undefined, 'HYPERDRIVE: expected a Hyperdrive binding'],
  ['TRIALGATE_SECRET', undefined, 'TRIALGATE_SECRET: expected a secret: `wrangler secret put TRIALGATE_SECRET`'],
  ['TRIALGATE_SECRET', 'short', 'TRIALGATE_SECRET: expected at least 16 characters'],
  ['TRIALGATE_ADMIN_KEY', '', 'TRIALGATE_ADMIN_KEY: expected a key: `wrangler secret put TRIALGATE_ADMIN_KEY`'],
  [
    'TRIALGATE_ENGINES',
    'unix:/run/engine.sock',
    'TRIALGATE_ENGINES: expected engines such as https://engine.example, separated by commas, or relay; a Worker reaches none through `unix:`',
  ],
  ['TRIALGATE_READ_KEY', 'short', 'TRIALGATE_READ_KEY: expected at least 8 characters'],
  ['TRIALGATE_IDLE_SECONDS', 'long', 'TRIALGATE_IDLE_SECONDS: expected a number of seconds'],
])('a Cloudflare Worker without a valid %s refuses to serve and says what is wrong: %s', (name, value, message) => {
  const read = () => readEnvironment({ ...WHOLE, [name]: value });
  expect(read).toThrow(expect.objectContaining({ code: 'missing_prerequisite', message }));
});

test('a Cloudflare Worker has a read-only key if it is given one, which must not be the admin key', () => {
  const readKeyOf = (TRIALGATE_READ_KEY: string) => readEnvironment({ ...WHOLE, TRIALGATE_READ_KEY }).readKey;
  expect([readKeyOf('a key to read'), readKeyOf('')]).toEqual(['a key to read', null]);
  expect(() => readKeyOf(WHOLE.TRIALGATE_ADMIN_KEY)).toThrow(/another key than admin_key/);
});
