import { RELAY } from '../../core/engine-url.ts';
import { NAMED } from './all.ts';

/** The forms of engines' URLs where one of these words may stand before a URL. A URL is stored and logged, so it has no key. */
export function urlFormsOf(kinds: readonly string[]) {
  const kind = `(?:${kinds.join('|')})\\+`;
  const plain = 'https?:\\/\\/[^/\\s]+';
  const named = `${kind}https?:\\/\\/[^\\s@?#]+$`;
  const said = kinds.map((each) => `${each}+https://host:port/v1`).join(' or ');
  return {
    any: new RegExp(`^(?:${named}|${plain}|(?:${kind})?(?:unix:\\/.+|relay:[A-Za-z0-9._-]{1,64}$))`),
    /** What a Worker reaches: engines by `fetch`, and those behind relay workers. */
    inWorker: new RegExp(`^(?:${RELAY}$|${plain}$|${named})`),
    /** Says what an engine's URL looks like. */
    text: `an engine: http://host:port or unix:/absolute/path.sock, or ${said} (without a key, which engine_keys names)`,
  };
}

const forms = urlFormsOf(NAMED.map(({ name }) => name));
export const ENGINE_URL = forms.any;
export const WORKER_ENGINE_URL = forms.inWorker;
export const ENGINE_URL_FORMS = forms.text;
