import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { REPOSITORY } from '../../core/repository.ts';
import type { ProtocolName } from '../../store/schema.ts';
import config from '../../vitest.config.ts';
import { WORKERD_IN_GATE } from './workerd-in-gate.ts';

/** The file that shows a protocol's conversations. Its type asks for an entry for each new protocol. */
const CONVERSATIONS: Record<ProtocolName, string> = {
  chat_completions: 'gateway/conversations/exact-tokens.test.ts',
  completions: 'gateway/conversations/many-gateways.test.ts',
  messages: 'gateway/protocols/through-the-gateway.test.ts',
  responses: 'gateway/protocols/through-the-gateway.test.ts',
  gemini: 'gateway/protocols/gemini/gemini-client.test.ts',
};

/** Returns what project `workerd` includes: paths of files, and a pattern. */
function includedInWorkerd(): string[] {
  const projects = config.test?.projects ?? [];
  return projects.flatMap((project) =>
    typeof project === 'object' && 'test' in project && project.test?.name === 'workerd'
      ? (project.test.include ?? [])
      : [],
  );
}

test('each file that `npm test` runs in workerd exists and belongs to project `workerd`', () => {
  const included = includedInWorkerd();
  const foreign = WORKERD_IN_GATE.filter(
    (file) => !existsSync(path.join(REPOSITORY, file)) || !included.some((pattern) => path.matchesGlob(file, pattern)),
  );
  expect(foreign).toEqual([]);
});

test('`npm test` runs a call, a stream and a conversation of each protocol in workerd', () => {
  const expected = ['gateway/protocols/any-protocol.test.ts', ...Object.values(CONVERSATIONS)];
  expect(expected.filter((file) => !WORKERD_IN_GATE.includes(file))).toEqual([]);
});
