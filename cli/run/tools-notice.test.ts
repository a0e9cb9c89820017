import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { ASK, useGateway } from '../../tests/support/harness/gateways.ts';
import { toolsNotice } from './tools-notice.ts';

const gateway = useGateway();
const TOOLS = [{ type: 'function', function: { name: 'add', parameters: { type: 'object' } } }];
const WITH = '{% for tool in tools %}{{ tool }}{% endfor %}';
const WITHOUT = '{% for message in messages %}{{ message.content }}{% endfor %}';

async function modelWith(files: Record<string, string>): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'trialgate-model-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  await mkdir(join(folder, 'small'));
  for (const [name, text] of Object.entries(files)) await writeFile(join(folder, 'small', name), text);
  return join(folder, 'small');
}

async function noticeFor(files: Record<string, string>, tools: object[] | undefined): Promise<string | null> {
  const trial = await gateway.trial();
  await (await trial.chat({ ...ASK, tools, messages: [{ role: 'user', content: 'Add 1 and 2.' }] })).text();
  return toolsNotice(gateway.db, { trialId: trial.id, attempt: 1 }, await modelWith(files));
}

test.each([
  ['its own file', { 'chat_template.jinja': WITHOUT }],
  ['the tokenizer’s settings', { 'tokenizer_config.json': JSON.stringify({ chat_template: WITHOUT }) }],
])('an agent that offers tools to a model whose template, in %s, shows none is warned about', async (_, files) => {
  expect(await noticeFor(files, TOOLS)).toContain('the chat template of small does not show them to the model');
});

test.each([
  ['whose template shows tools', { 'chat_template.jinja': WITH }, TOOLS],
  ['to which no tools are offered', { 'chat_template.jinja': WITHOUT }, undefined],
  ['whose files are not here', {}, TOOLS],
])('there is no warning about a model %s', async (_, files, tools) => {
  expect(await noticeFor(files, tools)).toBeNull();
});
