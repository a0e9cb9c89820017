import { isObject, type JsonObject } from '../../json.ts';

/** Fields that Google's API may write as texts, because they are 64-bit numbers. */
const COUNTS = new Set(['minItems', 'maxItems', 'minProperties', 'maxProperties', 'minLength', 'maxLength']);
const SCHEMAS = new Set(['items', 'additionalProperties']);
const LISTS = new Set(['anyOf', 'prefixItems']);

/** Converts a schema of Google's API, a dialect of OpenAPI's, to a JSON schema. */
export function jsonSchemaOf(schema: JsonObject): JsonObject {
  const { nullable, propertyOrdering: _, ...rest } = schema;
  const converted = Object.fromEntries(Object.entries(rest).map(([name, value]) => [name, fieldOf(name, value)]));
  return nullable === true && typeof converted.type === 'string'
    ? { ...converted, type: [converted.type, 'null'] }
    : converted;
}

function fieldOf(name: string, value: unknown): unknown {
  if (name === 'type' && typeof value === 'string') return value.toLowerCase();
  if (COUNTS.has(name) && typeof value === 'string') return Number(value);
  if (SCHEMAS.has(name) && isObject(value)) return jsonSchemaOf(value);
  if (LISTS.has(name) && Array.isArray(value)) return value.map((each) => (isObject(each) ? jsonSchemaOf(each) : each));
  if (name === 'properties' && isObject(value))
    return Object.fromEntries(
      Object.entries(value).map(([key, each]) => [key, isObject(each) ? jsonSchemaOf(each) : each]),
    );
  return value;
}
