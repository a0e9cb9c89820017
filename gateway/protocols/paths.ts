/**
 * Returns the paths of a route of the model's APIs: without a trial, found by the key alone, and below the trial's URL. Some clients
 * (Anthropic's) add `/v1` to a base URL that already has it, or leave it out; both forms find the route.
 */
export const apiPaths = (path: `/v1/${string}`): string[] => [
  path,
  `/v1${path}`,
  `/:trial${path}`,
  `/:trial/v1${path}`,
  `/:trial${path.slice('/v1'.length)}`,
];

/** A protocol's route at a fixed path. `more` has further patterns. */
export const routeAt = (path: `/v1/${string}`, more: readonly string[] = []) => ({
  path,
  paths: [...apiPaths(path), ...more],
  serves: (asked: string) => asked.includes(path) || asked.endsWith(path.slice('/v1'.length)),
});
