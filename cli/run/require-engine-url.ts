import { TrialgateError } from '../../core/errors.ts';
import { ENGINE_URL, ENGINE_URL_FORMS } from '../../gateway/engines/url-forms.ts';

/** @throws TrialgateError `bad_input` when this is no engine's URL. It is not repeated if it may have a key. */
export function requireEngineUrl(url: string): void {
  if (ENGINE_URL.test(url)) return;
  const shown = /[@?#]/.test(url) ? 'a URL with @, ? or #, where a key may be,' : url;
  throw new TrialgateError('bad_input', `${shown} is no engine: expected ${ENGINE_URL_FORMS}`);
}
