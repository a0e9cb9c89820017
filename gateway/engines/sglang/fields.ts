import { asGrammar, asRegex, asSchema } from '../hints.ts';

/** SGLang's fields for a grammar, with the words that tell a model the same. */
export const GRAMMARS = new Map<string, (value: unknown) => string>([
  ['json_schema', asSchema],
  ['regex', asRegex],
  ['ebnf', asGrammar],
  ['structural_tag', asGrammar],
]);

/** SGLang's sampling fields, which its chat route and its route for ids accept. */
export const SAMPLING = ['stop_token_ids', 'stop_regex', 'ignore_eos', 'skip_special_tokens', 'no_stop_trim'];
