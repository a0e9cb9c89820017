import { expect, test } from 'vitest';
import { constrainedAdvice } from './framework-modes.ts';

test.each([
  ['pydantic-ai/2.68.0', ['strict_tools'], 'openai_supports_strict_tool_definition=False'],
  [
    'pydantic-ai/2.68.0',
    ['response_format'],
    'supports_json_object_output=False and openai_supports_strict_tool_definition=False',
  ],
  ['Agents/Python 0.24.0', ['strict_tools'], 'strict_mode=False'],
  [
    'google-genai-sdk/2.34.0 gl-python/3.11.7 google-adk/2.13.0 gl-python/3.11.7',
    ['response_format'],
    'output_schema on an agent with a tool',
  ],
  ['google-genai-sdk/3.6.1 gl-python/3.11.7', ['response_format'], 'a prompt that asks for the form'],
  ['OpenAI/Python 2.54.0', ['strict_tools'], 'tools without strict (in CrewAI by an interceptor)'],
  ['ai-sdk/openai/4.0.118', ['tool_choice'], 'the toolChoice auto'],
  [
    'OpenAI/Python 3.54.0',
    ['tool_choice', 'response_format'],
    'the tool_choice auto, and a prompt that asks for the form',
  ],
  [null, ['guided_regex'], 'a prompt that asks for the form'],
])(
  'the gateway’s advice for the client %s that sends %j names the client’s setting that keeps calls trainable: %s',
  (agent, fields, instead) => {
    expect(constrainedAdvice(fields, agent).split(', or use ')[1]).toContain(instead);
  },
);
