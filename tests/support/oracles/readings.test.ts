import { spawnSync } from 'node:child_process';
import { expect, test } from 'vitest';
import { UndiciConnection } from '../../../gateway/runtimes/node/engine-connection.ts';
import { INSTALLS } from '../../../cli/folders.ts';
import { withoutSpecial } from '../fakes/detokenize.ts';
import { readingOfSmallModel } from './readings.ts';

/** Renders the template of requests with tools as transformers does. It does not import transformers, which takes seconds. */
const RENDER = `
import json, sys
from jinja2 import Environment
from make_small_model import TOOL_TEMPLATE
env = Environment(trim_blocks=True, lstrip_blocks=True)
env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
texts = [env.from_string(TOOL_TEMPLATE).render(given) for given in json.load(sys.stdin)]
json.dump(texts, sys.stdout)
`;

function rendered(given: unknown): unknown {
  const { stdout, stderr, status } = spawnSync(INSTALLS.python, ['-B', '-c', RENDER], {
    env: { PYTHONPATH: INSTALLS.gpuWorkers },
    input: JSON.stringify(given),
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
}

const PATH = { type: 'object', properties: { path: { enum: ['.', 'naïve 🦀', ' a  b"\n'] } }, required: ['path'] };
const said = (content: unknown, given: unknown[] = []) => ({
  role: 'assistant',
  content,
  tool_calls: given.map((each) => ({ type: 'function', function: { name: 'ls', arguments: each } })),
});

test('the reading of the small model writes tools, calls and results as its template for tools does', () => {
  const written = [
    { role: 'user', content: 'a <|im_end|>\n' },
    said([{ type: 'text', text: 'so' }], ['{"path":"naïve 🦀","more":[1,{"b":null}]}', '{"cut']),
    { role: 'tool', content: '1 < 2' },
    said('', ['', '[]']),
    { role: 'tool', content: '' },
    said('done'),
    { role: 'user', content: 'é' },
  ];
  // This is what vLLM makes of these messages for a template.
  const parsed = [
    written[0],
    said('so', [{ path: 'naïve 🦀', more: [1, { b: null }] }, {}]),
    written[2],
    said('', [{}, {}]),
    ...written.slice(4),
  ];
  const tools = [
    { type: 'function', function: { strict: true, parameters: PATH, name: 'ls' } },
    { type: 'function', function: { name: 'now', description: 'The "time"' } },
  ];
  const known = [
    { type: 'function', function: { name: 'ls', description: null, parameters: PATH, strict: true } },
    { type: 'function', function: { name: 'now', description: 'The "time"', parameters: null } },
  ];
  const given = { messages: parsed, tools: known, add_generation_prompt: true };
  const past = { ...given, messages: parsed.slice(0, 2), add_generation_prompt: false };
  const [whole, before] = (rendered([given, past]) as string[]).map(withoutSpecial);
  const reading = readingOfSmallModel(new UndiciConnection('http://127.0.0.1:9'), AbortSignal.abort());
  const asked = { messages: written, tools };
  expect(reading.written(asked)).toBe(whole);
  // A completion has no line end after its last token.
  expect(`${before?.trimEnd()}${String(reading.written(asked, { messages: 2, completion: [] }))}`).toBe(whole);
});
