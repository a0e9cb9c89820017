/** A file that a user writes. With `section` it is the blocks of code of a section of a document. */
export type Written = { path: string; section?: { heading: string; language: 'python' | 'yaml' } };

/** An example of a project. `repository` and `commit` are null for our own. */
export type Example = {
  project: string;
  example: string;
  repository: string | null;
  commit: string | null;
  written: readonly Written[];
};

const files = (folder: string, ...names: string[]): Written[] => names.map((name) => ({ path: `${folder}/${name}` }));

const TRL = { project: 'TRL', repository: 'huggingface/trl', commit: 'f2cd57710ae345ea6428ae95363267fcf38a3dc8' };
const VERIFIERS = {
  project: 'verifiers',
  repository: 'PrimeIntellect-ai/verifiers',
  commit: 'a60a606ecc4d309247edf9ff92c3eabca362781f',
};
const PRIME_RL = {
  project: 'prime-rl',
  repository: 'PrimeIntellect-ai/prime-rl',
  commit: '559b44772e471d1538537b8805cc77f3824a5e64',
};
const ART = { project: 'ART', repository: 'OpenPipe/ART', commit: 'd9be33be6b317dc7aaf32aca905a30122e824164' };
const RLLM = { project: 'rLLM', repository: 'rllm-org/rllm', commit: '9beb6e0f676a46d38858991fd79ac5f8e0b16d4c' };
const OURS = { project: 'Trialgate', repository: null, commit: null };

const START = '# Your own tasks and rewards';

export const GSM8K: readonly Example[] = [
  {
    ...OURS,
    example: 'quick start: rows, a reward in Python',
    written: [
      { path: 'docs/tasks.md', section: { heading: START, language: 'yaml' } },
      { path: 'docs/tasks.md', section: { heading: START, language: 'python' } },
    ],
  },
  {
    ...OURS,
    example: 'GSM8K’s form, a bundled reward and one in Python, with an evaluation',
    written: files('examples/gsm8k', 'run.yaml', 'grade.py'),
  },
  {
    ...TRL,
    example: 'quick start: DeepMath, a bundled reward',
    written: [{ path: 'docs/source/grpo_trainer.md', section: { heading: '## Quick start', language: 'python' } }],
  },
  { ...TRL, example: 'GSM8K, a bundled reward', written: files('examples/scripts', 'async_grpo.py') },
  {
    ...TRL,
    example: 'GSM8K, a reward in Python',
    written: files('examples/scripts', 'grpo_continuous_batching.py'),
  },
  {
    ...VERIFIERS,
    example: 'GSM8K, a reward in Python: the environment alone, without training',
    written: files('environments/gsm8k', 'gsm8k/__init__.py', 'gsm8k/taskset.py', 'gsm8k/verify.py', 'pyproject.toml'),
  },
  {
    ...PRIME_RL,
    example: 'the settings to train on such an environment; there are none for GSM8K, these are for MATH',
    written: files('examples/basic/hendrycks-sanity', 'rl.toml'),
  },
  {
    ...RLLM,
    example: 'quick start in Python: a reward in Python; it leaves out the data and the settings',
    written: [{ path: 'README.md', section: { heading: '### Option B: Python API', language: 'python' } }],
  },
  {
    ...RLLM,
    example: 'cookbook: MATH, or GSM8K by its name; a bundled reward',
    written: files('cookbooks/math', 'math_flow.py', 'math_eval.py', 'train.py', 'pyproject.toml', 'train_tinker.sh'),
  },
];

export const LANGGRAPH: readonly Example[] = [
  {
    ...OURS,
    example: 'an agent with a calculator, a reward in Python',
    written: files('examples/langgraph', 'agent/agent.py', 'agent/agent.yaml', 'grade.py', 'run.yaml'),
  },
  {
    ...ART,
    example: 'an agent that searches e-mails (mocked, with two rows of data in the code), a judge model',
    written: [
      {
        path: 'docs/src/content/docs/integrations/langgraph-integration.mdx',
        section: { heading: '## Complete Email Agent Example', language: 'python' },
      },
    ],
  },
  {
    ...RLLM,
    example:
      'cookbook: an agent with a calculator (a third of the lines), a reward in Python; its settings are for four agents',
    written: files(
      'cookbooks/agent_frameworks',
      'agentflow/langgraph.py',
      'agentflow/_calculator.py',
      'agentflow/_system_prompt.py',
      'frameworks_eval.py',
      'train.py',
      'pyproject.toml',
      'train_tinker.sh',
    ),
  },
];

/** Projects that have no such example of their own, and where one would be. */
export const NONE: readonly string[] = [
  `ART has no example of GSM8K: https://github.com/${ART.repository}/blob/${ART.commit}/docs/src/content/docs/getting-started/notebooks.mdx lists its examples`,
  `TRL has no example of LangGraph: no file of https://github.com/${TRL.repository}/tree/${TRL.commit} names it`,
  `verifiers has no example of LangGraph: no file of https://github.com/${VERIFIERS.repository}/tree/${VERIFIERS.commit} names it, nor of prime-rl`,
  'rLLM also trains on GSM8K without a line (`rllm train gsm8k`), by an agent and a reward of its own',
];
