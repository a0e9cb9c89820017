import { z } from 'zod';
import { TrialgateError } from '../../../core/errors.ts';
import { parseJson, type JsonObject } from '../../../core/json.ts';

/** A text of JSON in the place of a list or an object, as CSV files and SWE-bench's own data sets have it. */
const orJson = <S extends z.ZodType>(schema: S) =>
  z.preprocess((value) => (typeof value === 'string' ? (parseJson(value) ?? value) : value), schema);

const text = z.string().refine((value) => value.trim() !== '', { message: 'is empty' });
const optionalText = z.string().nullish();

/** A row of SWE-bench, SWE-Gym or SWE-rebench: the columns that a task needs. They have no others in common. */
const sweRow = z.object({
  // A folder gets this name.
  instance_id: z
    .string()
    .regex(/^[A-Za-z0-9_][\w.-]{0,199}$/, 'expected letters, digits, dots, dashes and underscores'),
  repo: z.string().regex(/^[\w.-]+\/[\w.-]+$/, 'expected owner/name'),
  base_commit: z.string().regex(/^[0-9a-f]{40}$/, "expected the commit's whole id"),
  problem_statement: text,
  patch: z.string().default(''),
  test_patch: text,
  FAIL_TO_PASS: orJson(z.array(text).min(1, 'has no test')),
  PASS_TO_PASS: orJson(z.array(text)),
  version: z
    .union([z.string(), z.number()])
    .nullish()
    .transform((version) => (version == null ? null : String(version))),
  /** SWE-bench 5. */
  log_parser: optionalText,
  image: optionalText,
  /** SWE-rebench. */
  docker_image: optionalText,
  install_config: orJson(z.looseObject({ log_parser: optionalText }).nullish()),
});

export type SweRow = z.output<typeof sweRow>;

/** A row of which no task can be made. The message says why. */
export class RowRefused extends TrialgateError {
  constructor(message: string) {
    super('bad_input', message);
    this.name = 'RowRefused';
  }
}

/** @throws RowRefused */
export function parseSweRow(row: JsonObject): SweRow {
  const parsed = sweRow.safeParse(row);
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const column = String(issue?.path[0] ?? '');
  throw new RowRefused(`${column}: ${column in row ? issue?.message : 'the row has no such column'}`);
}
