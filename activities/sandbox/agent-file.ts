import { z } from 'zod';
import { NETWORKS } from '../../core/networks.ts';

/** The form of an agent's name, which is also its file's. */
export const AGENT_NAME = /^[a-z0-9][a-z0-9-]*$/;

/** An agent as data. `command` and `env` may contain {python} {agents} {work} {model} {base_url} {api_key}. */
export const agentFile = z.strictObject({
  name: z.string().regex(AGENT_NAME, 'lower-case letters, digits and dashes'),
  description: z.string().min(1),
  command: z.array(z.string().min(1)).min(1),
  /** The agent gets these besides PATH, HOME, TMPDIR, LANG, OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_AUTH_TOKEN and ANTHROPIC_API_KEY. */
  env: z.record(z.string(), z.string()).default({}),
  /** `gateway` lets the agent reach only the gateway. `host` lets it reach all that the host reaches. A run file can override this. */
  network: z.enum(NETWORKS).default('gateway'),
  limits: z
    .strictObject({
      /** At most the task's own limit. */
      seconds: z.number().positive().optional(),
      memory_mb: z.number().positive().optional(),
      processes: z.int().min(1).default(64),
      /** The most bytes of stdout and stderr together. */
      output_bytes: z.int().min(1).default(1_048_576),
    })
    .prefault({}),
});

export type Agent = z.output<typeof agentFile>;
