const VERBS = 'generateContent|streamGenerateContent';

/**
 * Returns the paths of a method of a model, in Hono's patterns. Google's clients add the version to a base URL, which may have `/v1` already.
 * A model's name may contain slashes.
 */
function methodPaths(verbs: string): string[] {
  const methods = ['v1beta', 'v1'].map((version) => `/${version}/models/:call{.+:(?:${verbs})}`);
  return methods.flatMap((method) => ['', '/v1', '/:trial', '/:trial/v1'].map((base) => `${base}${method}`));
}

export const GENERATE_PATHS = methodPaths(VERBS);
export const COUNT_PATHS = methodPaths('countTokens');

/** True for a method of a model, whether it is served or not. */
export const isMethod = (path: string): boolean => /\/v1(?:beta)?\/models\/.+:[a-zA-Z]+$/.test(path);

/** Returns the model and what is asked of it. */
export function callIn(url: string): { model: string | null; stream: boolean; isSse: boolean } {
  const { pathname, searchParams } = new URL(url);
  const [, model, verb] = new RegExp(`/models/(.+):(${VERBS})$`).exec(decodeURIComponent(pathname)) ?? [];
  return {
    model: model ?? null,
    stream: verb === 'streamGenerateContent',
    isSse: searchParams.get('alt') === 'sse',
  };
}
