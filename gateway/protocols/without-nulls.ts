import type { JsonObject } from '../json.ts';

export const withoutNulls = (fields: JsonObject): JsonObject =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
