import { z } from 'zod';

const seconds = z.number().positive();
const count = z.number().positive();
const texts = z.record(z.string(), z.string());

/** `task.toml` as Harbor writes it. Other keys are ignored, as Harbor ignores them. */
export const taskFile = z.looseObject({
  task: z.looseObject({ name: z.string().min(1).optional(), description: z.string().optional() }).prefault({}),
  agent: z.looseObject({ timeout_sec: seconds.default(600) }).prefault({}),
  verifier: z.looseObject({ timeout_sec: seconds.default(600), env: texts.default({}) }).prefault({}),
  environment: z
    .looseObject({
      cpus: count.default(1),
      memory_mb: count.default(2048),
      storage_mb: count.default(10240),
      env: texts.default({}),
    })
    .prefault({}),
});
