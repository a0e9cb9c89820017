import { join } from 'node:path';
import { calling } from '../testing/calling.ts';
import type { Client, Place } from './client.ts';

const TASK = 'Look into the folder, then say what you saw.';
const TWICE = (name: string, given: (turn: number) => unknown): string[] => [
  `I look.${calling({ name, arguments: given(1) })}`,
  calling({ name, arguments: given(2) }),
  'I saw one and two.',
];
const FOUR = [...TWICE('ls', () => ({ path: '🦀' })), 'Nothing more.'];

const python = (script: string) => ({ folder, scripts, trialUrl, key }: Place) => ({ ...inPython(folder, join(scripts, script)), env: { TRIAL_URL: trialUrl, TRIAL_KEY: key } });
const node = (script: string) => ({ scripts, trialUrl, key }: Place) => ({ file: process.execPath, args: [join(scripts, script)], env: { TRIAL_URL: trialUrl, TRIAL_KEY: key } });

/** A program of a virtual environment by its interpreter: its first line names the folder in which it was installed. */
const inPython = (folder: string, program: string, args: string[] = []) => ({ file: join(folder, 'bin/python'), args: [program, ...args] });

export const CLIENTS: readonly Client[] = [
  { name: 'openai-python', protocol: 'responses', install: { pip: ['openai==3.54.0'] }, bringsTools: true, says: FOUR, start: python('openai_sdk.py') },
  { name: 'openai-node', protocol: 'responses', install: { own: 'openai' }, bringsTools: true, says: FOUR, start: node('openai_sdk.ts') },
  { name: 'anthropic-python', protocol: 'messages', install: { pip: ['anthropic==2.12.0'] }, bringsTools: true, says: FOUR, start: python('anthropic_sdk.py') },
  { name: 'anthropic-node', protocol: 'messages', install: { own: '@anthropic-ai/sdk' }, bringsTools: true, says: FOUR, start: node('anthropic_sdk.ts') },
  {
    name: 'mini-swe-agent',
    protocol: 'chat_completions',
    install: { pip: ['mini-swe-agent==2.4.6', 'mcp==2.3.0'] },
    bringsTools: true,
    says: [...TWICE('bash', (turn) => ({ command: `echo ${turn}` })).slice(0, 2), calling({ name: 'bash', arguments: { command: 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT' } })],
    start: ({ folder, trialUrl, key, home }) => ({
      ...inPython(folder, join(folder, 'bin/mini'), ['--yolo', '--exit-immediately', '--model', 'openai/policy', '--task', TASK, '--output', join(home, 'trajectory.json')]),
      env: {
        MSWEA_CONFIGURED: 'true', MSWEA_COST_TRACKING: 'ignore_errors', MSWEA_SILENT_STARTUP: '1',
        // A model that never calls its tool would be asked for ever.
        MSWEA_GLOBAL_CALL_LIMIT: '4',
        OPENAI_API_BASE: `${trialUrl}/v1`, OPENAI_API_KEY: key, LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      },
    }),
  },
  {
    name: 'aider',
    protocol: 'chat_completions',
    install: { pip: ['aider-chat==0.86.2'] },
    bringsTools: false,
    rewrites: true,
    says: ['hello.py\n```\nraise SystemExit(1)\n```\n', 'hello.py\n```\nprint("hello")\n```\n'],
    start: ({ folder, trialUrl, key }) => ({
      ...inPython(folder, join(folder, 'bin/aider'), ['--model', 'openai/policy', '--message', 'Write hello.py.', '--yes-always', '--no-git', '--edit-format', 'whole', '--no-show-model-warnings', '--no-check-update', '--no-analytics', '--no-show-release-notes', '--no-fancy-input', '--no-pretty', '--no-detect-urls', '--auto-test', '--test-cmd', 'python3 hello.py', 'hello.py']),
      env: { OPENAI_API_BASE: `${trialUrl}/v1`, OPENAI_API_KEY: key, LITELLM_LOCAL_MODEL_COST_MAP: 'True' },
    }),
  },
  {
    name: 'claude-code',
    protocol: 'messages',
    install: { npm: '@anthropic-ai/claude-code@2.1.330' },
    bringsTools: true,
    givesUp: true,
    says: TWICE('Bash', (turn) => ({ command: `echo ${turn}`, description: 'says it' })),
    start: ({ folder, trialUrl, key }) => ({
      file: join(folder, 'node_modules/.bin/claude'),
      args: ['--print', '--model', 'policy', '--dangerously-skip-permissions', TASK],
      env: {
        ANTHROPIC_BASE_URL: trialUrl, ANTHROPIC_AUTH_TOKEN: key, ANTHROPIC_SMALL_FAST_MODEL: 'policy', CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        // It refuses to skip its questions as root, unless it is told that it runs in a sandbox.
        IS_SANDBOX: '1', DISABLE_AUTOUPDATER: '1',
      },
    }),
  },
  {
    name: 'codex',
    protocol: 'responses',
    install: { npm: '@openai/codex@0.169.0' },
    bringsTools: true,
    givesUp: true,
    says: TWICE('exec_command', (turn) => ({ cmd: `echo ${turn}` })),
    start: ({ folder, trialUrl, key }) => ({
      file: join(folder, 'node_modules/.bin/codex'),
      args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', TASK],
      env: { TRIAL_KEY: key },
      files: {
        '.codex/config.toml': [
          'model = "policy"', 'model_provider = "trial"', 'model_context_window = 100000', 'check_for_update_on_startup = false', '[model_providers.trial]', 'name = "trial"', `base_url = "${trialUrl}/v1"`,
          'env_key = "TRIAL_KEY"', 'wire_api = "responses"', 'stream_max_retries = 0', 'request_max_retries = 0', '[analytics]', 'enabled = false', '',
        ].join('\n'),
      },
    }),
  },
  {
    name: 'opencode',
    protocol: 'chat_completions',
    install: { npm: 'opencode-ai@1.18.33' },
    bringsTools: true,
    says: TWICE('bash', (turn) => ({ command: `echo ${turn}`, description: 'says it' })),
    start: ({ folder, trialUrl, key }) => ({
      file: join(folder, 'node_modules/.bin/opencode'),
      args: ['run', '--model', 'trial/policy', TASK],
      env: { OPENCODE_DISABLE_AUTOUPDATE: 'true', OPENCODE_DISABLE_MODELS_FETCH: 'true' },
      files: {
        '.config/opencode/opencode.json': JSON.stringify({
          provider: { trial: { npm: '@ai-sdk/openai-compatible', name: 'trial', options: { baseURL: `${trialUrl}/v1`, apiKey: key }, models: { policy: { name: 'policy', tool_call: true, limit: { context: 100_000, output: 4_000 } } } } },
          permission: 'allow', autoupdate: false, share: 'disabled',
        }),
      },
    }),
  },
  { name: 'langgraph', protocol: 'chat_completions', install: { pip: ['langgraph==1.2.22', 'langchain==1.4.7', 'langchain-openai==1.7.3'] }, bringsTools: true, says: TWICE('ls', () => ({ path: '.' })), start: python('langgraph_react.py') },
];
