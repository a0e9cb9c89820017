/**
 * Where a route of the model's APIs is found: by the key alone, or below the trial's URL. Clients add `/v1` to a base URL that has it
 * already (Anthropic's), or leave it out: both find the route too.
 */
export const apiPaths = (path: `/v1/${string}`): string[] => [path, `/v1${path}`, `/:trial${path}`, `/:trial/v1${path}`, `/:trial${path.slice('/v1'.length)}`];
