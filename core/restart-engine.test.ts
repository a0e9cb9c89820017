import { expect, test } from 'vitest';
import { lacksToolParser } from './restart-engine.ts';

test.each([
  ['"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set', true],
  ['engine_400: BadRequestError: tool_choice=function "ls" requires --tool-call-parser to be set', true],
  ['top_k must be an integer, found "requires --tool-call-parser to be set"', false],
  ['"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set (said the agent)', false],
])('only the whole message of an engine without a tool parser says that it lacks one: %s', (message, lacks) => {
  expect(lacksToolParser(message)).toBe(lacks);
});
