import { isObject, isSet } from '../../json.ts';
import { asChoice, asGrammar, asObject, asRegex, asSchema } from '../hints.ts';

/** vLLM's fields for a grammar, with the words that tell a model the same. */
export const GRAMMARS = new Map<string, (value: unknown) => string>([
  [
    'structured_outputs',
    (value) =>
      isObject(value)
        ? Object.entries(value)
            .flatMap(([kind, form]) => (isSet(form) ? FORMS.get(kind)?.(form) : null) ?? [])
            .join(' ')
        : '',
  ],
  ['guided_json', asSchema],
  ['guided_regex', asRegex],
  ['guided_choice', asChoice],
  ['guided_grammar', asGrammar],
  ['structural_tag', asGrammar],
]);
const FORMS = new Map<string, (value: unknown) => string>([
  ['json', asSchema],
  ['json_object', asObject],
  ['regex', asRegex],
  ['choice', asChoice],
  ['grammar', asGrammar],
  ['structural_tag', asGrammar],
]);

/** vLLM's sampling fields, which both of its completion routes accept. */
export const SAMPLING = ['stop_token_ids', 'ignore_eos', 'skip_special_tokens', 'include_stop_str_in_output'];
