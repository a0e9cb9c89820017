import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { calling } from '../support/harness/calling.ts';
import { asking, RETRY, type Client, type Install, type Mode, type Place } from './client.ts';

const TWICE = (name: string, given: (turn: number) => unknown): string[] => [
  `I look.${calling({ name, arguments: given(1) })}`,
  calling({ name, arguments: given(2) }),
  'I saw one and two.',
];
const LS_TWICE = TWICE('ls', () => ({ path: '🦀' }));
const FOUR = [...LS_TWICE, 'Nothing more.'];
const SEEN = { name: 'a.txt', count: 1 };
const AS_JSON = [JSON.stringify(SEEN)];
const LS_ONCE = [calling({ name: 'ls', arguments: { path: '.' } })];
const FORM = [calling({ name: 'Seen', arguments: SEEN })];
const ONE_TEXT = ['I saw it.'];
const CODE = (code: string): string => `Thought: I use Python.\n<code>\n${code}\n</code>`;

/** Returns the variables that a run sets in every sandbox. Most clients need nothing else. */
export const sandboxVariables = ({ trialUrl, key }: Pick<Place, 'trialUrl' | 'key'>): Record<string, string> => ({
  OPENAI_BASE_URL: `${trialUrl}/v1`,
  OPENAI_API_KEY: key,
  ANTHROPIC_BASE_URL: trialUrl,
  ANTHROPIC_AUTH_TOKEN: key,
  ANTHROPIC_API_KEY: key,
  GOOGLE_GEMINI_BASE_URL: trialUrl,
  GEMINI_API_KEY: key,
});

type StartOf = Client['start'];

const pythonScript =
  (script: string): StartOf =>
  (place, modes) => ({
    ...inPython(place.folder, join(place.scripts, script), [...modes]),
    env: sandboxVariables(place),
  });
const nodeScript =
  (script: string): StartOf =>
  (place, modes) => ({
    file: process.execPath,
    args: [join(place.scripts, script), ...modes],
    env: sandboxVariables(place),
  });
/** Starts a script with packages of its own. It runs from the client's folder, as in a project. */
const projectScript =
  (script: string): StartOf =>
  (place, modes) => ({
    file: process.execPath,
    args: [join(place.work, script), ...modes],
    env: sandboxVariables(place),
    files: { [`work/${script}`]: readFileSync(join(place.scripts, script), 'utf8') },
    packages: join(place.folder, 'node_modules'),
  });

/** Starts a program of a virtual environment by its interpreter, because its first line names the folder in which it was installed. */
const inPython = (folder: string, program: string, args: string[] = []) => ({
  file: join(folder, 'bin/python'),
  args: [program, ...args],
});

const SDKS: Install = { python: 'sdks' };
const LITELLM: Install = { python: 'litellm' };
const JS_SDKS: Install = { npm: 'js-sdks' };

const OPENAI_MODES: readonly Mode[] = [
  { name: 'chat' },
  { name: 'chat, streamed' },
  { name: 'responses' },
  { name: 'responses, streamed' },
  { name: 'responses by id' },
  { name: 'responses by id, streamed' },
  { name: 'parse', says: AS_JSON, constrained: 1 },
  { name: 'tool_choice required', says: LS_ONCE, constrained: 1 },
  { name: RETRY, says: ONE_TEXT },
];
const ANTHROPIC_MODES: readonly Mode[] = [
  { name: 'messages' },
  { name: 'messages, streamed' },
  { name: 'parse', says: AS_JSON, constrained: 1 },
  { name: 'tool_choice any', says: LS_ONCE, constrained: 1 },
  { name: RETRY, says: ONE_TEXT },
];
/** The modes of a program that the tests start once for each mode. */
const TASKS: readonly Mode[] = [{ name: 'task' }, { name: RETRY }];

export const CLIENTS: readonly Client[] = [
  {
    name: 'openai-python',
    version: '3.54.0',
    protocol: 'responses',
    install: SDKS,
    bringsTools: true,
    besideVllm: true,
    says: FOUR,
    modes: OPENAI_MODES,
    start: pythonScript('openai_sdk.py'),
  },
  {
    name: 'openai-node',
    protocol: 'responses',
    install: { own: 'openai' },
    bringsTools: true,
    besideVllm: true,
    says: FOUR,
    modes: OPENAI_MODES,
    start: nodeScript('openai_sdk.ts'),
  },
  {
    name: 'anthropic-python',
    version: '2.12.0',
    protocol: 'messages',
    install: SDKS,
    bringsTools: true,
    besideVllm: true,
    says: FOUR,
    modes: ANTHROPIC_MODES,
    start: pythonScript('anthropic_sdk.py'),
  },
  {
    name: 'anthropic-node',
    protocol: 'messages',
    install: { own: '@anthropic-ai/sdk' },
    bringsTools: true,
    besideVllm: true,
    says: FOUR,
    modes: ANTHROPIC_MODES,
    start: nodeScript('anthropic_sdk.ts'),
  },
  {
    name: 'google-genai-python',
    version: '3.6.1',
    protocol: 'gemini',
    install: { python: 'google' },
    bringsTools: true,
    says: FOUR,
    modes: [
      { name: 'generate_content' },
      { name: 'generate_content, streamed' },
      { name: 'chats with a function', says: [...LS_ONCE, ...ONE_TEXT] },
      { name: 'response_schema', says: AS_JSON, constrained: 1 },
      { name: 'function calling ANY', says: LS_ONCE, constrained: 1 },
    ],
    start: pythonScript('google_genai.py'),
  },
  {
    name: 'google-genai-node',
    protocol: 'gemini',
    install: { own: '@google/genai' },
    bringsTools: true,
    says: FOUR,
    modes: [
      { name: 'generateContent' },
      { name: 'generateContent, streamed' },
      { name: 'chats', says: ONE_TEXT },
      { name: 'responseSchema', says: AS_JSON, constrained: 1 },
      { name: 'function calling ANY', says: LS_ONCE, constrained: 1 },
    ],
    start: nodeScript('google_genai.ts'),
  },
  {
    name: 'langgraph',
    version: '1.2.22',
    protocol: 'chat_completions',
    install: SDKS,
    bringsTools: true,
    besideVllm: true,
    says: LS_TWICE,
    modes: [
      { name: 'invoke' },
      { name: 'stream' },
      { name: 'ToolStrategy', says: [...LS_ONCE, calling({ name: 'Seen', arguments: SEEN })], constrained: 2 },
      { name: 'ProviderStrategy', says: AS_JSON, constrained: 1 },
      { name: RETRY },
    ],
    start: pythonScript('langgraph_react.py'),
  },
  {
    name: 'pydantic-ai',
    version: '2.68.0',
    protocol: 'chat_completions',
    install: SDKS,
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'chat' },
      // A streamed run ends with the first text.
      { name: 'chat, streamed', says: [...LS_ONCE, ...ONE_TEXT] },
      { name: 'responses' },
      { name: 'messages' },
      { name: 'strict tools', constrained: 3 },
      { name: 'strict tools, responses', constrained: 3 },
      { name: 'strict=False on the tool' },
      { name: 'output_type', says: [...LS_ONCE, calling({ name: 'final_result', arguments: SEEN })], constrained: 2 },
      { name: 'NativeOutput', says: [...LS_ONCE, ...AS_JSON], constrained: 2 },
      { name: 'PromptedOutput', says: [...LS_ONCE, ...AS_JSON], constrained: 2 },
      { name: 'PromptedOutput, plain', says: [...LS_ONCE, ...AS_JSON] },
      { name: RETRY },
    ],
    start: pythonScript('pydantic_ai_agent.py'),
  },
  {
    name: 'openai-agents-python',
    version: '0.24.0',
    protocol: 'responses',
    install: SDKS,
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'responses' },
      { name: 'responses, streamed' },
      { name: 'chat' },
      { name: 'strict tools', constrained: 3 },
      { name: 'output_type', says: [...LS_ONCE, ...AS_JSON], constrained: 2 },
      { name: 'tool_choice required', constrained: 1 },
      { name: RETRY },
    ],
    start: pythonScript('openai_agents.py'),
  },
  {
    name: 'openai-agents-js',
    version: '0.20.0',
    protocol: 'responses',
    install: JS_SDKS,
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'responses' },
      { name: 'responses, streamed' },
      { name: 'chat' },
      { name: 'strict tools', constrained: 3 },
      { name: 'outputType', says: [...LS_ONCE, ...AS_JSON], constrained: 2 },
      { name: 'toolChoice required', constrained: 1 },
      { name: RETRY },
    ],
    start: projectScript('openai_agents.mjs'),
  },
  {
    name: 'llama-index',
    version: '0.14.25',
    protocol: 'chat_completions',
    install: { python: 'llama-index' },
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'FunctionAgent' },
      { name: 'FunctionAgent, streamed' },
      {
        name: 'ReActAgent',
        says: [
          'Thought: I look.\nAction: ls\nAction Input: {"path": "🦀"}',
          'Thought: I can answer without using any more tools.\nAnswer: I saw it.',
        ],
      },
      // It asks for the form at the end, in a conversation of its own.
      { name: 'output_cls', says: [...LS_ONCE, ...ONE_TEXT], saysLater: FORM, constrained: 1 },
      { name: 'as_structured_llm', says: FORM, constrained: 1 },
      { name: 'initial_tool_choice', constrained: 1 },
      { name: RETRY },
    ],
    start: pythonScript('llama_index_agents.py'),
  },
  {
    name: 'google-adk',
    version: '2.13.0',
    protocol: 'gemini',
    install: { python: 'google-adk' },
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'Gemini' },
      { name: 'Gemini, streamed' },
      { name: 'LiteLlm' },
      { name: 'LiteLlm, streamed' },
      { name: 'output_schema', says: AS_JSON, constrained: 1 },
      { name: 'output_schema, LiteLlm', says: AS_JSON, constrained: 1 },
      {
        name: 'output_schema with a tool',
        says: [...LS_ONCE, calling({ name: 'set_model_response', arguments: SEEN })],
      },
      { name: 'function calling ANY', constrained: 3 },
      { name: RETRY },
    ],
    start: (place, modes) => {
      const started = pythonScript('google_adk.py')(place, modes);
      return { ...started, env: { ...started.env, LITELLM_LOCAL_MODEL_COST_MAP: 'True' } };
    },
  },
  {
    name: 'crewai',
    version: '1.15.30',
    protocol: 'chat_completions',
    install: { python: 'crewai' },
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'tools', constrained: 3 },
      { name: 'tools, streamed', constrained: 3 },
      { name: 'tools, not strict' },
      { name: 'tools, not strict, streamed' },
      { name: 'output_pydantic', says: [...LS_ONCE, ...AS_JSON] },
      {
        name: 'output_pydantic, not JSON',
        // It asks for the form in a conversation of its own, which repeats this last reply only.
        says: [...LS_ONCE, 'I saw it (output_pydantic, not JSON).'],
        saysLater: AS_JSON,
        constrained: 1,
      },
      { name: RETRY },
    ],
    start: (place, modes) => {
      const started = pythonScript('crewai_crew.py')(place, modes);
      return { ...started, env: { ...started.env, CREWAI_DISABLE_TELEMETRY: 'true', CREWAI_TRACING_ENABLED: 'false' } };
    },
  },
  {
    name: 'smolagents',
    branches: true,
    version: '1.26.0',
    protocol: 'chat_completions',
    install: SDKS,
    bringsTools: false,
    says: [CODE('seen = ls(".")\nprint(seen)'), CODE('final_answer(seen)')],
    modes: [
      { name: 'CodeAgent' },
      { name: 'CodeAgent, streamed' },
      {
        name: 'CodeAgent, structured',
        says: [
          { thought: 'I look.', code: 'seen = ls(".")\nprint(seen)' },
          { thought: 'I saw it.', code: 'final_answer(seen)' },
        ].map((each) => JSON.stringify(each)),
        constrained: 2,
      },
      {
        name: 'ToolCallingAgent',
        says: [...LS_ONCE, calling({ name: 'final_answer', arguments: { answer: 'a.txt' } })],
        constrained: 2,
      },
      { name: RETRY },
    ],
    start: pythonScript('smolagents_agents.py'),
  },
  {
    name: 'ai-sdk',
    version: '7.0.173',
    protocol: 'chat_completions',
    install: JS_SDKS,
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'chat' },
      { name: 'chat, streamed' },
      { name: 'compatible' },
      { name: 'messages' },
      { name: 'responses' },
      { name: 'responses, store: false' },
      { name: 'Output.object', says: AS_JSON, constrained: 1 },
      { name: 'toolChoice required', says: LS_ONCE, constrained: 1 },
      { name: RETRY },
    ],
    start: projectScript('ai_sdk.mjs'),
  },
  {
    name: 'litellm',
    version: '1.106.0',
    protocol: 'chat_completions',
    install: LITELLM,
    bringsTools: true,
    says: LS_TWICE,
    modes: [
      { name: 'completion' },
      { name: 'completion, streamed' },
      { name: 'response_format', says: AS_JSON, constrained: 1 },
      { name: 'tool_choice required', says: LS_ONCE, constrained: 1 },
      { name: RETRY, says: ONE_TEXT },
    ],
    start: (place, modes) => {
      const started = pythonScript('litellm_sdk.py')(place, modes);
      return { ...started, env: { ...started.env, LITELLM_LOCAL_MODEL_COST_MAP: 'True' } };
    },
  },
  {
    name: 'mini-swe-agent',
    version: '2.4.6',
    protocol: 'chat_completions',
    install: LITELLM,
    bringsTools: true,
    besideVllm: true,
    oneMode: true,
    modes: TASKS,
    says: [
      ...TWICE('bash', (turn) => ({ command: `echo ${turn}` })).slice(0, 2),
      calling({ name: 'bash', arguments: { command: 'echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT' } }),
    ],
    start: (place, [mode = '']) => ({
      ...inPython(place.folder, join(place.folder, 'bin/mini'), [
        '--yolo',
        '--exit-immediately',
        '--model',
        'openai/policy',
        '--task',
        asking(mode),
        '--output',
        join(place.home, 'trajectory.json'),
      ]),
      env: {
        ...sandboxVariables(place),
        MSWEA_CONFIGURED: 'true',
        MSWEA_COST_TRACKING: 'ignore_errors',
        MSWEA_SILENT_STARTUP: '1',
        // Bounds the requests to a model that never calls its tool.
        MSWEA_GLOBAL_CALL_LIMIT: '4',
        LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      },
    }),
  },
  {
    name: 'aider',
    version: '0.86.2',
    protocol: 'chat_completions',
    install: { python: 'aider' },
    bringsTools: false,
    besideVllm: true,
    oneMode: true,
    branches: true,
    modes: TASKS,
    says: ['hello.py\n```\nraise SystemExit(1)\n```\n', 'hello.py\n```\nprint("hello")\n```\n'],
    start: (place, [mode = '']) => ({
      ...inPython(place.folder, join(place.folder, 'bin/aider'), [
        '--model',
        'openai/policy',
        '--message',
        `Write hello.py (${mode}).`,
        '--yes-always',
        '--no-git',
        '--edit-format',
        'whole',
        '--no-show-model-warnings',
        '--no-check-update',
        '--no-analytics',
        '--no-show-release-notes',
        '--no-fancy-input',
        '--no-pretty',
        '--no-detect-urls',
        '--auto-test',
        '--test-cmd',
        'python3 hello.py',
        'hello.py',
      ]),
      env: {
        ...sandboxVariables(place),
        OPENAI_API_BASE: `${place.trialUrl}/v1`,
        LITELLM_LOCAL_MODEL_COST_MAP: 'True',
      },
    }),
  },
  {
    name: 'claude-code',
    version: '2.1.330',
    protocol: 'messages',
    install: { npm: 'claude-code' },
    bringsTools: true,
    besideVllm: true,
    oneMode: true,
    givesUp: true,
    modes: TASKS,
    says: TWICE('Bash', (turn) => ({ command: `echo ${turn}`, description: 'says it' })),
    start: (place, [mode = '']) => ({
      // `.bin/claude` is the same program, but an install script puts it there.
      file: join(place.folder, 'node_modules/@anthropic-ai/claude-code-linux-x64/claude'),
      args: ['--print', '--model', 'policy', '--dangerously-skip-permissions', asking(mode)],
      env: {
        ...sandboxVariables(place),
        ANTHROPIC_SMALL_FAST_MODEL: 'policy',
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
        // Claude Code skips its questions for root only when this variable says that it runs in a sandbox.
        IS_SANDBOX: '1',
        DISABLE_AUTOUPDATER: '1',
      },
    }),
  },
  {
    name: 'codex',
    version: '0.169.0',
    protocol: 'responses',
    install: { npm: 'codex' },
    bringsTools: true,
    besideVllm: true,
    oneMode: true,
    givesUp: true,
    modes: TASKS,
    says: TWICE('exec_command', (turn) => ({ cmd: `echo ${turn}` })),
    start: (place, [mode = '']) => ({
      file: join(place.folder, 'node_modules/.bin/codex'),
      args: ['exec', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', asking(mode)],
      env: sandboxVariables(place),
      files: {
        '.codex/config.toml': [
          'model = "policy"',
          'model_provider = "trial"',
          'model_context_window = 100000',
          'check_for_update_on_startup = false',
          '',
          '[model_providers.trial]',
          'name = "trial"',
          `base_url = "${place.trialUrl}/v1"`,
          'env_key = "OPENAI_API_KEY"',
          'wire_api = "responses"',
          '',
          '[analytics]',
          'enabled = false',
          '',
        ].join('\n'),
      },
    }),
  },
  {
    name: 'gemini-cli',
    version: '0.61.0',
    protocol: 'gemini',
    install: { npm: 'gemini-cli' },
    bringsTools: true,
    oneMode: true,
    modes: TASKS,
    says: TWICE('run_shell_command', (turn) => ({ command: `echo ${turn}`, description: 'says it' })),
    start: (place, [mode = '']) => ({
      file: join(place.folder, 'node_modules/.bin/gemini'),
      args: ['--model', 'policy', '--yolo', '--skip-trust', '--prompt', asking(mode)],
      env: sandboxVariables(place),
      files: {
        '.gemini/settings.json': JSON.stringify(
          {
            security: { auth: { selectedType: 'gemini-api-key' } },
            privacy: { usageStatisticsEnabled: false },
            general: { enableAutoUpdate: false },
          },
          null,
          2,
        ),
      },
    }),
  },
  {
    name: 'opencode',
    version: '1.18.33',
    protocol: 'chat_completions',
    install: { npm: 'opencode' },
    bringsTools: true,
    besideVllm: true,
    oneMode: true,
    modes: TASKS,
    says: TWICE('bash', (turn) => ({ command: `echo ${turn}`, description: 'says it' })),
    start: (place, [mode = '']) => ({
      // `opencode-ai` has the same program, but an install script puts it there.
      file: join(place.folder, 'node_modules/opencode-linux-x64/bin/opencode'),
      args: ['run', '--model', 'trial/policy', asking(mode)],
      env: { ...sandboxVariables(place), OPENCODE_DISABLE_AUTOUPDATE: 'true', OPENCODE_DISABLE_MODELS_FETCH: 'true' },
      files: {
        '.config/opencode/opencode.json': JSON.stringify(
          {
            provider: {
              trial: {
                npm: '@ai-sdk/openai-compatible',
                name: 'trial',
                options: { baseURL: '{env:OPENAI_BASE_URL}', apiKey: '{env:OPENAI_API_KEY}' },
                models: { policy: { name: 'policy', tool_call: true, limit: { context: 100_000, output: 4_000 } } },
              },
            },
            permission: 'allow',
            autoupdate: false,
            share: 'disabled',
          },
          null,
          2,
        ),
      },
    }),
  },
  {
    name: 'java-httpclient',
    protocol: 'chat_completions',
    install: { program: 'javac', why: 'there is no JDK on the PATH, which runs a Java source file' },
    bringsTools: false,
    direct: true,
    branches: true,
    says: ONE_TEXT,
    modes: [{ name: 'chat' }, { name: 'chat, streamed' }, { name: 'json_schema', says: AS_JSON, constrained: 1 }],
    start: (place, modes) => ({
      file: join(place.folder, 'java'),
      args: [join(place.scripts, 'HttpClientTalk.java'), ...modes],
      env: sandboxVariables(place),
    }),
  },
  {
    name: 'raw-http',
    protocol: 'chat_completions',
    install: { own: 'node' },
    bringsTools: false,
    direct: true,
    branches: true,
    says: ONE_TEXT,
    modes: [
      { name: 'one piece' },
      { name: 'pieces' },
      { name: 'chunked' },
      { name: 'chunked, streamed' },
      { name: 'pipelined' },
    ],
    start: nodeScript('raw_http.ts'),
  },
];
