/**
 * How often Temporal's development server looks for tasks to hand on. By default it looks 20 times a second, so that every
 * task starts on a grid of 50 ms: a small iteration is some fifty tasks, one after the other.
 */
export const TEMPORAL_POLLING = ['transfer', 'timer'].flatMap((queue) => ['--dynamic-config-value', `history.${queue}ProcessorMaxPollRPS=200`]);
