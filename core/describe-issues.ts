import { z } from 'zod';
import { nearest } from './nearest.ts';

/** A fault of a file: the path of the wrong field, and a sentence. */
export type Fault = { path: string; message: string; isUnknownKey: boolean };

/**
 * Returns a fault for each wrong field. An unknown key comes with the known key that is most like it. Where several forms are allowed, the
 * faults are those of the form that was meant.
 */
export function describeIssues({ issues }: z.ZodError, schema: z.ZodType): Fault[] {
  return issues.flatMap((issue) => faultsOf(issue, [], schema));
}

function faultsOf(issue: z.core.$ZodIssue, above: readonly PropertyKey[], schema: z.ZodType): Fault[] {
  const path = [...above, ...issue.path];
  if (issue.code === 'unrecognized_keys') return unknownKeys(issue.keys, path, schema);
  if (issue.code === 'invalid_union') {
    const meant = issue.errors.find(
      ([first]) => first !== undefined && !(first.code === 'invalid_type' && first.path.length === 0),
    );
    if (meant) return meant.flatMap((each) => faultsOf(each, path, schema));
    const expected = issue.errors.flatMap(([first]) => (first?.code === 'invalid_type' ? first.expected : []));
    return [{ path: path.join('.'), message: `Invalid input: expected ${expected.join(' or ')}`, isUnknownKey: false }];
  }
  return [{ path: path.join('.'), message: issue.message, isUnknownKey: false }];
}

function unknownKeys(keys: readonly string[], path: readonly PropertyKey[], schema: z.ZodType): Fault[] {
  const known = keysAt(schema, path);
  return keys.map((key) => {
    const near = nearest(key, known);
    const hint = near === null ? '' : `, did you mean \`${near}\`?`;
    return { path: [...path, key].join('.'), message: `unknown setting${hint}`, isUnknownKey: true };
  });
}

/** Returns the keys of the object at this path of a schema, of all its forms together. */
function keysAt(schema: z.ZodType, path: readonly PropertyKey[]): string[] {
  let nodes = [shapeOf(z.toJSONSchema(schema, { io: 'input', unrepresentable: 'any' }))];
  for (const step of path)
    nodes = nodes
      .flatMap(forms)
      .flatMap(({ items, properties }) => (typeof step === 'number' ? items : properties?.[String(step)]) ?? []);
  return [...new Set(nodes.flatMap(forms).flatMap(({ properties }) => Object.keys(properties ?? {})))];
}

/** The parts of a JSON schema that have the names of keys. */
type Shape = { properties?: Record<string, Shape> | undefined; items?: Shape | undefined; forms: Shape[] };

const jsonSchema = z.looseObject({
  properties: z.record(z.string(), z.unknown()).optional(),
  items: z.unknown().optional(),
  anyOf: z.array(z.unknown()).default([]),
  allOf: z.array(z.unknown()).default([]),
});

function shapeOf(node: unknown): Shape {
  const parsed = jsonSchema.safeParse(node);
  if (!parsed.success) return { forms: [] };
  const { properties, items, anyOf, allOf } = parsed.data;
  return {
    properties:
      properties && Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, shapeOf(value)])),
    items: items === undefined ? undefined : shapeOf(items),
    forms: [...anyOf, ...allOf].map(shapeOf),
  };
}

const forms = (shape: Shape): Shape[] => [shape, ...shape.forms.flatMap(forms)];
