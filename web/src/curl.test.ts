import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { curlOf } from './curl.ts';

/** What curl was given: its arguments, one a line, and then its input. */
async function sent(command: string): Promise<string> {
  const { stdout } = await promisify(execFile)('sh', ['-c', `curl() { printf '%s\\n' "$@"; cat; }\n${command}`], {
    env: { OPENAI_BASE_URL: 'http://gateway/v1', OPENAI_API_KEY: 'the key', PATH: process.env['PATH'] },
  });
  return stdout;
}

test('a shell sends the body as it is, whatever a model wrote in it', async () => {
  const content = `it's "quoted" $(touch /tmp/x) \`id\` \\ $HOME !! %s\nEND_OF_BODY\n\u0000\u001b[2J\u007f\u009b\u202e\u2028\u{e0001}😀`;
  const request = { messages: [{ role: 'user', content }] };
  const command = curlOf({ path: '/chat/completions', body: JSON.stringify(request) });
  const lines = (await sent(command)).trimEnd().split('\n');
  expect(lines.slice(0, -1)).toEqual([
    'http://gateway/v1/chat/completions',
    '-H',
    'Authorization: Bearer the key',
    '-H',
    'Content-Type: application/json',
    '--data-binary',
    '@-',
  ]);
  expect(JSON.parse(lines.at(-1) ?? '')).toEqual(request);
  // A terminal into which it is pasted gets nothing that it acts on.
  expect(command.replaceAll('\n', '')).not.toMatch(/[\p{Cc}\p{Cf}\u2028\u2029]/u);
});
