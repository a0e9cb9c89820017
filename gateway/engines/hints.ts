import { stringifyExact } from '../../core/exact-json.ts';

/* Words that ask a model for the form of its reply. */

export function asObject(): string {
  return 'Answer with one JSON object and with nothing else.';
}

export function asSchema(schema: unknown): string {
  return `Answer with one JSON value that matches this JSON schema, and with nothing else: ${asText(schema)}`;
}

export function asRegex(regex: unknown): string {
  return `Answer with a text that this regular expression matches, and with nothing else: ${asText(regex)}`;
}

export function asChoice(choices: unknown): string {
  return `Answer with one of these texts, and with nothing else: ${asText(choices)}`;
}

export function asGrammar(grammar: unknown): string {
  return `Answer with a text that this grammar accepts, and with nothing else: ${asText(grammar)}`;
}

const asText = (value: unknown): string => (typeof value === 'string' ? value : stringifyExact(value));
